// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath_test

import (
	"bytes"
	"errors"
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

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/datapath/bpfcall"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/testutil"
)

func params(t *testing.T, change func(*shaping.Config)) *shaping.Params {
	t.Helper()
	cfg := &shaping.Config{Egress: &shaping.Limit{
		Rate: 10_000_000, Horizon: shaping.DefaultHorizon, LightShare: shaping.DefaultLightShare,
		HeavyThreshold: shaping.DefaultHeavyThreshold, Policy: shaping.PolicyStrict,
		Queue: shaping.QueueAuto, Mode: shaping.ModeAuto, Place: shaping.PlaceAuto,
	}}
	change(cfg)
	p, err := shaping.Compute(cfg, shaping.Egress, shaping.Facts{TBF: true, HTB: true, FQ: true, MTU: 1500}, shaping.RandomMajor)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// pinDir is an empty directory on bpffs.
func pinDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(testutil.BPFFS(t), "pins")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func policing(c *shaping.Config) { c.Egress.Queue = shaping.QueueNone }

// Every program is loaded, pinned, observed as it was computed, changed and
// unpinned.
func TestPrivilegedLoadObserveUpdate(t *testing.T) {
	testutil.RequireRoot(t)
	subnets := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for name, change := range map[string]func(*shaping.Config){
		"pw_band":   func(*shaping.Config) {},
		"pw_class":  func(c *shaping.Config) { c.Egress.Policy = shaping.PolicyElephants },
		"pw_police": policing,
		"pw_edt":    func(c *shaping.Config) { c.Egress.Queue = shaping.QueueFQ },
		"pw_class_x": func(c *shaping.Config) {
			c.Unshaped = subnets
		},
		"pw_police_x": func(c *shaping.Config) { policing(c); c.Shaped = subnets },
	} {
		t.Run(name, func(t *testing.T) {
			dir := pinDir(t)
			p := params(t, change)
			if p.ProgramName() != name {
				t.Fatalf("the parameters name %s, want %s", p.ProgramName(), name)
			}
			if dp, err := datapath.Observe(dir, shaping.Egress); err != nil || dp != nil {
				t.Fatalf("Observe of nothing = %+v, %v, want nil", dp, err)
			}
			objs, err := datapath.Load(p, subnets)
			if err != nil {
				t.Fatal(err)
			}
			defer objs.Close()
			if err := objs.Pin(dir, p, 0); err != nil {
				t.Fatal(err)
			}
			dp, err := datapath.Observe(dir, shaping.Egress)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(p.Datapath, dp.Datapath); diff != "" || dp.ProgramName != name || (dp.GuardID != 0) != p.Guard || dp.Outdated != "" {
				t.Errorf("Observe = %s, guard %d, outdated %q, limits (-want +got):\n%s", dp.ProgramName, dp.GuardID, dp.Outdated, diff)
			}
			changed := p.Datapath
			changed.HoldTicks++
			for i := range 3 { // the entries take turns
				changed.LightRate.Mult++
				if err := datapath.Update(dir, shaping.Egress, &changed, 5); err != nil {
					t.Fatal(err)
				}
				after, err := datapath.Observe(dir, shaping.Egress)
				if err != nil || !cmp.Equal(after.Datapath, changed) || after.ProgramID != dp.ProgramID || after.RedirectIndex != 5 {
					t.Errorf("after Update %d: %+v, %v, want %+v in the same program", i, after, err, changed)
				}
			}
			counters, err := datapath.Counters(dir, shaping.Egress)
			if err != nil || len(counters) != 11 {
				t.Errorf("Counters = %v, %v, want all eleven dispositions", counters, err)
			}
			for _, c := range counters {
				if c.Disposition == "" || c.Packets != 0 {
					t.Errorf("counter %+v of a program that has not run", c)
				}
			}
			if flows, err := datapath.HeavyFlows(dir, shaping.Egress); err != nil || len(flows) != 0 {
				t.Errorf("HeavyFlows = %v, %v, want none", flows, err)
			}
			if err := datapath.Unpin(dir, shaping.Egress); err != nil {
				t.Fatal(err)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
				t.Errorf("Unpin leaves %v, %v", left, err)
			}
		})
	}
}

// A flood becomes one heavy flow with its addresses, and every packet is
// counted once.
func TestPrivilegedCountersAndHeavyFlows(t *testing.T) {
	testutil.RequireRoot(t)
	dir := pinDir(t)
	p := params(t, policing)
	objs, err := datapath.Load(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer objs.Close()
	if err := objs.Pin(dir, p, 0); err != nil {
		t.Fatal(err)
	}
	const packets = 2000
	prog, err := ebpf.LoadPinnedProgram(filepath.Join(dir, "egress-program"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = prog.Close() }()
	if _, err := prog.Run(&ebpf.RunOptions{Data: udpPacket(1400), Repeat: packets}); err != nil {
		t.Fatal(err)
	}
	counters, err := datapath.Counters(dir, shaping.Egress)
	if err != nil {
		t.Fatal(err)
	}
	sum, size := uint64(0), uint64(0)
	for _, c := range counters {
		sum += c.Packets
		size += c.Bytes
	}
	if sum != packets || size != packets*1400 {
		t.Errorf("counted %d packets and %d bytes, want %d and %d: %+v", sum, size, packets, packets*1400, counters)
	}
	flows, err := datapath.HeavyFlows(dir, shaping.Egress)
	if err != nil || len(flows) != 1 {
		t.Fatalf("HeavyFlows = %+v, %v, want the one", flows, err)
	}
	f := flows[0]
	if got := f.Name(); got != "udp 10.0.0.1:4660 > 10.0.0.2:80" {
		t.Errorf("heavy flow %q, want udp 10.0.0.1:4660 > 10.0.0.2:80", got)
	}
	if f.Bytes == 0 || f.Bytes > packets*1400 || f.LastSeen > time.Minute || f.Since < f.LastSeen {
		t.Errorf("heavy flow %+v", f)
	}
}

// The copies answer next, and an attached program is told by its tag.
func TestPrivilegedVerdicts(t *testing.T) {
	testutil.RequireRoot(t)
	all, err := datapath.TestVerdicts()
	if err != nil || len(all) != 10 {
		t.Fatalf("TestVerdicts = %+v, %v, want 10 programs", all, err)
	}
	p := params(t, policing)
	objs, err := datapath.Load(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer objs.Close()
	info, err := objs.Program.Info()
	if err != nil {
		t.Fatal(err)
	}
	tag, err := datapath.ProgramTag(info.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		if p, err := image.ProgramByName(v.Program); err != nil || !p.HasTag(v.Tag) {
			t.Errorf("%s has the tag %x here (%v), which is none of the image's", v.Program, v.Tag, err)
		}
		if v.Wrong != "" {
			t.Errorf("%s %s", v.Program, v.Wrong)
		}
		if same := v.Tag == tag; same != (v.Program == "pw_police") {
			t.Errorf("%s has tag %x, the loaded pw_police %x", v.Program, v.Tag, tag)
		}
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

func TestHeavyFlowName(t *testing.T) {
	v4, v6 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	for want, f := range map[string]datapath.HeavyFlow{
		"tcp 10.0.0.1:80 > [fd00::1]:443": {Protocol: 6, Source: netip.AddrPortFrom(v4, 80), Dest: netip.AddrPortFrom(v6, 443)},
		"icmp 10.0.0.1 > 10.0.0.1":        {Protocol: 1, Source: netip.AddrPortFrom(v4, 0), Dest: netip.AddrPortFrom(v4, 0)},
		"proto 47 fd00::1 > fd00::1":      {Protocol: 47, Source: netip.AddrPortFrom(v6, 0), Dest: netip.AddrPortFrom(v6, 0)},
		"ethertype 0x88cc":                {EtherType: 0x88cc},
	} {
		if got := f.Name(); got != want {
			t.Errorf("Name = %q, want %q", got, want)
		}
	}
}

func TestPrivilegedRecord(t *testing.T) {
	testutil.RequireRoot(t)
	dir := pinDir(t)
	if _, err := datapath.ReadRecord(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("ReadRecord of nothing = %v, want ErrNotExist", err)
	}
	for _, size := range []int{1, 511, 512, 513, 20_000, 3} {
		want := bytes.Repeat([]byte("x"), size)
		if err := datapath.WriteRecord(dir, want); err != nil {
			t.Fatal(err)
		}
		got, err := datapath.ReadRecord(dir)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("ReadRecord of %d bytes = %d bytes, %v", size, len(got), err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("after WriteRecord %v are pinned, %v, want one", left, err)
	}
	// What a killed run left in the way of the next.
	if err := os.Rename(filepath.Join(dir, "record"), filepath.Join(dir, "record-next")); err != nil {
		t.Fatal(err)
	}
	if err := datapath.WriteRecord(dir, []byte("y")); err != nil {
		t.Errorf("WriteRecord after an interrupted one = %v", err)
	}
}

func TestPrivilegedTCX(t *testing.T) {
	testutil.RequireRoot(t)
	if !datapath.HaveTCX() {
		testutil.SkipFeature(t, "tcx")
	}
	dir, ns := pinDir(t), testutil.NewNetNS(t)
	lo := ns.Interface(t, "lo").Index
	p := params(t, policing)
	objs, err := datapath.Load(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer objs.Close()
	names := func() (all []string) {
		t.Helper()
		if err := ns.Do(func() error {
			progs, err := datapath.QueryTCX(lo)
			for _, p := range progs {
				all = append(all, p.Hook.String()+" "+p.Name)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return all
	}
	attach := func(prog *bpfcall.Program, h shaping.Hook) error {
		return ns.Do(func() error { return datapath.AttachTCX(dir, shaping.Egress, datapath.ProgramLink, prog, lo, h) })
	}
	if got := names(); len(got) != 0 {
		t.Fatalf("a new namespace has %v", got)
	}
	other, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "other", Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}, // TCX_NEXT
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	if err := ns.Do(func() error {
		l, err := link.AttachTCX(link.TCXOptions{Interface: lo, Program: other, Attach: ebpf.AttachTCXEgress})
		if err == nil {
			t.Cleanup(func() { _ = l.Close() })
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := attach(objs.Program, shaping.HookEgress); err != nil {
		t.Fatal(err)
	}
	if got, want := names(), []string{"egress pw_police", "egress other"}; !cmp.Equal(got, want) {
		t.Errorf("QueryTCX = %v, want %v: at the head", got, want)
	}
	// Once more, as when another program had come in between.
	if err := attach(objs.Program, shaping.HookEgress); err != nil {
		t.Fatal(err)
	}
	if got, want := names(), []string{"egress pw_police", "egress other"}; !cmp.Equal(got, want) {
		t.Errorf("after a second attach QueryTCX = %v, want %v", got, want)
	}
	if err := attach(objs.Program, shaping.HookOwnQdisc); err == nil || !strings.Contains(err.Error(), "own-qdisc") {
		t.Errorf("AttachTCX to no TCX hook = %v, want an error that names it", err)
	}
	for range 2 {
		if err := datapath.DetachTCX(dir, shaping.Egress); err != nil {
			t.Fatal(err)
		}
	}
	testutil.Eventually(t, 5*time.Second, "only the other program is left", func() bool {
		return cmp.Equal(names(), []string{"egress other"})
	})
}
