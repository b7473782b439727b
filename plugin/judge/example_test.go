// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package judge_test

import (
	"fmt"

	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/terms"
)

// Beside a filter of AWS's network policy agent, podweir's program goes to the head of
// the TCX list; without TCX the hook cannot be shared.
func ExampleQuestion_Attach() {
	hook := &judge.Chain{Device: "eni1", Side: terms.SideHost, Hook: terms.HookIngress, Programs: []judge.Program{
		{Kind: terms.HookKindClsact, Hook: terms.HookIngress, Name: "handle_egress", FilterKind: "bpf", ProgramID: 7, Pref: 1},
	}}
	for _, tcx := range []bool{true, false} {
		q := judge.Question{Mode: terms.ModeAuto, TCX: tcx}
		if kind, err := q.Attach(hook); err != nil {
			fmt.Println(err)
		} else {
			fmt.Println(kind)
		}
	}
	// Output:
	// tcx
	// hook is held by another party: clsact filter "handle_egress" on ingress of eni1
}

// profile knows programs by their names, as those of compat/profiles do.
type profile struct{}

func (profile) EndsChain(_ terms.Hook, name string) bool { return name == "cil_from_contai" }

// A program that ends the chain before podweir's takes every packet from it.
func ExampleChain_Stand() {
	hook := &judge.Chain{Hook: terms.HookIngress, Programs: []judge.Program{
		{Kind: terms.HookKindTCX, Name: "cil_from_contai", ProgramID: 7},
		{Kind: terms.HookKindTCX, Name: "pw_band", ProgramID: 8, Ours: true},
	}}
	fmt.Println(hook.Stand(8, profile{}))
	fmt.Println(hook.Stand(8, nil))
	// Output:
	// cil_from_contai (program 7) ends the chain: podweir sees no packet
	// cil_from_contai (program 7) ahead of podweir: whether it lets packets on is not known
}
