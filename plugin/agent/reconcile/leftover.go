// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/plugin/agent/cri"
	"github.com/podweir/podweir/plugin/agent/kube"
	"github.com/podweir/podweir/plugin/engine"
)

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
