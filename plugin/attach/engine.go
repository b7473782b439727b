// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package attach

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// Interfaces finds what podweir attaches to.
type Interfaces interface {
	// Find returns the interface of this name in the namespace at a path. The
	// error wraps [ErrGone] if the one or the other is not there.
	Find(netnsPath, name string) (Interface, error)
	// Again returns an interface that was found before as it is now, whatever its
	// devices are called by now. The error wraps [ErrGone] if it is not there, or
	// another one is in its place.
	Again(i *Interface) (Interface, error)
	// Facts returns what the kernel offers for it, and whether it has TCX.
	Facts(i Interface) (facts shaping.Facts, tcx bool, err error)
}

// Store keeps the records, one for each interface of an attachment.
type Store interface {
	// Lock excludes every other process from an attachment.
	Lock(ctx context.Context, id ID) (unlock func(), err error)
	// Records returns the records of an attachment; none is not an error. A
	// record that cannot be read comes with its interface name and an error.
	Records(id ID) ([]*Record, error)
	// Write pins a record, replacing the one that is there.
	Write(r *Record) error
	// Remove removes the record and every pin of the interface, then the
	// attachment's directory if nothing is left in it.
	Remove(id ID, podName string) error
}

// Kernel shows and changes one interface.
type Kernel interface {
	Observe(r *Record) (*Observed, error)
	// SetDeadline ends requests to the kernel at t; zero takes the deadline back.
	SetDeadline(t time.Time)
	// Do takes one step.
	Do(r *Record, a Action) error
}

// Engine runs observe, plan and apply. Its fields are for who wants to be told or asked;
// set them before the first call.
type Engine struct {
	interfaces Interfaces
	store      Store
	kernel     Kernel
	random     func() uint16
	// began is when the lock was taken that is held, deadline when the work under it
	// has to be done.
	began, deadline time.Time
	// Planned is told what differs on an interface before it is mended; nil
	// does nothing.
	Planned func(i Interface, plan []Action)
	// Drifted is told what differs although the wish is the same: what somebody
	// changed or took away. Nil does nothing.
	Drifted func(id ID, plan []Action)
	// HostSide says whether a direction is to be policed on the host side for now,
	// out of the pod's reach; is says whether it was. It is asked again after Drifted,
	// and not obeyed where that is not available. Nil leaves a direction where it is.
	HostSide func(id ID, d terms.Direction, is bool) bool
	// Now is the time, for how long something is degraded; nil means [time.Now].
	Now func() time.Time
	// Step is called with a name before every step that leaves something
	// behind; tests kill the process there. Nil does nothing.
	Step func(name string)
}

// New returns an engine; random draws a handle major, 1 to 0xffef.
func New(i Interfaces, s Store, k Kernel, random func() uint16) *Engine {
	return &Engine{interfaces: i, store: s, kernel: k, random: random}
}

// Records returns the records of an attachment; none is not an error. One that cannot be
// read is left out, and the error names its interface.
func (e *Engine) Records(id ID) ([]*Record, error) { return e.store.Records(id) }

// Want is what an attachment asks for.
type Want struct {
	ID        ID
	NetNSPath string
	// Names are the interfaces in the pod to shape.
	Names        []string
	Config       *shaping.Config
	ReplaceQdisc bool
	// Pod is "namespace/name" if known.
	Pod string
	// Strict is [Request.Strict]: for who asks by hand and sees the error.
	Strict bool
	// By is who asks; an attachment keeps whoever made it.
	By By
	// Existing says that the attachment is to be changed, not made: Ensure returns
	// [ErrNotAttached] if it is gone by the time it has the lock, after a DEL.
	Existing bool
}

// DriftError says how an interface differs from what it should be.
type DriftError struct {
	Interface Interface
	Actions   []Action
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
// on the interface that failed, unless it was shaped before.
func (e *Engine) Ensure(ctx context.Context, w *Want) ([]*Desired, error) {
	unlock, err := e.Lock(ctx, w.ID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	priors, err := e.priors(w.ID)
	if err != nil {
		return nil, err
	}
	if w.Existing && len(priors) == 0 {
		return nil, fmt.Errorf("%v: %w", w.ID, ErrNotAttached)
	}
	all := make([]*Desired, 0, len(w.Names))
	for _, name := range w.Names {
		prior := priors[name]
		iface, err := e.find(w.NetNSPath, name, prior)
		if err != nil {
			return all, err
		}
		if prior != nil && !prior.Interface.Same(&iface) {
			// The same ID with a new namespace or device: what the record tells
			// of is gone, its ifb and its side on the host perhaps not.
			if err := e.remove(prior); err != nil {
				return all, err
			}
			prior = nil
		}
		cfg, original := effective(w.Config, prior)
		changed := *w
		changed.Config = cfg
		want, err := e.ensure(&changed, iface, prior, original)
		if err != nil {
			return all, fmt.Errorf("shape %s (ifindex %d) in %s: %w", name, iface.PodIndex, w.NetNSPath, err)
		}
		all = append(all, want)
	}
	return all, nil
}

// priors returns the readable records of an attachment by interface. What
// cannot be read was left half made: it is removed.
func (e *Engine) priors(id ID) (map[string]*Record, error) {
	records, err := e.store.Records(id)
	if err != nil && !errors.Is(err, ErrRecordVersion) {
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
func (e *Engine) ensure(w *Want, iface Interface, prior *Record, original *shaping.Config) (*Desired, error) {
	rec := &Record{
		Version: RecordVersion, ID: w.ID, Interface: iface, Config: *w.Config, Pod: w.Pod, By: w.By,
		Asked: original, ReplaceQdisc: w.ReplaceQdisc, Strict: w.Strict,
	}
	if prior != nil {
		rec.By, rec.Strict, rec.Attached = prior.By, w.Strict || prior.Strict, prior.Attached
	} else {
		rec.Attached = e.now().UTC().Truncate(time.Millisecond)
	}
	in, err := e.inspect(rec, prior, e.hostSides(w.ID, prior))
	if err != nil {
		if in != nil {
			err = errors.Join(err, e.unhide(prior, in.Observed))
		}
		return nil, err
	}
	if e.drifted(w.ID, prior, rec, in.gone, in.steps) && e.asksAnew(in.request, w.ID, prior) {
		if err := in.decide(prior); err != nil {
			return nil, err
		}
	}
	want, plan := in.Want, in.Plan
	if len(plan) == 0 && prior != nil && reflect.DeepEqual(prior.Config, rec.Config) &&
		reflect.DeepEqual(prior.Asked, rec.Asked) {
		return want, nil
	}
	if e.Planned != nil {
		e.Planned(iface, plan)
	}
	rec.Choices = in.choices
	rec.noteTxQueueLen(want, in.Observed, prior)
	if err := e.tearDown(prior, in.gone); err != nil {
		return nil, err
	}
	e.step("record")
	if err := e.store.Write(rec); err != nil {
		return nil, err
	}
	if err := e.apply(rec, in.steps); err != nil {
		if prior == nil {
			e.begin() // what takes it away has time, too
			err = errors.Join(err, e.remove(rec))
		}
		return nil, err
	}
	return want, nil
}

// unhide takes a redirect away from in front of a netfilter ingress chain where
// nothing else is available instead: the pod is better unshaped than without its
// policy.
func (e *Engine) unhide(prior *Record, obs *Observed) error {
	if prior == nil || !obs.hides() {
		return nil
	}
	return e.tearDown(prior, []terms.Direction{terms.Ingress})
}

func (e *Engine) apply(rec *Record, plan []Action) error {
	for _, a := range plan {
		if err := e.do(rec, a); err != nil {
			return fmt.Errorf("%v %v: %w", a.Direction, a.Kind, err)
		}
	}
	return nil
}

// do takes one step, unless it is too late for it.
func (e *Engine) do(r *Record, a Action) error {
	e.step(a.Direction.String() + " " + a.Kind.String())
	if err := e.late(); err != nil {
		return err
	}
	return e.kernel.Do(r, a)
}

func (e *Engine) step(name string) {
	if e.Step != nil {
		e.Step(name)
	}
}

// Check returns nil if every interface is what the request asks for, and a
// [*DriftError] naming the differences if one is not.
func (e *Engine) Check(ctx context.Context, w *Want) error {
	unlock, err := e.Lock(ctx, w.ID)
	if err != nil {
		return err
	}
	defer unlock()
	priors, err := e.priors(w.ID)
	if err != nil {
		return err
	}
	for _, name := range w.Names {
		iface, err := e.find(w.NetNSPath, name, priors[name])
		if err != nil {
			return err
		}
		cfg, _ := effective(w.Config, priors[name])
		if err := e.check(cfg, iface, priors[name]); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) check(cfg *shaping.Config, iface Interface, prior *Record) error {
	if prior == nil || !prior.Interface.Same(&iface) {
		return fmt.Errorf("%s (ifindex %d) in %s has limits but is not attached",
			iface.PodName, iface.PodIndex, iface.NetNSPath)
	}
	in, err := e.look(cfg, iface, prior)
	if err != nil {
		return err
	}
	if len(in.Plan) > 0 {
		return &DriftError{Interface: iface, Actions: in.Plan}
	}
	return nil
}

// Remove removes everything of an attachment. That something is gone already
// is not an error.
func (e *Engine) Remove(ctx context.Context, id ID) error {
	unlock, err := e.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	records, err := e.store.Records(id)
	if err != nil && !errors.Is(err, ErrRecordVersion) {
		return err
	}
	var all error
	for _, r := range records {
		all = errors.Join(all, e.remove(r))
	}
	if all != nil {
		return all
	}
	return e.store.Remove(id, "")
}

func (e *Engine) remove(r *Record) error {
	var made []terms.Direction
	for _, d := range terms.Directions {
		if _, ok := r.Choices[d.String()]; ok {
			made = append(made, d)
		}
	}
	if err := e.tearDown(r, made); err != nil {
		return err
	}
	e.step("unpin")
	return e.store.Remove(r.ID, r.Interface.PodName)
}

// tearDown removes directions by the record that tells how they were made.
func (e *Engine) tearDown(r *Record, directions []terms.Direction) error {
	for _, d := range directions {
		a := Action{Kind: TearDown, Direction: d, Reason: "removed"}
		if err := e.do(r, a); err != nil {
			return fmt.Errorf("%v %v of %s: %w", d, a.Kind, r.Interface.PodName, err)
		}
	}
	return nil
}
