// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package reconcile keeps the pods of a node shaped as they ask for: those that
// ran before podweir came, those whose annotations change, and those whose
// programs, queues or devices another party changed. It is never in the way of
// a packet. It needs CAP_NET_ADMIN, CAP_BPF and CAP_SYS_ADMIN.
package reconcile

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/podweir/podweir/plugin/agent/cri"
	"github.com/podweir/podweir/plugin/agent/kube"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/rtnl"
	"github.com/podweir/podweir/plugin/terms"
)

// Sandboxes finds the network namespaces of pods.
type Sandboxes interface {
	// Find returns the ready sandbox of a pod; the error wraps
	// [cri.ErrNoSandbox] if it has none.
	Find(ctx context.Context, runtimeUID string) (cri.Sandbox, error)
	// Knows says whether the runtime knows of a sandbox, ready or not, by its ID.
	Knows(ctx context.Context, id string) (bool, error)
	// Runs says whether it knows of a ready one.
	Runs(ctx context.Context, id string) (bool, error)
}

// Events tells the owner of a pod what is wrong with it.
type Events interface {
	// Emit is told the same as long as it lasts, and does not wait.
	Emit(pod *kube.Pod, e kube.Event)
	// Over ends what was emitted for a pod, by the UID that the runtime knows, on the topic of a reason.
	Over(uid, reason string)
}

// workers look at pods side by side: changes to devices are serialised in the kernel (RTNL), so that more
// only wait there.
const workers = 4

// Defaults of [Config].
const (
	// DefaultPass is the time between two looks at everything. Changes are
	// noticed when they come; a pass finds what no event tells of, such as a
	// program that was put ahead of ours.
	DefaultPass = time.Minute
	// DefaultOverdue is how long a running pod may wait for its limit unnoticed.
	// A set-up or a DEL in the middle of a look takes a second or two.
	DefaultOverdue = 10 * time.Second
	// lockTimeout is how long a worker waits for a CNI command on the same
	// attachment; then it turns to the next pod.
	lockTimeout = 10 * time.Second
)

// Config is what a [Reconciler] works with.
type Config struct {
	// Pods tells which pods the node has and what they ask for.
	Pods      *kube.Watch
	Sandboxes Sandboxes
	Events    Events
	// NetConf returns podweir-cni's entry in the conflist, with the name of the
	// network: the defaults of the node. It is called for each pod.
	NetConf func() (json.RawMessage, error)
	// Namespaces tells what is set on the pods' Namespaces; nil if nothing is to be.
	Namespaces *kube.Namespaces
	// Paths are where state is kept, as podweir-cni has them.
	Paths engine.Paths
	// Pass is the time between two looks at all pods; 0 means [DefaultPass].
	Pass time.Duration
	// Overdue is how long a running pod may wait for its limit before its owner
	// is told; 0 means [DefaultOverdue].
	Overdue time.Duration
	// Observe is called after each look at a pod, by several goroutines; nil
	// does nothing.
	Observe func(o Outcome, d time.Duration)
	Log     *slog.Logger
}

// Reconciler keeps the pods of one node shaped.
type Reconciler struct {
	cfg   Config
	host  *rtnl.NetNS
	queue *queue
	watch *watcher
	again chan struct{}
	// left is for passes alone.
	left leftovers

	mu     sync.Mutex
	states map[key]*state
	// owners are the pods of the attachments read since the last pass, so that not
	// each pod that has none reads all. An ID names one sandbox, which is one
	// pod's; what an operator attaches under an old ID is found by the next pass.
	owners map[attach.ID]string
}

// state is what is remembered between two looks at a key: never what is on the
// node, which is looked at each time.
type state struct {
	PodState
	// mends are the last times at which drift was mended.
	mends []time.Time
	// fights are what was taken away of each direction.
	fights map[fightKey]*fight
	// warnings are those of the last look.
	warnings []string
	// unshaped is since when the pod runs without its limit, zero if it does not.
	unshaped time.Time
	// network is the pod's when its limits were found, "" if they were not.
	network string
	// had are the last limits that it had: none are found of a pod that is being taken down.
	had []KeptLimit
}

// New returns a reconciler that does nothing until [Reconciler.Run].
func New(cfg Config) *Reconciler {
	if cfg.Pass == 0 {
		cfg.Pass = DefaultPass
	}
	if cfg.Overdue == 0 {
		cfg.Overdue = DefaultOverdue
	}
	if cfg.Observe == nil {
		cfg.Observe = func(Outcome, time.Duration) {}
	}
	r := &Reconciler{cfg: cfg, queue: newQueue(), states: make(map[key]*state), owners: make(map[attach.ID]string), again: make(chan struct{}, 1)}
	r.watch = newWatcher(r)
	return r
}

// Run works until the context ends and then returns nil, for pods whose other ends are in the network namespace
// of the caller. Everything that is shaped stays shaped. It returns an error if it cannot begin.
func (r *Reconciler) Run(ctx context.Context) error {
	var err error
	if r.host, err = rtnl.CurrentNetNS(); err != nil {
		return err
	}
	defer func() { _ = r.host.Close() }()
	r.cfg.Paths.Mail().ForgetUnshaped()
	r.rememberNamespaces()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { r.watch.run(ctx) })
	for range workers {
		wg.Go(func() { r.work(ctx) })
	}
	wg.Go(func() { r.passes(ctx) })
	wg.Go(func() { r.newcomers(ctx) })
	if r.cfg.Namespaces != nil {
		wg.Go(func() { r.cfg.Namespaces.Run(ctx, r.namespaceTold) })
	}
	r.cfg.Pods.Run(ctx, r.podChanged)
	return nil
}

// Again asks for a look at everything, because the node's defaults changed. It does
// not wait.
func (r *Reconciler) Again() {
	select {
	case r.again <- struct{}{}:
	default:
	}
}

// LookAt asks for a look at one pod, or at an attachment of none, of which the state is
// known. It does not wait.
func (r *Reconciler) LookAt(s *PodState) {
	k := key{uid: s.UID}
	if s.UID == "" {
		if len(s.Limits) == 0 {
			return
		}
		k.id = s.Limits[0].ID
	}
	r.queue.add(k, 0)
}

// Snapshot returns what is known of each pod, in the order of their names.
func (r *Reconciler) Snapshot() []PodState {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]PodState, 0, len(r.states))
	for _, s := range r.states {
		if s.Outcome != 0 { // it is being looked at for the first time
			all = append(all, s.PodState)
		}
	}
	slices.SortFunc(all, func(a, b PodState) int {
		return strings.Compare(a.Namespace+"/"+a.Name+"/"+a.UID, b.Namespace+"/"+b.Name+"/"+b.UID)
	})
	return all
}

// open opens the node's state as podweir-cni does, for one pod: sockets and
// namespaces are not kept from one to the next.
func (r *Reconciler) open() (*engine.Node, error) {
	var node *engine.Node
	err := r.host.Do(func() error {
		var err error
		node, err = engine.Open(r.cfg.Paths)
		return err
	})
	return node, err
}

func (r *Reconciler) work(ctx context.Context) {
	for {
		k, ok := r.queue.next(ctx)
		if !ok {
			return
		}
		r.queue.done(k, r.look(ctx, k))
	}
}

// look brings one key to what it should be, keeps what became of it, and says
// whether to try again.
func (r *Reconciler) look(ctx context.Context, k key) (retry bool) {
	started := time.Now()
	l := &look{Reconciler: r, key: k}
	known := l.run(ctx)
	if ctx.Err() != nil {
		return false
	}
	l.overdue(started)
	s := l.PodState
	s.At, s.Duration = started, time.Since(started)
	if !known {
		r.forget(ctx, k)
		return false
	}
	r.cfg.Observe(s.Outcome, s.Duration)
	r.watch.set(ctx, k, l.watched)
	fresh, news := r.remember(l, &s)
	for _, w := range fresh {
		r.cfg.Log.Warn("configuration read with a warning", "pod", s.Namespace+"/"+s.Name, "warning", w)
	}
	r.tell(l, news)
	l.retryExposed()
	return l.retry
}

// remember keeps what became of a key, and says which warnings are new and whether
// the rest is news.
func (r *Reconciler) remember(l *look, s *PodState) (fresh []string, news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old, warnings := r.stateOf(l.key), l.warnings
	if l.pod != nil && !l.retry && !l.unsure && l.Err == nil {
		old.network = l.pod.Network()
	}
	r.recordUnshaped(s, old)
	if s.Outcome == Mended {
		old.mends = append(recent(old.mends), s.At)
	}
	news = old.Outcome != s.Outcome || old.Reason != s.Reason || text(old.Err) != text(s.Err)
	fresh = slices.DeleteFunc(slices.Clone(warnings), func(w string) bool { return slices.Contains(old.warnings, w) })
	old.PodState, old.warnings = *s, warnings
	if len(s.Limits) > 0 {
		old.had = s.Limits
	}
	return fresh, news
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// forget ends what is known of a key. What a pod leaves is looked at for itself: the kubelet makes the mirror of a static
// pod anew while the pod runs, and what a pod that ended leaves is removed.
func (r *Reconciler) forget(ctx context.Context, k key) {
	r.mu.Lock()
	if s := r.states[k]; s != nil && k.uid != "" {
		for i := range s.had {
			r.queue.add(key{id: s.had[i].ID}, 0)
		}
	}
	delete(r.states, k)
	r.mu.Unlock()
	r.watch.set(ctx, k, nil)
	if k.uid != "" {
		r.cfg.Paths.Mail().ClearUnshaped(k.uid)
		r.cfg.Events.Over(k.uid, kube.OfLimits)
	}
}

// mendWindow is how long a mend counts for [Reconciler.drifted].
const mendWindow = time.Minute

func recent(times []time.Time) []time.Time {
	return slices.DeleteFunc(times, func(t time.Time) bool { return time.Since(t) > mendWindow })
}

// The pause between a change on a device and the look at it: what is made in
// several steps is seen when it is whole, and who changes back what is mended,
// again and again, is answered ever more slowly.
const (
	driftPauseMin = 20 * time.Millisecond
	driftPauseMax = 20 * time.Second
	// These are for what nothing else holds.
	driftPauseFirst   = 5 * time.Millisecond
	driftPauseNext    = time.Millisecond
	driftPauseExposed = time.Second
)

// drifted asks for a look after a change on one of the pod's devices.
func (r *Reconciler) drifted(k key) {
	r.mu.Lock()
	pause := driftPauseMin
	if s := r.states[k]; s != nil {
		s.mends = recent(s.mends)
		pause = s.driftPause()
	}
	r.mu.Unlock()
	r.queue.add(k, pause)
}

// driftPause never backs off into no limit: where a direction has nothing that holds
// it meanwhile, the next mends follow at once, until they are a fight. From then on it
// is put back every second, if need be.
func (s *state) driftPause() time.Duration {
	n := min(len(s.mends), 10)
	switch {
	case !s.exposed():
		most := driftPauseMax
		if slices.ContainsFunc(s.Limits, func(l KeptLimit) bool { return !l.Ceiling && !l.Observed() }) {
			most = driftPauseExposed // software on the node may take it away
		}
		return min(driftPauseMin<<n, most)
	case n == 0:
		return driftPauseFirst
	case n < fightMends:
		return driftPauseNext
	default:
		return min(driftPauseMin<<(n-fightMends), driftPauseExposed)
	}
}

// retryExposed has the retry come within a second for what nothing else holds,
// however often it failed. What is refused may be so for long.
func (l *look) retryExposed() {
	if l.retry && l.Outcome != Refused && l.exposed() {
		l.queue.add(l.key, driftPauseExposed)
	}
}

// exposed says that a limit of the pod can be taken away by the pod, and nothing else
// holds it.
func (s *PodState) exposed() bool {
	return slices.ContainsFunc(s.Limits, func(l KeptLimit) bool { return l.Side.Is != terms.SideHost && !l.Ceiling && !l.Observed() })
}

// tell puts into the log and the pod's events what became of it: into the log
// what is news, into the events as long as it lasts.
func (r *Reconciler) tell(l *look, news bool) {
	log := r.cfg.Log.With("pod", l.Namespace+"/"+l.Name, "outcome", l.Outcome.String())
	switch {
	case !news:
	case l.Err != nil:
		log.Error("pod not reconciled", "error", l.Err, "reason", l.Reason)
	case l.Outcome == Attached || l.Outcome == Updated || l.Outcome == Removed || l.Outcome == Mended:
		log.Info("pod reconciled", "reason", l.Reason)
	default:
		log.Debug("pod reconciled", "reason", l.Reason)
	}
	if l.pod == nil {
		return
	}
	if l.event == nil {
		if l.Outcome.Enforced() {
			r.cfg.Events.Over(l.pod.RuntimeUID, kube.OfLimits)
		}
		return
	}
	r.cfg.Events.Emit(l.pod, *l.event)
}

// passes looks at everything, at once, every so often, and when it is asked to.
func (r *Reconciler) passes(ctx context.Context) {
	tick := time.NewTicker(r.cfg.Pass)
	defer tick.Stop()
	for {
		if err := r.pass(ctx); err != nil && ctx.Err() == nil {
			r.cfg.Log.Error("full pass failed", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-r.again:
		}
	}
}
