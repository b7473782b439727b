// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"strings"

	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/terms"
)

func checkSandboxed(f *Facts) Finding {
	config := &f.Node.Config
	redirect := config.Handlers(detect.Sandboxed.Redirects)
	gvisor := config.Handlers(func(s detect.Sandboxed) bool { return s == detect.GVisor })
	runtimes := f.Node.Runtimes()
	if runtimes.Redirects && len(redirect) == 0 {
		redirect = []string{"the plugin tc-redirect-tap of the chain"}
	}
	if len(redirect)+len(gvisor) == 0 {
		return holds("no handler of Kata or gVisor is configured")
	}
	keys, file := f.entryKeys()
	if file == "" { // the agent attaches by what it would write
		keys = map[string]any{}
		profiles.Fill(f.Profile, runtimes, keys)
	}
	if len(redirect) > 0 && !leavesIngressQdisc(keys) {
		const expected = "podHook tcx"
		who := "pods of " + strings.Join(redirect, ", ") + " do not start if they have a limit: podweir's clsact qdisc is on their device"
		if runtimes.TCX == profiles.No {
			return breaks(who+", and the kernel has no TCX", expected+", which needs Linux 6.6", "use Linux 6.6 or newer, or keep limited pods off these handlers")
		}
		return breaks(who, expected, "leave podHook at auto, or write podHook=tcx into an entry that is made by hand")
	}
	if len(gvisor) > 0 {
		if finding, bad := f.readAhead(strings.Join(gvisor, ", "), keys); bad {
			return finding
		}
	}
	return holds("Kata or gVisor is configured, and podweir attaches where limits hold for their pods")
}

// leavesIngressQdisc says that these keys have podweir make no clsact qdisc on the pod's
// device.
func leavesIngressQdisc(keys map[string]any) bool {
	if profiles.Chosen(keys, "podHook") == "tcx" {
		return true
	}
	tcx := terms.ModeTCXPodSide.String()
	return profiles.Chosen(keys, "egressMode", "mode") == tcx && profiles.Chosen(keys, "ingressMode", "mode") == tcx
}

// readAhead says why gVisor's pods have no limit of ingress.
func (f *Facts) readAhead(handlers string, keys map[string]any) (finding Finding, bad bool) {
	const expected = "ingress at the host side"
	fix := "leave ingressMode, ingressQueue and ingressPlace to auto"
	if f.Profile.Bypass != profiles.No {
		fix = "use a routing by which packets pass the host side, or put these pods on other nodes"
	}
	if profiles.InPod(f.Profile, keys) {
		return breaks("the ingress limit of pods of "+handlers+" does not hold: it is in the pod", expected, fix), true
	}
	if f.Profile.Bypass == profiles.Yes {
		return breaks("the ingress limit of pods of "+handlers+" does not hold: packets go past the host side", expected, fix), true
	}
	var inPod []string
	for i := range f.Attached {
		a := &f.Attached[i]
		if a.Direction.Is == terms.Ingress && a.Place != terms.PlaceHost && !a.Observed() {
			inPod = append(inPod, a.Pod)
		}
	}
	if len(inPod) > 0 {
		return warns("if they are of "+handlers+", these pods have no limit of ingress, since it is in the pod: "+shorten(inPod), expected, fix, inPod...), true
	}
	return Finding{}, false
}
