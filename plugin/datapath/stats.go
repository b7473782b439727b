// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/datapath/bpfcall"
	"github.com/podweir/podweir/plugin/shaping"
)

// Counter is what became of packets, in wire bytes.
type Counter struct {
	Disposition string `json:"disposition"`
	Packets     uint64 `json:"packets"`
	Bytes       uint64 `json:"bytes"`
}

// dispositions are named by enum pw_disposition of bpf/lib/abi.h.
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
	image.FailopenConfig: "failed-open-config",
	image.FailopenStamp:  "failed-open-stamp",
}

// Counters returns the counters of a direction, summed over the CPUs, every
// disposition once.
func Counters(dir string, d shaping.Direction) ([]Counter, error) {
	m, err := openMapOf[image.Counters](dir, d, mapCounters)
	if err != nil {
		return nil, err
	}
	defer closeAll(m)
	cpus, err := possibleCPUs()
	if err != nil {
		return nil, err
	}
	var first uint32
	perCPU := make([]image.Counters, cpus)
	if err := m.Lookup(bytesOf(&first), bytesOfAll(perCPU)); err != nil {
		return nil, fmt.Errorf("read map %s in %s: %w", mapCounters, dir, err)
	}
	out := make([]Counter, len(dispositions))
	for i, name := range dispositions {
		out[i].Disposition = name
		for _, c := range perCPU {
			out[i].Packets += c.Packets[i]
			out[i].Bytes += c.Bytes[i]
		}
	}
	return out, nil
}

// openMapOf opens a map whose values are of a type; those of another build may
// not be.
func openMapOf[T any](dir string, d shaping.Direction, name string) (*bpfcall.Map, error) {
	m, err := openMap(dir, d, name)
	if err != nil {
		return nil, err
	}
	var value T
	if want := int(unsafe.Sizeof(value)); m.ValueBytes() != want {
		closeAll(m)
		return nil, fmt.Errorf("map %s in %s is of another build: values of %d bytes, not %d", name, dir, m.ValueBytes(), want)
	}
	return m, nil
}

func bytesOfAll(s []image.Counters) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(s[0])))
}

// A value of a per-CPU map takes a multiple of 8 bytes.
var _ [-(unsafe.Sizeof(image.Counters{}) % 8)]struct{}

// HeavyFlow is one of the pod's current heavy flows.
type HeavyFlow struct {
	// Protocol is an IP protocol number, or 0 with EtherType set.
	Protocol  uint8          `json:"protocol"`
	EtherType uint16         `json:"etherType,omitempty"`
	Source    netip.AddrPort `json:"source"`
	Dest      netip.AddrPort `json:"destination"`
	// Bytes are wire bytes since Since; LastSeen is how long ago the last
	// packet was.
	Bytes    uint64        `json:"bytes"`
	Since    time.Duration `json:"sinceNanoseconds"`
	LastSeen time.Duration `json:"lastSeenNanoseconds"`
}

// heavyFlowAge is how long after its last packet a flow counts as current:
// twice the half-life of the sketch.
const heavyFlowAge = 2 * time.Second

// HeavyFlows returns the current heavy flows of a direction, the largest
// first.
func HeavyFlows(dir string, d shaping.Direction) ([]HeavyFlow, error) {
	m, err := openMapOf[image.State](dir, d, mapState)
	if err != nil {
		return nil, err
	}
	defer closeAll(m)
	var first uint32
	var s image.State
	if err := m.Lookup(bytesOf(&first), bytesOf(&s)); err != nil {
		return nil, fmt.Errorf("read map %s in %s: %w", mapState, dir, err)
	}
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return nil, fmt.Errorf("read the clock: %w", err)
	}
	now := uint64(ts.Nano())
	var out []HeavyFlow
	for i := range s.Heavy {
		h := &s.Heavy[i]
		// 0 is an empty slot, 1 one that is being written.
		if h.Id <= 1 || now < h.LastSeenNs || time.Duration(now-h.LastSeenNs) > heavyFlowAge {
			continue
		}
		out = append(out, heavyFlow(h, now))
	}
	slices.SortFunc(out, func(a, b HeavyFlow) int {
		switch {
		case a.Bytes > b.Bytes:
			return -1
		case a.Bytes < b.Bytes:
			return 1
		}
		return 0
	})
	return out, nil
}

func heavyFlow(h *image.Heavy, now uint64) HeavyFlow {
	f := HeavyFlow{
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

// Name tells the flow in one line.
func (f *HeavyFlow) Name() string {
	if f.EtherType != 0 {
		return fmt.Sprintf("ethertype %#04x", f.EtherType)
	}
	protocol := fmt.Sprintf("proto %d", f.Protocol)
	switch f.Protocol {
	case unix.IPPROTO_TCP:
		protocol = "tcp"
	case unix.IPPROTO_UDP:
		protocol = "udp"
	case unix.IPPROTO_SCTP:
		protocol = "sctp"
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		protocol = "icmp"
	}
	return fmt.Sprintf("%s %s > %s", protocol, endpoint(f.Source), endpoint(f.Dest))
}

func endpoint(a netip.AddrPort) string {
	if a.Port() == 0 {
		return a.Addr().String()
	}
	return a.String()
}
