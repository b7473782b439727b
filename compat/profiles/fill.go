// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package profiles

import (
	"slices"

	"github.com/podweir/podweir/plugin/terms"
)

// Runtimes are the sandboxed runtimes of a node, whose pods take packets from the pod's
// device in another way than processes do.
type Runtimes struct {
	// Redirects says that one of them adds an ingress qdisc to the pod's device and
	// redirects from there, as Kata does; GVisor that there is a handler of gVisor.
	Redirects, GVisor bool
	// TCX says whether the kernel has it.
	TCX Answer
}

// Fill adds to a plugin's configuration where podweir attaches on a node: the keys that the
// profile of its CNI and its runtimes demand and the operator left open. p is nil where no
// CNI is in force. The notes say what of the operator's wishes the profile advises against.
func Fill(p *Profile, r Runtimes, keys map[string]any) (notes []string) {
	r.besideRedirects(keys)
	if p == nil {
		return nil
	}
	out := r.outOfPod(p, keys)
	notes = p.fill(keys)
	if out {
		delete(keys, "ingressPlace")
		keys["ingressMode"], keys["ingressQueue"] = terms.ModeTCXHostSide.String(), terms.QueueNone.String()
		notes = append(notes, "ingress is policed at the host side: pods of gVisor read what comes ahead of a limit in the pod, and "+p.Ingress.Why)
	}
	return notes
}

// besideRedirects keeps podweir's clsact off the pod's device, where a runtime adds an
// ingress qdisc. Before TCX that would leave too much out: the doctor names it there.
func (r Runtimes) besideRedirects(keys map[string]any) {
	clsact := terms.ModeClsactPodSide.String()
	byName := Chosen(keys, "egressMode", "mode") == clsact || Chosen(keys, "ingressMode", "mode") == clsact
	if r.Redirects && r.TCX == Yes && Chosen(keys, podHook) == "" && !byName {
		keys[podHook] = hookTCX
	}
}

// outOfPod says that ingress is to be policed at the host side: gVisor reads what comes
// ahead of a limit in the pod, the CNI owns the root qdisc of the host side, and nothing
// goes past that side. Where the CNI leaves the root qdisc alone the queue is there anyway.
func (r Runtimes) outOfPod(p *Profile, keys map[string]any) bool {
	if !r.GVisor || p.Bypass != No || p.Ingress.Place != terms.PlaceIFB || r.TCX != Yes {
		return false
	}
	return !slices.ContainsFunc([]string{"ingressMode", "mode", "ingressQueue", "queue", "ingressPlace"}, func(key string) bool {
		return Chosen(keys, key) != ""
	})
}

// InPod says that podweir limits ingress within the pod by these keys beside this CNI, which
// may be nil.
func InPod(p *Profile, keys map[string]any) bool {
	mode, place := Chosen(keys, "ingressMode", "mode"), Chosen(keys, "ingressPlace")
	switch named, _ := terms.ParseMode(mode); {
	case named == terms.ModeTCXPodSide, named == terms.ModeClsactPodSide:
		return true
	case named.HostSide():
		return false
	}
	if named, err := terms.ParsePlace(place); err == nil && named != terms.PlaceAuto {
		return named.IFB()
	}
	// Policing by auto is at the pod's own hook.
	return Chosen(keys, "ingressQueue", "queue") == terms.QueueNone.String() || p != nil && p.Device == terms.DeviceNetkit
}

// fill adds the keys that the profile demands.
func (p *Profile) fill(keys map[string]any) (notes []string) {
	if p.NoHostFilter() && keys["hostHook"] == nil {
		keys["hostHook"] = hookTCX
	}
	if p.Ingress.Place == terms.PlaceIFB {
		notes = p.besidePast(keys)
	}
	return notes
}

// hookTCX keeps podweir's clsact filters off a side, podHook is the key for the pod side.
const (
	hookTCX = "tcx"
	podHook = "podHook"
)

// besidePast puts the ingress queue where no packets go past it, unless the
// operator wants ingress elsewhere by name. Where the kernel has no ifb the plugin
// polices instead, unless the operator requested the ifb by name. The place is said
// where all of ingress is policed, too: a pod may ask for a queue.
func (p *Profile) besidePast(keys map[string]any) (notes []string) {
	mode, place := Chosen(keys, "ingressMode", "mode"), Chosen(keys, "ingressPlace")
	named := terms.ModeAuto
	if mode != "" {
		var err error
		if named, err = terms.ParseMode(mode); err != nil {
			notes = append(notes, "ingressMode, mode: "+err.Error())
		}
	}
	switch {
	case named == terms.ModeTCXPodSide, named == terms.ModeClsactPodSide:
		return nil // that hook sees everything
	case named.HostSide():
		place = terms.PlaceHost.String()
	}
	if place == terms.PlaceHost.String() {
		return append(notes, "ingress is where the operator wants it; beside "+p.Title+" packets may go past it: "+p.BypassWhy)
	}
	if place == "" {
		keys["ingressPlace"] = terms.PlacePreferIFB.String()
	}
	return notes
}

// Chosen is the first of the keys that the operator gave, "" where it leaves the
// choice to podweir.
func Chosen(keys map[string]any, names ...string) string {
	for _, name := range names {
		if value, ok := keys[name].(string); ok {
			if value == "auto" {
				return ""
			}
			return value
		}
	}
	return ""
}
