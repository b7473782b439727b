// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/datapath/bpfcall"
	"github.com/podweir/podweir/plugin/terms"
)

// young is how long a slot that was taken is left alone: its owner may be about to make
// what it is for.
const young = time.Minute

// leftSlot is a slot as it was seen, whose owner may be gone.
type leftSlot struct {
	number       uint32
	owner, since uint64
}

// Left is how many slots [Slab.Collect] would give back now.
func (n *Slab) Left(list func() (dirs []string, err error)) (int, error) {
	left, err := n.left(list)
	return len(left), err
}

// Collect gives the slots back whose owners are not among the directions of these
// directories, which were listed after the slots were looked at, and what other maps
// have of them; it returns how many. A killed process may have left them. Slots that
// were taken within the last minute stay.
func (n *Slab) Collect(list func() (dirs []string, err error)) (int, error) {
	left, err := n.left(list)
	if err == nil {
		err = n.forgetGroups()
	}
	if err != nil {
		return 0, err
	}
	mine := make(map[uint32]slot)
	for _, was := range left {
		s, err := n.slot(was.number)
		if err != nil {
			return 0, err
		}
		// It may have been given back and taken since: then it is young.
		if atomic.LoadUint64(&s.SinceNs) == was.since && atomic.CompareAndSwapUint64(&s.Owner, was.owner, was.owner|makingBit) {
			mine[s.number] = s
		}
	}
	if len(mine) == 0 {
		return 0, nil
	}
	// A slot that other maps still have is collected the next time.
	if err := errors.Join(n.forgetHosts(mine), n.forgetSubnets(mine)); err != nil {
		return 0, err
	}
	for _, s := range mine {
		s.release()
	}
	return len(mine), nil
}

// left are the slots of nobody. Whoever is about to take one has no link to another.
func (n *Slab) left(list func() (dirs []string, err error)) ([]leftSlot, error) {
	var old []leftSlot
	now := boottime()
	err := n.each(func(s slot) {
		one := leftSlot{s.number, atomic.LoadUint64(&s.Owner), atomic.LoadUint64(&s.SinceNs)}
		if one.owner != 0 && one.since+uint64(young) < now {
			old = append(old, one)
		}
	})
	if err != nil || len(old) == 0 {
		return nil, err
	}
	dirs, err := list()
	if err != nil {
		return nil, err
	}
	// By owner, those of a direction: programs use the one that was left until others stand.
	linked := make(map[uint64][]uint32)
	for _, dir := range dirs {
		for _, d := range terms.Directions {
			var numbers []uint32
			for _, link := range []string{slotPin, formerPin} {
				number, found, err := slotNumber(link, dir, d)
				if err != nil {
					return nil, err
				}
				if found {
					numbers = append(numbers, number)
				}
			}
			linked[n.owner(dir, d)] = numbers
		}
	}
	var left []leftSlot
	for _, s := range old {
		if numbers, lives := linked[s.owner&^makingBit]; !lives || len(numbers) > 0 && !slices.Contains(numbers, s.number) {
			left = append(left, s)
		}
	}
	return left, nil
}

// forgetHosts removes the devices at the host side that have one of these slots.
func (n *Slab) forgetHosts(slots map[uint32]slot) error {
	return n.forget(mapHosts, func(m *bpfcall.Map, key []byte) (bool, error) {
		var number uint32
		err := m.Lookup(key, bytesOf(&number))
		if errors.Is(err, unix.ENOENT) {
			return false, nil
		}
		_, left := slots[number]
		return left, err
	})
}

// forgetSubnets removes the subnets of these slots.
func (n *Slab) forgetSubnets(slots map[uint32]slot) error {
	return n.forget(mapSubnets, func(_ *bpfcall.Map, key []byte) (bool, error) {
		_, left := slots[(*image.Subnet)(unsafe.Pointer(&key[0])).Slot]
		return left, nil
	})
}

// forgetGroups removes the groups that no slot names. A program adds what is missing: a slot that
// names one from now on loses no more than what the group had used of its burst.
func (n *Slab) forgetGroups() error {
	named := make(map[uint64]bool)
	err := n.each(func(s slot) {
		if atomic.LoadUint64(&s.Owner) != 0 {
			named[s.config().Group] = true
		}
	})
	if err != nil {
		return err
	}
	return n.forget(mapGroups, func(_ *bpfcall.Map, key []byte) (bool, error) {
		return !named[*(*uint64)(unsafe.Pointer(&key[0]))], nil
	})
}

// forget removes the keys of a map for which left says so.
func (n *Slab) forget(name string, left func(m *bpfcall.Map, key []byte) (bool, error)) error {
	m, err := n.table(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	keys, err := m.Keys()
	if err != nil {
		return fmt.Errorf("list %s: %w", name, err)
	}
	for _, key := range keys {
		remove, err := left(m, key)
		if err == nil && remove {
			err = m.Delete(key)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("clean %s up: %w", name, err)
		}
	}
	return nil
}
