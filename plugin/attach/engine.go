// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package attach

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/podweir/podweir/plugin/shaping"
)

// Interfaces finds what podweir attaches to.
type Interfaces interface {
	// Find returns the interface of this name in the namespace at a path. The
	// error wraps [ErrGone] if the one or the other is not there.
	Find(netnsPath, name string) (Interface, error)
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
	// Prepare is told the whole plan before its first step, and may begin what
	// leaves nothing behind.
	Prepare(r *Record, plan []Action)
	// Do takes one step.
	Do(r *Record, a Action) error
}

// Engine runs observe, plan and apply.
type Engine struct {
	Interfaces Interfaces
	Store      Store
	Kernel     Kernel
	// Random draws a handle major.
	Random func() uint16
	// Planned is told what differs on an interface before it is mended; nil
	// does nothing.
	Planned func(i Interface, plan []Action)
	// Step is called with a name before every step that leaves something
	// behind; tests kill the process there. Nil does nothing.
	Step func(name string)
}

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
	unlock, err := e.Store.Lock(ctx, w.ID)
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
		iface, err := e.Interfaces.Find(w.NetNSPath, name)
		if err != nil {
			return all, err
		}
		prior := priors[name]
		if prior != nil && !prior.Interface.same(&iface) {
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
	records, err := e.Store.Records(id)
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
		rec.By, rec.Strict = prior.By, w.Strict || prior.Strict
	}
	facts, tcx, err := e.Interfaces.Facts(iface)
	if err != nil {
		return nil, err
	}
	req := &Request{
		Interface: iface, Config: w.Config, Facts: facts, TCX: tcx,
		ReplaceQdisc: w.ReplaceQdisc, Random: e.Random, Strict: rec.Strict,
	}
	obs, err := e.Kernel.Observe(rec)
	if err != nil {
		return nil, err
	}
	var gone []shaping.Direction
	if prior != nil {
		gone = moved(&prior.Config, w.Config)
		without(obs, prior, gone)
		req.Prior = keep(prior.Choices, gone, w.Config)
	}
	want, choices, err := Decide(req, obs)
	if other := switched(prior, choices, gone); err == nil && len(other) > 0 {
		without(obs, prior, other)
		gone = append(gone, other...)
		req.Prior = keep(prior.Choices, gone, w.Config)
		want, choices, err = Decide(req, obs)
	}
	if err != nil {
		return nil, errors.Join(err, e.unhide(prior, obs))
	}
	plan := Plan(want, obs)
	if len(plan) == 0 && prior != nil && reflect.DeepEqual(prior.Config, rec.Config) &&
		reflect.DeepEqual(prior.Asked, rec.Asked) {
		return want, nil
	}
	if e.Planned != nil {
		e.Planned(iface, plan)
	}
	rec.Choices = choices
	// Before anything is taken down: what takes longest shortens the time that
	// a direction which is made anew is without its queue.
	e.Kernel.Prepare(rec, plan)
	if err := e.tearDown(prior, gone); err != nil {
		return nil, err
	}
	e.step("record")
	if err := e.Store.Write(rec); err != nil {
		return nil, err
	}
	if err := e.apply(rec, plan); err != nil {
		if prior == nil {
			err = errors.Join(err, e.remove(rec))
		}
		return nil, err
	}
	return want, nil
}

// unhide takes a redirect away from in front of a netfilter ingress chain where
// nothing else can be had instead: the pod is better unshaped than without its
// policy.
func (e *Engine) unhide(prior *Record, obs *Observed) error {
	if prior == nil || !obs.hides() {
		return nil
	}
	return e.tearDown(prior, []shaping.Direction{shaping.Ingress})
}

func (e *Engine) apply(rec *Record, plan []Action) error {
	for _, a := range plan {
		e.step(a.Direction.String() + " " + a.Kind.String())
		if err := e.Kernel.Do(rec, a); err != nil {
			return fmt.Errorf("%v %v: %w", a.Direction, a.Kind, err)
		}
	}
	return nil
}

func (e *Engine) step(name string) {
	if e.Step != nil {
		e.Step(name)
	}
}

// Check returns nil if every interface is what the request asks for, and a
// [*DriftError] naming the differences if one is not.
func (e *Engine) Check(ctx context.Context, w *Want) error {
	unlock, err := e.Store.Lock(ctx, w.ID)
	if err != nil {
		return err
	}
	defer unlock()
	priors, err := e.priors(w.ID)
	if err != nil {
		return err
	}
	for _, name := range w.Names {
		iface, err := e.Interfaces.Find(w.NetNSPath, name)
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
	if prior == nil {
		return fmt.Errorf("%s (ifindex %d) in %s has limits but is not attached",
			iface.PodName, iface.PodIndex, iface.NetNSPath)
	}
	_, plan, err := e.Drift(cfg, iface, prior)
	if err != nil {
		return err
	}
	if len(plan) > 0 {
		return &DriftError{Interface: iface, Actions: plan}
	}
	return nil
}

// Drift returns what should be on an interface and the steps that are missing.
func (e *Engine) Drift(cfg *shaping.Config, iface Interface, prior *Record) (*Desired, []Action, error) {
	facts, tcx, err := e.Interfaces.Facts(iface)
	if err != nil {
		return nil, nil, err
	}
	obs, err := e.Kernel.Observe(prior)
	if err != nil {
		return nil, nil, err
	}
	want, _, err := Decide(&Request{
		Interface: iface, Config: cfg, Facts: facts, TCX: tcx, Prior: prior.Choices,
		ReplaceQdisc: prior.ReplaceQdisc, Random: e.Random, Strict: prior.Strict,
	}, obs)
	if err != nil {
		return nil, nil, err
	}
	return want, Plan(want, obs), nil
}

// Remove removes everything of an attachment. That something is gone already
// is not an error.
func (e *Engine) Remove(ctx context.Context, id ID) error {
	unlock, err := e.Store.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	records, err := e.Store.Records(id)
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
	return e.Store.Remove(id, "")
}

func (e *Engine) remove(r *Record) error {
	var made []shaping.Direction
	for _, d := range shaping.Directions {
		if _, ok := r.Choices[d.String()]; ok {
			made = append(made, d)
		}
	}
	if err := e.tearDown(r, made); err != nil {
		return err
	}
	e.step("unpin")
	return e.Store.Remove(r.ID, r.Interface.PodName)
}

// tearDown removes directions by the record that tells how they were made.
func (e *Engine) tearDown(r *Record, directions []shaping.Direction) error {
	for _, d := range directions {
		a := Action{Kind: TearDown, Direction: d, Reason: "removed"}
		e.step(d.String() + " " + a.Kind.String())
		if err := e.Kernel.Do(r, a); err != nil {
			return fmt.Errorf("%v %v of %s: %w", d, a.Kind, r.Interface.PodName, err)
		}
	}
	return nil
}
