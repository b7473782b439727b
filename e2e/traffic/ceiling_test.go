// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// flood50 offers 50 times the cap in one of the ways.
func flood50(way lab.Way) Load {
	load := flood(fmt.Sprintf("UDP 50x %s", way), lab.UDPFlood{Way: way})
	load.Times = 50
	return load
}

// What a process in the pod sends past its queue, or after it took the queue away,
// does not get past the ceiling. Without one it does, so that the test sees it.
func TestPrivilegedCeiling(t *testing.T) {
	const capacity = 10 * mbit
	// What a second may hold from one second after the start: 1.03 of the cap and
	// 60 ms of it.
	const most = capacity * (1.03 + 0.06) / 8
	for _, tt := range []struct {
		name  string
		keys  map[string]any
		way   lab.Way
		ruins string
		// held says that this is no way past the queue: it holds the limit by
		// itself, the ceiling sees nothing, and only a pod without podweir
		// shows what was offered.
		held bool
		// variant says that it differs from another case by one setting.
		variant bool
	}{
		{name: "packet socket", way: lab.Past},
		{name: "packet socket beside the queue of one band", keys: map[string]any{"policy": "flat"}, way: lab.Past, variant: true},
		{name: "packet socket, ceiling by TCX", keys: map[string]any{"hostHook": "tcx"}, way: lab.Past, variant: true},
		{name: "packet socket, MAC of another pod", way: lab.PastSpoofed, variant: true},
		{name: "packet socket, VLAN tag", way: lab.PastTagged},
		{name: "packet socket, VLAN tag, ceiling by TCX", keys: map[string]any{"hostHook": "tcx"}, way: lab.PastTagged, variant: true},
		{name: "SO_PRIORITY", way: lab.Prioritised, held: true},
		{name: "SO_TXTIME", way: lab.Stamped, held: true},
		{
			name: "without queue and programs", way: lab.BySocket,
			ruins: "tc qdisc del dev eth0 clsact || true; tc qdisc del dev eth0 root 2>/dev/null || true",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.variant {
				mark.Nightly(t, "it differs from other cases by one setting")
			}
			if tt.keys["hostHook"] == "tcx" && !testutil.HaveTCX() {
				testutil.SkipFeature(t, "tcx")
			}
			beside(t, capacity)
			// Both send at once, each to a client of its own.
			r := newRig(t)
			pod, control := shaped(t, newRig(t), capacity, tt.keys), r.Free
			if !tt.held {
				control = shaped(t, r, capacity, map[string]any{"egressCeiling": "off"})
			}
			load := flood50(tt.way)
			ofPod, ofControl := startFlood(t, pod, load, capacity, tt.ruins), startFlood(t, control, load, capacity, tt.ruins)
			got, offered := ofPod.worstSecond(t)
			free, _ := ofControl.worstSecond(t)
			must.AtMost(t, "part of the cap that a second held", 8*most/capacity, 8*got/capacity)
			must.AtLeast(t, "bytes a second that the kernel took from the sender, for the load to be what it shall be", 5*capacity, offered)
			dropped := egressCounter(t, pod, droppedCeiling)
			must.Be(t, "the ceiling drops nothing", tt.held, dropped == 0)
			if free < 5*most {
				t.Errorf("without a ceiling, or a queue that holds, a second held %.3f of the cap: the load is not what it shall be", 8*free/capacity)
			}
		})
	}
}

// No packet that the queue let out is dropped by the ceiling, whatever waits in the
// queue or is dropped there.
func TestPrivilegedCeilingLeavesOrdinaryLoads(t *testing.T) {
	all := []Load{TCP1, TCP1BBR, TCP20, TCP6, UDP, UDPGSO, UDPPorts}
	some := []Load{TCP20, UDP, UDPGSO, UDPPorts}
	for _, tt := range []struct {
		name     string
		capacity uint64
		keys     map[string]any
		loads    []Load
	}{
		// Not at 100M: 400,000 packets a second are more than one thread can send.
		{"10M", 10 * mbit, nil, append([]Load{UDPTiny}, all...)},
		{"100M", 100 * mbit, nil, all},
		{"10M policed", 10 * mbit, map[string]any{"queue": "none"}, some},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.capacity == 100*mbit || tt.keys["queue"] == "none" {
				mark.Nightly(t, "the loads at 10M with a queue are those that most pods have")
			}
			for _, load := range tt.loads {
				t.Run(load.Name, func(t *testing.T) {
					beside(t, tt.capacity)
					ordinary(t, shaped(t, newRig(t), tt.capacity, tt.keys), load, tt.capacity)
				})
			}
			t.Run("a flood past the queue", func(t *testing.T) {
				// The ceiling is there, and its counter counts.
				beside(t, tt.capacity)
				pod := shaped(t, newRig(t), tt.capacity, tt.keys)
				startFlood(t, pod, flood50(lab.Past), tt.capacity, "").worstSecond(t)
				if egressCounter(t, pod, droppedCeiling) == 0 {
					t.Error("the ceiling drops nothing of a flood past the queue")
				}
			})
		})
	}
}

// ordinary puts a load on the way out of a pod, and small requests beside it.
func ordinary(t *testing.T, pod *Target, load Load, capacity uint64) {
	t.Helper()
	const last, fullFor = 3 * time.Second, 100 * time.Millisecond
	must.OK(t, pod.freshMeters())
	before := egressCounter(t, pod, droppedCeiling)
	offer := must.Get(pod.Start(t.Context(), Egress, load, capacity, last))(t)
	light := pod.lightMiddle(t.Context(), capacity, last)
	_, flood, err := offer.Wait(context.WithoutCancel(t.Context()))
	if lightErr := <-light; err != nil || lightErr != nil {
		t.Fatal(err, lightErr)
	}
	offered := flood == nil || OfferedBits(flood) >= offeredEnough*float64(capacity)
	wire := must.Get(pod.Wire(Egress, offer.Started+time.Second, min(offer.Until, wiremeter.Now())))(t)
	// On a busy machine a load does not fill the cap all the time. What the ceiling
	// may drop are packets that come close together.
	fullest := 8 * float64(wire.Worst(fullFor)) / (float64(capacity) * fullFor.Seconds())
	t.Logf("%.3f of the cap, %.3f in the fullest %v", wire.BitsPerSec()/float64(capacity), fullest, fullFor)
	if !offered {
		t.Log("not offered: the generator is slower than 1.2 times the cap")
	} else if fullest < 0.9 {
		t.Errorf("the fullest %v held %.3f of the cap: the load is not what it shall be", fullFor, fullest)
	}
	must.Be(t, "packets that the ceiling dropped", 0, egressCounter(t, pod, droppedCeiling)-before)
}

// flooded is a pod with a flood under way.
type flooded struct {
	pod      *Target
	offer    *Offer
	capacity uint64
}

// startFlood starts a flood of 4 s. Before that the pod does something to itself.
func startFlood(t *testing.T, pod *Target, load Load, capacity uint64, first string) *flooded {
	t.Helper()
	must.OK(t, pod.freshMeters())
	must.OK(t, pod.Netns.Run(first))
	offer := must.Get(pod.Start(t.Context(), Egress, load, capacity, 4*time.Second))(t)
	return &flooded{pod, offer, capacity}
}

// worstSecond is what the receiver got in the worst second, in bytes, from one
// second after the flood began, and what the sender's kernel took from it, in bits per
// second.
func (f *flooded) worstSecond(t *testing.T) (got, offered float64) {
	t.Helper()
	_, flood, err := f.offer.Wait(context.WithoutCancel(t.Context()))
	must.OK(t, err)
	wire := must.Get(f.pod.Wire(Egress, f.offer.Started+time.Second, min(f.offer.Until, wiremeter.Now())))(t)
	got = float64(wire.Worst(time.Second))
	t.Logf("%.3f of the cap in the worst second, %.1f offered", 8*got/float64(f.capacity), flood.BitsPerSec()/float64(f.capacity))
	return got, flood.BitsPerSec()
}

// droppedCeiling is the ceiling's counter, as `podweir status` names it.
const droppedCeiling = "dropped-ceiling"

// egressCounter is a counter of packets that `podweir status` has of a pod's egress.
func egressCounter(t *testing.T, pod *Target, name string) uint64 {
	t.Helper()
	c, known := must.Get(pod.rig.Lab.Counters(Egress.String(), pod.Pod))(t)[name]
	must.Be(t, name+" is counted", true, known)
	return c.Packets
}
