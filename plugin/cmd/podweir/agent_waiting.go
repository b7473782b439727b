// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/podweir/podweir/compat/detect"
	daemon "github.com/podweir/podweir/plugin/agent"
	"github.com/podweir/podweir/plugin/agent/kube"
	"github.com/podweir/podweir/plugin/agent/serve"
	"github.com/podweir/podweir/plugin/agent/uninstall"
)

// waiting is the agent while another one manages the node, that of another release:
// it touches nothing, tells no tenant anything, and says so where operators look.
type waiting struct {
	*agentParts

	mu  sync.Mutex
	err error

	// since is when it began to wait, told says that this was told as a fault. Only take knows them.
	since time.Time
	told  bool
}

// handover is for how long it is no fault that another agent manages the node: a predecessor that was deleted by force asks
// for [uninstall.Window] whether podweir is being uninstalled.
const handover = uninstall.Window + 5*time.Second

// errWaits is what the other parts of the agent are while it waits.
var errWaits = errors.New("has not begun: the agent waits for the other one")

// problem says whom the agent waits for, nil if it manages the node.
func (w *waiting) problem() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *waiting) on() bool { return w.problem() != nil }

func (w *waiting) set(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

func (w *waiting) take(ctx context.Context) (release func(), err error) {
	release, err = daemon.TakeNode(ctx, w.o.paths().Run, func() { w.tell(ctx) })
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		// What cannot be locked can hardly be written, which other parts tell of.
		w.log.Error("lock of the node not read: another agent may manage it", "error", err)
		release = func() {}
	}
	if w.on() {
		w.log.Info("other agent ended: this agent manages the node now")
	}
	w.set(nil)
	return release, nil
}

// tell logs whom the agent waits for when it begins to. If that does not end soon it keeps an Event of its own pod as long
// as it waits.
func (w *waiting) tell(ctx context.Context) {
	err := w.problem()
	if err == nil {
		err = w.others(ctx)
		w.set(err)
		w.since, w.told = time.Now(), false
		w.log.Info("agent begins when the one before it has ended", "why", err)
	}
	if time.Since(w.since) < handover {
		return
	}
	if !w.told {
		w.told = true
		w.log.Error("node is managed by another agent: this agent waits and changes nothing", "why", err)
	}
	if own := w.node.ownPod(); own != nil {
		w.recorder.Emit(own, kube.Event{Warning: true, Reason: "PodweirNodeTaken", Message: err.Error()})
	}
}

// others is an error with the names of the other agents on the node.
func (w *waiting) others(ctx context.Context) error {
	own := ""
	if p := w.node.ownPod(); p != nil {
		own = p.Namespace + "/" + p.Name
	}
	seen := detect.Read(ctx, detect.HostRoot(w.o.v.GetString("root")), detect.Options{}).Agents()
	names := strings.Join(slices.DeleteFunc(seen, func(name string) bool { return name == own }), ", ")
	if names == "" {
		names = "its process cannot be seen"
	}
	return fmt.Errorf("another agent of podweir manages this node (%s); this one waits, touches nothing, and takes over when "+
		"that one has ended: uninstall one of the two releases", names)
}

// unlessWaiting reads nothing while the agent waits: the other one tells.
func unlessWaiting[T any](w *waiting, read func() (T, error)) func() (T, error) {
	return func() (all T, err error) {
		if w.on() {
			return all, nil
		}
		return read()
	}
}

func (w *waiting) unless(checks []serve.Check) []serve.Check {
	for i := range checks {
		works := checks[i].Err
		checks[i].Err = func() error {
			if w.on() {
				return errWaits
			}
			return works()
		}
	}
	return checks
}
