// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package attach_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// A lost record costs the pod's device nothing: what podweir made it less is not taken for
// what it had before, and what somebody else made it less is.
func TestOffloadAfterTheRecordWasLost(t *testing.T) {
	small := attach.Offload{GSO: 5_000, GSOIPv4: 5_000}
	for _, tt := range []struct {
		before    attach.Offload
		rate, now units.BitRate
	}{
		{bigTCP, 10_000_000, 1_000_000_000},
		{bigTCP, 100_000_000, 10_000_000},
		{bigTCP, 10_000_000, 10_000_000},
		{small, 100_000_000, 1_000_000_000},
		{small, 100_000_000, 10_000_000},
	} {
		w := newWorld()
		w.devices[terms.SidePod].Offload = tt.before
		ensure(t, w, &shaping.Config{Egress: limit(tt.rate)})
		clear(w.records)
		clear(w.dataplanes)
		ensure(t, w, &shaping.Config{Egress: limit(tt.now)})
		if got := w.devices[terms.SidePod].Offload; tt.now == 1_000_000_000 && got != tt.before {
			t.Errorf("%v at %v, lost, then at %v: %v, want it back", tt.before, tt.rate, tt.now, got)
		}
		if err := w.engine().Remove(t.Context(), podID); err != nil {
			t.Fatal(err)
		}
		if got := w.devices[terms.SidePod].Offload; got != tt.before {
			t.Errorf("%v at %v, lost, at %v, removed: %v, want it back", tt.before, tt.rate, tt.now, got)
		}
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
			name: "a filter of somebody else's is on the same qdisc",
			pod:  attach.Device{Exists: true, MTU: 1500, Offload: bigTCP, Hooks: []attach.HookProgram{guard, foreign}, Clsact: true},
		},
		{
			name: "somebody has set another size and length",
			pod:  attach.Device{Exists: true, MTU: 1500, TxQueueLen: 500, Offload: attach.Offload{GSO: 5_000, GSOIPv4: 5_000}},
			host: attach.Device{Exists: true, MTU: 1500, TxQueueLen: 1000, Offload: bigTCP},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := attach.Presume(&attach.Observed{Devices: map[terms.Side]*attach.Device{terms.SidePod: &tt.pod, terms.SideHost: &tt.host}})
			want := attach.Choices{terms.Egress: tt.egress, terms.Ingress: tt.ingress}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("presumed (-want +got):\n%s", diff)
			}
		})
	}
}
