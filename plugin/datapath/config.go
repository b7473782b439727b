// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/version"
)

// Configure gives a direction a slot, if it has none, and the limits; every packet
// sees either the old ones or the new ones. The hash keys, and so the sketch, stay, and
// the meters what they have counted.
// dir is where the interface's pins are, redirectIndex the ifindex of the ifb, 0 if
// there is none.
func (n *Slab) Configure(dir string, p *shaping.Params, subnets []netip.Prefix, redirectIndex int) error {
	// Programs of another slot may limit it, which was left or is of another layout.
	limited := p.Program == shaping.ProgramPolice && (hasLink(slotPin, dir, p.Direction) || hasLink(formerPin, dir, p.Direction))
	s, fresh, err := n.take(dir, p.Direction)
	if err != nil {
		return err
	}
	if fresh {
		if err := n.putSubnets(s, subnets); err != nil {
			return errors.Join(err, n.removeSubnets(s, subnets))
		}
	}
	s.describe(p)
	before, now := *s.config(), Config(&p.Datapath, redirectIndex)
	if fresh && limited { // what a policer lets through at once, those before it have used
		s.State.TotalTat = monotonic()<<meterShift + now.TotalBurst
	}
	s.configure(&now)
	s.rescale(&before, &now)
	// Last: without its subnets a slot would have other limits than its owner wants.
	s.own(n.owner(dir, p.Direction))
	return nil
}

// Slot is the number of the slot of a direction.
func (n *Slab) Slot(dir string, d terms.Direction) (uint32, error) {
	s, err := n.mustFind(dir, d)
	return s.number, err
}

// Stamp is Slot for whoever attaches a program to it: it notes this release. subnets are those that it was configured
// with: the program may be over a map that was made again.
func (n *Slab) Stamp(dir string, d terms.Direction, subnets []netip.Prefix) (uint32, error) {
	s, err := n.mustFind(dir, d)
	if err != nil {
		return 0, err
	}
	s.stamp()
	return s.number, n.putSubnets(s, subnets)
}

// GiveBack takes the slot of a direction away, for which no program is attached any
// more. subnets are those that it was configured with, hostIndex the device at the
// host side. That there is none is no error.
func (n *Slab) GiveBack(dir string, d terms.Direction, subnets []netip.Prefix, hostIndex int) error {
	if err := n.GiveBackLeft(dir, d, hostIndex); err != nil { // by a process that was killed
		return err
	}
	s, found, err := n.find(dir, d)
	if err != nil || !found {
		return err
	}
	if err := n.forgetHost(hostIndex, d, s.number); err != nil {
		return err
	}
	if err := n.removeSubnets(s, subnets); err != nil {
		return err
	}
	s.release()
	return unlink(dir, d)
}

// Leave has [Slab.Configure] take a fresh slot for a direction, and keeps the one that it has for the programs that use
// it, until [Slab.GiveBackLeft] or [Slab.GiveBack]. That there is none is no error.
func (n *Slab) Leave(dir string, d terms.Direction) error {
	err := os.Rename(pinPath(dir, d, slotPin), pinPath(dir, d, formerPin))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("leave the slot: %w", err)
	}
	return nil
}

// GiveBackLeft takes away the slot that was left for a direction; hostIndex is the device at the host side. That there
// is none is no error.
func (n *Slab) GiveBackLeft(dir string, d terms.Direction, hostIndex int) error {
	s, found, err := n.findBy(formerPin, dir, d)
	if err != nil {
		return err
	}
	if found {
		if err := errors.Join(n.forgetHost(hostIndex, d, s.number), n.forgetSubnets(map[uint32]slot{s.number: s})); err != nil {
			return err
		}
		s.release()
	}
	return unpin(pinPath(dir, d, formerPin))
}

// HasLeft says that a direction has a slot that was left.
func (n *Slab) HasLeft(dir string, d terms.Direction) (bool, error) {
	_, left, err := slotNumber(formerPin, dir, d)
	return left, err
}

// SubnetKey is the key of a subnet of the slot with that number and epoch.
func SubnetKey(slot, epoch uint32, subnet netip.Prefix) image.Subnet {
	const slotBits = 64 // PW_SUBNET_SLOT_BITS
	bits := slotBits + subnet.Bits()
	if subnet.Addr().Is4() {
		bits += 96
	}
	return image.Subnet{PrefixBits: uint32(bits), Slot: slot, Epoch: epoch, Addr: subnet.Addr().As16()}
}

func (n *Slab) putSubnets(s slot, subnets []netip.Prefix) error {
	if len(subnets) == 0 {
		return nil
	}
	m, err := n.made(mapSubnets)
	if err != nil {
		return err
	}
	for _, subnet := range subnets {
		key := SubnetKey(s.number, s.Epoch, subnet)
		if err := m.Update(bytesOf(&key), []byte{1}); err != nil {
			return fmt.Errorf("put subnet %v, the node has room for %d: %w", subnet, m.MaxEntries(), err)
		}
	}
	return nil
}

func (n *Slab) removeSubnets(s slot, subnets []netip.Prefix) error {
	if len(subnets) == 0 {
		return nil
	}
	m, err := n.table(mapSubnets)
	if errors.Is(err, os.ErrNotExist) {
		return nil // its pin was lost; a pod has to end all the same
	}
	if err != nil {
		return err
	}
	for _, subnet := range subnets {
		key := SubnetKey(s.number, s.Epoch, subnet)
		if err := m.Delete(bytesOf(&key)); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("remove subnet %v: %w", subnet, err)
		}
	}
	return nil
}

// describe says for the next look, and for people, what the slot is for.
func (s slot) describe(p *shaping.Params) {
	s.Program, s.Side = [len(s.Program)]uint8{}, uint8(p.Side)
	copy(s.Program[:len(s.Program)-1], p.ProgramName())
	s.stamp()
}

func (s slot) stamp() {
	s.Build = [len(s.Build)]uint8{}
	copy(s.Build[:len(s.Build)-1], version.String())
}

// configure fills the configuration that is not in use and then turns to it, so
// that no packet sees half of an old and half of a new one.
func (s slot) configure(cfg *image.Config) {
	next := atomic.LoadUint32(&s.Active) + 1
	s.Config[next%2] = *cfg
	atomic.StoreUint32(&s.Active, next)
}

// config is the configuration in use.
func (s slot) config() *image.Config {
	return &s.Config[atomic.LoadUint32(&s.Active)%2]
}

// bytesOf is the memory of a map's key or value; the types of package image are
// laid out as the programs have them.
func bytesOf[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}

// Config is what a slot has of the parameters.
func Config(dp *image.Config, redirectIndex int) image.Config {
	cfg := *dp
	cfg.AbiVersion, cfg.RedirectIfindex = ABIVersion, uint32(redirectIndex)
	return cfg
}

// ClockTick is the resolution of the clock that the programs read
// (bpf_ktime_get_coarse_ns): the kernel sets it at every timer interrupt.
func ClockTick() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &ts); err != nil {
		return 0, fmt.Errorf("read the resolution of the coarse clock: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}

// Observe returns what the slot of a direction holds, nil if it has none. dir is
// where the interface's pins are.
func (n *Slab) Observe(dir string, d terms.Direction) (*attach.Dataplane, error) {
	s, found, err := n.find(dir, d)
	if err != nil || !found {
		return nil, err
	}
	dp := &attach.Dataplane{Slot: s.number, ProgramName: text(s.Program[:]), Side: terms.Side(s.Side), Build: text(s.Build[:])}
	if cfg := s.config(); cfg.AbiVersion == ABIVersion {
		dp.Datapath, dp.RedirectIndex = *cfg, int(cfg.RedirectIfindex)
		dp.Datapath.AbiVersion, dp.Datapath.RedirectIfindex, dp.Datapath.Reserved = 0, 0, [len(cfg.Reserved)]uint64{}
	}
	return dp, nil
}

func text(b []byte) string {
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s)
}
