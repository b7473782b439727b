// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
)

// RuntimePod is what the container runtime knows of a pod.
type RuntimePod struct {
	// Pod is namespace/name.
	Pod, NetNSPath string
	Annotations    map[string]string
	Created        time.Time
}

// Other is a device of a pod that podweir has no limit on.
type Other struct {
	engine.Other
	// Pod is namespace/name, "" if the runtime did not tell.
	Pod string `json:"pod,omitempty"`
	// Asks are the annotations by which the pod asks for a limit, as name and value, Misspelt
	// those that look as if they should, with what may be meant.
	Asks     []string `json:"asks,omitempty"`
	egress   string
	ingress  string
	Misspelt []string `json:"misspelt,omitempty"`
}

// AddOthers adds the devices of pods that podweir has no limit on. left says of annotations
// whether the node leaves their limits to others. Pods that have just started may be about to
// get their limits: they are taken for pods without a wish.
func (r *Report) AddOthers(others []engine.Other, pods []RuntimePod, left func(map[string]string) bool, now time.Time) {
	for _, o := range others {
		one := Other{Other: o}
		at := slices.IndexFunc(pods, func(p RuntimePod) bool { return p.NetNSPath == o.NetNSPath && o.NetNSPath != "" })
		if at >= 0 {
			p := &pods[at]
			one.Pod = p.Pod
			asks, misspelt := wishes(p.Annotations)
			if now.Sub(p.Created) > Young && len(asks)+len(misspelt) > 0 && !left(p.Annotations) {
				one.Asks, one.Misspelt = asks, misspelt
				one.egress = cmp.Or(p.Annotations[netconf.OwnEgressAnnotation], p.Annotations[netconf.EgressAnnotation])
				one.ingress = cmp.Or(p.Annotations[netconf.OwnIngressAnnotation], p.Annotations[netconf.IngressAnnotation])
			}
		}
		r.Others = append(r.Others, one)
	}
	slices.SortFunc(r.Others, func(a, b Other) int {
		return cmp.Or(strings.Compare(a.Pod, b.Pod), strings.Compare(a.Name, b.Name))
	})
}

// wishes are the annotations that ask for a limit, and those that may be meant to.
func wishes(annotations map[string]string) (asks, misspelt []string) {
	for name, value := range annotations {
		if slices.Contains(netconf.RateAnnotations, name) {
			asks = append(asks, fmt.Sprintf("%s: %q", name, netconf.Cut(value)))
		} else if near := terms.Nearest(name, netconf.RateAnnotations); near != "" {
			misspelt = append(misspelt, fmt.Sprintf("%s, did you mean %s?", name, near))
		}
	}
	slices.Sort(asks)
	slices.Sort(misspelt)
	return asks, misspelt
}

// What to do about a pod that asks for a limit and has none.
const (
	cureMisspelt = "correct the annotation; an agent then sets the limit by itself, without one recreate the pod"
	cureUncalled = "podweir doctor finds why podweir-cni was not called for the pod, or was not told of its limit (PW202, PW207)"
)

// otherView is what people are shown of a device without a limit: a pod that is not limited
// if it asks for one, nil if it does not.
func otherView(o *Other) *view.Pod {
	p := &view.Pod{Pod: cmp.Or(o.Pod, o.Name), State: view.NotLimited}
	switch {
	case len(o.Asks) > 0:
		p.Cause, p.Cure = "it asks for a limit ("+strings.Join(o.Asks, ", ")+"), and podweir has none for it", cureUncalled
	case len(o.Misspelt) > 0:
		p.Cause, p.Cure = "misspelt: "+strings.Join(o.Misspelt, "; "), cureMisspelt
	default:
		return nil
	}
	return p
}
