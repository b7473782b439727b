// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package bpftest

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/datapath"
)

// chunkSlots is PW_CHUNK_SLOTS of bpf/lib/abi.h.
const chunkSlots = 32

// Dataplane is a set of loaded programs with maps of their own and one slot, which a program serves as it is in the object.
type Dataplane struct {
	tb   testing.TB
	coll *ebpf.Collection
}

// RequireRoot skips a test that is not run by root, who alone may load
// programs.
func RequireRoot(tb testing.TB) {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("loading BPF programs needs root")
	}
}

// Load loads all programs with the test's clock. They are closed when the test
// ends.
func Load(tb testing.TB) *Dataplane {
	tb.Helper()
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
	if err != nil {
		tb.Fatalf("parse the test object: %v", err)
	}
	return LoadSpec(tb, spec)
}

// LoadSpec is [Load] for another object, as the one that is shipped.
func LoadSpec(tb testing.TB, spec *ebpf.CollectionSpec) *Dataplane {
	tb.Helper()
	RequireRoot(tb)
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		tb.Fatalf("load the test object: %+v", err)
	}
	tb.Cleanup(coll.Close)
	d := &Dataplane{tb: tb, coll: coll}
	if coll.Maps["pw_slab"] != nil {
		d.must(d.Map("pw_slab").Put(uint32(image.FirstSlot/chunkSlots), d.Map("pw_chunk")))
	}
	return d
}

// For is the same dataplane for a subtest or the target of a fuzz test.
func (d *Dataplane) For(tb testing.TB) *Dataplane {
	tb.Helper()
	return &Dataplane{tb: tb, coll: d.coll}
}

// Program returns a program by its name.
func (d *Dataplane) Program(name string) *ebpf.Program {
	d.tb.Helper()
	p := d.coll.Programs[name]
	if p == nil {
		d.tb.Fatalf("no program %q", name)
	}
	return p
}

// Map returns a map by its name.
func (d *Dataplane) Map(name string) *ebpf.Map {
	d.tb.Helper()
	m := d.coll.Maps[name]
	if m == nil {
		d.tb.Fatalf("no map %q", name)
	}
	return m
}

// Keys are those of the flow hash.
type Keys = [11][2]uint64

// Direction is how one direction of a pod is limited.
type Direction struct {
	Config  image.Config
	Keys    Keys
	Subnets []netip.Prefix
}

// Configure writes the configuration and the subnets of a direction.
func (d *Dataplane) Configure(m *Direction) {
	d.tb.Helper()
	d.WriteConfig(datapath.Config(&m.Config, 0), m.Keys)
	for _, s := range m.Subnets {
		d.must(d.Map("pw_subnets").Put(datapath.SubnetKey(image.FirstSlot, 0, s), uint8(1)))
	}
}

// WriteConfig writes one configuration, which may be invalid, and the keys.
func (d *Dataplane) WriteConfig(cfg image.Config, keys Keys) {
	d.tb.Helper()
	d.change(func(s *image.Slot) { s.Config[0], s.HashKeys = cfg, keys })
}

func (d *Dataplane) slot() *image.Slot {
	d.tb.Helper()
	s := new(image.Slot)
	d.must(d.Map("pw_chunk").Lookup(uint32(image.FirstSlot%chunkSlots), s))
	return s
}

func (d *Dataplane) change(by func(s *image.Slot)) {
	d.tb.Helper()
	s := d.slot()
	by(s)
	d.must(d.Map("pw_chunk").Put(uint32(image.FirstSlot%chunkSlots), s))
}

// RemoveSlot has the programs find none, as when their pod has gone.
func (d *Dataplane) RemoveSlot() {
	d.tb.Helper()
	d.must(d.Map("pw_slab").Delete(uint32(image.FirstSlot / chunkSlots)))
}

// SetClock sets what the next packets see of time and chance.
func (d *Dataplane) SetClock(c Clock, random uint32) {
	d.tb.Helper()
	d.must(d.coll.Variables["pw_test_now_ns"].Set(c.ExactNS))
	d.must(d.coll.Variables["pw_test_coarse_ns"].Set(c.CoarseNS))
	d.must(d.coll.Variables["pw_test_random"].Set(random))
}

// SetCopy makes the parser copy headers, as it does for a packet that is not
// linear, which BPF_PROG_TEST_RUN does not build.
func (d *Dataplane) SetCopy(on bool) {
	d.tb.Helper()
	var copies uint32
	if on {
		copies = 1
	}
	d.must(d.coll.Variables["pw_test_copy"].Set(copies))
}

// Senders is how many packets of TCP on this machine pw_sender_probe saw whose sender had
// sent nothing, had nothing under way of what it sent, and had something under way.
func (d *Dataplane) Senders() (seen [3]uint64) {
	d.tb.Helper()
	d.must(d.coll.Variables["pw_test_senders"].Get(&seen))
	return seen
}

// Clock is what time it is by both clocks that programs read, in ns.
type Clock struct{ ExactNS, CoarseNS uint64 }

// Packet is a packet as the kernel shows it to a program.
type Packet struct {
	// Data is the whole packet.
	Data []byte
	// WireLen is what the kernel counted on its way out, 0 if it did not.
	WireLen uint32
	// GSOSize and GSOSegs describe how it will be segmented.
	GSOSize, GSOSegs uint32
	// Stamp is the departure time it carries, in ns.
	Stamp uint64
	// Priority is the skb->priority it carries.
	Priority uint32
	// Backlog is how many bytes the queue of its device holds, 0 if the kernel does
	// not tell.
	Backlog uint32
	// Sender is what the socket of a TCP sender on this node says, nil where there is
	// none.
	Sender *Sender
}

// Sender is what TCP has under way, in segments: struct pw_sender.
type Sender struct {
	Out, Sacked, Lost, Retransmitted uint32
}

// Result is what a program did to a packet.
type Result struct {
	// Verdict is the answer, -1 for next.
	Verdict  int32
	Data     []byte
	Priority uint32
	Stamp    uint64
	// ClassID is the tc_classid that pw_class_probe saw.
	ClassID uint32
}

// skb is struct __sk_buff of the kernel's UAPI.
type skb struct {
	_        [8]uint32
	Priority uint32
	_        [3]uint32
	CB       [5]uint32
	_        [21]uint32
	Stamp    uint64
	WireLen  uint32
	GSOSegs  uint32
	_        uint64
	GSOSize  uint32
	_        uint32
	_        uint64
}

// ErrRefused says that the kernel does not build such a packet.
var ErrRefused = errors.New("the kernel refuses to build this packet")

// Run sends a packet through a program. It returns an error wrapping
// [ErrRefused] for a packet that BPF_PROG_TEST_RUN does not build.
func (d *Dataplane) Run(program string, p *Packet) (Result, error) {
	d.tb.Helper()
	if v := d.coll.Variables["pw_test_backlog"]; v != nil {
		d.must(v.Set(p.Backlog))
	}
	if v := d.coll.Variables["pw_test_sender"]; v != nil {
		sender := p.Sender
		d.must(d.coll.Variables["pw_test_has_sender"].Set(sender != nil))
		if sender == nil {
			sender = &Sender{}
		}
		d.must(v.Set(sender))
	}
	in := skb{
		Priority: p.Priority, Stamp: p.Stamp, WireLen: p.WireLen,
		GSOSegs: p.GSOSegs, GSOSize: p.GSOSize,
	}
	var out skb
	opts := ebpf.RunOptions{
		Data: p.Data, DataOut: make([]byte, len(p.Data)+64), Context: in, ContextOut: &out,
	}
	verdict, err := d.Program(program).Run(&opts)
	if err != nil {
		return Result{}, fmt.Errorf("run %s on %d bytes: %w: %w", program, len(p.Data), ErrRefused, err)
	}
	return Result{
		Verdict: int32(verdict), Data: opts.DataOut, Priority: out.Priority, Stamp: out.Stamp,
		ClassID: out.CB[0],
	}, nil
}

// MustRun is [Dataplane.Run] for a packet that the kernel has to build.
func (d *Dataplane) MustRun(program string, p *Packet) Result {
	d.tb.Helper()
	r, err := d.Run(program, p)
	d.must(err)
	return r
}

// Group reads what a group has, as the program left it; a group without packets has nothing.
func (d *Dataplane) Group(key uint64) (g image.Group) {
	d.tb.Helper()
	if err := d.Map("pw_groups").Lookup(key, &g); !errors.Is(err, ebpf.ErrKeyNotExist) {
		d.must(err)
	}
	return g
}

// WriteGroup replaces what a group has.
func (d *Dataplane) WriteGroup(key uint64, g image.Group) {
	d.tb.Helper()
	d.must(d.Map("pw_groups").Put(key, g))
}

// State reads the state of the meters, the sketch and the heavy flows; what was
// counted is left out.
func (d *Dataplane) State() *image.State {
	d.tb.Helper()
	state := &d.slot().State
	state.Counts = [image.Dispositions]image.Count{}
	return state
}

// WriteState replaces the state, but for what was counted.
func (d *Dataplane) WriteState(state *image.State) {
	d.tb.Helper()
	d.change(func(s *image.Slot) {
		counts := s.State.Counts
		s.State = *state
		s.State.Counts = counts
	})
}

// Counters reads what became of packets.
func (d *Dataplane) Counters() (packets, size [image.Dispositions]uint64) {
	d.tb.Helper()
	for i, c := range d.slot().State.Counts {
		packets[i], size[i] = c.Packets, c.Bytes
	}
	return packets, size
}

// Subnets parses prefixes.
func Subnets(prefixes ...string) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(prefixes))
	for _, p := range prefixes {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

func (d *Dataplane) must(err error) {
	d.tb.Helper()
	if err != nil {
		d.tb.Fatal(err)
	}
}
