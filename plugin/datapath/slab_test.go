// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/datapath/bpfcall"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// inMemory is a node whose slab is plain memory in which so many slots are not taken,
// with a directory for each interface.
func inMemory(t *testing.T, free int) *Slab {
	t.Helper()
	n := OpenSlab(t.TempDir(), t.TempDir())
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

// onBPFFS is a node on a BPF file system of its own.
func onBPFFS(tb testing.TB) *Slab {
	tb.Helper()
	root := testutil.BPFFS(tb)
	n := OpenSlab(root, filepath.Join(root, "node"))
	tb.Cleanup(n.Close)
	return n
}

// interfaceDir makes the directory of an interface's pins.
func (n *Slab) interfaceDir(t *testing.T, name string) string {
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
			process := OpenSlab(n.root, n.dir)
			process.groups = n.groups
			s, ok, err := process.claim(owner + 1)
			if !ok || err != nil || s.number < image.FirstSlot || s.number >= image.FirstSlot+slots {
				t.Errorf("claim = slot %d, %v, %v, want one of %d", s.number, ok, err, slots)
				return
			}
			must.Be(t, fmt.Sprintf("owners of slot %d", s.number), 1, numbers[s.number-image.FirstSlot].Add(1))
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
		must.Be(t, tt.name, fmt.Sprint(tt.want), fmt.Sprint(fromLast(tt.there, tt.last)))
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
	must.Be(t, "ABI version in a slot that was given back", 0, s.config().AbiVersion)
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

// Whoever was killed before the slot was empty finds it, and empties it.
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
	must.Be(t, "slots that are left", 2, must.Get(n.Left(list))(t))
	must.Be(t, "slots collected, the one of nobody and the one that is not linked", 2, must.Get(n.Collect(list))(t))
	for name, want := range map[string]bool{
		"lives": true, "gone": false, "young": true, "twice": true, "twice without a link": false, "claimed without a link": true,
	} {
		must.Be(t, fmt.Sprintf("the slot of %s has an owner", name), want, atomic.LoadUint64(&slots[name].Owner) != 0)
	}
	atomic.StoreUint64(&slots["young"].SinceNs, old)
	must.Fail(t, "Collect without a list", must.Err(n.Collect(func() ([]string, error) { return nil, errors.New("no list") })))
}

// Programs use the slot that was left until others stand in their place, however old it is.
func TestCollectKeepsTheSlotThatWasLeft(t *testing.T) {
	n := inMemory(t, 8)
	dir := n.interfaceDir(t, "changes")
	list := func() ([]string, error) { return []string{dir}, nil }
	for i := range 2 {
		s, _, err := n.take(dir, terms.Egress)
		must.OK(t, err)
		s.own(n.owner(dir, terms.Egress))
		atomic.StoreUint64(&s.SinceNs, boottime()-uint64(young)-1)
		if i == 0 {
			must.OK(t, n.Leave(dir, terms.Egress))
		}
	}
	must.Be(t, "slots collected", 0, must.Get(n.Collect(list))(t))
	must.Be(t, "a slot that was left", true, must.Get(n.HasLeft(dir, terms.Egress))(t))
}

// A policer begins with what it lets through at once, unless programs limited the direction before: of a slot that was
// left, or of another layout of the maps, of which the link is there.
func TestPolicerInPlaceOfAnother(t *testing.T) {
	for link, want := range map[string]bool{"": true, slotPin: false, formerPin: false} {
		n := inMemory(t, 8)
		dir := n.interfaceDir(t, "a")
		if link != "" {
			must.OK(t, os.Symlink("70000", pinPath(dir, terms.Egress, link)))
		}
		must.OK(t, n.Configure(dir, &shaping.Params{Direction: terms.Egress, Program: shaping.ProgramPolice}, nil, 0))
		s, found, err := n.find(dir, terms.Egress)
		must.OK(t, err)
		must.Be(t, "a slot", true, found)
		must.Be(t, fmt.Sprintf("credit beside link %q", link), want, s.State.TotalTat == 0)
	}
}

// The slab grows by chunks that every process sees, and slots keep apart what they
// know.
func TestPrivilegedSlabGrows(t *testing.T) {
	first := onBPFFS(t)
	root, dir := first.root, first.dir
	const owners = 70 // three chunks
	numbers := map[uint32]int{}
	nodes := []*Slab{first, OpenSlab(root, dir)}
	defer nodes[1].Close()
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
	must.Be(t, "slots of that many owners", owners, len(numbers))
	third := OpenSlab(root, dir)
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
	fourth := OpenSlab(root, dir)
	defer fourth.Close()
	if _, _, err := fourth.take(fourth.interfaceDir(t, "one more"), terms.Egress); err != nil || len(fourth.groups) > 2 {
		t.Errorf("one slot was taken (%v) with %d groups mapped, want 1, or 2 if one was full", err, len(fourth.groups))
	}
}

// A chunk that is pinned is the one that programs find, also where the slab's own pin was lost. One whose pin was lost
// keeps its place: programs of running pods look slots up in it.
func TestPrivilegedSlabHasWhatIsPinned(t *testing.T) {
	n := onBPFFS(t)
	first := uint32(image.FirstSlot) / chunkSlots()
	var ids []uint32
	for number := first; number < first+5; number++ {
		must.OK(t, n.grow())
		ids = append(ids, must.Get(n.table(filepath.Base(n.chunkPath(number))))(t).ID())
		for i, want := range ids {
			id, at := uint32(0), first+uint32(i)
			if err := n.maps[mapSlab].Lookup(bytesOf(&at), bytesOf(&id)); err != nil || id != want {
				t.Errorf("the slab has map %d for chunk %d (%v), want the first one, %d", id, at, err, want)
			}
		}
		must.OK(t, os.Remove(n.chunkPath(number)))
	}
	must.OK(t, n.grow())
	must.OK(t, os.Remove(filepath.Join(n.dir, mapSlab)))
	n = OpenSlab(n.root, n.dir)
	defer n.Close()
	no := n.chunkPath(first + 6)
	must.OK(t, must.Get(n.table(mapScratch))(t).Pin(no))
	for range 2 { // the second one finds no slab either
		must.Fail(t, "Program beside a pin that is no chunk", must.Err(n.Program("pw_police", ByClassID)), mapSlab)
	}
	must.OK(t, os.Remove(no))
	must.OK(t, must.Err(n.Program("pw_police", ByClassID)))
	id, number := uint32(0), first+5
	chunk := must.Get(n.table(filepath.Base(n.chunkPath(number))))(t)
	if err := n.maps[mapSlab].Lookup(bytesOf(&number), bytesOf(&id)); err != nil || id != chunk.ID() {
		t.Errorf("a slab that was made again has map %d for chunk %d (%v), want the pinned one, %d", id, number, err, chunk.ID())
	}
}

// Whoever claims a slot of a node full of pods looks at all chunks once, and the next one
// looks where a slot was free.
func TestPrivilegedClaimStartsWhereOneWasFree(t *testing.T) {
	n := onBPFFS(t)
	oldest := uint32(image.FirstSlot) / chunkSlots()
	for i := range uint32(3) {
		must.OK(t, n.grow())
		if _, err := n.slot((oldest + i) * chunkSlots()); err != nil { // whoever looked there adds another one
			t.Fatal(err)
		}
	}
	must.OK(t, n.each(func(s slot) { s.Owner = uint64(s.number - s.number%chunkSlots() - image.FirstSlot) }))
	full := 2 * int(chunkGroups())
	for i, want := range []int{full + 1, 1, 1} {
		process := OpenSlab(n.root, n.dir)
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
	n := onBPFFS(t)
	subnets := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	limits := &shaping.Params{
		Direction: terms.Egress, Program: shaping.ProgramBand, Exempt: true, Datapath: image.Config{Policy: uint8(terms.PolicyStrict), InGroup: 1, Group: 3},
	}
	lives, gone := n.interfaceDir(t, "lives"), n.interfaceDir(t, "gone")
	for i, dir := range []string{lives, gone} {
		must.OK(t, n.Configure(dir, limits, subnets, 0))
		must.OK(t, n.PutHost(dir, terms.Egress, i+1))
		s := must.Get(n.mustFind(dir, terms.Egress))(t)
		atomic.StoreUint64(&s.SinceNs, boottime()-uint64(young)-1) // before the boot, if that was just now
	}
	for _, group := range []uint64{3, 5} { // as programs leave them; the limits are those of the first
		m := must.Get(n.table(mapGroups))(t)
		must.OK(t, m.Update(bytesOf(&group), bytesOf(&image.Group{Dropped: image.Count{Packets: group, Bytes: 8 * group}})))
	}
	if collected, err := n.Collect(func() ([]string, error) { return []string{lives}, nil }); collected != 1 || err != nil {
		t.Fatalf("Collect = %d, %v, want 1", collected, err)
	}
	for group, want := range map[uint64]uint64{3: 3, 5: 0} {
		if packets, size, err := n.GroupDropped(group); packets != want || size != 8*want || err != nil {
			t.Errorf("group %d dropped %d packets of %d bytes, %v, want %d: only the group that a slot names stays", group, packets, size, err, want)
		}
	}
	defer func() { // the pod that lives ends after that pin was lost
		must.OK(t, os.Remove(filepath.Join(n.dir, mapSubnets)))
		other := OpenSlab(n.root, n.dir)
		defer other.Close()
		must.OK(t, other.GiveBack(lives, terms.Egress, subnets, 1))
	}()
	for name, want := range map[string]int{mapHosts: 1, mapGroups: 1, mapSubnets: len(subnets)} {
		m := must.Get(n.table(name))(t)
		must.Len(t, "keys of "+name+", those of the slot that lives", want, must.Get(m.Keys())(t))
	}
}

// A node whose slab has no room for another chunk says so, and gives a slot again as soon
// as one has rested.
func TestPrivilegedSlabIsFull(t *testing.T) {
	n := onBPFFS(t)
	must.OK(t, n.grow())
	// The last chunk that there can be, in the place of two thousand of them.
	last := n.maps[mapSlab].MaxEntries() - 1
	must.OK(t, os.Rename(n.chunkPath(uint32(image.FirstSlot)/chunkSlots()), n.chunkPath(last)))
	one := n.interfaceDir(t, "one")
	s, _, err := n.take(one, terms.Egress)
	must.OK(t, err)
	must.OK(t, n.each(func(s slot) { s.Owner, s.SinceNs = 1, boottime() }))
	other := n.interfaceDir(t, "other")
	_, _, err = n.take(other, terms.Egress)
	must.Is(t, "take of a slot of a full slab", ErrFull, err)
	s.release()
	_, _, err = n.take(other, terms.Egress)
	must.Is(t, "take of the slot that was just given back", ErrFull, err)
	atomic.StoreUint64(&s.SinceNs, boottime()-uint64(slotRest))
	if again, fresh, err := n.take(other, terms.Egress); err != nil || !fresh || again.number != s.number {
		t.Errorf("take = slot %d, fresh %v, %v, want the one that has rested, %d", again.number, fresh, err, s.number)
	}
}

// A slot is given back and taken again and again while packets meet its program and those
// of its neighbours: no packet is lost, no neighbour notices, and the last owner has the
// limits that it requested.
func TestPrivilegedSlotsAreReusedUnderTraffic(t *testing.T) {
	n := onBPFFS(t)
	limits := &shaping.Params{Direction: terms.Egress, Program: shaping.ProgramBand, Datapath: image.Config{Policy: uint8(terms.PolicyStrict)}}
	number := func(name string) uint32 {
		t.Helper()
		dir := n.interfaceDir(t, name)
		must.OK(t, n.Configure(dir, limits, nil, 0))
		return must.Get(n.Slot(dir, terms.Egress))(t)
	}
	before, reused, after := number("before"), number("owner 0"), number("after")
	stop := make(chan struct{})
	var traffic sync.WaitGroup
	sent := make(map[uint32]*uint64)
	for _, slot := range []uint32{before, reused, after} {
		packets := new(uint64)
		sent[slot] = packets
		prog := must.Get(n.Program("pw_band", image.Carrier(slot)))(t)
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
		s := must.Get(n.slot(reused))(t)
		must.OK(t, n.GiveBack(filepath.Join(n.root, fmt.Sprint("owner ", i)), terms.Egress, nil, 0))
		atomic.StoreUint64(&s.SinceNs, boottime()-uint64(slotRest))
		limits.Datapath.HoldTicks = uint32(i)
		must.Be(t, "slot of the next owner", reused, number(fmt.Sprint("owner ", i+1)))
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
	n := onBPFFS(f)
	limits := &shaping.Params{Direction: terms.Egress, Program: shaping.ProgramBand, Datapath: image.Config{Policy: uint8(terms.PolicyStrict)}}
	for i := range 40 {
		dir := filepath.Join(n.root, fmt.Sprint(i))
		must.OK(f, os.MkdirAll(dir, 0o700))
		must.OK(f, n.Configure(dir, limits, nil, 0))
	}
	for _, number := range []uint32{3, 255, 256, 257, 287, 288, 295, 296, 320, 65535, 65536, 1 << 31} {
		f.Add(number)
	}
	f.Fuzz(func(t *testing.T, number uint32) {
		p := must.Get(image.ProgramByName("pw_band"))(t)
		if number < image.FirstSlot {
			number += image.FirstSlot // below are other carriers
		}
		prog := must.Get(load(&p, image.Carrier(number), n.maps))(t)
		defer func() { _ = prog.Close() }()
		before := n.countAll()
		for _, packet := range testPackets() {
			must.Be(t, fmt.Sprint("verdict of slot ", number), verdictNext, must.Get(prog.Run(packet.data))(t))
		}
		for slot, packets := range n.countAll() {
			want := uint64(0)
			if slot == number {
				want = uint64(len(testPackets()))
			}
			must.Be(t, fmt.Sprintf("packets that a program for slot %d counted in slot %d", number, slot), want, packets-before[slot])
		}
	})
}

// countAll is what was counted in every slot.
func (n *Slab) countAll() map[uint32]uint64 {
	all := make(map[uint32]uint64)
	_ = n.each(func(s slot) {
		for i := range s.State.Counts {
			all[s.number] += s.State.Counts[i].Packets
		}
	})
	return all
}

// The programs pass everything unmetered if the configuration is of another
// version than theirs.
func TestABIVersionIsThatOfThePrograms(t *testing.T) {
	const header = "../../bpf/lib/abi.h"
	text := must.Get(os.ReadFile(header))(t)
	found := regexp.MustCompile(`(?m)^#define PW_ABI_VERSION (\d+)$`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("%s does not define PW_ABI_VERSION", header)
	}
	must.Be(t, "PW_ABI_VERSION", uint64(ABIVersion), must.Get(strconv.ParseUint(string(found[1]), 10, 32))(t))
}

// Whoever waits for the node's lock gets it when it is released. A process that is stuck with
// it does not stop the others for ever, nor does one that gave up keep it.
func TestNodeLockIsWaitedForInVain(t *testing.T) {
	before := lockTimeout
	t.Cleanup(func() { lockTimeout = before })
	n := OpenSlab(t.TempDir(), t.TempDir())
	lock := func() func() {
		t.Helper()
		return must.Get(n.lock())(t)
	}
	stuck := lock()
	lockTimeout = 10 * time.Millisecond
	must.Is(t, "a lock that is held", errHeld, must.Err(n.lock()))
	lockTimeout = before
	released := time.AfterFunc(20*time.Millisecond, stuck)
	lock()()
	if released.Stop() {
		t.Error("the lock was given while it was held")
	}
}

// A kernel that lets no program read its memory gets the program without that; if it
// refuses this, too, the whole program's error is returned.
func TestLoadEither(t *testing.T) {
	reads := []byte{0x85, 0, 0, 0, 113, 0, 0, 0} // bpf_probe_read_kernel
	text := append(bytes.Clone(reads), 0x95, 0, 0, 0, 0, 0, 0, 0)
	whole, without := errors.New("whole"), errors.New("without")
	for _, tt := range []struct {
		name          string
		reads, others error // of programs that read, and of others
		want          error
		loads         []bool // whether each program that is tried reads
	}{
		{"takes it", nil, nil, nil, []bool{true}},
		{"lets nobody read", whole, nil, nil, []bool{true, false}},
		{"refuses it for another reason", whole, without, whole, []bool{true, false}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var loads []bool
			prog, err := loadEither(text, func(text []byte) (*bpfcall.Program, error) {
				loads = append(loads, bytes.Contains(text, reads))
				if loads[len(loads)-1] {
					return &bpfcall.Program{}, tt.reads
				}
				return &bpfcall.Program{}, tt.others
			})
			if !errors.Is(err, tt.want) || (prog == nil) != (err != nil) {
				t.Errorf("loadEither = %v, %v, want error %v", prog, err, tt.want)
			}
			must.Match(t, "tried programs that read", tt.loads, loads)
		})
	}
}

// A direction's own link, met behind a program that has left since, stays attached.
func TestPrivilegedPinLinkKeepsItsOwn(t *testing.T) {
	testutil.RequireQdisc(t, "tcx")
	n, ns := onBPFFS(t), testutil.NewNetNS(t)
	program := must.Get(n.Program("pw_police", 300))(t)
	info := must.Get(program.Info())(t)
	dir, lo := n.interfaceDir(t, "one"), ns.Interface(t, "lo").Index
	must.OK(t, ns.Do(func() error {
		if err := AttachTCX(dir, terms.Egress, ProgramLink, program, lo, terms.HookEgress); err != nil {
			return err
		}
		l, err := linkAtHead(info.ID, lo, bpfcall.TCXEgress)
		if err != nil {
			return err
		}
		defer func() { _ = l.Close() }()
		if err := pinLink(l, pinPath(dir, terms.Egress, string(ProgramLink))); err != nil {
			return err
		}
		return verifyHead(program, lo, terms.HookEgress, bpfcall.TCXEgress)
	}))
}

// A link that has lost its pin is seen to go at once, although the kernel may still list it.
func TestPrivilegedUnpinnedLinkIsDying(t *testing.T) {
	testutil.RequireQdisc(t, "tcx")
	n, ns := onBPFFS(t), testutil.NewNetNS(t)
	program := must.Get(n.Program("pw_police", 300))(t)
	dir, lo := n.interfaceDir(t, "one"), ns.Interface(t, "lo").Index
	must.OK(t, ns.Do(func() error {
		must.OK(t, AttachTCX(dir, terms.Egress, ProgramLink, program, lo, terms.HookEgress))
		list := must.Get(queryTCX(lo, terms.HookEgress))(t)
		must.Be(t, "links", 1, len(list.Links))
		must.Be(t, "dying before", false, dying(list.Links[0]))
		must.OK(t, DetachTCX(dir, terms.Egress, ProgramLink))
		must.Be(t, "dying afterwards", true, dying(list.Links[0]))
		must.Be(t, "programs seen afterwards", 0, len(must.Get(QueryTCX(lo))(t)))
		return nil
	}))
}

// TestOnNewest: a list that moved is read again, and each attempt is for what was
// read last; anything else than a list that moved ends it.
func TestOnNewest(t *testing.T) {
	t.Parallel()
	stale := fmt.Errorf("attach: %w", unix.ESTALE)
	errOther := errors.New("something else")
	for name, tc := range map[string]struct {
		// answers are those of the attempts, the last one for all that follow.
		answers []error
		reading error
		want    error
		tries   int
	}{
		"at once":       {answers: []error{nil}, tries: 1},
		"moved twice":   {answers: []error{stale, stale, nil}, tries: 3},
		"moves forever": {answers: []error{stale}, want: unix.ESTALE, tries: attachTries},
		"refused":       {answers: []error{stale, errOther}, want: errOther, tries: 2},
		"unread":        {reading: errOther, want: errOther},
	} {
		var revision uint64
		var tried []uint64
		err := onNewest(func() (uint64, error) {
			revision += 10
			return revision, tc.reading
		}, func(r uint64) error {
			tried = append(tried, r)
			return tc.answers[min(len(tried), len(tc.answers))-1]
		})
		if !errors.Is(err, tc.want) || len(tried) != tc.tries {
			t.Errorf("%s: %v after %d attempts, want %v after %d", name, err, len(tried), tc.want, tc.tries)
		}
		for i, r := range tried {
			if want := uint64(10 * (i + 1)); r != want {
				t.Errorf("%s: attempts for revisions %v, want each for the one just read", name, tried)
				break
			}
		}
	}
}

// Buckets meet without a gap, and the bounds are where some of them do.
func TestWaitBuckets(t *testing.T) {
	t.Parallel()
	for b := range len(waitBuckets{}) {
		from, to := waitFrom(b), waitFrom(b+1)
		if from >= to {
			t.Errorf("bucket %d is from %v to %v", b, from, to)
		}
		if b >= waitSteps && float64(to-from) > float64(from)/waitSteps {
			t.Errorf("bucket %d, from %v to %v, is wider than an eighth", b, from, to)
		}
	}
	// As wait_bucket of bpf/lib/wait.h counts them.
	for b, units := range map[int]time.Duration{0: 0, 7: 7, 8: 8, 15: 15, 16: 16, 17: 18, 24: 32, 127: 15 << 14} {
		must.Be(t, fmt.Sprintf("begin of bucket %d", b), units<<14, waitFrom(b))
	}
	must.AtMost(t, "the first bound of waits, in seconds", 100e-6, WaitBounds[0])
	for i, bound := range WaitBounds {
		if i > 0 && bound != 2*WaitBounds[i-1] {
			t.Errorf("the bound %v s is not twice the one before, %v s", bound, WaitBounds[i-1])
		}
		found := false
		for b := range len(waitBuckets{}) {
			found = found || waitFrom(b).Seconds() == bound
		}
		if !found {
			t.Errorf("no bucket begins at %v s", bound)
		}
	}
}

func TestWaitQuantiles(t *testing.T) {
	t.Parallel()
	if w := (&waitBuckets{}).wait("light", 0); w.P50 != 0 || w.Packets != 0 {
		t.Errorf("without packets: %+v", w)
	}
	// As many packets at every wait up to 100 ms.
	var b waitBuckets
	for ms := 0.01; ms < 100; ms += 0.01 {
		at := time.Duration(ms * float64(time.Millisecond))
		for i := range b {
			if at >= waitFrom(i) && at < waitFrom(i+1) {
				b[i]++
			}
		}
	}
	w := b.wait("heavy", 500*time.Second)
	for name, of := range map[string][2]float64{"p50": {w.P50, 0.05}, "p99": {w.P99, 0.099}, "sum": {w.Seconds, 500}} {
		must.Within(t, name, 0.99*of[1], 1.01*of[1], of[0])
	}
	must.Within(t, "packets that waited for less than 67.1 ms", 6708, 6712, w.Below[10])
	must.Be(t, "packets that waited for less than 0.5 s", w.Packets, w.Below[len(w.Below)-1])
}

// What the meters have counted takes a tenth of the time at ten times the rate, and as
// long as before at the same rate and at a lower one.
func TestMetersOfAnotherRate(t *testing.T) {
	n := inMemory(t, 1)
	dir := n.interfaceDir(t, "a")
	configure := func(total, light uint64, shift uint32) *image.State {
		t.Helper()
		// With a tenth of the multiplier, or with a larger shift.
		p := &shaping.Params{Direction: terms.Egress, Datapath: image.Config{
			Policy:    uint8(terms.PolicyStrict),
			TotalRate: image.Rate{Mult: total, Shift: shift},
			LightRate: image.Rate{Mult: light, Shift: shift},
		}}
		must.OK(t, n.Configure(dir, p, nil, 0))
		s := must.Get(n.mustFind(dir, terms.Egress))(t)
		return &s.State
	}
	const debt = 100 * time.Second
	for name, c := range map[string]struct {
		total, light     uint64
		shift            uint32
		wantTotal, wants time.Duration
	}{
		"ten times the rate":           {100, 200, 10, debt / 10, debt / 10},
		"half the multiplier and unit": {500, 1000, 11, debt / 4, debt / 4},
		"the same":                     {1000, 2000, 10, debt, debt},
		"a lower rate":                 {8000, 16000, 10, debt, debt},
		"another light share":          {1000, 1000, 10, debt, debt / 2},
	} {
		t.Run(name, func(t *testing.T) {
			state := configure(1000, 2000, 10)
			tat := (monotonic() + uint64(debt)) << meterShift
			state.TotalTat, state.ControlTat, state.WaitClock = tat, tat, tat
			state.LightTat, state.EstablishedTat, state.CeilingTat = tat, tat, 7
			configure(c.total, c.light, c.shift)
			now := monotonic() << meterShift
			for meter, m := range map[string]struct {
				tat  uint64
				want time.Duration
			}{
				"total": {state.TotalTat, c.wantTotal}, "control": {state.ControlTat, c.wantTotal},
				"wait": {state.WaitClock, c.wantTotal}, "light": {state.LightTat, c.wants},
				"established": {state.EstablishedTat, c.wants},
			} {
				level := time.Duration(int64(m.tat-now) >> meterShift)
				must.Within(t, fmt.Sprintf("how far ahead the %s meter is", meter), m.want-time.Second, m.want, level)
			}
			must.Be(t, "time of the ceiling, which looks at its rate itself", 7, state.CeilingTat)
		})
	}
}

// A meter that the clock has passed stays as it is.
func TestMetersOfAnotherRateInThePast(t *testing.T) {
	for _, was := range []uint64{0, 99, 100} {
		tat := was
		if stretch(&tat, 100, 0.5); tat != was {
			t.Errorf("a meter at %d is at %d afterwards, where now is 100", was, tat)
		}
	}
}

// What packets add meanwhile is not lost, other than the part that counts at the old rate.
func TestMetersOfAnotherRateUnderTraffic(t *testing.T) {
	const now, debt, packets, part = 1 << 40, 1 << 30, 1_000_000, 0.5
	tat := uint64(now + debt)
	var traffic sync.WaitGroup
	traffic.Go(func() {
		for range packets {
			atomic.AddUint64(&tat, 2)
		}
	})
	stretch(&tat, now, part)
	traffic.Wait()
	must.Within(t, "how far the meter is ahead", debt/2+packets, debt/2+2*packets, tat-now)
}

// At a share both are converted, up and down: what waits takes as much longer as the share is
// smaller. What belongs to others stays.
func TestShareConvertsTheMeters(t *testing.T) {
	n := inMemory(t, 1)
	dir := n.interfaceDir(t, "a")
	at := func(mult uint64) *image.Config {
		return &image.Config{
			Policy: uint8(terms.PolicyStrict), TotalRate: image.Rate{Mult: mult, Shift: 10}, LightRate: image.Rate{Mult: 2 * mult, Shift: 10},
		}
	}
	p := &shaping.Params{Direction: terms.Ingress, Datapath: *at(1000)}
	must.OK(t, n.Configure(dir, p, nil, 77))
	share := must.Get(n.Share(dir, terms.Ingress))(t)
	state := &share.State
	state.Counts[image.Paced].Bytes, state.Counts[image.DropEarly].Bytes = 30, 12
	if !share.Changed() || share.Lost() || share.Bytes() != 30 {
		t.Errorf("changed %v, lost %v, %d bytes, want a share that nobody wrote yet, of 30 bytes", share.Changed(), share.Lost(), share.Bytes())
	}
	const level = 100 * time.Second
	want := level
	state.TotalTat, state.LightTat, state.CeilingTat = (monotonic()+uint64(level))<<meterShift, (monotonic()+uint64(level))<<meterShift, 7
	for _, mult := range []uint64{4000, 2000, 500} {
		before := share.config().TotalRate.Mult
		share.Set(at(mult))
		want = want * time.Duration(mult) / time.Duration(before)
		now := monotonic() << meterShift
		for name, tat := range map[string]uint64{"total": state.TotalTat, "light": state.LightTat} {
			if got := time.Duration(int64(tat-now) >> meterShift); got > want || want-got > 20*time.Second {
				t.Errorf("%s meter is %v ahead at %d, want %v", name, got, mult, want)
			}
		}
	}
	if share.Changed() || share.config().RedirectIfindex != 77 || state.CeilingTat != 7 {
		t.Errorf("changed %v, redirect to %d, ceiling %d, want nothing but the share changed", share.Changed(), share.config().RedirectIfindex, state.CeilingTat)
	}
	must.OK(t, n.Configure(dir, p, nil, 77))
	if !share.Changed() {
		t.Error("limits of somebody else are not noticed")
	}
	must.OK(t, n.GiveBack(dir, terms.Ingress, nil, 0))
	if !share.Lost() {
		t.Error("a slot that was given back is not noticed")
	}
}
