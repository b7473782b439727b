// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package apply_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// inKernelOrder sorts a tree as package queue reads it: what is nearer to the root comes first.
func inKernelOrder(tree *shaping.Tree) {
	made := slices.Clone(tree.Qdiscs)
	depth := func(q shaping.Qdisc) (n int) {
		for ; q.Parent != shaping.RootParent; n++ {
			q = made[slices.IndexFunc(made, func(p shaping.Qdisc) bool { return p.Handle>>16 == q.Parent>>16 })]
		}
		return n
	}
	slices.SortStableFunc(tree.Qdiscs, func(a, b shaping.Qdisc) int {
		if d := depth(a) - depth(b); d != 0 {
			return d
		}
		return int(int64(a.Parent) - int64(b.Parent))
	})
}

// A queue of podweir's without a record stays, with what waits in it, whatever its shape.
func TestQueueWithoutARecordStays(t *testing.T) {
	for name, change := range map[string]func(*shaping.Config){
		"alone":    func(*shaping.Config) {},
		"in group": func(c *shaping.Config) { c.Egress.Group, c.Ingress.Group = 200_000_000, 200_000_000 },
		"exempt":   func(c *shaping.Config) { c.Unshaped = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} },
	} {
		for _, prio := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, prio %v", name, prio), func(t *testing.T) {
				w, cfg := newWorld(), both(10_000_000)
				w.facts.Prio = prio
				change(cfg)
				ensure(t, w, cfg)
				for _, dev := range w.devices {
					inKernelOrder(&dev.Tree)
				}
				was := record(t, w).Choices
				clear(w.records)
				clear(w.dataplanes)
				e := w.executor()
				e.Planned = func(_ attach.Interface, plan []attach.Action) {
					if all := kinds(plan); slices.Contains(all, "egress build-queue") || slices.Contains(all, "ingress build-queue") {
						t.Errorf("plan %v, want the queues kept", plan)
					}
				}
				must.OK(t, must.Err(e.Ensure(t.Context(), wantOf(cfg))))
				for _, d := range terms.Directions {
					if now := record(t, w).Choices[d].Majors; len(now) == 0 || !slices.Equal(now, was[d].Majors) {
						t.Errorf("%v: handles %v, want %v", d, now, was[d].Majors)
					}
				}
			})
		}
	}
}

// A namespace's inode is given again, its cookie is not.
func TestSameInterface(t *testing.T) {
	was := attach.Interface{NetNSInode: 7, NetNSCookie: 70, PodIndex: 2}
	for name, tc := range map[string]struct {
		now  attach.Interface
		same bool
	}{
		"itself":                      {was, true},
		"renamed":                     {attach.Interface{NetNSInode: 7, NetNSCookie: 70, PodIndex: 2, NowName: "lan0"}, true},
		"another with the same inode": {attach.Interface{NetNSInode: 7, NetNSCookie: 71, PodIndex: 2}, false},
		"another device":              {attach.Interface{NetNSInode: 7, NetNSCookie: 70, PodIndex: 3}, false},
		"recorded before the cookie":  {attach.Interface{NetNSInode: 7, PodIndex: 2}, true},
		"another, before the cookie":  {attach.Interface{NetNSInode: 8, PodIndex: 2}, false},
	} {
		must.Be(t, name+": Same", tc.same, was.Same(&tc.now))
	}
}

func TestPresume(t *testing.T) {
	guard := attach.HookProgram{Kind: terms.HookKindClsact, Hook: terms.HookEgress, Name: "pw_guard", Ours: true}
	foreign := attach.HookProgram{Kind: terms.HookKindClsact, Hook: terms.HookEgress, Name: "policy"}
	bounded := attach.Offload{GSO: 3_400, GSOIPv4: 3_400}
	for _, tt := range []struct {
		name            string
		pod, host       attach.Device
		egress, ingress attach.Choice
	}{
		{
			name: "nobody has changed anything",
			pod:  attach.Device{Exists: true, MTU: 1500, TxQueueLen: 1000, Offload: bigTCP},
			host: attach.Device{Exists: true, MTU: 1500, TxQueueLen: 1000, Offload: bigTCP},
		},
		{
			name: "podweir has bounded the packets and set one queue length",
			pod:  attach.Device{Exists: true, MTU: 1500, TxQueueLen: 256, Offload: bounded, Hooks: []attach.HookProgram{guard}, Clsact: true},
			host: attach.Device{Exists: true, MTU: 1500, TxQueueLen: 700, Offload: bigTCP},
			egress: attach.Choice{
				Offload: &bigTCP, TxQueueLen: new(700), MadeClsact: []terms.Side{terms.SidePod},
			},
			ingress: attach.Choice{MadeClsact: []terms.Side{terms.SidePod}},
		},
		{
			name:    "both ends have a queue length of podweir's",
			pod:     attach.Device{Exists: true, MTU: 1500, TxQueueLen: 256, Offload: bigTCP},
			host:    attach.Device{Exists: true, MTU: 1500, TxQueueLen: 512, Offload: bigTCP},
			egress:  attach.Choice{TxQueueLen: new(1000)},
			ingress: attach.Choice{TxQueueLen: new(1000)},
		},
		{
			name:   "the other end is out of sight, and the driver takes less than the kernel's default",
			pod:    attach.Device{Exists: true, MTU: 9000, Offload: attach.Offload{GSO: 18_400}, MostOffload: 32_000},
			egress: attach.Choice{Offload: &attach.Offload{GSO: 32_000}},
		},
		{
			name: "a filter of another party's is on the same qdisc",
			pod:  attach.Device{Exists: true, MTU: 1500, Offload: bigTCP, Hooks: []attach.HookProgram{guard, foreign}, Clsact: true},
		},
		{
			name: "another party has set another size and length",
			pod:  attach.Device{Exists: true, MTU: 1500, TxQueueLen: 500, Offload: attach.Offload{GSO: 5_000, GSOIPv4: 5_000}},
			host: attach.Device{Exists: true, MTU: 1500, TxQueueLen: 1000, Offload: bigTCP},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := attach.Presume(&attach.Observed{Devices: map[terms.Side]*attach.Device{terms.SidePod: &tt.pod, terms.SideHost: &tt.host}})
			want := attach.Choices{terms.Egress: tt.egress, terms.Ingress: tt.ingress}
			must.Match(t, "presumed", want, got)
		})
	}
}

// A slot that says another thing than the wish is a difference, told in words.
func TestObserveIsComparedWithTheSlot(t *testing.T) {
	w := newWorld()
	cfg := both(10_000_000)
	cfg.Observe = true
	ensure(t, w, cfg)
	w.dataplanes[terms.Egress].Datapath.Observe = 0
	in, err := w.executor().Inspect(record(t, w))
	if err != nil || len(in.Plan) != 1 || in.Plan[0].Kind != attach.UpdateDataplane || !strings.Contains(in.Plan[0].Reason, "observed only is false, want true") {
		t.Fatalf("plan %v, %v, want to update the slot", in.Plan, err)
	}
	if _, err := w.executor().Repair(t.Context(), podID); err != nil || w.dataplanes[terms.Egress].Datapath.Observe == 0 {
		t.Errorf("Repair = %v, slot %+v, want it observed", err, w.dataplanes[terms.Egress])
	}
}
