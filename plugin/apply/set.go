// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// Errors that callers tell apart.
var (
	// ErrNotAttached means that an attachment has no record.
	ErrNotAttached = errors.New("not attached")
	// ErrUnknownRecord: the pinned record has another format, or is damaged.
	ErrUnknownRecord = errors.New("unknown record")
)

// effective is the configuration that counts: what `set` made of it, as long
// as what is requested has not changed since.
func effective(asked *shaping.Config, prior *Record) (cfg, original *shaping.Config) {
	if prior == nil || prior.Asked == nil || !sameWish(prior.Asked, asked) {
		return asked, nil
	}
	return &prior.Config, prior.Asked
}

// sameWish says that two configurations ask for the same. Their notes tell where a
// mistake was read, which is not the same for ADD and for the agent, and their decisions are for
// people.
func sameWish(a, b *shaping.Config) bool {
	x, y := *a, *b
	x.Notes, y.Notes = nil, nil
	x.Decisions, y.Decisions = nil, nil
	return reflect.DeepEqual(&x, &y)
}

// Set changes the limits of a running attachment without detaching it. The
// change lasts until what is requested changes, or until Clear.
func (e *Executor) Set(ctx context.Context, id attach.ID, change func(*shaping.Config) error) ([]*attach.Desired, error) {
	return e.reshape(ctx, id, func(r *Record) (cfg, original *shaping.Config, err error) {
		changed := clone(&r.Config)
		if err := change(changed); err != nil {
			return nil, nil, err
		}
		return changed, cmp.Or(r.Asked, &r.Config), nil
	})
}

// Clear takes back what Set changed.
func (e *Executor) Clear(ctx context.Context, id attach.ID) ([]*attach.Desired, error) {
	return e.reshape(ctx, id, func(r *Record) (cfg, original *shaping.Config, err error) {
		return cmp.Or(r.Asked, &r.Config), nil, nil
	})
}

// Repair brings an attachment back to what its record wants.
func (e *Executor) Repair(ctx context.Context, id attach.ID) ([]*attach.Desired, error) {
	return e.reshape(ctx, id, func(r *Record) (cfg, original *shaping.Config, err error) {
		return &r.Config, r.Asked, nil
	})
}

func (e *Executor) reshape(ctx context.Context, id attach.ID,
	choose func(*Record) (cfg, original *shaping.Config, err error),
) ([]*attach.Desired, error) {
	id, unlock, err := e.lockKept(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	records, err := e.store.Records(id)
	if err != nil {
		return nil, err
	}
	if len(records) == 0 {
		return nil, fmt.Errorf("%v: %w", id, ErrNotAttached)
	}
	var all []*attach.Desired
	var held error
	var targets []target
	released, among, failed := e.Released(records)
	gone := make(map[*Record]error)
	for _, r := range records {
		iface, err := e.Refind(r)
		_, taken := errors.AsType[*HeldError](err)
		switch {
		case taken:
			held = err
		case errors.Is(err, ErrGone):
			gone[r] = err
			among--
		case err != nil: // it costs the others nothing
			failed = errors.Join(failed, err)
		default:
			targets = append(targets, target{iface: iface, prior: r, held: r.Held})
		}
		among++ // what cannot be found out may have its share
	}
	for _, iface := range released {
		targets = append(targets, target{iface: iface})
	}
	for r, why := range gone {
		if left, err := e.kernel.Left(&r.Interface); left != "" || err != nil || len(targets) == 0 {
			failed = errors.Join(failed, why)
			continue
		}
		_, err := e.remove(r)
		failed = errors.Join(failed, err)
		for i := range targets { // it may come again
			targets[i].held = append(slices.Clip(targets[i].held), r.Interface.PodName)
		}
	}
	for _, t := range targets {
		of := cmp.Or(t.prior, records[0])
		cfg, original, err := choose(of)
		if err != nil {
			return all, err
		}
		if original != nil {
			original = original.Of(among)
		}
		w := &Want{ID: id, NetNSPath: of.Interface.NetNSPath, Config: cfg.Of(among), Pod: of.Pod, ReplaceQdisc: of.ReplaceQdisc, By: of.By}
		want, err := e.ensure(w, &t, original)
		if want != nil {
			all = append(all, want)
		}
		failed = errors.Join(failed, err)
	}
	if len(all) == 0 && failed == nil {
		failed = held
	}
	return all, failed
}

// Released are the interfaces of [Record.Held] that no attachment has any more; held is how many there are with those
// that one has. A record whose own interface is gone, or another attachment's, has none: the path may be another pod's by
// now. The error is about those of which it cannot be found out, which count as held.
func (e *Executor) Released(records []*Record) (released []attach.Interface, held int, failed error) {
	var seen []attach.Interface
	for _, r := range records {
		if len(r.Held) == 0 {
			continue
		}
		if _, err := e.Refind(r); err != nil { // whoever looks at the record is told
			continue
		}
		for _, name := range r.Held {
			i, err := e.kernel.Find(r.Interface.NetNSPath, name)
			if errors.Is(err, ErrGone) || errors.Is(err, ErrStandIn) || errors.Is(err, ErrLoopback) ||
				err == nil && (slices.ContainsFunc(seen, func(o attach.Interface) bool { return o.Same(&i) }) ||
					slices.ContainsFunc(records, func(o *Record) bool { return o.Interface.Same(&i) })) {
				continue
			}
			var holder *Record
			if err == nil {
				holder, err = e.store.Another(attach.ID{}, &i)
			}
			if seen = append(seen, i); holder == nil && err == nil {
				released = append(released, i)
			}
			failed = errors.Join(failed, err)
		}
	}
	return released, len(seen), failed
}

// Refind returns the interface of a record as it is now. The error wraps
// [ErrGone] if it is gone, another one is in its place, or another attachment has it.
func (e *Executor) Refind(r *Record) (attach.Interface, error) {
	i, err := e.kernel.Again(&r.Interface)
	if err != nil {
		return i, err
	}
	other, err := e.store.Another(r.ID, &i)
	if other != nil {
		err = fmt.Errorf("%s (ifindex %d) in %s: %w", i.PodName, i.PodIndex, i.NetNSPath, &HeldError{By: other.ID})
	}
	return i, err
}

// find returns the interface that had the name when it was attached or, if it is gone,
// the one of this name. A process in the pod can rename the interface and give its name
// to another device; KubeVirt does so.
func (e *Executor) find(netnsPath, name string, prior *Record) (attach.Interface, error) {
	if prior != nil {
		was := prior.Interface
		was.NetNSPath = netnsPath // the same namespace may have several paths
		iface, err := e.kernel.Again(&was)
		if !errors.Is(err, ErrGone) {
			return iface, err
		}
	}
	return e.kernel.Find(netnsPath, name)
}

// RemoveGone removes what is left of an attachment whose interfaces are all
// gone, and says whether it did. One that still is there is left alone.
func (e *Executor) RemoveGone(ctx context.Context, id attach.ID) (bool, error) {
	unlock, err := e.Lock(ctx, id)
	if err != nil {
		return false, err
	}
	defer unlock()
	records, err := e.store.Records(id)
	if err != nil || len(records) == 0 {
		return false, err
	}
	for _, r := range records {
		if _, err := e.Refind(r); !errors.Is(err, ErrGone) {
			return false, err
		}
	}
	return e.removeAll(id, records)
}

func clone(c *shaping.Config) *shaping.Config {
	out := *c
	for _, d := range terms.Directions {
		if l := c.Limit(d); l != nil {
			out.SetLimit(d, new(*l))
		}
	}
	return &out
}
