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

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/agent/delivery"
	"github.com/podweir/podweir/plugin/agent/kube"
	"github.com/podweir/podweir/plugin/agent/reconcile"
	"github.com/podweir/podweir/plugin/agent/serve"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/terms"
)

// checks are the parts that have to work for the agent to be ready.
func (a *agentParts) checks() []serve.Check {
	exclusive := serve.Check{Name: "exclusive", Err: a.waiting.problem}
	return append([]serve.Check{exclusive}, a.waiting.unless([]serve.Check{
		{Name: "node", Err: func() error { return a.node.problem() }},
		{Name: "delivery", Err: a.deliveryProblem, Is: func() string { return string(a.manager.Decision().Delivery) }},
		{Name: "api", Err: a.apiProblem},
		{Name: "namespaces", Err: func() error {
			if a.namespaces != nil {
				return a.namespaces.Err()
			}
			return nil
		}},
		{Name: "pass", Err: a.firstPass},
		{Name: "nri", Err: func() error {
			if a.nri.wanted.Load() {
				return a.plugin.Err()
			}
			return nil
		}},
	})...)
}

// runnable has checks name podweir's commands as they are run where their reasons are read.
func runnable(checks []serve.Check, run string) []serve.Check {
	all := slices.Clone(checks)
	for i := range all {
		reason := all[i].Err
		all[i].Err = func() error {
			err := reason()
			if err == nil {
				return nil
			}
			return errors.New(terms.Runnable(err.Error(), run))
		}
	}
	return all
}

func (a *agentParts) deliveryProblem() error {
	if d := a.manager.Decision(); d.Problem != "" {
		return errors.New(d.Problem)
	}
	return nil
}

// apiProblem says why the agent does not know what the node's pods ask for.
func (a *agentParts) apiProblem() error {
	if err := a.watch.Err(); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.strangers < 0:
		return errors.New("whether the pods of the API server are this node's was not looked at yet")
	case a.strangers > 0:
		return fmt.Errorf("the container runtime runs %d pods, and the API server has none of them on node %q (--node-name): the node probably has another name (kubectl get nodes)",
			a.strangers, a.o.v.GetString("node-name"))
	}
	return nil
}

// strangersEvery is the time between two looks for pods that the API server has on the node, until
// one is found.
const strangersEvery = 10 * time.Second

// strangersFirst is the time between two looks whether the API server told of the pods: until then,
// and until the runtime did, the agent is not ready.
const strangersFirst = 200 * time.Millisecond

// findStrangers sees whether pods that run are those that the API server has on the node: whoever
// starts an agent by hand may give it a name that is another node's, or no node's any more.
func (a *agentParts) findStrangers(ctx context.Context) error {
	for pause := strangersFirst; ; {
		if a.watch.Current() {
			pause = strangersEvery
			var uids []string
			for _, p := range a.watch.List() {
				uids = append(uids, p.RuntimeUID)
			}
			known, count, err := a.runtime.Strangers(ctx, uids) // a runtime that does not answer is told elsewhere
			if err != nil {
				count = 0
			}
			a.mu.Lock()
			a.strangers = count
			a.mu.Unlock()
			if known {
				<-ctx.Done() // one of them is enough
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// fewNames is how many pods a check lists individually.
const fewNames = 5

// firstPass says whether every pod was looked at since the agent began.
func (a *agentParts) firstPass() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.passed {
		return nil
	}
	if !a.watch.Current() {
		return errors.New("the pods of the node are not known yet")
	}
	looked := map[string]bool{}
	for _, s := range a.reconciler.Snapshot() {
		looked[s.UID] = true
	}
	var left []string
	for _, p := range a.watch.List() {
		// Also one without annotations: the node or its namespace may have a rate for it.
		if !p.Finished && !looked[p.UID] {
			left = append(left, p.Key())
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("%d pods were not looked at yet, such as %s", len(left), strings.Join(left[:min(len(left), fewNames)], ", "))
	}
	a.passed = true
	return nil
}

// unshaped counts the pods that have a limit and run without it.
func (a *agentParts) unshaped() map[string]int {
	return reconcile.Unshaped(a.reconciler.Snapshot())
}

// nodeCheck runs the doctor from time to time, and tells what fails.
type nodeCheck struct {
	*agentParts
	every time.Duration
	// again has room for one: the delivery changed.
	again chan struct{}

	mu  sync.Mutex
	rep *doctor.Report
	at  time.Time
	// told is what was told last.
	told string
}

func newNodeCheck(a *agentParts) *nodeCheck {
	return &nodeCheck{agentParts: a, every: a.o.v.GetDuration("doctor-interval"), again: make(chan struct{}, 1)}
}

// When the doctor looks: first when the delivery had the time to do its work, since
// what is not installed yet is no fault, and soon after the delivery changed.
// A problem that is new may pass at once, as that of a pod which is just being deleted:
// another look must not wait until the next is due.
const (
	firstLook      = 15 * time.Second
	lookAfterNew   = 2 * time.Second
	lookAfterFault = 15 * time.Second
)

func (n *nodeCheck) changed() {
	select {
	case n.again <- struct{}{}:
	default:
	}
}

func (n *nodeCheck) run(ctx context.Context) error {
	if n.every == 0 {
		<-ctx.Done()
		return nil
	}
	timer := time.NewTimer(firstLook)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-n.again:
			timer.Reset(lookAfterNew)
			continue
		case <-timer.C:
		}
		before, _ := n.last()
		n.look(ctx)
		next := n.every
		if now, _ := n.last(); newProblem(before, now) {
			next = min(next, lookAfterFault)
		}
		timer.Reset(next)
	}
}

// newProblem says that a check has a problem which it did not have in the report before.
// Either may be nil, and both may be the same.
func newProblem(before, now *doctor.Report) bool {
	had := problems(before)
	for code := range problems(now) {
		if !had[code] {
			return true
		}
	}
	return false
}

// problems are the codes of the checks that found one, or could not look.
func problems(r *doctor.Report) map[string]bool {
	codes := map[string]bool{}
	if r == nil {
		return codes
	}
	for i := range r.Checks {
		if c := &r.Checks[i]; c.Status != doctor.OK && c.Status != doctor.Skip {
			codes[c.Code] = true
		}
	}
	return codes
}

func (n *nodeCheck) look(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, time.Duration(patience)*doctorTimeout)
	defer cancel()
	node := n.o.examined()
	node.Young = status.Young
	told, _ := delivery.Told(n.o.v.GetString("root"))
	rep := node.Doctor(limited, detect.Options{
		ConfDir: n.o.v.GetString("cni-conf-dir"), BinDir: n.o.v.GetString("cni-bin-dir"), Runtime: n.o.v.GetString("runtime"),
	}, doctor.Options{Delivery: n.manager.Decision().Delivery, Run: n.o.runByOthers(), Fight: told.Fight, Handed: func(found *detect.Node) string {
		return delivery.HandedEntry(found, n.manager.Decision().Defaults)
	}})
	if ctx.Err() != nil {
		return
	}
	now := time.Now()
	n.mu.Lock()
	n.rep, n.at = rep, now
	n.mu.Unlock()
	n.tell(rep, missingCapabilities(), n.deliveryProblem())
}

// last is what the doctor found last and when, nil if it has not looked yet.
func (n *nodeCheck) last() (*doctor.Report, time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rep, n.at
}

// notReady is the reason of the Events about the node.
const notReady = "PodweirNodeNotReady"

// tell logs what fails, and makes it an Event of the agent's own pod, once as long
// as it stays the same. What the agent knows better than the doctor comes first.
func (n *nodeCheck) tell(rep *doctor.Report, known ...error) {
	var failing []string
	for _, err := range known {
		if err != nil {
			failing = append(failing, err.Error())
		}
	}
	for i := range rep.Checks {
		if c := &rep.Checks[i]; c.Status == doctor.Fail {
			failing = append(failing, failure(c))
		}
	}
	for i := range failing { // the report is for whoever reads all nodes
		failing[i] = strings.ReplaceAll(failing[i], terms.ByKubectl, n.o.runByReaders())
	}
	text := strings.Join(failing, "; ")
	n.mu.Lock()
	same := n.told == text
	n.told = text
	n.mu.Unlock()
	own := n.ownPod()
	switch {
	case text == "" && !same && own != nil:
		n.recorder.Over(own.UID, notReady)
	case text != "" && own != nil:
		n.recorder.Emit(own, kube.Event{Warning: true, Reason: notReady, Message: text})
	}
	if same {
		return
	}
	for _, f := range failing {
		n.log.Error("doctor check failed", "check", f)
	}
	n.log.Info("doctor finished", "summary", rep.Summary())
}

// failure is a check that fails in one line: what, where, and what to do.
func failure(c *doctor.Outcome) string {
	text := fmt.Sprintf("%s %s: %s", c.Code, c.Title, c.Seen)
	if c.Expected != "" {
		text += ", want " + c.Expected
	}
	if c.Fix != "" {
		text += " (" + c.Fix + ")"
	}
	return text
}

// ownPod is the agent's pod, nil if it is not in one.
func (n *nodeCheck) ownPod() *kube.Pod {
	parts := strings.Split(n.o.v.GetString("pod"), "/")
	if len(parts) != 3 {
		return nil
	}
	return &kube.Pod{Namespace: parts[0], Name: parts[1], UID: parts[2]}
}

// problem says why no pod could be shaped on this node, nil if they can.
func (n *nodeCheck) problem() error {
	node, err := n.o.open()
	if err != nil {
		return err
	}
	node.Close()
	if err := missingCapabilities(); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.rep == nil {
		return nil
	}
	var all error
	for i := range n.rep.Checks {
		if c := &n.rep.Checks[i]; c.Category == doctor.CategoryNode && c.Status == doctor.Fail {
			all = errors.Join(all, errors.New(failure(c)))
		}
	}
	return all
}

// needed are the capabilities without which no pod can be shaped. What others
// are for is in docs/howto/install-with-helm.md.
var needed = []struct {
	bit  uint
	name string
}{
	{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN, for queues and filters on pods' devices"},
	{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN, to enter pods' network namespaces and load programs"},
}

// missingCapabilities says which capabilities this process lacks; nil if none, or
// if the kernel does not say.
func missingCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return nil //nolint:nilerr // what is missing shows where it is used
	}
	return lacks(uint64(data[1].Effective)<<32 | uint64(data[0].Effective))
}

// lacks is missingCapabilities for a set.
func lacks(effective uint64) error {
	var missing []string
	for _, c := range needed {
		if effective&(1<<c.bit) == 0 {
			missing = append(missing, c.name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("no pod can be shaped: the agent lacks %s", strings.Join(missing, "; "))
}
