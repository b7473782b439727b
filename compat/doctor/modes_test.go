// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/terms"
)

func modeFindings() []finding {
	asks := func(mode string, more func(*node)) func(*node) {
		return func(n *node) {
			n.files[net+"cilium/50-podweir.conf"] = strings.TrimSuffix(conflist.DefaultEntry, "}") + mode + "}"
			if more != nil {
				more(n)
			}
		}
	}
	const egress, ingress = `,"egressMode":"tcx-hostside"`, `,"ingressMode":"clsact-hostside"`
	legacy := func(n *node) {
		n.settings("datapath-mode", "veth")
		n.live = agent{health: `{"attach-mode":"tcx","datapath-mode":"veth","routing":{"intra-host-routing-mode":"Legacy"}}`}
	}
	return []finding{
		{name: "no mode", code: "PW507", node: cilium, change: asks("", nil), want: doctor.Skip, seen: "no mode of the host side"},
		{name: "a mode of the pod's side", code: "PW507", node: cilium, change: asks(`,"mode":"clsact-podside"`, nil), want: doctor.Skip, seen: "no mode of the host side"},
		{name: "TCX", code: "PW507", node: cilium, change: asks(egress, nil), want: doctor.OK, seen: "on 1 devices"},
		{name: "TCX where there is none", code: "PW507", node: cilium, change: asks(egress, func(n *node) { n.kernel.features.TCX = profiles.No }), want: doctor.Fail, seen: "lxc0123 egress: mode tcx-hostside: the kernel has no TCX", fix: "take away"},
		{name: "TCX that packets go past", code: "PW507", node: cilium, change: asks(`,"mode":"tcx-hostside"`, nil), want: doctor.Fail, seen: "lxc0123 ingress: mode tcx-hostside is refused: the host-side egress hook sees only", fix: "50-podweir.conf"},
		{name: "clsact beside Cilium", code: "PW507", node: cilium, change: asks(ingress, legacy), want: doctor.Fail, seen: "lxc0123 ingress: mode clsact-hostside is refused: hostHook is tcx", fix: "take away"},
		{name: "clsact behind another", code: "PW507", node: cilium, change: func(n *node) {
			n.files[net+"05-cilium.conflist"] = `{"cniVersion":"1.0.0","name":"cilium","plugins":[{"type":"ptp"},{"type":"podweir-cni","mode":"clsact-hostside"}]}`
		}, want: doctor.Fail, seen: "lxc0123 egress: hook is held by another party: TCX program \"cil_from_contai\" runs before every filter on ingress of lxc0123", fix: "take away"},
		{name: "hook unread", code: "PW507", node: cilium, change: asks(egress, func(n *node) { n.kernel.devices[0].In.Unread = "EPERM" }), want: doctor.Unknown, seen: "EPERM"},
	}
}

// TestRefusedInOneSentence: beside every Cilium a filter on the host side is refused as
// ADD refuses it.
func TestRefusedInOneSentence(t *testing.T) {
	rules := judge.Rules{HostTCX: true}
	sentence := rules.Mode(terms.ModeClsactHostSide).Error()
	for _, p := range profiles.All() {
		if p.Family != "cilium" {
			continue
		}
		n := cilium()
		n.files[net+"cilium/50-podweir.conf"] = strings.TrimSuffix(conflist.DefaultEntry, "}") + `,"mode":"clsact-hostside"}`
		f := n.facts(t)
		f.Profile = p
		rep := doctor.Run(f)
		at := slices.IndexFunc(rep.Checks, func(o doctor.Outcome) bool { return o.Code == "PW507" })
		if o := rep.Checks[at]; o.Status != doctor.Fail || strings.Count(strings.Join(o.Evidence, "\n"), sentence) != 2 {
			t.Errorf("%s: PW507 is %v with %q, want %q for both directions", p.Name, o.Status, o.Evidence, sentence)
		}
	}
}
