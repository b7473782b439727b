// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package enforce watches whether limits hold: not whether what enforces them is in
// place, which package reconcile looks at, but what the pods' devices carried. What is
// beyond a limit becomes an Event of the pod, a metric, and a record for status and the
// doctor. It needs CAP_NET_ADMIN, and CAP_BPF for podweir's own counters.
package enforce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/podweir/podweir/plugin/agent/kube"
	"github.com/podweir/podweir/plugin/agent/reconcile"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// DefaultEvery is the time between two looks: three are enough for what exceeds its
// limit by some tenths, which is to be said within 10 s.
const DefaultEvery = 2 * time.Second

// Pods are what the agent knows of the node's pods.
type Pods interface {
	// Snapshot returns what is known of each pod.
	Snapshot() []reconcile.PodState
	// LookAt asks for a look whether a pod's limit is the same and in place.
	LookAt(s *reconcile.PodState)
}

// Config is what a [Watcher] works with.
type Config struct {
	Pods   Pods
	Events reconcile.Events
	// Open opens the counters; it is tried again when it fails.
	Open func() (Counters, error)
	// Paths are where the record is kept.
	Paths engine.Paths
	// Every is the time between two looks; 0 means [DefaultEvery].
	Every time.Duration
	Log   *slog.Logger
}

// ReasonObserve is a reason of [mailbox.Enforced]: the operator wants the limit to be observed only.
const ReasonObserve = "observe"

// Watcher looks at the limits of a node every so often.
type Watcher struct {
	cfg   Config
	clock *mailbox.Clock

	counters   Counters
	looks      int
	failed     string
	directions map[mailbox.Limit]*watch

	mu     sync.Mutex
	states []mailbox.Enforced
	held   []mailbox.Held
	told   []mailbox.Unenforced

	// past is what went past each direction, before what an agent before this one recorded.
	past   map[mailbox.Limit]*past
	before map[mailbox.Limit]terms.Past

	// reached is what was recorded last, if recorded is true. unwritten says that it could not be.
	reached             []mailbox.Reached
	unwritten, recorded bool
}

// watch is what is known of one direction.
type watch struct {
	balance Balance
	limit   reconcile.KeptLimit
	verdict Verdict
	held    time.Duration
	// arrived is of what the pod's own device received, beside what the counter has.
	arrived Balance
	past    Verdict
	// source is raised when another device or another counter is read.
	source uint64
	seen   bool
	// told is when it was last told that it is exceeded, for this cause, since then and
	// by so much; zero if it is not. unnamed says that the pod was not known then.
	told    time.Time
	unnamed bool
	cause   mailbox.Likely
	since   time.Duration
	carried units.BitRate
}

// New returns a watcher that does nothing until [Watcher.Run].
func New(cfg Config) *Watcher {
	cfg.Every = cmp.Or(cfg.Every, DefaultEvery)
	return &Watcher{cfg: cfg, clock: mailbox.NewClock(), directions: make(map[mailbox.Limit]*watch), before: make(map[mailbox.Limit]terms.Past)}
}

// Run looks until the context ends, and returns nil.
func (w *Watcher) Run(ctx context.Context) error {
	w.forget()
	before, err := w.cfg.Paths.Mail().Past()
	if err != nil {
		w.cfg.Log.Error("record of what went past limits not read", "error", err)
	}
	for _, p := range before {
		w.before[p.Limit] = p.Past
	}
	tick := time.NewTicker(w.cfg.Every)
	defer tick.Stop()
	// At once: a doctor that is asked as soon as the agent is ready finds that it looks.
	w.fail(w.look())
	for {
		select {
		case <-ctx.Done():
			w.close()
			w.forget() // no one looks any more
			return nil
		case <-tick.C:
			w.fail(w.look())
		}
	}
}

func (w *Watcher) forget() {
	w.cfg.Paths.Mail().ForgetUnenforced()
	w.cfg.Paths.Mail().ForgetReached()
}

// States returns what is known of each limited direction, in the order of the names.
func (w *Watcher) States() []mailbox.Enforced {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.states)
}

// Held returns how long limits were reached, in the order of the names. Limits that no
// device on the host shows are not in it.
func (w *Watcher) Held() []mailbox.Held {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.held)
}

// forgetStates forgets what the last look showed: nothing is known while none succeeds.
func (w *Watcher) forgetStates() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.states, w.held = nil, nil
}

// fail logs an error once as long as it stays the same.
func (w *Watcher) fail(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != w.failed && err != nil {
		w.cfg.Log.Error("traffic counters of pods not read", "error", err)
	}
	w.failed = text
}

func (w *Watcher) close() {
	if k, ok := w.counters.(interface{ Close() }); ok {
		k.Close()
	}
	w.counters = nil
}

func (w *Watcher) look() error {
	if w.counters == nil {
		var err error
		if w.counters, err = w.cfg.Open(); err != nil {
			w.counters = nil
			w.forgetStates()
			return err
		}
	}
	before := w.cfg.Pods.Snapshot()
	w.looks++
	r := &reader{Watcher: w}
	r.credit(before)
	r.from = w.clock.Passed()
	if err := w.counters.Begin(); err != nil {
		w.close() // its sockets may not come back: they are opened anew
		w.forgetStates()
		return err
	}
	for _, d := range w.directions {
		d.seen = false
	}
	after := w.cfg.Pods.Snapshot()
	first := limitsOf(before)
	var failed error
	for i := range after {
		if err := r.pod(&after[i], first); err != nil {
			failed = err
		}
	}
	for k, d := range w.directions {
		if !d.seen {
			delete(w.directions, k)
		}
	}
	w.passing(after)
	w.publish(after)
	return failed
}

func limitsOf(states []reconcile.PodState) map[mailbox.Limit]*reconcile.KeptLimit {
	all := make(map[mailbox.Limit]*reconcile.KeptLimit)
	for i := range states {
		for j := range states[i].Limits {
			l := &states[i].Limits[j]
			all[keyOf(l)] = l
		}
	}
	return all
}

func keyOf(l *reconcile.KeptLimit) mailbox.Limit {
	return mailbox.Limit{ID: l.ID, Interface: l.Interface.PodName, Direction: l.Direction}
}

// reader is one look.
type reader struct {
	*Watcher
	from time.Duration
	// before is the credit of those that need it, read before the devices.
	before map[mailbox.Limit]uint64
}

// credit reads podweir's own counters, of those directions that need them.
func (r *reader) credit(states []reconcile.PodState) {
	r.before = make(map[mailbox.Limit]uint64)
	for k, l := range limitsOf(states) {
		if d := r.directions[k]; d != nil && d.verdict.WantCredit {
			if n, err := r.counters.Beside(l, besides(l)); err == nil {
				r.before[k] = n
			}
		}
	}
}

func (r *reader) pod(s *reconcile.PodState, first map[mailbox.Limit]*reconcile.KeptLimit) error {
	var failed error
	for i := range s.Limits {
		l := &s.Limits[i]
		k := keyOf(l)
		if counterOf(l) == counterNone || l.Observed() {
			continue
		}
		d := r.directions[k]
		if d == nil {
			d = &watch{}
			r.directions[k] = d
		}
		d.seen = true
		if !same(&d.limit, l) {
			d.source++
			d.arrived, d.past = Balance{}, Verdict{}
		}
		d.limit = *l
		if was := first[k]; was == nil || !same(was, l) {
			continue // what was read is of the one limit or the other
		}
		// A device that is gone belonged to a pod that ends.
		if err := r.direction(s, k, d); err != nil && !errors.Is(err, hostif.ErrNoDevice) {
			failed = fmt.Errorf("%s of %s/%s: %w", l.Direction, s.Namespace, s.Name, err)
		}
	}
	return failed
}

// direction takes one reading. One that fails is one that is missed.
func (r *reader) direction(s *reconcile.PodState, k mailbox.Limit, d *watch) error {
	l := &d.limit
	carried, err := r.counters.Carried(l)
	if err != nil {
		return err
	}
	reading := Reading{
		Limit: watched(l), From: r.from, To: r.clock.Passed(), Bytes: carried, Source: d.source, Looked: r.clock.PassedAt(s.At),
	}
	if before, ok := r.before[k]; ok {
		if after, err := r.counters.Beside(l, besides(l)); err == nil {
			reading.Credit = &Credit{Before: before, After: after}
		}
	}
	d.verdict = d.balance.Look(reading)
	d.held += d.verdict.Held
	r.judge(s, d, &d.verdict, func() mailbox.Likely { return cause(s, l) })
	if arrives(l) && (r.looks+l.Interface.HostIndex)%arriveEvery == 0 || d.past.Suspected {
		return r.arrived(s, d)
	}
	return nil
}

// arriveEvery is how many looks there are between two at the pod's own device.
const arriveEvery = 5

func (r *reader) arrived(s *reconcile.PodState, d *watch) error {
	l := &d.limit
	from := r.clock.Passed()
	n, err := r.counters.Arrived(l)
	if err != nil {
		return err
	}
	d.past = d.arrived.Look(Reading{
		Limit: watched(l), From: from, To: r.clock.Passed(), Bytes: n, Source: d.source, Looked: r.clock.PassedAt(s.At),
	})
	r.judge(s, d, &d.past, func() mailbox.Likely { return mailbox.Likely{Cause: mailbox.CauseRedirected} })
	return nil
}

func (r *reader) judge(s *reconcile.PodState, d *watch, v *Verdict, why func() mailbox.Likely) {
	if v.Suspected {
		r.cfg.Pods.LookAt(s)
	}
	switch {
	case v.Began && d.told.IsZero():
		d.cause, d.carried, d.since = why(), v.Carried, v.Since
		r.tell(s, d)
	case !d.exceeded() && !d.told.IsZero():
		d.told = time.Time{}
		r.cfg.Events.Over(cmp.Or(s.RuntimeUID, s.UID), exceeded)
	case v.Exceeded && (time.Since(d.told) > tellAgain || d.unnamed && s.UID != ""):
		d.cause, d.carried = why(), v.Carried
		r.tell(s, d)
	}
}

// exceeded is the reason of the Events.
const exceeded = "LimitExceeded"

// tellAgain is how long an API server keeps an Event by default (--event-ttl).
const tellAgain = time.Hour

// exceeded says whether either counter tells that the limit does not hold.
func (d *watch) exceeded() bool { return d.verdict.Exceeded || d.past.Exceeded }

func (w *Watcher) tell(s *reconcile.PodState, d *watch) {
	l := &d.limit
	d.told, d.unnamed = time.Now(), s.UID == ""
	cause := d.cause.Of(&l.Limit)
	text := fmt.Sprintf("%s of %s carried %v, its limit is %v; likely cause: %s", l.Direction, l.Interface.PodName, d.carried, l.Rate, cause)
	w.cfg.Log.Error("limit exceeded", "pod", s.Namespace+"/"+s.Name, "direction", l.Direction.String(),
		"carriedBitsPerSecond", uint64(d.carried), "limitBitsPerSecond", uint64(l.Rate), "likelyCause", cause)
	if s.UID != "" {
		w.cfg.Events.Emit(&kube.Pod{Namespace: s.Namespace, Name: s.Name, UID: s.UID, RuntimeUID: s.RuntimeUID},
			kube.Event{Warning: true, Reason: exceeded, Message: text})
	}
}

// cause is why a limit may be exceeded, as far as the agent knows.
func cause(s *reconcile.PodState, l *reconcile.KeptLimit) mailbox.Likely {
	if t := fought(s, l); t != nil {
		return mailbox.Likely{Cause: mailbox.CauseTaken, TakenBy: t.By}
	}
	for i := range s.Mends {
		if m := &s.Mends[i]; m.ID == l.ID && m.Direction == l.Direction.Is {
			return mailbox.Likely{Cause: mailbox.CauseMended, What: m.What, At: m.At}
		}
	}
	if s.Err != nil {
		return mailbox.Likely{Cause: mailbox.CauseError, What: s.Err.Error()}
	}
	return mailbox.Likely{Cause: mailbox.CausePast}
}
