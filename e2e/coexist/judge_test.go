// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package coexist_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// Whether podweir holds a direction is judged by what the queue or the program counts that
// limits it: of packets that are sent one after the other, all or none. What counts has to hold
// back as well: of a flood no more may arrive than the limit lets through.
const (
	countedPackets = 40
	countedBytes   = 100
	// floodTime is long beside the queues' bucket. A policer's credit is longer, and of a wrong rate.
	floodTime    = 50 * time.Millisecond
	floodPayload = 1400
	floodFrame   = 14 + 20 + 8 + floodPayload
	// A queue lets through so much of the limit at once: 8 ms and a packet.
	bucket = 10 * time.Millisecond
	// A policer admits heavy flows up to its credit and the horizon, and light ones up to as much more.
	credit = 250*time.Millisecond + 50*time.Millisecond + 50*time.Millisecond
	// settled is when nothing of a flood is under way any more: at the limit a packet comes every 0.6 ms.
	settled = 100 * time.Millisecond
)

func (tr *traffic) of(d terms.Direction) *direction {
	if d == terms.Egress {
		return tr.egress
	}
	return tr.ingress
}

// holds says whether podweir holds a direction of the pod.
func (k *kase) holds(t *testing.T, d terms.Direction) bool {
	t.Helper()
	dir := k.traffic.of(d)
	if !dir.counted(t, func() uint64 { return k.held(t, d) }) {
		return false
	}
	place, atOnce := k.mode.egress, bucket
	if d == terms.Ingress {
		place = k.mode.ingress
	}
	if strings.HasSuffix(place, "policing") {
		atOnce = credit
	}
	got, took := dir.flood(t)
	most := float64(bitRate)/8*(took+atOnce).Seconds() + floodFrame
	t.Logf("%d bytes of a flood to %s arrived in %v, at most %.0f may", got, dir.to, took, most)
	if float64(got) > most {
		t.Errorf("%d bytes of a flood to %s arrived in %v, want at most %.0f", got, dir.to, took, most)
	}
	return true
}

// status is what podweir status shows of the pod.
func (k *kase) status(t *testing.T) *status.Attachment {
	t.Helper()
	var rep *status.Report
	err := k.pod.rig.node.Do(func() error {
		node, err := engine.Open(k.pod.rig.paths)
		if err != nil {
			return err
		}
		defer node.Close()
		rep, err = status.Collect(node)
		return err
	})
	must.OK(t, err)
	for i := range rep.Attachments {
		if a := &rep.Attachments[i]; a.ID.ContainerID == k.pod.container {
			return a
		}
	}
	t.Fatalf("status has nothing of %s", k.pod.container)
	return nil
}

// held is what the queue of a direction, or the program where there is none,
// has counted so far.
func (k *kase) held(t *testing.T, d terms.Direction) uint64 {
	t.Helper()
	a := k.status(t)
	if a.Error != "" {
		// It was not available again: another party holds the hook.
		return k.heldByTC(t, d)
	}
	for _, one := range a.Directions {
		if one.Direction.Is != d {
			continue
		}
		switch {
		case one.Qdisc != nil:
			return one.Qdisc.Packets + one.Qdisc.Drops
		case one.Queue.Is != terms.QueueNone: // the program counts, and nothing holds back
			return 0
		}
		sum := uint64(0)
		for _, c := range one.Counters {
			sum += c.Packets
		}
		return sum
	}
	t.Fatalf("status has no %v of %s", d, k.pod.container)
	return 0
}

// heldByTC is held without podweir's help: what the TBF on the direction's
// device counted, or the program where there is none.
func (k *kase) heldByTC(t *testing.T, d terms.Direction) uint64 {
	t.Helper()
	ns, device := k.pod.ns, k.pod.dev.Name
	if d == terms.Ingress {
		ns, device = k.pod.rig.node, k.pod.host.Name
	}
	if n, ok := tbfPackets(t, ns, device); ok {
		return n
	}
	node := datapath.OpenSlab(k.pod.rig.paths.Pins, k.pod.node())
	defer node.Close()
	counters := must.Get(node.Counters(k.pod.pins(), d))(t)
	sum := uint64(0)
	for _, c := range counters {
		sum += c.Packets
	}
	return sum
}

// counted sends allowed packets and says whether a counter saw them: all or, but
// for what the stack sends by itself, none.
func (d *direction) counted(t *testing.T, counter func() uint64) bool {
	t.Helper()
	d.allowed.drain(10 * time.Millisecond)
	before := counter()
	payload := make([]byte, countedBytes)
	for n := range countedPackets {
		d.must(t, allowedPort, payload)
		if !d.allowed.readable(patience) {
			t.Fatalf("packet %d of %d to %s did not arrive", n+1, countedPackets, d.to)
		}
		d.allowed.drain(0)
	}
	seen := counter() - before
	t.Logf("%d of %d packets to %s were counted", seen, countedPackets, d.to)
	if seen < countedPackets && seen > countedPackets/4 {
		t.Errorf("%d of %d packets to %s were counted, want all or none", seen, countedPackets, d.to)
	}
	return seen >= countedPackets
}

// flood sends as fast as it can, in a flow of its own, and returns what arrived until then. A busy
// machine makes that less for the time it took, never more.
func (d *direction) flood(t *testing.T) (bytes int, took time.Duration) {
	t.Helper()
	d.floods++
	payload := make([]byte, floodPayload)
	payload[0] = d.floods // what is left of an earlier one is none of it
	start := time.Now()
	for time.Since(start) < floodTime {
		for range 8 {
			must.OK(t, d.flooder.send(d.to, allowedPort, payload))
		}
		bytes += floodFrame * d.allowed.arrived(d.floods)
	}
	took = time.Since(start)
	d.allowed.drain(settled)
	return bytes, took
}

// tbfLines finds a TBF's device and its packets in what tc(8) shows.
var tbfLines = regexp.MustCompile(`qdisc tbf \S+ dev (\S+) .*\n Sent \d+ bytes (\d+) pkt`)

// tbfPackets sums the packets of the TBFs on devices whose names begin so; ok is
// false if there is none.
func tbfPackets(t *testing.T, ns *testutil.NetNS, device string) (sum uint64, ok bool) {
	t.Helper()
	for _, m := range tbfLines.FindAllStringSubmatch(ns.Run(t, "tc", "-s", "qdisc", "show"), -1) {
		if !strings.HasPrefix(m[1], device) {
			continue
		}
		n := must.Get(strconv.ParseUint(m[2], 10, 64))(t)
		sum, ok = sum+n, true
	}
	return sum, ok
}
