// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor_test

import (
	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/terms"
)

// felixFilter is what Felix puts on the device of a pod with a limit of egress.
var felixFilter = judge.Program{Kind: terms.HookKindClsact, Hook: terms.HookIngress, FilterKind: "u32", Pref: 1, FilterHandle: 0x80000800}

// hooked puts programs on the hooks of the first pod's device.
func hooked(in, out []judge.Program) func(*node) {
	return func(n *node) {
		n.kernel.devices[0].In.Programs, n.kernel.devices[0].Out.Programs = in, out
	}
}

// besideFindings are about what real neighbours were seen to do.
func besideFindings() []finding {
	type list = []judge.Program
	ciliumOut := judge.Program{Kind: terms.HookKindTCX, Hook: terms.HookEgress, ProgramID: 11, Name: "cil_to_containe"}
	u32Out := felixFilter
	u32Out.Hook = terms.HookEgress
	return []finding{
		{name: "Felix's filter", code: "PW502", node: calico, change: hooked(list{felixFilter}, nil), want: doctor.OK, seen: "none on 1"},
		{name: "Felix's kind of filter on the other hook", code: "PW502", node: calico, change: hooked(nil, list{u32Out}), want: doctor.Warn, seen: "egress: u32 filter at preference 1", fix: "tc filter show dev eni0123456789a egress"},
		{name: "a u32 filter without Calico", code: "PW502", node: ptp, change: hooked(list{felixFilter}, nil), want: doctor.Warn, seen: "u32 filter", fix: "tc filter show dev eni0123456789a ingress"},
		{name: "a program and its id", code: "PW502", node: ptp, change: hooked(list{{Kind: terms.HookKindTCX, ProgramID: 9, Name: "tracer"}}, nil), want: doctor.Warn, seen: "tracer (program 9)", fix: "bpftool prog show id 9"},
		{name: "Cilium with endpoint routes and BPF host routing", code: "PW502", node: cilium, change: func(n *node) {
			n.live = agent{health: n.live.(agent).health, config: `{"status":{"daemonConfigurationMap":{"EnableEndpointRoutes":true}}}`}
			n.kernel.devices[0].Out.Programs = list{ciliumOut}
		}, want: doctor.OK, seen: "none on 1"},
		{name: "Cilium 1.15 with endpoint routes and BPF host routing", code: "PW502", node: cilium, change: func(n *node) {
			n.live = agent{health: `{"cilium":{"msg":"1.15.19 (v1.15.19-0000000)"},"host-routing":{"mode":"BPF"}}`, config: `{"status":{"daemonConfigurationMap":{"EnableEndpointRoutes":true},"datapathMode":"veth"}}`}
			n.kernel.devices[0].Out.Programs = list{ciliumOut}
		}, want: doctor.OK, seen: "none on 1"},
	}
}
