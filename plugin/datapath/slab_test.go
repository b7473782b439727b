// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/datapath/bpfcall"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// inMemory is a node whose slab is plain memory in which so many slots are not taken,
// with a directory for each interface.
func inMemory(t *testing.T, free int) *Node {
	t.Helper()
	n := OpenNode(t.TempDir(), t.TempDir())
	slots := make([]image.Slot, chunkSlots())
	for i := free; i < len(slots); i++ {
		slots[i].Owner, slots[i].SinceNs = 1, boottime()
	}
	number := image.FirstSlot / chunkSlots()
	for i := range chunkGroups() {
		n.groups[number*chunkGroups()+i] = group{slots[i*groupSlots:][:groupSlots], func() error { return nil }}
	}
	must.OK(t, os.WriteFile(filepath.Join(n.dir, fmt.Sprint(chunkPin, number)), nil, 0o600))
	return n
}

// interfaceDir makes the directory of an interface's pins.
func (n *Node) interfaceDir(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(n.root, name)
	must.OK(t, os.MkdirAll(dir, 0o700))
	return dir
}

// Of many that want a slot at once each gets another one, until none is left.
func TestClaim(t *testing.T) {
	const slots = 32
	n := inMemory(t, slots)
	numbers := make([]atomic.Uint32, slots)
	var group sync.WaitGroup
	for owner := range uint64(slots) {
		group.Go(func() {
			process := OpenNode(n.root, n.dir)
			process.groups = n.groups
			s, ok, err := process.claim(owner + 1)
			if !ok || err != nil || s.number < image.FirstSlot || s.number >= image.FirstSlot+slots {
				t.Errorf("claim = slot %d, %v, %v, want one of %d", s.number, ok, err, slots)
				return
			}
			if numbers[s.number-image.FirstSlot].Add(1) != 1 {
				t.Errorf("slot %d has two owners", s.number)
			}
		})
	}
	group.Wait()
	if s, ok, err := n.claim(1000); ok || err != nil {
		t.Errorf("claim = slot %d, %v, want none: all are taken", s.number, err)
	}
}

func TestFromLast(t *testing.T) {
	tests := []struct {
		name  string
		there []uint32
		last  uint32
		want  []uint32
	}{
		{"no hint", []uint32{1, 2, 3}, 0, []uint32{3, 2, 1}},
		{"newest", []uint32{1, 2, 3}, 3, []uint32{3, 2, 1}},
		{"in between", []uint32{1, 2, 3, 4}, 2, []uint32{2, 1, 4, 3}},
		{"gone", []uint32{1, 2}, 9, []uint32{2, 1}},
		{"none", nil, 1, nil},
	}
	for _, tt := range tests {
		if got := fromLast(tt.there, tt.last); !slices.Equal(got, tt.want) {
			t.Errorf("%s: fromLast(%v, %d) = %v, want %v", tt.name, tt.there, tt.last, got, tt.want)
		}
	}
}

// A slot that was given back rests, and is empty when it is taken again.
func TestSlotsAreReused(t *testing.T) {
	n := inMemory(t, 1)
	dir := n.interfaceDir(t, "a")
	s, fresh, err := n.take(dir, terms.Egress)
	if err != nil || !fresh || s.HashKeys == [11][2]uint64{} || s.Epoch != 1 {
		t.Fatalf("take = fresh %v, epoch %d, %v, want a fresh slot with keys", fresh, s.Epoch, err)
	}
	s.own(n.owner(dir, terms.Egress))
	keys := s.HashKeys
	s.State.TotalTat, s.State.Counts[0].Packets = 7, 8
	s.configure(&image.Config{AbiVersion: ABIVersion, HoldTicks: 9})
	if again, fresh, err := n.take(dir, terms.Egress); err != nil || fresh || again.State.TotalTat != 7 {
		t.Errorf("take again = fresh %v, %v, want the same slot as it is", fresh, err)
	}
	s.release()
	if s.config().AbiVersion != 0 {
		t.Error("a program still finds a configuration in a slot that was given back")
	}
	if _, ok, err := n.claim(5); ok || err != nil {
		t.Errorf("a slot was taken at once after it was given back (%v)", err)
	}
	atomic.StoreUint64(&s.SinceNs, boottime()-uint64(slotRest))
	s, fresh, err = n.take(n.interfaceDir(t, "b"), terms.Egress)
	if err != nil || !fresh || s.State.TotalTat != 0 || s.State.Counts[0].Packets != 0 || s.Config != [2]image.Config{} ||
		s.HashKeys == keys || s.Epoch != 2 {
		t.Errorf("take = fresh %v, epoch %d, %v, tat %d, want an empty slot with keys of its own", fresh, s.Epoch, err, s.State.TotalTat)
	}
	if _, found, err := n.find(dir, terms.Egress); found || err != nil {
		t.Errorf("who had the slot before still finds it (%v)", err)
	}
}

// Who was killed before the slot was empty finds it, and empties it.
func TestInterruptedTake(t *testing.T) {
	n := inMemory(t, 2)
	dir := n.interfaceDir(t, "a")
	half, ok, err := n.claim(n.owner(dir, terms.Ingress))
	if !ok || err != nil {
		t.Fatal("no slot", err)
	}
	must.OK(t, half.link(dir, terms.Ingress))
	half.State.TotalTat = 7
	s, fresh, err := n.take(dir, terms.Ingress)
	if err != nil || !fresh || s.number != half.number || s.State.TotalTat != 0 || s.Epoch != 1 {
		t.Errorf("take = slot %d, fresh %v, tat %d, %v, want slot %d, emptied", s.number, fresh, s.State.TotalTat, err, half.number)
	}
}

// What is of an interface that lives stays, one that was just claimed too; of two with
// the same owner, as an interrupted take leaves them, the one that is linked.
func TestCollect(t *testing.T) {
	n := inMemory(t, 8)
	old := boottime() - uint64(young) - 1 // before the boot, if that was just now
	var dirs []string
	slots := make(map[string]slot)
	for _, name := range []string{"lives", "gone", "young", "twice", "claimed"} {
		dir := n.interfaceDir(t, name)
		if name != "gone" && name != "young" {
			dirs = append(dirs, dir)
		}
		if name == "twice" || name == "claimed" {
			s, _, err := n.claim(n.owner(dir, terms.Egress))
			must.OK(t, err)
			atomic.StoreUint64(&s.SinceNs, old)
			slots[name+" without a link"] = s
		}
		if name == "claimed" {
			continue
		}
		s, _, err := n.take(dir, terms.Egress)
		must.OK(t, err)
		s.own(n.owner(dir, terms.Egress))
		if name != "young" {
			atomic.StoreUint64(&s.SinceNs, old)
		}
		slots[name] = s
	}
	list := func() ([]string, error) { return dirs, nil }
	if left, err := n.Left(list); left != 2 || err != nil {
		t.Errorf("Left = %d, %v, want 2", left, err)
	}
	if collected, err := n.Collect(list); err != nil || collected != 2 {
		t.Errorf("Collect = %d, %v, want the one of nobody and the one that is not linked", collected, err)
	}
	for name, want := range map[string]bool{
		"lives": true, "gone": false, "young": true, "twice": true, "twice without a link": false, "claimed without a link": true,
	} {
		if got := atomic.LoadUint64(&slots[name].Owner) != 0; got != want {
			t.Errorf("the slot of %s has an owner: %v, want %v", name, got, want)
		}
	}
	atomic.StoreUint64(&slots["young"].SinceNs, old)
	if _, err := n.Collect(func() ([]string, error) { return nil, errors.New("no list") }); err == nil {
		t.Error("Collect without a list = nil, want an error")
	}
}

// The slab grows by chunks that every process sees, and slots keep apart what they
// know.
func TestPrivilegedSlabGrows(t *testing.T) {
	testutil.RequireRoot(t)
	root := testutil.BPFFS(t)
	dir := filepath.Join(root, "node")
	const owners = 70 // three chunks
	numbers := map[uint32]int{}
	nodes := []*Node{OpenNode(root, dir), OpenNode(root, dir)}
	for _, n := range nodes {
		defer n.Close()
	}
	for i := range owners {
		n := nodes[i%2]
		at := n.interfaceDir(t, fmt.Sprint(i))
		s, fresh, err := n.take(at, terms.Egress)
		if err != nil || !fresh {
			t.Fatalf("take %d = fresh %v, %v", i, fresh, err)
		}
		s.own(n.owner(at, terms.Egress))
		numbers[s.number]++
		s.State.TotalTat = uint64(i + 1)
	}
	if len(numbers) != owners {
		t.Errorf("%d owners have %d slots", owners, len(numbers))
	}
	third := OpenNode(root, dir)
	defer third.Close()
	for i := range owners {
		s, found, err := third.find(filepath.Join(root, fmt.Sprint(i)), terms.Egress)
		if err != nil || !found || s.State.TotalTat != uint64(i+1) {
			t.Errorf("find of owner %d = %v, %v, want the slot with what it was given", i+1, found, err)
		}
	}
	if taken, all, err := third.Taken(); taken != owners || all != 96 || err != nil {
		t.Errorf("Taken = %d of %d, %v, want %d of 96", taken, all, err, owners)
	}
	// Whoever takes one maps no more than a few of the chunk that has one.
	fourth := OpenNode(root, dir)
	defer fourth.Close()
	if _, _, err := fourth.take(fourth.interfaceDir(t, "one more"), terms.Egress); err != nil || len(fourth.groups) > 2 {
		t.Errorf("one slot was taken (%v) with %d groups mapped, want 1, or 2 if one was full", err, len(fourth.groups))
	}
}

// A chunk that is pinned is the one that programs find, also where somebody was killed
// between the two steps.
func TestPrivilegedSlabHasWhatIsPinned(t *testing.T) {
	testutil.RequireRoot(t)
	root := testutil.BPFFS(t)
	n := OpenNode(root, filepath.Join(root, "node"))
	defer n.Close()
	number := uint32(image.FirstSlot) / chunkSlots()
	for range 20 {
		must.OK(t, n.grow())
		m, err := bpfcall.OpenMap(n.chunkPath(number))
		must.OK(t, err)
		var id uint32
		if err := n.maps[mapSlab].Lookup(bytesOf(&number), bytesOf(&id)); err != nil || id != m.ID() {
			t.Errorf("the slab has map %d for chunk %d (%v), want the pinned one, %d", id, number, err, m.ID())
		}
		must.OK(t, errors.Join(m.Close(), os.Remove(n.chunkPath(number))))
	}
}

// Who claims a slot of a node full of pods looks at all chunks once, and the next one
// looks where a slot was free.
func TestPrivilegedClaimStartsWhereOneWasFree(t *testing.T) {
	testutil.RequireRoot(t)
	root := testutil.BPFFS(t)
	dir := filepath.Join(root, "node")
	n := OpenNode(root, dir)
	defer n.Close()
	oldest := uint32(image.FirstSlot) / chunkSlots()
	for i := range uint32(3) {
		must.OK(t, n.grow())
		if _, err := n.slot((oldest + i) * chunkSlots()); err != nil { // who looked there adds another one
			t.Fatal(err)
		}
	}
	must.OK(t, n.each(func(s slot) { s.Owner = uint64(s.number - s.number%chunkSlots() - image.FirstSlot) }))
	full := 2 * int(chunkGroups())
	for i, want := range []int{full + 1, 1, 1} {
		process := OpenNode(root, dir)
		defer process.Close()
		s, ok, err := process.claim(uint64(i) + 2)
		if !ok || err != nil || s.number/chunkSlots() != oldest || len(process.groups) != want {
			t.Errorf("claim %d = slot %d, %v, %v with %d groups mapped, want one of chunk %d with %d",
				i, s.number, ok, err, len(process.groups), oldest, want)
		}
	}
}

// What other maps have of a slot goes with it.
func TestPrivilegedCollectForgets(t *testing.T) {
	testutil.RequireRoot(t)
	root := testutil.BPFFS(t)
	n := OpenNode(root, filepath.Join(root, "node"))
	defer n.Close()
	subnets := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	limits := &shaping.Params{
		Direction: terms.Egress, Program: shaping.ProgramBand, Exempt: true, Datapath: shaping.Datapath{Policy: terms.PolicyStrict},
	}
	lives, gone := n.interfaceDir(t, "lives"), n.interfaceDir(t, "gone")
	for i, dir := range []string{lives, gone} {
		must.OK(t, n.Configure(dir, limits, subnets, 0))
		must.OK(t, n.PutHost(dir, terms.Egress, i+1))
		s, err := n.View(dir, terms.Egress)
		must.OK(t, err)
		atomic.StoreUint64(&s.SinceNs, boottime()-uint64(young)-1) // before the boot, if that was just now
	}
	if collected, err := n.Collect(func() ([]string, error) { return []string{lives}, nil }); collected != 1 || err != nil {
		t.Fatalf("Collect = %d, %v, want 1", collected, err)
	}
	for name, want := range map[string]int{mapHosts: 1, mapSubnets: len(subnets)} {
		m, err := n.table(name)
		must.OK(t, err)
		if keys, err := m.Keys(); len(keys) != want || err != nil {
			t.Errorf("%s has %d keys (%v), want those %d of the slot that lives", name, len(keys), err, want)
		}
	}
}

// A node whose slab has no room for another chunk says so, and gives a slot again as soon
// as one has rested.
func TestPrivilegedSlabIsFull(t *testing.T) {
	testutil.RequireRoot(t)
	root := testutil.BPFFS(t)
	n := OpenNode(root, filepath.Join(root, "node"))
	defer n.Close()
	must.OK(t, n.grow())
	// The last chunk that there can be, in the place of two thousand of them.
	last := n.maps[mapSlab].MaxEntries() - 1
	must.OK(t, os.Rename(n.chunkPath(uint32(image.FirstSlot)/chunkSlots()), n.chunkPath(last)))
	one := n.interfaceDir(t, "one")
	s, _, err := n.take(one, terms.Egress)
	must.OK(t, err)
	must.OK(t, n.each(func(s slot) { s.Owner, s.SinceNs = 1, boottime() }))
	other := n.interfaceDir(t, "other")
	if _, _, err := n.take(other, terms.Egress); !errors.Is(err, ErrFull) {
		t.Errorf("take of a slot of a full slab = %v, want %v", err, ErrFull)
	}
	s.release()
	if _, _, err := n.take(other, terms.Egress); !errors.Is(err, ErrFull) {
		t.Errorf("take of the slot that was just given back = %v, want %v", err, ErrFull)
	}
	atomic.StoreUint64(&s.SinceNs, boottime()-uint64(slotRest))
	if again, fresh, err := n.take(other, terms.Egress); err != nil || !fresh || again.number != s.number {
		t.Errorf("take = slot %d, fresh %v, %v, want the one that has rested, %d", again.number, fresh, err, s.number)
	}
}

// A slot is given back and taken again and again while packets meet its program and those
// of its neighbours: no packet is lost, no neighbour notices, and the last owner has the
// limits that it requested.
func TestPrivilegedSlotsAreReusedUnderTraffic(t *testing.T) {
	testutil.RequireRoot(t)
	root := testutil.BPFFS(t)
	n := OpenNode(root, filepath.Join(root, "node"))
	defer n.Close()
	limits := &shaping.Params{Direction: terms.Egress, Program: shaping.ProgramBand, Datapath: shaping.Datapath{Policy: terms.PolicyStrict}}
	number := func(name string) uint32 {
		t.Helper()
		dir := n.interfaceDir(t, name)
		must.OK(t, n.Configure(dir, limits, nil, 0))
		number, err := n.Slot(dir, terms.Egress)
		must.OK(t, err)
		return number
	}
	before, reused, after := number("before"), number("owner 0"), number("after")
	stop := make(chan struct{})
	var traffic sync.WaitGroup
	sent := make(map[uint32]*uint64)
	for _, slot := range []uint32{before, reused, after} {
		packets := new(uint64)
		sent[slot] = packets
		prog, err := n.Program("pw_band", image.Carrier(slot))
		must.OK(t, err)
		traffic.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				packet := testPackets()[i%len(testPackets())]
				if verdict, err := prog.Run(packet.data); err != nil || verdict != verdictNext {
					t.Errorf("packet %d in slot %d: verdict %d, %v, want next", i, slot, verdict, err)
					return
				}
				*packets++
			}
		})
	}
	const owners = 1000
	for i := range owners {
		s, err := n.slot(reused)
		must.OK(t, err)
		must.OK(t, n.GiveBack(filepath.Join(root, fmt.Sprint("owner ", i)), terms.Egress, nil, 0))
		atomic.StoreUint64(&s.SinceNs, boottime()-uint64(slotRest))
		limits.Datapath.HoldTicks = uint32(i)
		if got := number(fmt.Sprint("owner ", i+1)); got != reused {
			t.Fatalf("owner %d has slot %d, want the one that was given back, %d", i+1, got, reused)
		}
	}
	close(stop)
	traffic.Wait()
	counted := n.countAll()
	for _, slot := range []uint32{before, after} {
		if got, want := counted[slot], *sent[slot]; got != want || want == 0 {
			t.Errorf("slot %d counted %d packets, want %d", slot, got, want)
		}
	}
	for slot, packets := range counted {
		if sent[slot] == nil && packets != 0 {
			t.Errorf("slot %d counted %d packets, and none met its program", slot, packets)
		}
	}
	if s, err := n.slot(reused); err != nil || s.config().HoldTicks != owners-1 || s.config().AbiVersion != ABIVersion {
		t.Errorf("the last owner has %d hold ticks, ABI %d, %v, want %d, %d", s.config().HoldTicks, s.config().AbiVersion, err, owners-1, ABIVersion)
	}
}

// Whatever number a filter carries, its packets touch no slot but that one.
func FuzzSlotNumber(f *testing.F) {
	testutil.RequireRoot(f)
	root := testutil.BPFFS(f)
	n := OpenNode(root, filepath.Join(root, "node"))
	f.Cleanup(n.Close)
	limits := &shaping.Params{Direction: terms.Egress, Program: shaping.ProgramBand, Datapath: shaping.Datapath{Policy: terms.PolicyStrict}}
	for i := range 40 {
		dir := filepath.Join(root, fmt.Sprint(i))
		must.OK(f, os.MkdirAll(dir, 0o700))
		must.OK(f, n.Configure(dir, limits, nil, 0))
	}
	for _, number := range []uint32{3, 255, 256, 257, 287, 288, 295, 296, 320, 65535, 65536, 1 << 31} {
		f.Add(number)
	}
	f.Fuzz(func(t *testing.T, number uint32) {
		p, err := image.ProgramByName("pw_band")
		must.OK(t, err)
		if number < image.FirstSlot {
			number += image.FirstSlot // below are other carriers
		}
		prog, err := load(&p, image.Carrier(number), n.maps)
		must.OK(t, err)
		defer func() { _ = prog.Close() }()
		before := n.countAll()
		for _, packet := range testPackets() {
			if verdict, err := prog.Run(packet.data); err != nil || verdict != verdictNext {
				t.Errorf("slot %d: verdict %d, %v, want next", number, verdict, err)
			}
		}
		for slot, packets := range n.countAll() {
			want := uint64(0)
			if slot == number {
				want = uint64(len(testPackets()))
			}
			if packets-before[slot] != want {
				t.Errorf("a program for slot %d counted %d packets in slot %d, want %d", number, packets-before[slot], slot, want)
			}
		}
	})
}

// countAll is what was counted in every slot.
func (n *Node) countAll() map[uint32]uint64 {
	all := make(map[uint32]uint64)
	_ = n.each(func(s slot) {
		for i := range s.State.Counts {
			all[s.number] += s.State.Counts[i].Packets
		}
	})
	return all
}
