// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/queue"
	"github.com/podweir/podweir/plugin/shaping"
)

// Do implements [attach.Kernel].
func (k *kernel) Do(r *attach.Record, a attach.Action) error {
	switch a.Kind {
	case attach.MakeIFB:
		return k.makeIFB(r)
	case attach.LoadDataplane:
		return k.load(r, a.State.Params, (*datapath.Objects).Pin)
	case attach.ReloadDataplane:
		return k.load(r, a.State.Params, (*datapath.Objects).Replace)
	case attach.UpdateDataplane:
		index, err := k.ifbIndex(r)
		if err != nil {
			return err
		}
		return datapath.Update(k.pins(r), a.Direction, &a.State.Params.Datapath, index)
	case attach.BuildTree:
		return k.buildTree(r, a.State.Params)
	case attach.ChangeTree:
		return k.changeTree(r, a.State.Params)
	case attach.ReplaceClassifier:
		return k.replaceClassifier(r, a.State.Params)
	case attach.AttachHook:
		return k.attachHook(r, a.State)
	case attach.AttachGuard:
		return k.attachExtra(r, a.Direction, true)
	case attach.AttachRedirect:
		return k.attachExtra(r, a.Direction, false)
	case attach.AttachCeiling:
		return k.attachCeiling(r, a.Direction)
	case attach.TearDown:
		return k.tearDown(r, a.Direction)
	default:
		return fmt.Errorf("no such action: %v", a.Kind)
	}
}

func (k *kernel) makeIFB(r *attach.Record) error {
	p, err := k.mustPlace(r, shaping.SidePod)
	if err != nil {
		return err
	}
	dev, err := p.handle.InterfaceByIndex(p.index)
	if err != nil {
		return err
	}
	_, err = p.handle.EnsureIFB(dev)
	return err
}

func (k *kernel) ifbIndex(r *attach.Record) (int, error) {
	if !mayUseIFB(r) {
		return 0, nil
	}
	p, err := k.placeOf(r, shaping.SideIFB)
	if err != nil || p == nil {
		return 0, err
	}
	return p.index, nil
}

func objectKey(r *attach.Record, d shaping.Direction) string {
	return r.Interface.PodName + " " + d.String()
}

// loading is a load that runs beside the other steps.
type loading struct {
	done chan struct{}
	objs *datapath.Objects
	err  error
}

// Prepare implements [attach.Kernel]: it starts the loads, most of what an ADD
// takes, so that both directions are verified at once and while the queues are
// made. Loaded objects are nobody's until they are pinned.
func (k *kernel) Prepare(r *attach.Record, plan []attach.Action) {
	for _, a := range plan {
		load := datapath.Load
		switch a.Kind {
		case attach.LoadDataplane:
		case attach.ReloadDataplane:
			load = func(p *shaping.Params, s []netip.Prefix) (*datapath.Objects, error) {
				return datapath.Reload(k.pins(r), p, s)
			}
		default:
			continue
		}
		l := &loading{done: make(chan struct{})}
		k.loading[objectKey(r, a.Direction)] = l
		params := a.State.Params
		go func() {
			defer close(l.done)
			l.objs, l.err = load(params, subnets(&r.Config))
		}()
	}
}

// load waits for what was prepared and pins it.
func (k *kernel) load(r *attach.Record, p *shaping.Params, pin func(o *datapath.Objects, dir string, p *shaping.Params, redirectIndex int) error) error {
	index := 0
	if p.Redirect {
		var err error
		if index, err = k.ifbIndex(r); err != nil {
			return err
		}
	}
	key := objectKey(r, p.Direction)
	l := k.loading[key]
	if l == nil {
		return fmt.Errorf("no load of %s was prepared", key)
	}
	delete(k.loading, key)
	<-l.done
	if l.err != nil {
		return l.err
	}
	k.objects[key] = l.objs
	return pin(l.objs, k.pins(r), p, index)
}

// opened returns the programs of a direction, loaded in this command or
// pinned by an earlier one.
func (k *kernel) opened(r *attach.Record, d shaping.Direction) (*datapath.Objects, error) {
	key := objectKey(r, d)
	if o := k.objects[key]; o != nil {
		return o, nil
	}
	o, err := datapath.Open(k.pins(r), d)
	if err != nil {
		return nil, err
	}
	k.objects[key] = o
	return o, nil
}

// buildTree makes the queue anew. What is in the way is our own, or Decide had
// the operator's word to replace it. Only then is it looked for: on a node full
// of pods that takes longer than all the rest.
func (k *kernel) buildTree(r *attach.Record, p *shaping.Params) error {
	at, err := k.mustPlace(r, p.Side)
	if err != nil {
		return err
	}
	progFD, name := 0, ""
	if p.Tree.Filter != nil {
		objs, err := k.opened(r, p.Direction)
		if err != nil {
			return err
		}
		progFD, name = objs.Program.FD(), p.ProgramName()
	}
	err = queue.Build(at.handle, at.index, p.Tree, progFD, name)
	if _, stands := errors.AsType[*queue.ForeignRootError](err); !stands {
		return err
	}
	if err := queue.RemoveForeignRoot(at.handle, at.index); err != nil {
		return err
	}
	return queue.Build(at.handle, at.index, p.Tree, progFD, name)
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
	return queue.Change(at.handle, at.index, &have.Tree, p.Tree)
}

// programsAt returns the device of a side and the programs of a direction.
func (k *kernel) programsAt(r *attach.Record, s shaping.Side, d shaping.Direction) (*place, *datapath.Objects, error) {
	at, err := k.mustPlace(r, s)
	if err != nil {
		return nil, nil, err
	}
	objs, err := k.opened(r, d)
	return at, objs, err
}

func (k *kernel) replaceClassifier(r *attach.Record, p *shaping.Params) error {
	at, objs, err := k.programsAt(r, p.Side, p.Direction)
	if err != nil {
		return err
	}
	return queue.ReplaceClassifier(at.handle, at.index, p.Tree.Filter, objs.Program.FD(), p.ProgramName())
}

func (k *kernel) attachHook(r *attach.Record, s *attach.DirectionState) error {
	p := s.Params
	at, objs, err := k.programsAt(r, p.Side, p.Direction)
	if err != nil {
		return err
	}
	if s.HookKind == shaping.HookKindTCX {
		err := at.ns.Do(func() error {
			return datapath.AttachTCX(k.pins(r), p.Direction, datapath.ProgramLink, objs.Program, at.index, p.Hook)
		})
		if err != nil {
			return err
		}
		// It may have been a filter while nobody else was on the hook.
		_, err = queue.DetachClsact(at.handle, at.index, hookPlace(p.Hook), false)
		return err
	}
	return attachFilter(at, p.Hook, prefHook, objs.Program.FD(), p.ProgramName())
}

func (k *kernel) attachExtra(r *attach.Record, d shaping.Direction, guard bool) error {
	at, objs, err := k.programsAt(r, shaping.SidePod, d)
	if err != nil {
		return err
	}
	if guard {
		return attachFilter(at, shaping.HookEgress, prefGuard, objs.Guard.FD(), datapath.GuardProgram)
	}
	f, err := k.paths.features()
	if err != nil {
		return err
	}
	if f.Redirect != redirectMirred {
		return attachFilter(at, shaping.HookIngress, queue.RedirectPref, objs.Redirect.FD(), datapath.RedirectProgram)
	}
	index, err := k.ifbIndex(r)
	if err != nil {
		return err
	}
	pos := queue.Place{Hook: queue.HookIngress, Pref: queue.RedirectPref, Handle: filterHandle}
	if _, err := queue.DetachClsact(at.handle, at.index, pos, false); err != nil {
		return err
	}
	_, err = queue.AttachMirred(at.handle, at.index, pos, index)
	return err
}

func (k *kernel) attachCeiling(r *attach.Record, d shaping.Direction) error {
	at, objs, err := k.programsAt(r, shaping.SideHost, d)
	if err != nil {
		return err
	}
	return at.ns.Do(func() error {
		return datapath.AttachTCX(k.pins(r), d, datapath.CeilingLink, objs.Ceiling, at.index, shaping.HookIngress)
	})
}

// hookPlace is where the classifier, stamper or policer is as a filter.
func hookPlace(h shaping.Hook) queue.Place {
	return queue.Place{Hook: queueHook(h), Pref: prefHook, Handle: filterHandle}
}

// attachFilter puts a filter in its place, or the program into a filter of ours
// that is there.
func attachFilter(at *place, h shaping.Hook, pref uint16, fd int, name string) error {
	pos := queue.Place{Hook: queueHook(h), Pref: pref, Handle: filterHandle}
	replaced, err := queue.ReplaceClsact(at.handle, at.index, pos, fd, name)
	if replaced || err != nil {
		return err
	}
	_, err = queue.AttachClsact(at.handle, at.index, pos, fd, name)
	return err
}

// tearDown removes a direction: programs before the queue that they steer
// for, so that no stamp is set that nothing obeys. Sides that are gone, with
// their namespace or device, are skipped.
func (k *kernel) tearDown(r *attach.Record, d shaping.Direction) error {
	var all error
	if err := datapath.DetachTCX(k.pins(r), d); err != nil {
		all = errors.Join(all, err)
	}
	for _, s := range []shaping.Side{shaping.SidePod, shaping.SideHost, shaping.SideIFB} {
		if err := k.tearDownSide(r, d, s); err != nil {
			all = errors.Join(all, fmt.Errorf("%v side: %w", s, err))
		}
	}
	if o := k.objects[objectKey(r, d)]; o != nil {
		o.Close()
		delete(k.objects, objectKey(r, d))
	}
	return errors.Join(all, datapath.Unpin(k.pins(r), d))
}

func (k *kernel) tearDownSide(r *attach.Record, d shaping.Direction, s shaping.Side) error {
	if s == shaping.SideIFB && (d != shaping.Ingress || k.leaveIFB) {
		return nil
	}
	at, err := k.placeOf(r, s)
	if at == nil || err != nil {
		return err
	}
	if s == shaping.SideIFB {
		return at.handle.DeleteIFB(r.Interface.PodIndex)
	}
	have, err := queue.Observe(at.handle, at.index)
	if err != nil {
		return err
	}
	programs, err := pinnedIDs(k.pins(r), d)
	if err != nil {
		return err
	}
	made := r.MadeClsact(s)
	for i := range have.HookFilters {
		f := &have.HookFilters[i]
		if !queue.Ours(f) || !slices.Contains(programs, f.ProgramID) && !inPlace(f, d, s) {
			continue
		}
		pos := queue.Place{Hook: f.Hook, Pref: f.Pref, Handle: f.Handle}
		if _, err := queue.DetachClsact(at.handle, at.index, pos, made); err != nil {
			return err
		}
	}
	if made && have.HookQdisc != "" && len(have.HookFilters) == 0 {
		// Made for a filter that an interrupted run did not come to add.
		pos := queue.Place{Hook: queue.HookEgress, Pref: prefHook, Handle: filterHandle}
		if _, err := queue.DetachClsact(at.handle, at.index, pos, true); err != nil {
			return err
		}
	}
	if root := have.Root(); root != nil && ownRoot(&root.Qdisc, r.Choices[d.String()].Majors) {
		return queue.Remove(at.handle, at.index, root.Kind, root.Handle)
	}
	return nil
}

// inPlace says that a filter is where this direction has its own, on the pod side
// or the host side. Its program may be none that is pinned: an interrupted run
// pinned others, or attached what it did not come to pin.
func inPlace(f *queue.Filter, d shaping.Direction, s shaping.Side) bool {
	if f.Pref == queue.RedirectPref {
		return d == shaping.Ingress
	}
	leaves := (s == shaping.SidePod) == (d == shaping.Egress)
	return (f.Pref == prefHook || f.Pref == prefGuard) && leaves == (f.Hook == queue.HookEgress)
}

// ownRoot says that a root qdisc has a handle that was drawn for this
// direction.
func ownRoot(root *shaping.Qdisc, majors []uint16) bool {
	return slices.Contains(majors, uint16(uint32(root.Handle)>>16))
}

func pinnedIDs(dir string, d shaping.Direction) ([]uint32, error) {
	dp, err := datapath.Programs(dir, d)
	if err != nil {
		return nil, err
	}
	return dp.Programs(), nil
}

// hookFilters are the clsact filters of all parties as hook programs.
func hookFilters(dev *queue.Device) []attach.HookProgram {
	all := make([]attach.HookProgram, 0, len(dev.HookFilters))
	for i := range dev.HookFilters {
		f := &dev.HookFilters[i]
		hook := shaping.HookIngress
		if f.Hook == queue.HookEgress {
			hook = shaping.HookEgress
		}
		all = append(all, attach.HookProgram{
			Kind: shaping.HookKindClsact, Hook: hook, ProgramID: f.ProgramID, Name: f.Name,
			Pref: f.Pref, FilterHandle: f.Handle, RedirectIndex: f.RedirectIndex,
		})
	}
	return all
}

// queueHook is the same hook in the words of package queue.
func queueHook(h shaping.Hook) queue.Hook {
	if h == shaping.HookEgress {
		return queue.HookEgress
	}
	return queue.HookIngress
}
