// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package status

import (
	"cmp"
	"slices"
	"strings"

	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
)

// RuntimePod is what is known of a pod beside podweir's own state, with the container for its name if that is not known.
type RuntimePod struct {
	view.Other
	NetNSPath string
	// Devices are its devices on the host, as far as they are known.
	Devices []string
}

// AddOthers adds the devices of pods that podweir has no limit on, and pods that ask for one.
func (r *Report) AddOthers(others []terms.Device, pods []RuntimePod) {
	found := make([]bool, len(pods))
	for _, o := range others {
		one := view.Other{Device: o}
		at := slices.IndexFunc(pods, func(p RuntimePod) bool {
			return p.NetNSPath == o.NetNSPath && o.NetNSPath != "" || slices.Contains(p.Devices, o.Name)
		})
		if at >= 0 {
			one, found[at] = pods[at].Other, true
			one.Device = o
		}
		r.Others = append(r.Others, one)
	}
	for i := range pods {
		if p := &pods[i]; !found[i] && p.LeftTo == "" && len(p.Asks)+len(p.Misspelt) > 0 {
			r.Others = append(r.Others, p.Other)
		}
	}
	slices.SortFunc(r.Others, func(a, b view.Other) int {
		return cmp.Or(strings.Compare(a.Pod, b.Pod), strings.Compare(a.Name, b.Name))
	})
}

// What to do about a pod that asks for a limit and has none.
const cureUncalled = "podweir doctor finds why podweir-cni was not called for the pod, or did not get its limit (PW202, PW207)"

// otherView is what people are shown of a device without a limit: a pod that is not limited
// if it asks for one, nil if it does not.
func otherView(o *view.Other) *view.Pod {
	p := &view.Pod{Pod: o.Title(), State: view.NotLimited}
	switch {
	case o.LeftTo != "":
		return nil
	case len(o.Asks) > 0:
		p.Cause, p.Cure = "it asks for a limit ("+strings.Join(terms.Texts(o.Asks), ", ")+"), and podweir has none for it", cureUncalled
	case len(o.Misspelt) > 0:
		p.Cause, p.Cure = "misspelt: "+strings.Join(o.Misspelt, "; "), cureInvalid
	default:
		return nil
	}
	return p
}
