// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/terms"
)

// Counter is what became of packets, in wire bytes.
type Counter struct {
	Disposition string `json:"disposition"`
	Packets     uint64 `json:"packets"`
	Bytes       uint64 `json:"bytes"`
}

// dispositions are named by enum pw_disposition of bpf/lib/abi.h. A retired one has no name.
var dispositions = [...]string{
	image.Light:          "light",
	image.Conforming:     "conforming",
	image.Paced:          "paced",
	image.Marked:         "marked",
	image.Exempt:         "exempt",
	image.DropHorizon:    "dropped-horizon",
	image.DropEarly:      "dropped-early",
	image.DropCeiling:    "dropped-ceiling",
	image.DropPoliced:    "dropped-policed",
	image.WouldWait:      "would-wait",
	image.WouldDrop:      "would-drop",
	image.FailopenConfig: "failed-open-config",
}

// ErrNoSlot means that a direction has no slot, so nothing was counted.
var ErrNoSlot = errors.New("no slot in the slab")

// Counters returns the counters of a direction, every disposition once. dir is
// where the interface's pins are.
func (n *Slab) Counters(dir string, d terms.Direction) ([]Counter, error) {
	s, err := n.mustFind(dir, d)
	if err != nil {
		return nil, err
	}
	var out []Counter
	for i, name := range dispositions {
		if c := &s.State.Counts[i]; name != "" {
			out = append(out, Counter{name, atomic.LoadUint64(&c.Packets), atomic.LoadUint64(&c.Bytes)})
		}
	}
	return out, nil
}

// GroupDropped is what the ceiling of a group dropped behind its queues, in packets and wire bytes.
// A group no pod of which sent anything yet has dropped nothing.
func (n *Slab) GroupDropped(key uint64) (packets, bytes uint64, err error) {
	m, err := n.table(mapGroups)
	if err != nil {
		return 0, 0, err
	}
	var g image.Group
	if err := m.Lookup(bytesOf(&key), bytesOf(&g)); err != nil && !errors.Is(err, unix.ENOENT) {
		return 0, 0, fmt.Errorf("read the ceiling of a group: %w", err)
	}
	return g.Dropped.Packets, g.Dropped.Bytes, nil
}

// heavyFlowAge is how long after its last packet a flow counts as current:
// twice the half-life of the sketch.
const heavyFlowAge = 2 * time.Second

// HeavyFlows returns the current heavy flows of a direction, the largest first.
func (n *Slab) HeavyFlows(dir string, d terms.Direction) ([]terms.Flow, error) {
	s, err := n.mustFind(dir, d)
	if err != nil {
		return nil, err
	}
	heavy := s.State.Heavy
	now := monotonic()
	var out []terms.Flow
	for i := range heavy {
		h := &heavy[i]
		// 0 is an empty slot, 1 one that is being written.
		if h.Id <= 1 || now < h.LastSeenNs || time.Duration(now-h.LastSeenNs) > heavyFlowAge {
			continue
		}
		out = append(out, heavyFlow(h, now))
	}
	slices.SortFunc(out, func(a, b terms.Flow) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return out, nil
}

func heavyFlow(h *image.Heavy, now uint64) terms.Flow {
	f := terms.Flow{
		Protocol: h.Flow.Protocol, Bytes: h.Bytes,
		Since: time.Duration(now - h.FirstSeenNs), LastSeen: time.Duration(now - h.LastSeenNs),
		Source: netip.AddrPortFrom(address(h.Flow.Src), bigEndian(h.Flow.Sport)),
		Dest:   netip.AddrPortFrom(address(h.Flow.Dst), bigEndian(h.Flow.Dport)),
	}
	// The program has the last time from a clock that stands between two timer
	// interrupts.
	f.Since = max(f.Since, f.LastSeen)
	if h.Flow.Kind == uint8(image.FlowEther) {
		f.EtherType = bigEndian(h.Flow.Ethertype)
	}
	return f
}

func address(words [4]uint32) netip.Addr {
	var b [16]byte
	for i, w := range words {
		binary.NativeEndian.PutUint32(b[4*i:], w)
	}
	return netip.AddrFrom16(b).Unmap()
}

func bigEndian(v uint16) uint16 {
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], v)
	return binary.BigEndian.Uint16(b[:])
}

// Buckets of waits, as in bpf/lib/wait.h: the first eight have one unit each, and from
// there on every octave has eight.
const (
	waitUnit  = 1 << 14 * time.Nanosecond
	waitSteps = 8
)

// Wait is how long the packets of a band waited in the queue since it was attached, as
// the classifier estimates it when a packet comes.
type Wait struct {
	// Band is light or heavy.
	Band    string  `json:"band"`
	Packets uint64  `json:"packets"`
	Seconds float64 `json:"seconds"`
	// P50 and P99 are quantiles.
	P50 float64 `json:"p50Seconds"`
	P99 float64 `json:"p99Seconds"`
	// Below counts the packets that waited for less than each of [WaitBounds].
	Below [len(WaitBounds)]uint64 `json:"-"`
}

// WaitBounds are the seconds of [Wait.Below], from 66 µs to 0.54 s. Each is twice the one
// before, and ends a bucket of the slab: the shortest four of the slab's linear buckets.
var WaitBounds = [...]float64{
	1 << 16 / 1e9, 1 << 17 / 1e9, 1 << 18 / 1e9, 1 << 19 / 1e9, 1 << 20 / 1e9, 1 << 21 / 1e9, 1 << 22 / 1e9, 1 << 23 / 1e9, 1 << 24 / 1e9,
	1 << 25 / 1e9, 1 << 26 / 1e9, 1 << 27 / 1e9, 1 << 28 / 1e9, 1 << 29 / 1e9,
}

// bands are named by PW_WAIT_LIGHT and PW_WAIT_HEAVY of bpf/lib/abi.h.
var bands = [...]string{"light", "heavy"}

// Waits returns how long packets of a direction waited, every band once. dir is where
// the interface's pins are.
func (n *Slab) Waits(dir string, d terms.Direction) ([]Wait, error) {
	s, err := n.mustFind(dir, d)
	if err != nil {
		return nil, err
	}
	out := make([]Wait, len(bands))
	for i, name := range bands {
		var buckets waitBuckets
		for j := range buckets {
			buckets[j] = atomic.LoadUint64(&s.State.Waits[i][j])
		}
		out[i] = buckets.wait(name, time.Duration(atomic.LoadUint64(&s.State.WaitedNs[i])))
	}
	return out, nil
}

// waitBuckets are packets by how long they waited.
type waitBuckets [len(image.State{}.Waits[0])]uint64

func (b *waitBuckets) wait(band string, sum time.Duration) Wait {
	w := Wait{Band: band, Seconds: sum.Seconds()}
	for i, n := range b {
		w.Packets += n
		for j, bound := range WaitBounds {
			if waitFrom(i+1).Seconds() <= bound {
				w.Below[j] += n
			}
		}
	}
	w.P50, w.P99 = b.quantile(0.5, w.Packets), b.quantile(0.99, w.Packets)
	return w
}

// waitFrom is the least wait of a bucket; that of the one behind the last is where the
// longest waits end that can be told apart.
func waitFrom(bucket int) time.Duration {
	octave := max(bucket/waitSteps-1, 0)
	return time.Duration(bucket-waitSteps*octave) << octave * waitUnit
}

// quantile is in seconds, 0 if nothing was counted.
func (b *waitBuckets) quantile(q float64, packets uint64) float64 {
	rest := q * float64(packets)
	for i, n := range b {
		if rest <= float64(n) && n > 0 {
			from, to := waitFrom(i).Seconds(), waitFrom(i+1).Seconds()
			return from + rest/float64(n)*(to-from)
		}
		rest -= float64(n)
	}
	return 0
}
