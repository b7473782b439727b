// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/podweir/podweir/plugin/datapath/bpfcall"
	"github.com/podweir/podweir/plugin/queue"
	"github.com/podweir/podweir/plugin/testutil"
)

// cleansUp does to a device what the AWS Network Policy Agent does when it starts with
// other programs than before: on each hook it deletes the first filter with handle 1,
// whatever its preference. It returns the names of those.
func cleansUp(t *testing.T, ns *testutil.NetNS, device string, index int) []string {
	t.Helper()
	d, err := queue.Observe(ns.Handle, index)
	if err != nil {
		t.Fatal(err)
	}
	var gone []string
	done := map[queue.Hook]bool{}
	for i := range d.HookFilters {
		f := &d.HookFilters[i]
		if f.Handle != 1 || done[f.Hook] {
			continue
		}
		done[f.Hook], gone = true, append(gone, f.Name)
		deleteFilter(t, ns, device, f)
	}
	return gone
}

func deleteFilter(t *testing.T, ns *testutil.NetNS, device string, f *queue.Filter) {
	t.Helper()
	hook := map[queue.Hook]string{queue.HookIngress: "ingress", queue.HookEgress: "egress"}[f.Hook]
	ns.Run(t, "tc", "filter", "del", "dev", device, hook, "pref", strconv.Itoa(int(f.Pref)), "handle", fmt.Sprintf("%#x", f.Handle), "bpf")
}

// asHandle1 puts podweir's filters where releases before had them.
func asHandle1(t *testing.T, ns *testutil.NetNS, device string, index int) (moved int) {
	t.Helper()
	d, err := queue.Observe(ns.Handle, index)
	if err != nil {
		t.Fatal(err)
	}
	for i := range d.HookFilters {
		f := &d.HookFilters[i]
		if !queue.Ours(f) || f.Handle == 1 || f.ProgramID == 0 { // the redirect of Linux 6.1 is an action, not a program
			continue
		}
		program, err := bpfcall.ProgramByID(f.ProgramID)
		if err != nil {
			t.Fatal(err)
		}
		former := queue.Place{Hook: f.Hook, Pref: f.Pref, Handle: 1}
		err = queue.AddToClsact(ns.Handle, index, former, queue.Classifier{ProgramFD: program.FD(), Name: f.Name, Slot: uint16(f.ClassID)})
		_ = program.Close()
		if err != nil {
			t.Fatal(err)
		}
		deleteFilter(t, ns, device, f)
		moved++
	}
	return moved
}

// Another party deletes filters with handle 1 on the host side, whoever made them: none of
// podweir's has it, and those of earlier releases are moved.
func TestPrivilegedFiltersKeepOffHandle1(t *testing.T) {
	testutil.RequireRoot(t)
	testutil.RequireQdisc(t, "tbf", "pfifo_fast", "ifb", "htb")
	for name, with := range shapes {
		t.Run(name, func(t *testing.T) {
			p := newNode(t).newPod(t)
			c := p.conf(with)
			p.must(t, "ADD", c)
			shaped := p.state(t)
			in, out := p.newFlow(t, true), p.newFlow(t, false)
			clean := func(when string) {
				t.Helper()
				for _, gone := range [][]string{cleansUp(t, p.node.NetNS, p.host.Name, p.host.Index), cleansUp(t, p.ns, "eth0", p.dev.Index)} {
					if len(gone) > 0 {
						t.Errorf("%s, filters with handle 1: %q", when, gone)
					}
				}
				p.must(t, "CHECK", c)
			}
			former := func() int {
				return asHandle1(t, p.node.NetNS, p.host.Name, p.host.Index) + asHandle1(t, p.ns, "eth0", p.dev.Index)
			}
			clean("after ADD")
			if former() > 0 {
				wantCode(t, "CHECK", p.call(t, "CHECK", c).err, 101, "is of another build")
				exchange(t, in, out, func() error { p.repair(t); return nil })
				wantSeen(t, p, "repaired", shaped)
				clean("after a repair")
				former()
				p.must(t, "ADD", c)
				wantSeen(t, p, "added again", shaped)
				clean("after another ADD")
				former()
			}
			p.must(t, "DEL", c)
			wantClean(t, p.afterIFB(t), "DEL")
		})
	}
}
