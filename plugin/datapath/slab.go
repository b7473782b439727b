// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/datapath/bpfcall"
	"github.com/podweir/podweir/plugin/terms"
)

// ErrFull means that every slot of the node is taken.
var ErrFull = errors.New("no slot is free")

// slotRest is how long a slot that was given back stays unused: on another CPU a
// packet may still be on its way through a program that found it, and the kernel
// detaches a link some time after its last pin is gone.
const slotRest = 10 * time.Second

// makingBit of an owner says that the slot is not what its owner wants yet: whoever was
// killed meanwhile starts again.
const makingBit = 1 << 63

// slotPin is beside an interface's pins for each direction: a symbolic link to the number
// of its slot. With it nobody reads the slab of a whole node to find one slot.
const slotPin = "slot"

// formerPin is slotPin for the slot that programs use until others stand in their place.
const formerPin = "former-slot"

// freePin is a symbolic link to the number of the chunk in which a slot was claimed last:
// the next one is likely to be free there. It is a hint; nothing depends on it.
const freePin = "free"

// groupSlots are how many slots are mapped together: whoever looks for a free one sees a few
// at once, and each page of a mapping takes the kernel a moment.
const groupSlots = 4

// group is the memory of some neighbouring slots of a chunk.
type group struct {
	slots []image.Slot
	unmap func() error
}

// slot is one slot and its number. Its memory is there as long as the node is open.
type slot struct {
	*image.Slot
	number uint32
}

// owner is whose a slot is: a hash of the path of the interface's pins below the
// root and of the direction.
func (n *Slab) owner(dir string, d terms.Direction) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(strings.TrimPrefix(dir, n.root) + "\x00" + d.String()))
	return h.Sum64()&^makingBit | 1
}

func chunkSlots() uint32 {
	m, err := image.MapByName(mapChunk)
	if err != nil {
		return 1 // the image is a part of this program, and has it; whoever makes a chunk gets the error
	}
	return m.MaxEntries
}

// chunkGroups is how many groups of slots a chunk has.
func chunkGroups() uint32 { return max(chunkSlots()/groupSlots, 1) }

// chunkNumbers are those of the pinned chunks, in order.
func (n *Slab) chunkNumbers() ([]uint32, error) {
	entries, err := os.ReadDir(n.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the slab: %w", err)
	}
	var numbers []uint32
	for _, e := range entries {
		text, isChunk := strings.CutPrefix(e.Name(), chunkPin)
		if number, err := strconv.ParseUint(text, 10, 32); isChunk && err == nil {
			numbers = append(numbers, uint32(number))
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// group maps some slots as long as the node is open, if they are not mapped yet. An
// error that wraps [os.ErrNotExist] means that there are none.
func (n *Slab) group(number uint32) (group, error) {
	if g, open := n.groups[number]; open {
		return g, nil
	}
	g, err := n.mapGroup(number)
	if err == nil {
		n.groups[number] = g
	}
	return g, err
}

// mapGroup maps some slots for whoever unmaps them. The kernel rounds each up to 8 bytes,
// and they are made of such words.
func (n *Slab) mapGroup(number uint32) (group, error) {
	m, err := n.table(chunkPin + strconv.FormatUint(uint64(number/chunkGroups()), 10))
	if err != nil {
		return group{}, err
	}
	if m.ValueBytes() != int(unsafe.Sizeof(image.Slot{})) || m.MaxEntries() != chunkSlots() {
		return group{}, fmt.Errorf("the slab in %s is of another build: %d slots of %d bytes, not %d of %d",
			n.dir, m.MaxEntries(), m.ValueBytes(), chunkSlots(), unsafe.Sizeof(image.Slot{}))
	}
	memory, unmap, err := m.Memory(number%chunkGroups()*groupSlots, groupSlots)
	if err != nil {
		return group{}, err
	}
	return group{unsafe.Slice((*image.Slot)(unsafe.Pointer(&memory[0])), groupSlots), unmap}, nil
}

func (n *Slab) chunkPath(number uint32) string {
	return filepath.Join(n.dir, chunkPin+strconv.FormatUint(uint64(number), 10))
}

func (n *Slab) slot(number uint32) (slot, error) {
	g, err := n.group(number / groupSlots)
	if err != nil {
		return slot{}, err
	}
	return slot{&g.slots[number%groupSlots], number}, nil
}

// each calls do for every slot of the node. What is mapped for that is unmapped: all
// slots of a node take megabytes.
func (n *Slab) each(do func(s slot)) error {
	numbers, err := n.chunkNumbers()
	if err != nil {
		return err
	}
	for _, number := range numbers {
		for at := number * chunkGroups(); at < (number+1)*chunkGroups(); at++ {
			g, open := n.groups[at]
			if !open {
				g, err = n.mapGroup(at)
			}
			if errors.Is(err, os.ErrNotExist) {
				break // the pins are being removed
			}
			if err != nil {
				return err
			}
			for i := range g.slots {
				do(slot{&g.slots[i], at*groupSlots + uint32(i)})
			}
			if !open {
				err = g.unmap()
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// find returns the slot of a direction. dir is where the interface's pins are.
func (n *Slab) find(dir string, d terms.Direction) (s slot, found bool, err error) {
	return n.findBy(slotPin, dir, d)
}

// findBy is find for the slot that a link names.
func (n *Slab) findBy(link, dir string, d terms.Direction) (s slot, found bool, err error) {
	number, linked, err := slotNumber(link, dir, d)
	if err != nil || !linked {
		return s, false, err
	}
	s, err = n.slot(number)
	if errors.Is(err, os.ErrNotExist) {
		return s, false, nil
	}
	if err != nil {
		return s, false, err
	}
	return s, atomic.LoadUint64(&s.Owner)&^makingBit == n.owner(dir, d), nil
}

// slotNumber reads a link to a slot of a direction.
func slotNumber(link, dir string, d terms.Direction) (number uint32, linked bool, err error) {
	text, err := os.Readlink(pinPath(dir, d, link))
	if errors.Is(err, os.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("find the slot: %w", err)
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, false, fmt.Errorf("%s is no number of a slot: %w", pinPath(dir, d, link), err)
	}
	return uint32(n), true, nil
}

func hasLink(link, dir string, d terms.Direction) bool {
	_, linked, err := slotNumber(link, dir, d)
	return err == nil && linked
}

// link leaves the number of the slot for find.
func (s slot) link(dir string, d terms.Direction) error {
	if err := os.Symlink(strconv.FormatUint(uint64(s.number), 10), pinPath(dir, d, slotPin)); err != nil {
		return fmt.Errorf("link the slot: %w", err)
	}
	return nil
}

// unlink removes a link to a slot that is not the direction's any more. It is gone before
// another slot is claimed: what [Slab.Collect] finds linked is what was claimed last.
func unlink(dir string, d terms.Direction) error {
	if err := unpin(pinPath(dir, d, slotPin)); err != nil {
		return fmt.Errorf("unlink another slot: %w", err)
	}
	return nil
}

// take returns the slot of a direction, and says whether it is a fresh one, with
// nothing in it but random keys: [slot.own] makes it its owner's when everything is.
// Whoever takes one holds the lock of the attachment, whose directory is there.
func (n *Slab) take(dir string, d terms.Direction) (s slot, fresh bool, err error) {
	owner := n.owner(dir, d)
	s, found, err := n.find(dir, d)
	if err == nil && !found {
		err = unlink(dir, d)
	}
	for err == nil && !found {
		if s, found, err = n.claim(owner); err != nil {
			break
		}
		if found {
			err = s.link(dir, d)
		} else {
			err = n.grow()
		}
	}
	if err != nil {
		return s, false, err
	}
	if atomic.LoadUint64(&s.Owner) == owner {
		return s, false, nil
	}
	return s, true, s.empty()
}

// own ends what take began.
func (s slot) own(owner uint64) { atomic.StoreUint64(&s.Owner, owner) }

// claim takes a slot that has been free for long enough. Of several processes that want
// one each gets another.
func (n *Slab) claim(owner uint64) (claimed slot, ok bool, err error) {
	last := n.lastClaimed()
	if last != 0 {
		if claimed, ok, err = n.claimIn(last, owner); ok || err != nil {
			return claimed, ok, err
		}
	}
	numbers, err := n.chunkNumbers()
	if err != nil {
		return claimed, false, err
	}
	for _, number := range fromLast(numbers, last) {
		if claimed, ok, err = n.claimIn(number, owner); ok || err != nil {
			n.noteClaimed(last, number)
			return claimed, ok, err
		}
	}
	return slot{}, false, nil
}

// claimIn is claim for one chunk. Each process begins at another group of its slots, and
// has what it mapped before it.
func (n *Slab) claimIn(number uint32, owner uint64) (claimed slot, ok bool, err error) {
	now := boottime()
	for i := range chunkGroups() {
		at := number*chunkGroups() + (n.first+i)%chunkGroups()
		g, err := n.group(at)
		if errors.Is(err, os.ErrNotExist) {
			break // the pins are being removed
		}
		if err != nil {
			return slot{}, false, err
		}
		for j := range g.slots {
			if claimed = (slot{&g.slots[j], at*groupSlots + uint32(j)}); claimed.claim(owner, now) {
				return claimed, true, nil
			}
		}
	}
	return slot{}, false, nil
}

// claim takes the slot if it has been free for long enough.
func (s slot) claim(owner, now uint64) bool {
	freed := atomic.LoadUint64(&s.SinceNs)
	rested := freed == 0 || freed+uint64(slotRest) <= now // 0: it never had an owner
	return rested && atomic.CompareAndSwapUint64(&s.Owner, 0, owner|makingBit)
}

// fromLast is the order in which chunks are searched: the one that had a free slot last,
// the older ones, then the others, newest first.
func fromLast(ascending []uint32, last uint32) []uint32 {
	i, found := slices.BinarySearch(ascending, last)
	if found {
		i++
	} else {
		i = len(ascending)
	}
	order := slices.Concat(ascending[i:], ascending[:i])
	slices.Reverse(order)
	return order
}

// lastClaimed reads the hint of [freePin], 0 if there is none.
func (n *Slab) lastClaimed() uint32 {
	text, err := os.Readlink(filepath.Join(n.dir, freePin))
	if err != nil {
		return 0
	}
	number, _ := strconv.ParseUint(text, 10, 32)
	return uint32(number)
}

// noteClaimed leaves the hint for the next that claims a slot, and can do without: of
// several processes one leaves it.
func (n *Slab) noteClaimed(last, now uint32) {
	if last == now {
		return
	}
	path := filepath.Join(n.dir, freePin)
	_ = unpin(path)
	_ = os.Symlink(strconv.FormatUint(uint64(now), 10), path)
}

// empty makes a slot that was claimed one that knows nothing.
func (s slot) empty() error {
	epoch := s.Epoch
	// Not the owner: whoever finds a slot without one may take it.
	clear(unsafe.Slice((*byte)(unsafe.Pointer(&s.Active)), unsafe.Sizeof(image.Slot{})-unsafe.Offsetof(image.Slot{}.Active)))
	s.Epoch = epoch + 1
	atomic.StoreUint64(&s.SinceNs, boottime())
	keys := unsafe.Slice((*byte)(unsafe.Pointer(&s.HashKeys)), unsafe.Sizeof(s.HashKeys))
	// getrandom(2) gives up to 256 bytes in one piece; crypto/rand would add a
	// generator and its self-tests to every ADD.
	if _, err := unix.Getrandom(keys, 0); err != nil {
		return fmt.Errorf("draw hash keys: %w", err)
	}
	return nil
}

// release makes a slot nobody's. No program finds a configuration in it.
func (s slot) release() {
	for i := range s.Config {
		atomic.StoreUint32(&s.Config[i].AbiVersion, 0)
	}
	atomic.StoreUint64(&s.SinceNs, boottime())
	atomic.StoreUint64(&s.Owner, 0)
}

// grow adds a chunk to the slab, unless another process just did.
func (n *Slab) grow() error {
	unlock, err := n.lock()
	if err != nil {
		return err
	}
	defer unlock()
	numbers, err := n.chunkNumbers()
	if err != nil {
		return err
	}
	number := uint32(image.FirstSlot) / chunkSlots()
	if len(numbers) > 0 {
		number = numbers[len(numbers)-1] + 1
		if _, looked := n.groups[(number-1)*chunkGroups()]; !looked {
			return nil // another process just made it
		}
	}
	if err := n.makeTables(); err != nil {
		return err
	}
	// A chunk whose pin was lost stays: programs of running pods look slots up in it.
	for id := uint32(0); number < n.maps[mapSlab].MaxEntries() && n.maps[mapSlab].Lookup(bytesOf(&number), bytesOf(&id)) == nil; {
		number++
	}
	if number >= n.maps[mapSlab].MaxEntries() {
		return fmt.Errorf("%w: all %d are taken", ErrFull, (number-uint32(image.FirstSlot)/chunkSlots())*chunkSlots())
	}
	m, err := makeMap(mapChunk)
	if err != nil {
		return fmt.Errorf("add to the slab: %w", err)
	}
	defer func() { _ = m.Close() }()
	if err := n.publish(number, m); err != nil {
		return fmt.Errorf("add to the slab: %w", err)
	}
	// Pinned last: a chunk that is pinned is one that programs find.
	if err := m.Pin(n.chunkPath(number)); err != nil {
		return fmt.Errorf("add to the slab: %w", err)
	}
	n.noteClaimed(n.lastClaimed(), number)
	return nil
}

// publishPinned puts the pinned chunks into a slab that takes the place of one whose pin was lost.
func (n *Slab) publishPinned() error {
	numbers, err := n.chunkNumbers()
	for _, number := range numbers {
		chunk, opened := n.table(chunkPin + strconv.FormatUint(uint64(number), 10))
		if opened == nil {
			opened = n.publish(number, chunk)
		}
		err = errors.Join(err, opened)
	}
	return err
}

// publish puts a chunk where programs find it. The kernel waits for RCU afterwards, some
// 10 ms, in case the caller replaces a map that is in use. publish replaces none, so that
// one thread waits, and neither the caller nor those that wait for its lock.
func (n *Slab) publish(number uint32, chunk *bpfcall.Map) error {
	slab, fd, id := n.maps[mapSlab], uint32(chunk.FD()), chunk.ID()
	done := slab.StartUpdate(bytesOf(&number), bytesOf(&fd))
	for {
		var found uint32
		if err := slab.Lookup(bytesOf(&number), bytesOf(&found)); err == nil && found == id {
			return nil
		}
		select {
		case err := <-done:
			return err
		default:
			runtime.Gosched()
		}
	}
}

// Taken is how many slots have an owner, of how many.
func (n *Slab) Taken() (taken, all int, err error) {
	err = n.each(func(s slot) {
		all++
		if atomic.LoadUint64(&s.Owner) != 0 {
			taken++
		}
	})
	return taken, all, err
}

// boottime is CLOCK_BOOTTIME in nanoseconds, which every kernel has.
func boottime() uint64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return uint64(ts.Nano())
}

func (n *Slab) mustFind(dir string, d terms.Direction) (slot, error) {
	s, found, err := n.find(dir, d)
	if err == nil && !found {
		err = fmt.Errorf("%v of %s: %w", d, dir, ErrNoSlot)
	}
	return s, err
}
