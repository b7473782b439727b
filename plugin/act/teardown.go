// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package act

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/queue"
	"github.com/podweir/podweir/plugin/terms"
)

// TearDown removes a direction: programs before the queue that they steer
// for, so that no stamp is set that nothing obeys. Sides that are gone, with
// their namespace or device, are skipped.
func (i *Interface) TearDown(d terms.Direction) error {
	all := i.unlink(d)
	for _, s := range []terms.Side{terms.SidePod, terms.SideHost, terms.SideIFB} {
		// A device that goes while it is torn down takes all with it.
		if err := i.tearDownSide(d, s); err != nil && !errors.Is(err, hostif.ErrNoDevice) && !errors.Is(err, unix.ENODEV) {
			all = errors.Join(all, fmt.Errorf("%v side: %w", s, err))
		}
	}
	if all != nil {
		return all // what is still attached still looks its slot up
	}
	return i.giveSlotBack(d)
}

// unlink removes the links of a direction's programs.
func (i *Interface) unlink(d terms.Direction) (all error) {
	for _, link := range []datapath.Link{datapath.ProgramLink, datapath.CeilingLink, datapath.GuardLink} {
		all = errors.Join(all, datapath.DetachTCX(i.Pins, d, link))
	}
	return all
}

func (i *Interface) giveSlotBack(d terms.Direction) error {
	if err := i.Slab.GiveBack(i.Pins, d, i.subnets(), i.Record.Interface.HostIndex); err != nil {
		return err
	}
	return datapath.Unpin(i.Pins, d)
}

func (i *Interface) tearDownSide(d terms.Direction, s terms.Side) error {
	if s == terms.SideIFB && (d != terms.Ingress || i.LeaveIFB) {
		return nil
	}
	dev, err := i.Devices.Present(i.Record, s)
	if errors.Is(err, hostif.ErrForeignDevice) {
		return nil // whoever gave it the name took podweir's away
	}
	if dev == nil || err != nil {
		return err
	}
	if s == terms.SideIFB {
		return dev.Handle.DeleteIFB(i.Record.Interface.PodIndex)
	}
	have, err := queue.Observe(dev.Handle, dev.Index)
	if err != nil {
		return err
	}
	if err := i.detachFilters(d, dev, have); err != nil {
		return err
	}
	if s == attach.QueueSide(d) {
		if err := removeQueue(dev, have); err != nil {
			return err
		}
		if err := i.giveBack(d, dev); err != nil {
			return err
		}
	}
	return detachLost(dev, d, func(*attach.HookProgram) bool { return false })
}

// detachFilters removes what podweir has on the hooks of a device, and its clsact qdisc.
func (i *Interface) detachFilters(d terms.Direction, dev *Device, have *queue.Device) error {
	for n := range have.HookFilters {
		f := &have.HookFilters[n]
		if !queue.Ours(f) || terms.DirectionAt(dev.Side, f.Hook) != d {
			continue
		}
		if err := i.detachFilter(dev, queue.Place{Hook: f.Hook, Pref: f.Pref, Handle: f.FilterHandle}); err != nil {
			return err
		}
	}
	if i.Record.MadeClsact(dev.Side) && have.HookQdisc != "" && len(have.HookFilters) == 0 {
		// Made for a filter that an interrupted run did not come to add.
		return i.detachFilter(dev, queue.Place{Hook: terms.HookEgress, Pref: queue.HookPref, Handle: queue.FilterHandle})
	}
	return nil
}

// removeQueue removes the queue, by what it is, too: the record may have been lost, and the
// pins with it.
func removeQueue(dev *Device, have *queue.Device) error {
	root := have.Root()
	if root == nil {
		return nil
	}
	now, err := dev.Look()
	if err != nil || !now.OwnTree {
		return err
	}
	return queue.Remove(dev.Handle, dev.Index, root.Kind, root.Handle)
}

// giveBack gives a device and its namespace what they had before podweir.
func (i *Interface) giveBack(d terms.Direction, dev *Device) error {
	choice := i.Record.Choices[d]
	if was := choice.Offload; was != nil {
		if err := dev.setOffload(was); err != nil && !errors.Is(err, unix.ENODEV) {
			return err
		}
	}
	if choice.Pacing != nil {
		if err := i.givePacingBack(&choice); err != nil {
			return err
		}
	}
	return i.giveTxQueueLenBack(d, dev)
}

// giveTxQueueLenBack is for after the queue is gone, when the kernel does not wait for RCU (6.18).
func (i *Interface) giveTxQueueLenBack(d terms.Direction, dev *Device) error {
	was := i.Record.Choices[d].TxQueueLen
	if was == nil {
		return nil
	}
	if err := dev.Handle.SetTxQueueLen(dev.Index, *was); err != nil && !errors.Is(err, unix.ENODEV) {
		return err
	}
	return nil
}

// detachLost takes podweir's TCX programs of a direction off a device, without those
// to keep.
func detachLost(dev *Device, d terms.Direction, keep func(*attach.HookProgram) bool) error {
	return dev.NS.Do(func() error {
		for _, h := range []terms.Hook{terms.HookIngress, terms.HookEgress} {
			if terms.DirectionAt(dev.Side, h) != d {
				continue
			}
			if err := datapath.DetachLost(dev.Index, h, keep); err != nil {
				return err
			}
		}
		return nil
	})
}

// removeStray removes what podweir has on an interface and the direction does not
// need.
func (i *Interface) removeStray(state *attach.DirectionState) error {
	for link, keeps := range map[datapath.Link]bool{
		datapath.ProgramLink: state.HookKind == terms.HookKindTCX,
		datapath.CeilingLink: state.CeilingKind == terms.HookKindTCX,
		datapath.GuardLink:   state.GuardKind == terms.HookKindTCX,
	} {
		if keeps {
			continue
		}
		if err := datapath.DetachTCXNow(i.Pins, state.Params.Direction, link); err != nil {
			return err
		}
	}
	for _, s := range []terms.Side{terms.SidePod, terms.SideHost, terms.SideIFB} {
		dev, err := i.Devices.Present(i.Record, s)
		if err != nil && !errors.Is(err, hostif.ErrForeignDevice) {
			return err
		}
		if dev == nil {
			continue
		}
		if err := i.removeStrayOf(state, dev); err != nil {
			return err
		}
	}
	if state.KeepsIFB() {
		return nil
	}
	return i.tearDownSide(terms.Ingress, terms.SideIFB)
}

func (i *Interface) removeStrayOf(state *attach.DirectionState, dev *Device) error {
	d := state.Params.Direction
	have, err := dev.Look()
	if err != nil {
		return err
	}
	keep := func(h *attach.HookProgram) bool { return state.Keeps(dev.Side, h) }
	for n := range have.Hooks {
		h := &have.Hooks[n]
		if h.Kind != terms.HookKindClsact || !h.Ours || terms.DirectionAt(dev.Side, h.Hook) != d || keep(h) {
			continue
		}
		if err := i.detachFilter(dev, queue.Place{Hook: h.Hook, Pref: h.Pref, Handle: h.FilterHandle}); err != nil {
			return err
		}
	}
	if err := detachLost(dev, d, keep); err != nil {
		return err
	}
	if root := have.OwnRoot(); root != nil && !state.KeepsRoot(dev.Side) {
		if err := queue.Remove(dev.Handle, dev.Index, root.Kind, root.Handle); err != nil {
			return err
		}
		return i.giveTxQueueLenBack(d, dev)
	}
	return nil
}
