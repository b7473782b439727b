// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"maps"
	"slices"
	"strings"

	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/terms"
)

func sandboxedChecks() []Check {
	return []Check{{
		Code: "PW117", Title: "limits fit the sandboxed runtimes of the node (Kata, gVisor)", Category: CategoryNode, Severity: SeverityFail,
		Looks: "the handlers in the container runtime's files, and podweir's settings ingressPlace, mode, ingressMode and egressMode",
		Why:   "Kata adds an ingress qdisc to the pod's device, which fails where podweir has a clsact qdisc there, and the pod does not start; gVisor reads the pod's device ahead of every tc hook, so that an ingress limit in the pod does not hold",
		Mend:  "For Kata set mode=tcx-podside (chart: defaults.mode), which polices and needs Linux 6.6, or put Kata's pods on nodes without limits. For gVisor leave ingress at the host side, which needs a CNI whose packets do not go past it.",
		run:   checkSandboxed,
	}}
}

func checkSandboxed(f *Facts) Finding {
	handlers := map[detect.Sandboxed][]string{}
	for _, name := range slices.Sorted(maps.Keys(f.Node.Config.Sandboxed)) {
		what := f.Node.Config.Sandboxed[name]
		handlers[what] = append(handlers[what], name)
	}
	if len(handlers) == 0 {
		return holds("no handler of Kata or gVisor is configured")
	}
	keys, _ := f.entryKeys()
	of := func(key string) string {
		if v, ok := keys[key].(string); ok && v != "" && v != "auto" {
			return v
		}
		v, _ := keys["mode"].(string)
		return v
	}
	tcx := terms.ModeTCXPodSide.String()
	if kata := strings.Join(handlers[detect.Kata], ", "); kata != "" && (of("egressMode") != tcx || of("ingressMode") != tcx) {
		return breaks("pods of the handler "+kata+" (Kata) do not start if they have a limit: podweir's clsact qdisc is on their device", "mode tcx-podside",
			"set mode=tcx-podside (Linux 6.6), or keep limited pods off this handler")
	}
	place, _ := keys["ingressPlace"].(string)
	inPod := of("ingressMode") == tcx || of("ingressMode") == terms.ModeClsactPodSide.String() || strings.HasSuffix(place, terms.PlaceIFB.String()) ||
		f.Profile != nil && f.Profile.Bypass == profiles.Yes
	if gvisor := strings.Join(handlers[detect.GVisor], ", "); gvisor != "" && inPod {
		return breaks("the ingress limit of pods of the handler "+gvisor+" (gVisor) does not hold: it is in the pod", "ingress at the host side",
			"leave ingressPlace and mode to auto, beside a CNI whose packets pass the host side")
	}
	return holds("Kata or gVisor is configured, and podweir attaches where limits hold for their pods")
}
