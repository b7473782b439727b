// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor_test

import (
	"strings"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/compat/profiles"
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
		{"no mode", "PW507", cilium, asks("", nil), doctor.Skip, "no mode of the host side", ""},
		{"a mode of the pod's side", "PW507", cilium, asks(`,"mode":"clsact-podside"`, nil), doctor.Skip, "no mode of the host side", ""},
		{"TCX", "PW507", cilium, asks(egress, nil), doctor.OK, "on 1 devices", ""},
		{"TCX where there is none", "PW507", cilium, asks(egress, func(n *node) { n.kernel.features.TCX = profiles.No }), doctor.Fail, "lxc0123 egress: mode tcx-hostside: the kernel has no TCX", "take away"},
		{"TCX that packets go past", "PW507", cilium, asks(`,"mode":"tcx-hostside"`, nil), doctor.Fail, "lxc0123 ingress: mode tcx-hostside: ruled out", "50-podweir.conf"},
		{"clsact beside Cilium", "PW507", cilium, asks(ingress, legacy), doctor.Fail, "lxc0123 ingress: mode clsact-hostside: ruled out", "take away"},
		{"clsact behind somebody", "PW507", cilium, func(n *node) {
			n.files[net+"05-cilium.conflist"] = `{"cniVersion":"1.0.0","name":"cilium","plugins":[{"type":"ptp"},{"type":"podweir-cni","mode":"clsact-hostside"}]}`
		}, doctor.Fail, "lxc0123 egress: mode clsact-hostside: another party has a program on this hook, which is asked before a filter or shares its place: cil_from_contai (program 10)", "take away"},
		{"hook unread", "PW507", cilium, asks(egress, func(n *node) { n.kernel.devices[0].In.Unread = "EPERM" }), doctor.Unknown, "EPERM", ""},
	}
}
