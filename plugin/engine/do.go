// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/queue"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// Do implements [attach.Kernel].
func (k *kernel) Do(r *attach.Record, a attach.Action) error {
	if _, err := k.store.dir(r); err != nil {
		return err
	}
	switch a.Kind {
	case attach.MakeIFB:
		return k.makeIFB(r)
	case attach.LoadDataplane, attach.UpdateDataplane:
		return k.configure(r, a.State.Params)
	case attach.BuildTree:
		return k.buildTree(r, a.State.Params)
	case attach.ChangeTree:
		return k.changeTree(r, a.State.Params)
	case attach.LimitOffload:
		return k.limitOffload(r, a.State)
	case attach.PaceTCP:
		return k.pace(r, func(shaping.Pacing) shaping.Pacing { return *a.State.Pacing })
	case attach.ReplaceClassifier:
		return k.replaceClassifier(r, a.State.Params)
	case attach.AttachHook:
		return k.attachHook(r, a.State)
	case attach.AttachGuard:
		return k.attachGuard(r, a.State)
	case attach.AttachRedirect:
		return k.attachRedirect(r)
	case attach.AttachCeiling:
		return k.attachCeiling(r, a.State)
	case attach.DetachCeiling:
		return k.detachCeiling(r, a.State.Params)
	case attach.RemoveStray:
		return k.removeStray(r, a.State)
	case attach.TearDown:
		return k.tearDown(r, a.Direction)
	default:
		return fmt.Errorf("no such action: %v", a.Kind)
	}
}

func (k *kernel) makeIFB(r *attach.Record) error {
	p, err := k.mustPlace(r, terms.SidePod)
	if err != nil {
		return err
	}
	dev, err := p.handle.InterfaceByIndex(p.index)
	if err != nil {
		return err
	}
	// It has to take what the peer sends: the pod's own device may be bounded for what
	// the pod sends.
	if peer, err := k.host.InterfaceByIndex(r.Interface.HostIndex); err == nil {
		dev.GSOMaxSize, dev.GSOIPv4MaxSize = peer.GSOMaxSize, peer.GSOIPv4MaxSize
	}
	_, err = p.handle.EnsureIFB(dev)
	return err
}

func (k *kernel) ifbIndex(r *attach.Record) (int, error) {
	if !mayUseIFB(r) {
		return 0, nil
	}
	p, err := k.placeOf(r, terms.SideIFB)
	if err != nil || p == nil {
		return 0, err
	}
	return p.index, nil
}

// configure gives a direction its slot and its limits.
func (k *kernel) configure(r *attach.Record, p *shaping.Params) error {
	index := 0
	if p.Redirect {
		var err error
		if index, err = k.ifbIndex(r); err != nil {
			return err
		}
	}
	return k.node.Configure(k.pins(r), p, subnets(&r.Config), index)
}

// limitOffload is for sockets that connect from now on; the others have a copy.
func (k *kernel) limitOffload(r *attach.Record, s *attach.DirectionState) error {
	at, err := k.mustPlace(r, attach.QueueSide(s.Params.Direction))
	if err != nil {
		return err
	}
	return setOffload(at, s.Offload)
}

func setOffload(at *place, o *attach.Offload) error {
	return at.handle.SetGSOMaxSize(at.index, uint32(o.GSO), uint32(o.GSOIPv4))
}

// The sysctls of [shaping.Pacing].
const (
	rttLogSysctl      = "net/ipv4/tcp_tso_rtt_log"
	minSegmentsSysctl = "net/ipv4/tcp_min_tso_segs"
)

// pacing reads those of a pod's namespace: nil if the kernel lacks one (before Linux 5.18), or
// the namespace is the node's, where they are everybody's.
func (k *kernel) pacing(ns *hostif.NetNS) (*shaping.Pacing, error) {
	if ns.Same(k.hostNS) {
		return nil, nil
	}
	values, err := ns.ReadSysctls(rttLogSysctl, minSegmentsSysctl)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &shaping.Pacing{RTTLog: values[0], MinSegments: values[1]}, nil
}

// pace makes TCP in the pod size its packets by what should be there: told what is there now.
// Connections that are open do so, too.
func (k *kernel) pace(r *attach.Record, wanted func(now shaping.Pacing) shaping.Pacing) error {
	at, err := k.podOf(&r.Interface)
	if at == nil || err != nil {
		return err
	}
	now, err := k.pacing(at.ns)
	if now == nil || err != nil {
		return err
	}
	want := wanted(*now)
	if want.RTTLog != now.RTTLog {
		err = at.ns.WriteSysctl(rttLogSysctl, want.RTTLog)
	}
	if want.MinSegments != now.MinSegments {
		err = errors.Join(err, at.ns.WriteSysctl(minSegmentsSysctl, want.MinSegments))
	}
	if errors.Is(err, os.ErrPermission) || errors.Is(err, unix.EROFS) {
		return nil // the limit holds without it, and whoever looks sees the difference
	}
	return err
}

// classifier is the program for the filter of a tree, with the slot of the
// direction; it is nothing if the tree has no filter.
func (k *kernel) classifier(r *attach.Record, p *shaping.Params) (queue.Classifier, error) {
	if p.Tree.Filter == nil {
		return queue.Classifier{}, nil
	}
	return k.filterProgram(r, p.Direction, p.ProgramName())
}

// filterProgram is a program for a filter, with the slot of a direction.
func (k *kernel) filterProgram(r *attach.Record, d terms.Direction, name string) (queue.Classifier, error) {
	program, err := k.node.Program(name, datapath.ByClassID)
	if err != nil {
		return queue.Classifier{}, err
	}
	slot, err := k.node.Stamp(k.pins(r), d)
	return queue.Classifier{ProgramFD: program.FD(), Name: name, Slot: uint16(slot)}, err
}

// buildTree makes the queue again. What is in the way is our own, or Decide had
// the operator's word to replace it. Only then is it looked for: on a node full
// of pods that takes longer than all the rest.
func (k *kernel) buildTree(r *attach.Record, p *shaping.Params) error {
	at, err := k.mustPlace(r, p.Side)
	if err != nil {
		return err
	}
	program, err := k.classifier(r, p)
	if err != nil {
		return err
	}
	err = queue.Build(at.handle, at.index, p.Tree, program)
	if _, stands := errors.AsType[*queue.ForeignRootError](err); !stands {
		return err
	}
	if k.seen[at.device].noRoot && !r.ReplaceQdisc { // it came since
		return fmt.Errorf("%w: %w", attach.ErrForeignQdisc, err)
	}
	if err := queue.RemoveForeignRoot(at.handle, at.index); err != nil {
		return err
	}
	return queue.Build(at.handle, at.index, p.Tree, program)
}

func (k *kernel) changeTree(r *attach.Record, p *shaping.Params) error {
	at, err := k.mustPlace(r, p.Side)
	if err != nil {
		return err
	}
	have, err := queue.Observe(at.handle, at.index)
	if err != nil {
		return err
	}
	err = queue.Change(at.handle, at.index, &have.Tree, p.Tree)
	if errors.Is(err, queue.ErrRebuild) {
		// It is not as it was when the step was planned.
		return k.buildTree(r, p)
	}
	return err
}

func (k *kernel) replaceClassifier(r *attach.Record, p *shaping.Params) error {
	at, err := k.mustPlace(r, p.Side)
	if err != nil {
		return err
	}
	program, err := k.classifier(r, p)
	if err != nil {
		return err
	}
	return queue.ReplaceClassifier(at.handle, at.index, p.Tree.Filter, program)
}

func (k *kernel) attachHook(r *attach.Record, s *attach.DirectionState) error {
	p := s.Params
	return k.attachAt(r, &hooking{
		direction: p.Direction, side: p.Side, hook: p.Hook, kind: s.HookKind, name: p.ProgramName(), link: datapath.ProgramLink, pref: queue.HookPref,
	})
}

func (k *kernel) attachCeiling(r *attach.Record, s *attach.DirectionState) error {
	return k.attachAt(r, &hooking{
		direction: s.Params.Direction, side: s.Params.CeilingSide(), hook: terms.HookIngress, kind: s.CeilingKind,
		name: datapath.CeilingProgram, link: datapath.CeilingLink, pref: queue.CeilingPref,
	})
}

func (k *kernel) attachGuard(r *attach.Record, s *attach.DirectionState) error {
	return k.attachAt(r, &hooking{
		direction: s.Params.Direction, side: terms.SidePod, hook: terms.HookEgress, kind: s.GuardKind,
		name: datapath.GuardProgram, link: datapath.GuardLink, pref: queue.GuardPref,
	})
}

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

// attachAt attaches a program in one way, and takes it away where it was attached
// in the other one.
func (k *kernel) attachAt(r *attach.Record, h *hooking) error {
	at, err := k.mustPlace(r, h.side)
	if err != nil {
		return err
	}
	if h.kind == terms.HookKindTCX {
		if err := k.attachTCX(r, at, h); err != nil {
			return err
		}
		return detachFilter(r, at, h.side, h.hook, h.pref)
	}
	if err := k.attachFilter(r, at, h.hook, h.pref, h.direction, h.name); err != nil {
		return err
	}
	return datapath.DetachTCX(k.pins(r), h.direction, h.link)
}

// detachCeiling takes the ceiling away, however it is attached.
func (k *kernel) detachCeiling(r *attach.Record, p *shaping.Params) error {
	if err := datapath.DetachTCX(k.pins(r), p.Direction, datapath.CeilingLink); err != nil {
		return err
	}
	at, err := k.placeOf(r, p.CeilingSide())
	if at == nil || err != nil {
		return err
	}
	return detachFilter(r, at, p.CeilingSide(), terms.HookIngress, queue.CeilingPref)
}

func (k *kernel) attachTCX(r *attach.Record, at *place, h *hooking) error {
	slot, err := k.node.Stamp(k.pins(r), h.direction)
	if err != nil {
		return err
	}
	program, err := k.node.Program(h.name, datapath.CarrierOf(h.side, h.direction, slot))
	if err != nil {
		return err
	}
	if h.side == terms.SideHost {
		if err := k.node.PutHost(k.pins(r), h.direction, at.index); err != nil {
			return err
		}
	}
	return at.ns.Do(func() error {
		return datapath.AttachTCX(k.pins(r), h.direction, h.link, program, at.index, h.hook)
	})
}

func (k *kernel) attachRedirect(r *attach.Record) error {
	at, err := k.mustPlace(r, terms.SidePod)
	if err != nil {
		return err
	}
	f, err := k.features()
	if err != nil {
		return err
	}
	if f.Redirect != redirectMirred {
		return k.attachFilter(r, at, terms.HookIngress, queue.RedirectPref, terms.Ingress, datapath.RedirectProgram)
	}
	index, err := k.ifbIndex(r)
	if err != nil {
		return err
	}
	pos := queue.Place{Hook: queue.HookIngress, Pref: queue.RedirectPref, Handle: queue.FilterHandle}
	if _, err := queue.DetachClsact(at.handle, at.index, pos, false); err != nil {
		return err
	}
	made, err := queue.AttachMirred(at.handle, at.index, pos, index)
	if err != nil {
		return err
	}
	return k.settleClsact(r, at, made)
}

// tearDown removes a direction: programs before the queue that they steer
// for, so that no stamp is set that nothing obeys. Sides that are gone, with
// their namespace or device, are skipped.
func (k *kernel) tearDown(r *attach.Record, d terms.Direction) error {
	var all error
	for _, link := range []datapath.Link{datapath.ProgramLink, datapath.CeilingLink, datapath.GuardLink} {
		if err := datapath.DetachTCX(k.pins(r), d, link); err != nil {
			all = errors.Join(all, err)
		}
	}
	for _, s := range []terms.Side{terms.SidePod, terms.SideHost, terms.SideIFB} {
		// A device that goes while it is torn down takes all with it.
		if err := k.tearDownSide(r, d, s); err != nil && !errors.Is(err, hostif.ErrNoDevice) && !errors.Is(err, unix.ENODEV) {
			all = errors.Join(all, fmt.Errorf("%v side: %w", s, err))
		}
	}
	if all != nil {
		return all // what is still attached still looks its slot up
	}
	if err := k.node.GiveBack(k.pins(r), d, subnets(&r.Config), r.Interface.HostIndex); err != nil {
		return err
	}
	return datapath.Unpin(k.pins(r), d)
}

func (k *kernel) tearDownSide(r *attach.Record, d terms.Direction, s terms.Side) error {
	if s == terms.SideIFB && (d != terms.Ingress || k.leaveIFB) {
		return nil
	}
	at, err := k.placeOf(r, s)
	if errors.Is(err, hostif.ErrForeignDevice) {
		return nil // whoever gave it the name took podweir's away
	}
	if at == nil || err != nil {
		return err
	}
	if s == terms.SideIFB {
		return at.handle.DeleteIFB(r.Interface.PodIndex)
	}
	have, err := queue.Observe(at.handle, at.index)
	if err != nil {
		return err
	}
	made := r.MadeClsact(s)
	for i := range have.HookFilters {
		f := &have.HookFilters[i]
		if !queue.Ours(f) || terms.DirectionAt(s, hookOf(f)) != d {
			continue
		}
		pos := queue.Place{Hook: f.Hook, Pref: f.Pref, Handle: f.Handle}
		if _, err := queue.DetachClsact(at.handle, at.index, pos, made); err != nil {
			return err
		}
	}
	if made && have.HookQdisc != "" && len(have.HookFilters) == 0 {
		// Made for a filter that an interrupted run did not come to add.
		pos := queue.Place{Hook: queue.HookEgress, Pref: queue.HookPref, Handle: queue.FilterHandle}
		if _, err := queue.DetachClsact(at.handle, at.index, pos, true); err != nil {
			return err
		}
	}
	// Both after what is pinned: the record may have been lost, and the pins with it.
	if root := have.Root(); root != nil && s == attach.QueueSide(d) {
		dev, err := k.observeDevice(at, nil)
		if err != nil {
			return err
		}
		if dev.OwnTree || ownRoot(&root.Qdisc, r.Choices[d].Majors) {
			err = queue.Remove(at.handle, at.index, root.Kind, root.Handle)
		}
		if err != nil {
			return err
		}
	}
	if was := r.Choices[d].Offload; s == attach.QueueSide(d) && was != nil {
		if err := setOffload(at, was); err != nil && !errors.Is(err, unix.ENODEV) {
			return err
		}
	}
	if choice := r.Choices[d]; s == attach.QueueSide(d) && choice.Pacing != nil {
		if err := k.pace(r, choice.GivenBack); err != nil {
			return err
		}
	}
	if was := r.Choices[d].TxQueueLen; s == attach.QueueSide(d) && was != nil {
		// After the queue is gone, when the kernel does not wait for RCU (6.18).
		if err := at.handle.SetTxQueueLen(at.index, *was); err != nil && !errors.Is(err, unix.ENODEV) {
			return err
		}
	}
	return k.detachLost(at, s, d, func(*attach.HookProgram) bool { return false })
}

// detachLost takes podweir's TCX programs of a direction off a device, without those
// to keep.
func (k *kernel) detachLost(at *place, s terms.Side, d terms.Direction, keep func(*attach.HookProgram) bool) error {
	return at.ns.Do(func() error {
		for _, h := range []terms.Hook{terms.HookIngress, terms.HookEgress} {
			if terms.DirectionAt(s, h) != d {
				continue
			}
			if err := datapath.DetachLost(at.index, h, keep); err != nil {
				return err
			}
		}
		return nil
	})
}

// removeStray removes what podweir has on an interface and the direction does not
// need.
func (k *kernel) removeStray(r *attach.Record, state *attach.DirectionState) error {
	d := state.Params.Direction
	for _, s := range []terms.Side{terms.SidePod, terms.SideHost} {
		at, err := k.placeOf(r, s)
		if err != nil {
			return err
		}
		if at == nil {
			continue
		}
		dev, err := k.observeDevice(at, nil)
		if err != nil {
			return err
		}
		keep := func(h *attach.HookProgram) bool { return state.Keeps(s, h) }
		for i := range dev.Hooks {
			h := &dev.Hooks[i]
			if h.Kind != terms.HookKindClsact || !h.Ours || terms.DirectionAt(s, h.Hook) != d || keep(h) {
				continue
			}
			pos := queue.Place{Hook: queueHook(h.Hook), Pref: h.Pref, Handle: h.FilterHandle}
			if _, err := queue.DetachClsact(at.handle, at.index, pos, r.MadeClsact(s)); err != nil {
				return err
			}
		}
		if err := k.detachLost(at, s, d, keep); err != nil {
			return err
		}
		if root := dev.OwnRoot(); root != nil && !state.KeepsRoot(s) {
			if err := queue.Remove(at.handle, at.index, root.Kind, root.Handle); err != nil {
				return err
			}
		}
	}
	return nil
}

// ownRoot says that a root qdisc has a handle that was drawn for this
// direction.
func ownRoot(root *shaping.Qdisc, majors []uint16) bool {
	return slices.Contains(majors, uint16(uint32(root.Handle)>>16))
}

// queueHook is the same hook in the words of package queue.
func queueHook(h terms.Hook) queue.Hook {
	if h == terms.HookEgress {
		return queue.HookEgress
	}
	return queue.HookIngress
}
