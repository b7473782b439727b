// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package profiles

import (
	"slices"

	"github.com/podweir/podweir/plugin/terms"
)

// Fill adds to a plugin's configuration where podweir attaches beside the CNI: the keys
// that the profile demands and the operator left open. The notes say what of the
// operator's wishes the profile advises against.
func (p *Profile) Fill(keys map[string]any) (notes []string) {
	given := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return keys[n] != nil })
	}
	for _, d := range []struct {
		key string
		at  *Attach
	}{{"egressMode", &p.Egress}, {"ingressMode", &p.Ingress}} {
		// On queues of its own podweir stands by default; naming the mode would
		// only rule out what is to be tried next.
		if d.at.Mode != 0 && d.at.Mode != terms.ModeQdisc && !given(d.key, "mode") {
			keys[d.key] = d.at.Mode.String()
		}
	}
	if p.NoHostFilter() && !given("hostHook") {
		keys["hostHook"] = hostHookTCX
	}
	if p.Ingress.Place == terms.PlaceIFB {
		notes = p.besidePast(keys)
	}
	return notes
}

// hostHookTCX keeps podweir's clsact filters off the host side.
const hostHookTCX = "tcx"

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
