// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package act

import (
	"errors"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/queue"
	"github.com/podweir/podweir/plugin/terms"
)

// hooking is a program on its way to a hook that others can use.
type hooking struct {
	direction terms.Direction
	side      terms.Side
	hook      terms.Hook
	kind      terms.HookKind
	name      string
	link      datapath.Link
	pref      uint16
}

// hookingOf is the program that a step attaches.
func hookingOf(k attach.ActionKind, s *attach.DirectionState) *hooking {
	p := s.Params
	switch k {
	case attach.AttachGuard:
		return &hooking{p.Direction, terms.SidePod, terms.HookEgress, s.GuardKind, datapath.GuardProgram, datapath.GuardLink, queue.GuardPref}
	case attach.AttachCeiling:
		return &hooking{p.Direction, p.CeilingSide(), terms.HookIngress, s.CeilingKind, datapath.CeilingProgram, datapath.CeilingLink, queue.CeilingPref}
	default:
		return &hooking{p.Direction, p.Side, p.Hook, s.HookKind, p.ProgramName(), datapath.ProgramLink, queue.HookPref}
	}
}

// place is where its filter is.
func (h *hooking) place() queue.Place {
	return queue.Place{Hook: h.hook, Pref: h.pref, Handle: queue.FilterHandle}
}

// attach attaches a program in one way, and takes it away where it was attached
// in the other one.
func (i *Interface) attach(h *hooking) error {
	dev, err := i.device(h.side)
	if err != nil {
		return err
	}
	if h.kind == terms.HookKindTCX {
		if err := i.attachTCX(dev, h); err != nil {
			return err
		}
		return i.detachFilter(dev, h.place())
	}
	if err := i.attachFilter(dev, h); err != nil {
		return err
	}
	return datapath.DetachTCXNow(i.Pins, h.direction, h.link)
}

func (i *Interface) attachTCX(dev *Device, h *hooking) error {
	slot, err := i.Slab.Stamp(i.Pins, h.direction, i.subnets())
	if err != nil {
		return err
	}
	program, err := i.Slab.Program(h.name, datapath.CarrierOf(h.side, h.direction, slot))
	if err != nil {
		return err
	}
	if h.side == terms.SideHost {
		// In maps that no program there reads yet, the slot is first: without one the program lets everything pass.
		switch now, err := i.Slab.HostSlot(h.direction, dev.Index); {
		case err != nil:
			return err
		case now == 0:
			if err := i.Slab.PutHost(i.Pins, h.direction, dev.Index); err != nil {
				return err
			}
		}
	}
	err = dev.NS.Do(func() error {
		return datapath.AttachTCX(i.Pins, h.direction, h.link, program, dev.Index, h.hook)
	})
	if err == nil && h.side == terms.SideHost {
		// Last: until the link is this attachment's, one that it takes the interface over from needs its slot.
		err = i.Slab.PutHost(i.Pins, h.direction, dev.Index)
	}
	return err
}

// attachFilter puts a filter in its place, or the program into a filter of ours
// that is there. That is looked for last: on a node full of pods it takes longer
// than all the rest.
func (i *Interface) attachFilter(dev *Device, h *hooking) error {
	program, err := i.filterProgram(h.direction, h.name)
	if err != nil {
		return err
	}
	at := h.place()
	made, err := addFilter(dev, at, program)
	if err == nil {
		err = i.settleClsact(dev, made)
	} else if errors.Is(err, queue.ErrFilterExists) {
		if replaced, failed := queue.ReplaceClsact(dev.Handle, dev.Index, at, program); replaced || failed != nil {
			err = failed
		}
	}
	return err
}

// addFilter makes sure of the clsact qdisc, too, unless this process has just made it.
func addFilter(dev *Device, at queue.Place, program queue.Classifier) (made bool, err error) {
	if dev.Seen.madeClsact {
		err := queue.AddToClsact(dev.Handle, dev.Index, at, program)
		if err == nil || errors.Is(err, queue.ErrFilterExists) {
			return false, err
		}
	}
	return queue.AttachClsact(dev.Handle, dev.Index, at, program)
}

// settleClsact corrects the record, which was written before there was a clsact qdisc
// and says that it is podweir's: another process may have been faster.
func (i *Interface) settleClsact(dev *Device, made bool) error {
	expected := dev.Seen.NoClsact
	dev.Seen.NoClsact, dev.Seen.madeClsact = false, dev.Seen.madeClsact || made
	if made || !expected {
		return nil
	}
	i.Record.LeaveClsact(dev.Side)
	return i.Devices.Write(i.Record)
}

func (i *Interface) attachRedirect() error {
	h := &hooking{
		direction: terms.Ingress, side: terms.SidePod, hook: terms.HookIngress, name: datapath.RedirectProgram, pref: queue.RedirectPref,
	}
	dev, err := i.device(h.side)
	if err != nil {
		return err
	}
	mirred, err := i.Devices.Mirred()
	if err != nil {
		return err
	}
	if !mirred {
		return i.attachFilter(dev, h)
	}
	index, err := i.ifbIndex()
	if err != nil {
		return err
	}
	if err := queue.DetachClsact(dev.Handle, dev.Index, h.place(), false); err != nil {
		return err
	}
	made, err := queue.AttachMirred(dev.Handle, dev.Index, h.place(), index)
	if err != nil {
		return err
	}
	return i.settleClsact(dev, made)
}

// detachFilter removes a filter of ours, and the clsact qdisc that podweir made if
// nothing is left on it.
func (i *Interface) detachFilter(dev *Device, at queue.Place) error {
	return queue.DetachClsact(dev.Handle, dev.Index, at, i.Record.MadeClsact(dev.Side))
}
