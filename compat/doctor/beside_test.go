// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor_test

import (
	"strings"

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
	standard := func(is bool, f func(*node)) func(*node) {
		return func(n *node) { f(n); n.kernel.attached[0].Standard = is }
	}
	withBandwidth := func(n *node) {
		n.files[net+"10-aws.conflist"] = strings.Replace(awsList, "]}", bottled, 1)
		n.spliceIn("10-aws.conflist")
	}
	return []finding{
		{name: "left to Felix, and podweir's own rate", code: "PW403", node: calico, change: standard(false, felix(`,"shaper":"calico"`, 20_000_000)), want: doctor.OK, seen: "are left to it"},
		{name: "left to Felix, and still shaped", code: "PW403", node: calico, change: standard(true, felix(`,"shaper":"calico"`, 20_000_000)), want: doctor.Warn, seen: "podweir still shapes default/web", fix: "podweir detach"},
		{name: "Felix's limit is before podweir's", code: "PW403", node: calico, change: felix("", 20_000_000), want: doctor.Fail, seen: "its limit is before podweir's on default/web", fix: "1P"},
		{name: "bandwidth, replaced", code: "PW301", node: aws, change: withBandwidth, want: doctor.Warn, seen: "bandwidth is in 10-aws.conflist, and podweir's file replaces it: once podweir is uninstalled, pods with an egress limit do not start", fix: "ENABLE_BANDWIDTH_PLUGIN=false"},
		{name: "bandwidth, replaced, without policy", code: "PW301", node: aws, change: func(n *node) {
			withBandwidth(n)
			n.files["proc/4/cmdline"] = "/controller\x00--enable-network-policy=false\x00"
		}, want: doctor.Skip, seen: "does not enforce"},
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
