// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/datapath/bpfcall"
	"github.com/podweir/podweir/plugin/datapath/kernelbtf"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

func params(t *testing.T, change func(*shaping.Config)) *shaping.Params {
	t.Helper()
	cfg := &shaping.Config{Egress: shaping.DefaultLimit(10_000_000)}
	change(cfg)
	return must.Get(shaping.Compute(cfg, terms.Egress, shaping.Facts{TBF: true, HTB: true, MTU: 1500}, shaping.RandomMajor))(t)
}

// openNode is a node on a bpffs of its own, and the pin directory of an interface.
func openNode(t *testing.T) (n *datapath.Slab, dir string) {
	t.Helper()
	root := testutil.BPFFS(t)
	dir = filepath.Join(root, "network", "container,eth0", "eth0")
	must.OK(t, os.MkdirAll(dir, 0o700))
	return again(t, root), dir
}

// again is another process's look at the node of a bpffs.
func again(t *testing.T, root string) *datapath.Slab {
	t.Helper()
	n := datapath.OpenSlab(root, filepath.Join(root, "node"))
	t.Cleanup(n.Close)
	return n
}

func policing(c *shaping.Config) { c.Egress.Queue = terms.QueueNone }

// What a slot is configured with is observed as it was computed, changed in place
// and given back.
func TestPrivilegedConfigureObserve(t *testing.T) {
	testutil.RequireRoot(t)
	subnets := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for what, change := range map[string]func(*shaping.Config){
		"pw_band":   func(*shaping.Config) {},
		"pw_class":  func(c *shaping.Config) { c.Egress.Policy = terms.PolicyElephants },
		"pw_police": policing,
		"pw_class with exempt subnets": func(c *shaping.Config) {
			c.Unshaped = subnets
		},
		"pw_police with shaped subnets": func(c *shaping.Config) { policing(c); c.Shaped = subnets },
	} {
		t.Run(what, func(t *testing.T) {
			name, _, _ := strings.Cut(what, " ")
			n, dir := openNode(t)
			p := params(t, change)
			must.Be(t, "program that the parameters name", name, p.ProgramName())
			must.Be(t, "Observe of nothing", nil, must.Get(n.Observe(dir, terms.Egress))(t))
			must.OK(t, n.Configure(dir, p, subnets, 0))
			dp := must.Get(n.Observe(dir, terms.Egress))(t)
			if diff := cmp.Diff(p.Datapath, dp.Datapath); diff != "" || dp.ProgramName != name || dp.Slot < image.FirstSlot || dp.Build == "" {
				t.Errorf("Observe = %s, slot %d of %q, limits (-want +got):\n%s", dp.ProgramName, dp.Slot, dp.Build, diff)
			}
			p.Datapath.HoldTicks++
			for i := range 3 { // the two configurations take turns
				p.Datapath.LightRate.Mult++
				must.OK(t, n.Configure(dir, p, subnets, 5))
				after, err := n.Observe(dir, terms.Egress)
				if err != nil || !cmp.Equal(after.Datapath, p.Datapath) || after.Slot != dp.Slot || after.RedirectIndex != 5 {
					t.Errorf("after Configure %d: %+v, %v, want %+v in the same slot", i, after, err, p.Datapath)
				}
			}
			counters, err := n.Counters(dir, terms.Egress)
			if err != nil || len(counters) != int(image.Dispositions)-1 { // one is retired
				t.Errorf("Counters = %v, %v, want all %d dispositions", counters, err, image.Dispositions)
			}
			for _, c := range counters {
				if c.Disposition == "" || c.Packets != 0 {
					t.Errorf("counter %+v of a program that has not run", c)
				}
			}
			must.Len(t, "HeavyFlows", 0, must.Get(n.HeavyFlows(dir, terms.Egress))(t))
			for range 2 {
				must.OK(t, n.GiveBack(dir, terms.Egress, subnets, 0)) // also if there is no slot
			}
			must.Be(t, "Observe after GiveBack", nil, must.Get(n.Observe(dir, terms.Egress))(t))
			must.Is(t, "Counters without a slot", datapath.ErrNoSlot, must.Err(n.Counters(dir, terms.Egress)))
		})
	}
}

func programID(t *testing.T, p *bpfcall.Program) uint32 {
	t.Helper()
	return must.Get(p.Info())(t).ID
}

// A program is loaded once for the node, whoever asks, and one of another build
// gives way to it.
func TestPrivilegedProgramOfTheNode(t *testing.T) {
	n, dir := openNode(t)
	root := filepath.Join(dir, "..", "..", "..")
	id := func(n *datapath.Slab, c image.Carrier) uint32 {
		t.Helper()
		p := must.Get(n.Program("pw_police", c))(t)
		info, err := p.Info()
		if err != nil || info.Name != "pw_police" || !datapath.Current(info.Name, info.Tag, c) {
			t.Fatalf("Program = %+v, %v, want pw_police of this build", info, err)
		}
		return info.ID
	}
	first := id(n, image.ByClassID)
	must.Be(t, "program of another process", first, id(again(t, root), image.ByClassID))
	if host := id(n, image.ByHostEgress); host == first || host != id(again(t, root), image.ByHostEgress) {
		t.Errorf("the program by device is %d, want one of its own, shared", host)
	}
	if one := id(n, 300); one == id(again(t, root), 300) {
		t.Error("a program for one slot is shared")
	}
	// Whoever made the slab knows the programs that others load over it.
	p := must.Get(again(t, root).Program("pw_band", image.ByClassID))(t)
	info, err := p.Info()
	if err != nil || !n.Serves(info.ID, "pw_band") {
		t.Errorf("Serves = false of a program of another process (%v), want true", err)
	}
	must.Be(t, "pw_band of the process that made the slab", info.ID, programID(t, must.Get(n.Program("pw_band", image.ByClassID))(t)))
	// A pinned program with the right name is of another build if its tag is not ours.
	next := []byte{0xb7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x95, 0, 0, 0, 0, 0, 0, 0} // r0 = -1; exit
	other := must.Get(bpfcall.LoadProgram("pw_police", image.License, next))(t)
	defer func() { _ = other.Close() }()
	pin := filepath.Join(root, "node", "pw_police")
	must.OK(t, errors.Join(os.Remove(pin), other.Pin(pin)))
	newer := id(again(t, root), image.ByClassID)
	if newer == first || newer != id(again(t, root), image.ByClassID) {
		t.Errorf("beside a pinned program of another build %d was returned, want a new one, once", newer)
	}
	must.Fail(t, "an unknown program", must.Err(n.Program("pw_none", image.ByClassID)), "pw_none")
}

// A map whose pin was lost is made again when somebody writes to it, and programs over the lost one give way.
func TestPrivilegedProgramsOverALostMap(t *testing.T) {
	n, dir := openNode(t)
	root := filepath.Join(dir, "..", "..", "..")
	subnets := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	must.OK(t, n.Configure(dir, params(t, func(c *shaping.Config) { policing(c); c.Shaped = subnets }), subnets, 0))
	ceiling := must.Get(image.ProgramByName(datapath.CeilingProgram))(t)
	for _, lost := range ceiling.MapNames() {
		first := programID(t, must.Get(again(t, root).Program(ceiling.Name, image.ByClassID))(t))
		must.OK(t, os.Remove(filepath.Join(root, "node", lost)))
		now := again(t, root)
		kept := lost == "pw_scratch" // programs keep nothing in it
		must.Be(t, lost+" lost: the program serves", kept, now.Serves(first, ceiling.Name))
		must.OK(t, must.Err(now.Stamp(dir, terms.Egress, subnets)))
		must.OK(t, now.PutHost(dir, terms.Egress, 7))
		next := programID(t, must.Get(now.Program(ceiling.Name, image.ByClassID))(t))
		must.Be(t, lost+" lost: the program stays", kept, next == first)
		must.Be(t, lost+" lost: the program then serves", true, again(t, root).Serves(next, ceiling.Name))
	}
	must.Be(t, "the device's slot", must.Get(n.Slot(dir, terms.Egress))(t), must.Get(again(t, root).HostSlot(terms.Egress, 7))(t))
	m := must.Get(ebpf.LoadPinnedMap(filepath.Join(root, "node", "pw_subnets"), nil))(t)
	defer func() { _ = m.Close() }()
	var key, value []byte
	must.Be(t, "a subnet in the map that was made again", true, m.Iterate().Next(&key, &value))
}

// A flood becomes one heavy flow with its addresses, and every packet is
// counted once, in the slot that the program serves.
func TestPrivilegedCountersAndHeavyFlows(t *testing.T) {
	n, dir := openNode(t)
	beside := filepath.Join(filepath.Dir(dir), "eth1")
	must.OK(t, os.Mkdir(beside, 0o700))
	for _, at := range []string{beside, dir} {
		must.OK(t, n.Configure(at, params(t, policing), nil, 0))
	}
	slot := must.Get(n.Slot(dir, terms.Egress))(t)
	prog := must.Get(n.Program("pw_police", image.Carrier(slot)))(t)
	const packets = 2000
	for range packets {
		must.OK(t, must.Err(prog.Run(udpPacket(1400))))
	}
	if sum, size := sumOf(t, n, dir); sum != packets || size != packets*1400 {
		t.Errorf("counted %d packets and %d bytes, want %d and %d", sum, size, packets, packets*1400)
	}
	if sum, _ := sumOf(t, n, beside); sum != 0 {
		t.Errorf("counted %d packets in the slot of another interface", sum)
	}
	flows := must.Len(t, "HeavyFlows", 1, must.Get(n.HeavyFlows(dir, terms.Egress))(t))
	f := flows[0]
	if f.Protocol != 17 || f.Source.String() != "10.0.0.1:4660" || f.Dest.String() != "10.0.0.2:80" {
		t.Errorf("heavy flow %+v, want udp 10.0.0.1:4660 > 10.0.0.2:80", f)
	}
	if f.Bytes == 0 || f.Bytes > packets*1400 || f.LastSeen > time.Minute || f.Since < f.LastSeen {
		t.Errorf("heavy flow %+v", f)
	}
}

// sumOf is all that was counted of egress.
func sumOf(t *testing.T, n *datapath.Slab, dir string) (packets, size uint64) {
	t.Helper()
	counters := must.Get(n.Counters(dir, terms.Egress))(t)
	for _, c := range counters {
		packets += c.Packets
		size += c.Bytes
	}
	return packets, size
}

// The copies answer next.
func TestPrivilegedVerdicts(t *testing.T) {
	testutil.RequireRoot(t)
	all := must.Len(t, "programs of TestVerdicts", 5, must.Get(datapath.TestVerdicts())(t))
	for _, v := range all {
		must.Be(t, v.Program, "", v.Wrong)
	}
}

// udpPacket is an Ethernet frame of this length: 10.0.0.1:4660 to 10.0.0.2:80.
func udpPacket(length int) []byte {
	b := make([]byte, length)
	b[12] = 0x08
	ip := b[14:]
	ip[0], ip[8], ip[9] = 0x45, 64, 17
	ip[2], ip[3] = byte((length-14)>>8), byte(length-14)
	copy(ip[12:], []byte{10, 0, 0, 1, 10, 0, 0, 2})
	copy(ip[20:], []byte{0x12, 0x34, 0, 80, byte((length - 34) >> 8), byte(length - 34)})
	return b
}

func TestPrivilegedRecord(t *testing.T) {
	_, dir := openNode(t)
	must.Is(t, "ReadRecord of nothing", os.ErrNotExist, must.Err(datapath.ReadRecord(dir)))
	for _, size := range []int{1, 511, 512, 513, 20_000, 3} {
		want := bytes.Repeat([]byte("x"), size)
		must.OK(t, datapath.WriteRecord(dir, want))
		must.Be(t, fmt.Sprintf("a record of %d bytes", size), string(want), string(must.Get(datapath.ReadRecord(dir))(t)))
	}
	must.Len(t, "pinned after WriteRecord", 1, must.Get(os.ReadDir(dir))(t))
	// What a killed run left in the way of the next.
	must.OK(t, os.Rename(filepath.Join(dir, "record"), filepath.Join(dir, "record-next")))
	must.OK(t, datapath.WriteRecord(dir, []byte("y")))
}

func TestPrivilegedTCX(t *testing.T) {
	testutil.RequireQdisc(t, "tcx")
	ns := testutil.NewNetNS(t)
	n, dir := openNode(t)
	lo := ns.Interface(t, "lo").Index
	police := must.Get(n.Program("pw_police", 300))(t)
	names := func() (all []string) {
		t.Helper()
		must.OK(t, ns.Do(func() error {
			progs, err := datapath.QueryTCX(lo)
			for _, p := range progs {
				all = append(all, p.Hook.String()+" "+p.Name)
			}
			return err
		}))
		return all
	}
	attach := func(prog *bpfcall.Program, h terms.Hook) error {
		return ns.Do(func() error { return datapath.AttachTCX(dir, terms.Egress, datapath.ProgramLink, prog, lo, h) })
	}
	must.Len(t, "directories of a new namespace", 0, names())
	other := testutil.Load(t, "other", asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}) // TCX_NEXT
	ns.AttachTCX(t, lo, "egress", other, link.Tail())
	must.OK(t, attach(police, terms.HookEgress))
	must.Match(t, "QueryTCX, at the head", []string{"egress pw_police", "egress other"}, names())
	// Once more, as when another program had come in between.
	must.OK(t, attach(police, terms.HookEgress))
	must.Match(t, "QueryTCX after a second attach", []string{"egress pw_police", "egress other"}, names())
	// The kernel detaches the link of an unpinned one later, and until then refuses the
	// same program.
	for range 50 {
		must.OK(t, datapath.DetachTCX(dir, terms.Egress, datapath.ProgramLink))
		must.OK(t, attach(police, terms.HookEgress))
	}
	must.Fail(t, "AttachTCX to no TCX hook", attach(police, terms.HookOwnQdisc), "own-qdisc")
	for range 2 {
		must.OK(t, datapath.DetachTCX(dir, terms.Egress, datapath.ProgramLink))
	}
	testutil.Eventually(t, 5*time.Second, "only the other program is left", func() bool {
		return cmp.Equal(names(), []string{"egress other"})
	})
}

// With the first program the node learns where this kernel has what leads to a
// queue.
func TestPrivilegedLayout(t *testing.T) {
	n, dir := openNode(t)
	must.OK(t, must.Err(n.Program("pw_band", image.ByClassID)))
	m := must.Get(ebpf.LoadPinnedMap(filepath.Join(dir, "..", "..", "..", "node", "pw_layout"), nil))(t)
	defer func() { _ = m.Close() }()
	var got image.Layout
	must.OK(t, m.Lookup(uint32(0), &got))
	raw, err := os.ReadFile("/sys/kernel/btf/vmlinux")
	if errors.Is(err, os.ErrNotExist) {
		must.Be(t, "layout on a kernel that does not tell its types", image.Layout{}, got)
		return
	}
	must.OK(t, err)
	types := must.Get(kernelbtf.Parse(raw))(t)
	offset := func(structure, member string) uint32 {
		t.Helper()
		return must.Get(types.Offset(structure, member))(t)
	}
	want := image.Layout{
		SkbDev: offset("sk_buff", "dev"), DevQdisc: offset("net_device", "qdisc"),
		QdiscBacklog: offset("Qdisc", "qstats") + offset("gnet_stats_queue", "backlog"),
	}
	must.Be(t, "layout", want, got)
}

// A kernel that lets no program read its memory takes the programs without that, and
// they are of this build.
func TestPrivilegedUnsightedProgram(t *testing.T) {
	n, dir := openNode(t)
	first := must.Get(n.Program("pw_class", image.ByClassID))(t)
	p := must.Get(image.ProgramByName("pw_class"))(t)
	fds := make(map[string]int)
	for _, name := range p.MapNames() {
		m := must.Get(bpfcall.OpenMap(filepath.Join(dir, "..", "..", "..", "node", name)))(t)
		defer func() { _ = m.Close() }()
		fds[name] = m.FD()
	}
	text := must.Get(p.Link(fds, image.ByClassID))(t)
	without := must.Get(bpfcall.LoadProgram(p.Name, image.License, image.Unsighted(text)))(t)
	defer func() { _ = without.Close() }()
	pin := filepath.Join(dir, "..", "..", "..", "node", "pw_class")
	must.OK(t, errors.Join(os.Remove(pin), without.Pin(pin)))
	again := must.Get(again(t, filepath.Join(dir, "..", "..", "..")).Program("pw_class", image.ByClassID))(t)
	if got := programID(t, again); got != programID(t, without) || got == programID(t, first) {
		t.Errorf("the node has program %d, want %d, which is pinned and does without reading", got, programID(t, without))
	}
}

// A process that may not make maps gets an error, and no more.
func TestPrivilegedVerdictsWithoutCapability(t *testing.T) {
	err := testutil.WithoutCapabilities(t, func() error { return must.Err(datapath.TestVerdicts()) })
	must.Is(t, "without capabilities", unix.EPERM, err)
}
