// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package apply brings pods' interfaces to what package attach plans, under the lock of
// the attachment and after its record is written. What it finds, keeps and changes goes
// through the interfaces that it defines.
package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// Kernel finds what podweir attaches to, and shows and changes it.
type Kernel interface {
	// Find returns the interface of this name in the namespace at a path. The
	// error wraps [ErrNoNetNS] or [ErrGone] if the one or the other is not there, and
	// [ErrLoopback] or [ErrStandIn] if it is nothing to limit.
	Find(netnsPath, name string) (attach.Interface, error)
	// Again returns an interface that was found before as it is now, whatever its
	// devices are called by now. The error wraps [ErrGone] if it is not there, or
	// another one is in its place, and the others of Find.
	Again(i *attach.Interface) (attach.Interface, error)
	// Left names what still exists of an interface that is not there, "" if nothing does.
	Left(i *attach.Interface) (string, error)
	// Outward returns the interfaces in the namespace at a path that lead out of it, in
	// the order of their indices.
	Outward(netnsPath string) ([]attach.Interface, error)
	// Facts returns what the kernel offers for it, and whether it has TCX.
	Facts(i attach.Interface) (facts shaping.Facts, tcx bool, err error)
	// Observe shows the interface of a record.
	Observe(r *Record) (*attach.Observed, error)
	// SetDeadline ends requests to the kernel at t; zero takes the deadline back.
	SetDeadline(t time.Time)
	// Do takes one step.
	Do(r *Record, a attach.Action) error
}

// Store keeps the records, one for each interface of an attachment.
type Store interface {
	// Lock excludes every other process from an attachment.
	Lock(ctx context.Context, id attach.ID) (unlock func(), err error)
	// Kept is [Executor.Kept].
	Kept(id attach.ID) (attach.ID, error)
	// Records returns the records of an attachment; none is not an error. A
	// record that cannot be read comes with its interface name and an error.
	Records(id attach.ID) ([]*Record, error)
	// Another returns the record of the attachment, other than one, that has an interface; nil if
	// there is none.
	Another(than attach.ID, i *attach.Interface) (*Record, error)
	// Write pins a record, replacing the one that is there. From then on its attachment has the
	// interface, whoever had it.
	Write(r *Record) error
	// Hold notes for [Store.Another] that a record's attachment has the interface.
	Hold(r *Record) error
	// Remove removes the record and every pin of an interface of an attachment, or of all if i
	// is nil.
	Remove(id attach.ID, i *attach.Interface) error
}

// Executor runs observe, plan and apply. Its fields are for whoever wants to be told or asked;
// set them before the first call.
type Executor struct {
	store  Store
	kernel Kernel
	random func() uint16
	// began is when the lock was taken that is held, deadline when the work under it
	// has to be done.
	began, deadline time.Time
	// Planned is told what differs on an interface before it is mended; nil
	// does nothing.
	Planned func(i attach.Interface, plan []attach.Action)
	// Drifted is told what differs although the wish is the same: what another party
	// changed or took away. Nil does nothing.
	Drifted func(id attach.ID, plan []attach.Action)
	// Skipped is told of an interface that was named and is not shaped, although others of
	// the attachment are. Nil does nothing.
	Skipped func(name string, why error)
	// Now is the time, for how long something is degraded; nil means [time.Now].
	Now func() time.Time
	// Step is called with a name before every step that leaves something
	// behind; tests kill the process there. Nil does nothing.
	Step func(name string)
}

// New returns an executor; random draws a handle major, 1 to 0xffef.
func New(k Kernel, s Store, random func() uint16) *Executor {
	return &Executor{store: s, kernel: k, random: random}
}

// Records returns the records of an attachment; none is not an error. One that cannot be
// read is left out, and the error names its interface.
func (e *Executor) Records(id attach.ID) ([]*Record, error) {
	records, err := e.store.Records(id)
	if err != nil || len(records) > 0 {
		return records, err
	}
	known, err := e.Kept(id)
	if err != nil || known == id {
		return nil, err
	}
	return e.store.Records(known)
}

// Kept returns the name under which an attachment is kept: that of the network which it
// was made for, though the network may have another name by now. It is id if nothing is
// kept of it.
func (e *Executor) Kept(id attach.ID) (attach.ID, error) {
	return e.store.Kept(id)
}

// Want is what an attachment asks for.
type Want struct {
	ID        attach.ID
	NetNSPath string
	// Names are the interfaces in the pod to shape, as the chain tells them. With none it
	// is ID.IfName and all whose other end is on the host.
	Names        []string
	Config       *shaping.Config
	ReplaceQdisc bool
	// Pod is "namespace/name" if known.
	Pod string
	// Strict is [attach.Request.Strict]: for whoever asks by hand and sees the error.
	Strict bool
	// By is who asks; an attachment keeps whoever made it.
	By By
	// Told is [Record.Told], nil to keep that of the attachment.
	Told *bool
	// TakesOver says of another attachment that has one of the interfaces whether this one takes
	// the interface over, as that of a container which is added to the network namespace of one
	// that has ended. Otherwise the interface stays that one's: see [HeldError]. Nil says no.
	TakesOver func(other attach.ID) bool
	// Existing says that the attachment is to be changed, not made: Ensure returns
	// [ErrNotAttached] if it is gone by the time it has the lock, after a DEL.
	Existing bool
}

// HeldError says that the attachment By shapes an interface already: two attachments would
// replace each other's programs on the hooks. For the one that wants the interface it is [ErrGone],
// unless By limits it less than is wanted: Lacks says how.
type HeldError struct {
	By    attach.ID
	Lacks []string
}

// Is says that it is [ErrGone].
func (e *HeldError) Is(target error) bool { return target == ErrGone && len(e.Lacks) == 0 }

func (e *HeldError) Error() string {
	return strings.Join(append([]string{"an interface is shaped already, as " + e.By.String()}, e.Lacks...), ", ")
}

// DriftError says how an interface differs from what it should be.
type DriftError struct {
	Interface attach.Interface
	Actions   []attach.Action
}

func (e *DriftError) Error() string {
	reasons := make([]string, len(e.Actions))
	for i, a := range e.Actions {
		reasons[i] = a.String()
	}
	return fmt.Sprintf("%s (ifindex %d) in %s: %s", e.Interface.PodName, e.Interface.PodIndex,
		e.Interface.NetNSPath, strings.Join(reasons, "; "))
}

// Ensure brings every interface to what is wanted and returns what it is now.
// Done twice it changes nothing. If it fails, nothing of this attachment stays
// on the interface that failed, unless it was shaped before; the others are shaped. Where a
// limit does not hold and no step can mend it, the rest stays, and the error says so.
//
// The loopback device is left alone, and a name that is gone or another attachment's is skipped:
// see [Executor.Skipped]. What only stands in for the pod's interface, as the device of the
// same name in the pod of a virtual machine, is replaced by the pair that it stands in
// for. The error wraps [ErrGone] if no interface is there, and [ErrStandIn] if there is
// none that leads out of the pod. If the attachment was made for a network of another name,
// Ensure writes that ID into w.
func (e *Executor) Ensure(ctx context.Context, w *Want) ([]*attach.Desired, error) {
	id, unlock, err := e.lockKept(ctx, w.ID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	w.ID = id
	priors, err := e.priors(w.ID)
	if err != nil {
		return nil, err
	}
	if w.Existing && len(priors) == 0 {
		return nil, fmt.Errorf("%v: %w", w.ID, ErrNotAttached)
	}
	found := e.search(w, priors)
	if err := found.formers(); err != nil {
		return nil, err
	}
	for _, r := range found.stale {
		if _, err := e.remove(r); err != nil {
			return nil, err
		}
	}
	for _, one := range found.skipped {
		if e.Skipped != nil && found.failed == nil {
			e.Skipped(one.name, one.why)
		}
	}
	all, failed := make([]*attach.Desired, 0, len(found.found)), found.failed
	for _, t := range found.found {
		cfg, original := effective(found.config(), t.prior)
		changed := *w
		changed.Config, t.held = cfg, slices.Concat(found.held, found.missing)
		want, err := e.takeOver(ctx, &changed, &t, original)
		if err != nil { // it costs the others nothing
			failed = errors.Join(failed, fmt.Errorf("shape %s (ifindex %d) in %s: %w", t.iface.PodName, t.iface.PodIndex, w.NetNSPath, err))
		}
		if want != nil {
			all = append(all, want)
		}
	}
	return all, failed
}

// takeOver is ensure for an interface that another attachment may have. That one loses it without
// a moment in which the interface has no limit.
func (e *Executor) takeOver(ctx context.Context, w *Want, t *target, original *shaping.Config) (*attach.Desired, error) {
	if t.former == nil {
		return e.ensure(w, t, original)
	}
	unlock, err := e.store.Lock(ctx, t.former.ID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if t.former, err = e.store.Another(w.ID, &t.iface); err != nil {
		return nil, err
	}
	want, err := e.ensure(w, t, original)
	if want == nil || t.former == nil {
		return want, err
	}
	if _, err := e.remove(t.former); err != nil {
		return want, err
	}
	priors, err := e.priors(w.ID)
	if err != nil {
		return want, err
	}
	t.prior, t.former = priors[t.iface.PodName], nil
	return e.ensure(w, t, original) // what hung on a link of the former's went with it
}

// priors returns the readable records of an attachment by interface. What
// cannot be read was left half made: it is removed.
func (e *Executor) priors(id attach.ID) (map[string]*Record, error) {
	records, err := e.store.Records(id)
	if err != nil && !errors.Is(err, ErrUnknownRecord) {
		return nil, err
	}
	byName := make(map[string]*Record, len(records))
	for _, r := range records {
		byName[r.Interface.PodName] = r
	}
	return byName, nil
}

// ensure shapes one interface. original is the configuration before `set`
// changed it, nil if it did not.
func (e *Executor) ensure(w *Want, t *target, original *shaping.Config) (*attach.Desired, error) {
	prior := t.prior
	rec := &Record{
		Version: RecordVersion, ID: w.ID, Interface: t.iface, Config: *w.Config, Pod: w.Pod, By: w.By,
		Asked: original, ReplaceQdisc: w.ReplaceQdisc, Strict: w.Strict, Told: w.Told, Held: t.held,
	}
	if prior != nil {
		rec.By, rec.Strict, rec.Attached, rec.Told = prior.By, w.Strict || prior.Strict, prior.Attached, cmp.Or(w.Told, prior.Told)
	} else {
		rec.Attached = e.now().UTC().Truncate(time.Millisecond)
	}
	in, err := e.inspect(rec, prior, t.former)
	if err != nil {
		if in != nil {
			err = errors.Join(err, e.unhide(prior, in.Observed))
		}
		return nil, err
	}
	e.drifted(w.ID, prior, rec, in)
	want, plan := in.Want, in.Plan
	if w.Strict {
		if err := declined(want); err != nil {
			return nil, err
		}
	}
	same := len(plan) == 0 && prior != nil && reflect.DeepEqual(prior.Config, rec.Config) && reflect.DeepEqual(prior.Asked, rec.Asked)
	// Records of older builds do not say which namespace has the host's end.
	if same && slices.Equal(prior.Held, rec.Held) && prior.Interface.HostNetNSCookie == rec.Interface.HostNetNSCookie {
		return want, errors.Join(in.Unheld, e.store.Hold(rec))
	}
	if e.Planned != nil && !same {
		e.Planned(t.iface, plan)
	}
	rec.Choices = in.Choices
	rec.noteTxQueueLen(want, in.Observed, in.Before)
	for _, a := range in.Begin {
		if err := e.doOn(cmp.Or(prior, rec), a); err != nil {
			return nil, err
		}
	}
	e.step("record")
	if err := e.store.Write(rec); err != nil {
		return nil, err
	}
	if err := e.apply(rec, in); err != nil {
		if prior == nil {
			e.begin() // what takes it away has time, too
			err = errors.Join(err, e.rollBack(rec, t.former))
		}
		return nil, err
	}
	return want, in.Unheld
}

// rollBack takes away what was made of an attachment. If it took the interface over, the former
// attachment gets it back: a limit of another container's is better than none.
func (e *Executor) rollBack(rec, former *Record) error {
	if former == nil {
		_, err := e.remove(rec)
		return err
	}
	if err := e.store.Write(former); err != nil {
		return err
	}
	w := &Want{ID: former.ID, NetNSPath: former.Interface.NetNSPath, Config: &former.Config, Pod: former.Pod, ReplaceQdisc: former.ReplaceQdisc}
	_, err := e.ensure(w, &target{iface: rec.Interface, prior: former, held: former.Held}, former.Asked)
	_, failed := e.remove(rec)
	return errors.Join(err, failed)
}

// declined is an error if something that was requested by name is not available.
func declined(want *attach.Desired) error {
	var all []error
	for _, d := range terms.Directions {
		if state := want.Directions[d]; state != nil && len(state.Params.Declined) > 0 {
			all = append(all, fmt.Errorf("%v: %s", d, strings.Join(state.Params.Declined, "; ")))
		}
	}
	return errors.Join(all...)
}

// unhide takes a redirect away from in front of a netfilter ingress chain where
// nothing else is available instead: the pod is better unshaped than without its
// policy.
func (e *Executor) unhide(prior *Record, obs *attach.Observed) error {
	if prior == nil || !obs.Hides() {
		return nil
	}
	return e.take(attach.TearDown, prior, terms.Ingress)
}

func (e *Executor) apply(rec *Record, in *attach.Inspection) error {
	for _, a := range in.Steps {
		r := rec
		if a.Kind == attach.TearDown && a.State == nil { // the new record does not tell of it
			was := *rec
			was.Choices = maps.Clone(rec.Choices)
			was.Choices[a.Direction] = in.Before[a.Direction]
			r = &was
		}
		if err := e.do(r, a); err != nil {
			return fmt.Errorf("%v %v: %w", a.Direction, a.Kind, err)
		}
	}
	return nil
}

// do takes one step, unless it is too late for it.
func (e *Executor) do(r *Record, a attach.Action) error {
	e.step(a.Direction.String() + " " + a.Kind.String())
	if err := e.late(); err != nil {
		return err
	}
	return e.kernel.Do(r, a)
}

func (e *Executor) now() time.Time {
	if e.Now != nil {
		return e.Now()
	}
	return time.Now()
}

func (e *Executor) step(name string) {
	if e.Step != nil {
		e.Step(name)
	}
}

// Check returns nil if every interface is what the request asks for, and a
// [*DriftError] naming the differences if one is not.
func (e *Executor) Check(ctx context.Context, w *Want) error {
	id, unlock, err := e.lockKept(ctx, w.ID)
	if err != nil {
		return err
	}
	defer unlock()
	priors, err := e.priors(id)
	if err != nil {
		return err
	}
	found := e.search(w, priors)
	if err := found.formers(); err != nil {
		return err
	}
	if found.failed != nil {
		return found.failed
	}
	for _, t := range found.found {
		cfg, _ := effective(found.config(), t.prior)
		if err := e.check(cfg, t.iface, t.prior); err != nil {
			return err
		}
	}
	return nil
}

func (e *Executor) check(cfg *shaping.Config, iface attach.Interface, prior *Record) error {
	if prior == nil || !prior.Interface.Same(&iface) {
		return fmt.Errorf("%s (ifindex %d) in %s has limits but is not attached",
			iface.PodName, iface.PodIndex, iface.NetNSPath)
	}
	if other := iface.Uncovered(); other != "" {
		return errors.New(other)
	}
	in, err := e.look(cfg, iface, prior)
	if err != nil {
		return err
	}
	if len(in.Plan) == 0 {
		return in.Unheld
	}
	drift := &DriftError{Interface: iface, Actions: in.Plan}
	if in.Unheld != nil {
		return fmt.Errorf("%w; %w", drift, in.Unheld)
	}
	return drift
}

// Remove removes everything of an attachment. That something is gone already
// is not an error.
func (e *Executor) Remove(ctx context.Context, id attach.ID) error {
	id, unlock, err := e.lockKept(ctx, id) // without one it is perhaps just being made
	if err != nil {
		return err
	}
	defer unlock()
	records, err := e.store.Records(id)
	if err != nil && !errors.Is(err, ErrUnknownRecord) {
		return err
	}
	_, err = e.removeAll(id, records)
	return err
}

// removeAll removes what an attachment has, and says whether that is all.
func (e *Executor) removeAll(id attach.ID, records []*Record) (done bool, err error) {
	done = true
	for _, r := range records {
		whole, failed := e.remove(r)
		done, err = done && whole, errors.Join(err, failed)
	}
	if err != nil || !done {
		return false, err
	}
	return true, e.store.Remove(id, nil)
}

// remove removes what an attachment has on an interface. What is on one that another attachment has
// by now is that one's. If that one was killed before it had programs of its own there, those of this
// one still limit the pod: what they need stays, done is false, and whoever calls again removes it.
func (e *Executor) remove(r *Record) (done bool, err error) {
	other, err := e.store.Another(r.ID, &r.Interface)
	if err != nil {
		return false, err
	}
	kind, used := attach.TearDown, map[terms.Direction]bool(nil)
	if other != nil {
		kind = attach.LetGo
		if used, err = e.used(r, other); err != nil {
			return false, err
		}
	}
	done = true
	for _, d := range terms.Directions {
		if _, made := r.Choices[d]; !made {
			continue
		}
		if used[d] {
			done = false
			continue
		}
		if err := e.take(kind, r, d); err != nil {
			return false, err
		}
	}
	if !done {
		return false, nil
	}
	e.step("unpin")
	return true, e.store.Remove(r.ID, &r.Interface)
}

// used says in which directions programs on the devices still use what a record has.
func (e *Executor) used(r, by *Record) (map[terms.Direction]bool, error) {
	at := *r
	at.Interface.NetNSPath = by.Interface.NetNSPath // the path of a container that ended may be gone
	obs, err := e.kernel.Observe(&at)
	if err != nil {
		return nil, err
	}
	all := make(map[terms.Direction]bool)
	for d, slot := range obs.Dataplanes {
		all[d] = obs.Uses(slot.Slot)
	}
	return all, nil
}

// take takes a direction away, by the record that tells how it was made.
func (e *Executor) take(kind attach.ActionKind, r *Record, d terms.Direction) error {
	return e.doOn(r, attach.Action{Kind: kind, Direction: d, Reason: "removed"})
}

// doOn is do for a record that may not be the one that is wanted.
func (e *Executor) doOn(r *Record, a attach.Action) error {
	if err := e.do(r, a); err != nil {
		return fmt.Errorf("%v %v of %s: %w", a.Direction, a.Kind, r.Interface.PodName, err)
	}
	return nil
}
