// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/podweir/podweir/plugin/agent/cri"
	"github.com/podweir/podweir/plugin/agent/kube"
	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/rtnl"
)

// pass asks for a look at every pod that the API server has named, and at every
// attachment that is none of theirs.
func (r *Reconciler) pass(ctx context.Context) error {
	pods := make(map[string]bool)
	wanted := make(map[key]bool)
	for _, p := range r.cfg.Pods.List() {
		pods[p.Key()] = true
		wanted[key{uid: p.UID}] = true
	}
	node, err := r.open()
	if errors.Is(err, engine.ErrNoState) {
		err = nil // the pods' own looks say so
	}
	if err != nil {
		return err
	}
	if node != nil {
		defer node.Close()
		if err := r.unclaimed(node, pods, wanted); err != nil {
			return err
		}
		r.sweepLeftovers(ctx, node, time.Now())
		// What a killed plugin took and nobody gave back.
		switch slots, err := node.CollectSlots(); {
		case err != nil:
			r.cfg.Log.Warn("slots of the slab could not be looked through", "error", err)
		case slots > 0:
			r.cfg.Log.Info("slots of the slab that no attachment used were given back", "slots", slots)
		}
		switch dirs, err := node.RemoveUnusedLayouts(); {
		case err != nil:
			r.cfg.Log.Warn("what another release left could not be removed", "error", err)
		case len(dirs) > 0:
			r.cfg.Log.Info("what another release left was removed", "directories", dirs)
		}
	}
	r.sweepFailures(ctx)
	for k := range wanted {
		r.queue.add(k, 0)
	}
	// What is known of and is no more.
	r.mu.Lock()
	for k := range r.states {
		if !wanted[k] {
			r.queue.add(k, 0)
		}
	}
	r.mu.Unlock()
	return ctx.Err()
}

// unclaimed adds the attachments of no known pod, and those whose pod has
// another namespace or attachment by now. It remembers whose the others are.
func (r *Reconciler) unclaimed(node *engine.Node, pods map[string]bool, wanted map[key]bool) error {
	ids, err := node.List()
	if err != nil {
		return err
	}
	owners := make(map[attach.ID]string, len(ids))
	for _, id := range ids {
		records, err := node.Records(id)
		if err != nil {
			wanted[key{id: id}] = true // its look says what is wrong with it
		} else if len(records) > 0 {
			owners[id] = records[0].Pod
		}
		for _, rec := range records {
			if !pods[rec.Pod] || !node.Lives(rec) {
				wanted[key{id: id}] = true
			}
		}
	}
	r.mu.Lock()
	r.owners = owners
	r.mu.Unlock()
	return nil
}

// isNetNS says whether the namespace at a path is the one with this inode.
func isNetNS(path string, inode uint64) bool {
	var st syscall.Stat_t
	return syscall.Stat(rtnl.Seen(path), &st) == nil && st.Ino == inode
}

// unclaimed keeps an attachment as it was made: it is of a pod that the API
// server did not tell of, or was made by hand.
func (l *look) unclaimed(ctx context.Context) bool {
	node, err := l.open()
	if err != nil {
		l.fail(err)
		l.stays(nil)
		return true
	}
	defer node.Close()
	l.listen(node)
	records, err := node.Records(l.key.id)
	if err != nil && len(records) == 0 {
		l.fail(err)
		l.stays(nil)
		return true
	}
	if len(records) == 0 {
		return false
	}
	l.owns(l.key.id, records[0].Pod)
	if l.claimed(node, records) {
		return false
	}
	l.Namespace, l.Name, _ = strings.Cut(records[0].Pod, "/")
	l.repair(ctx, node, []attached{{id: l.key.id, records: records}})
	if l.Outcome == Waiting {
		l.retry = false // the next pass is soon enough
		l.sweep(ctx, node)
	}
	return true
}

// claimed says that a pod of the API answers for the attachment by now.
func (l *look) claimed(node *engine.Node, records []*apply.Record) bool {
	for _, p := range l.cfg.Pods.List() {
		for _, rec := range records {
			if rec.Pod == p.Key() && !p.Finished && node.Lives(rec) {
				return true
			}
		}
	}
	return false
}

// sweep removes what is left of an attachment whose namespace is gone, or whose interface another one
// has, and whose sandbox does not run any more. Only both together: a namespace
// may be out of sight because a mount of the agent's is missing.
func (l *look) sweep(ctx context.Context, node *engine.Node) {
	id := l.key.id
	if id.Network == engine.ManualNetwork {
		return
	}
	if runs, err := l.cfg.Sandboxes.Runs(ctx, id.ContainerID); err != nil || runs {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	removed, err := node.RemoveGone(ctx, id)
	switch {
	case err != nil:
		l.fail(err)
	case removed:
		l.cfg.Paths.Mail().ClearFailure(id)
		l.Outcome, l.Reason = Removed, "its sandbox is gone, and the runtime did not say so by DEL"
	}
}

// searchEvery is how many passes go by between two searches for what no record tells
// of: beside 250 pods without a limit one takes 0.17 s of the processor.
const searchEvery = 10

// leftovers are what no record tells of: podweir's pins were removed, or another bpffs
// was mounted over them. The looks of pods with a limit adopt what is theirs. What is
// still there a pass later is nobody's, and is removed.
type leftovers struct {
	at    time.Time
	found []engine.Lost
}

// due says whether to search now. Passes may come sooner than planned.
func (l *leftovers) due(now time.Time, pass time.Duration) bool {
	wait := searchEvery * pass
	if len(l.found) > 0 {
		wait = pass
	}
	return now.Sub(l.at) >= wait-pass/2
}

// again are those of a new search that were there before, too.
func (l *leftovers) again(lost []engine.Lost) []engine.Lost {
	return slices.DeleteFunc(slices.Clone(lost), func(now engine.Lost) bool {
		return !slices.ContainsFunc(l.found, func(then engine.Lost) bool {
			return then.Interface.Same(&now.Interface) && then.Interface.HostIndex == now.Interface.HostIndex
		})
	})
}

// sweepLeftovers searches from time to time, for the first time when the pods had a pass
// to adopt what is theirs. It stops nothing else of the pass.
func (r *Reconciler) sweepLeftovers(ctx context.Context, node *engine.Node, now time.Time) {
	l := &r.left
	if l.at.IsZero() {
		l.at = now.Add(-(searchEvery - 1) * r.cfg.Pass)
	}
	if !l.due(now, r.cfg.Pass) {
		return
	}
	lost, err := node.Lost()
	if err != nil {
		r.cfg.Log.Warn("search for limits without a record failed", "error", err)
		return
	}
	again := l.again(lost)
	l.at, l.found = now, lost
	if len(again) == 0 || !r.cfg.Pods.Current() {
		return
	}
	claims, err := r.unsettled(ctx)
	if err != nil {
		r.cfg.Log.Warn("limits without a record not removed", "error", err)
		return
	}
	removed, err := node.RemoveFound(ctx, claims.leave(again))
	for i := range removed {
		r.cfg.Log.Info("limit removed of which there was no record, and which no pod asks for",
			"interface", removed[i].Name(), "removed", strings.Join(removed[i].What, ", "))
	}
	if err != nil {
		r.cfg.Log.Warn("limits without a record not removed", "error", err)
	}
}

// claims are the namespaces of pods that may have a limit and have none by a record: a
// queue of podweir's there is better than none.
type claims struct {
	paths []string
	is    func(path string, inode uint64) bool
}

// leave returns what nobody claims. Of a device of the host's alone it is not known whose
// it is.
func (c *claims) leave(lost []engine.Lost) []engine.Lost {
	return slices.DeleteFunc(lost, func(l engine.Lost) bool {
		if l.Interface.NetNSInode == 0 {
			return len(c.paths) > 0
		}
		return slices.ContainsFunc(c.paths, func(path string) bool { return c.is(path, l.Interface.NetNSInode) })
	})
}

// unsettled are the claims of the pods that are not as they ask to be, or were not looked
// at yet.
func (r *Reconciler) unsettled(ctx context.Context) (*claims, error) {
	settled := make(map[string]bool)
	for _, s := range r.Snapshot() {
		settled[s.UID] = s.Outcome.Enforced() || s.Outcome == HostNetwork
	}
	c := &claims{is: isNetNS}
	pods := slices.DeleteFunc(r.cfg.Pods.List(), func(p kube.Pod) bool { return p.Finished || settled[p.UID] })
	for i := range pods {
		sandbox, err := r.cfg.Sandboxes.Find(ctx, pods[i].RuntimeUID)
		if errors.Is(err, cri.ErrNoSandbox) {
			continue // it has no network
		}
		if err != nil {
			return nil, err
		}
		c.paths = append(c.paths, sandbox.NetNSPath)
	}
	return c, nil
}

// newcomersEvery is the time between two looks at the list of attachments, which takes
// some microseconds: what the API server does not tell of is looked after all the same.
const newcomersEvery = time.Second

// newcomers asks for a look at every attachment that came since the last pass and that no
// pod is known for: its pod started while the API server was out of reach, or it was made
// by hand. It asks for a look at everything when another bpffs has the pins: records are missing.
func (r *Reconciler) newcomers(ctx context.Context) {
	tick := time.NewTicker(newcomersEvery)
	defer tick.Stop()
	before := mountOf(r.cfg.Paths.Pins)
	for failed := ""; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if now := mountOf(r.cfg.Paths.Pins); now != before && now != 0 {
			before = now
			r.Again()
		}
		ids, err := r.cfg.Paths.Recorded(r.met)
		if err != nil && err.Error() != failed {
			r.cfg.Log.Warn("attachments not listed: new ones are looked at by full passes only", "error", err)
		}
		failed = text(err)
		for _, id := range ids {
			r.queue.add(key{id: id}, 0)
		}
	}
}

// mountOf is the number of the file system of a directory, 0 if there is none.
func mountOf(dir string) uint64 {
	var st syscall.Stat_t
	if syscall.Stat(dir, &st) != nil {
		return 0
	}
	return st.Dev
}

// met says that an attachment was looked at, or that its pod is known.
func (r *Reconciler) met(id attach.ID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, owned := r.owners[id]
	return owned || r.states[key{id: id}] != nil
}
