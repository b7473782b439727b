// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"github.com/podweir/podweir/plugin/agent/cri"
	"github.com/podweir/podweir/plugin/agent/kube"
	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// look is one look at one key.
type look struct {
	*Reconciler
	key key
	PodState

	pod      *kube.Pod
	warnings []string
	// ignored are the pod's wishes that were not accepted, capped those above the
	// maximum.
	ignored, capped []*netconf.FieldError
	event           *kube.Event
	// retry asks for another look soon.
	retry bool
	// unsure says that the runtime did not tell whether the limits are those of the pod's sandbox. The next look asks again.
	unsure bool
	// missing says that the network of a pod with a limit was looked for in vain.
	missing bool
	// unread says that a rate of the pod cannot be read: what podweir-cni recorded of that
	// is still so.
	unread bool
	// watched are the interfaces to watch from now on.
	watched []watched
	// changed says that the engine found something to do, planned what.
	changed bool
	planned []string
}

// run does the work; false means that there is nothing to remember.
func (l *look) run(ctx context.Context) bool {
	if l.key.uid == "" {
		return l.unclaimed(ctx)
	}
	pod, ok := l.cfg.Pods.Pod(l.key.uid)
	if !ok || pod.Finished {
		return false
	}
	l.pod = &pod
	l.Namespace, l.Name, l.UID, l.RuntimeUID = pod.Namespace, pod.Name, pod.UID, pod.RuntimeUID
	if pod.HostNetwork {
		l.hostNetwork()
		return true
	}
	node, err := l.open()
	if err != nil {
		l.unable(err)
		l.misspelt(nil)
		return true
	}
	defer node.Close()
	l.listen(node)
	have, err := l.attachments(node)
	if err != nil {
		conf, _ := l.desired()
		l.Asked = asked(conf)
		l.fail(err)
		l.stays(nil)
		return true
	}
	l.claim(have)
	l.bring(ctx, node, have)
	l.misspelt(l.byHand(ctx, node))
	return true
}

// misspelt says of a pod that is as its annotations ask, as far as they are read, that it seems to ask for another
// limit. The directions of byHand are limited all the same.
func (l *look) misspelt(byHand []terms.Direction) {
	limited := func(m terms.Misspelt) bool {
		return slices.Contains(l.Asked, m.Direction) || slices.Contains(byHand, m.Direction)
	}
	names := slices.DeleteFunc(l.pod.Annotations.Misspelt(), limited)
	if len(names) == 0 || l.Err != nil || l.Outcome == Waiting {
		return
	}
	texts := make([]string, len(names))
	for i, m := range names {
		texts[i] = m.String()
		l.Asked = append(l.Asked, m.Direction)
	}
	l.Misspelt = errors.New("misspelt: " + strings.Join(texts, "; "))
	l.warnings = append(l.warnings, l.Misspelt.Error())
	if l.event == nil {
		l.warn("BandwidthInvalid", l.Misspelt.Error())
	}
}

// byHand are the directions that were limited by hand in the network namespace of a pod that misspelt an annotation.
// The runtime is not asked about other pods.
func (l *look) byHand(ctx context.Context, node *engine.Node) (limited []terms.Direction) {
	if len(l.pod.Annotations.Misspelt()) == 0 {
		return nil
	}
	sandbox, err := l.cfg.Sandboxes.Find(ctx, l.pod.RuntimeUID)
	if err != nil {
		return nil
	}
	ids, _ := node.List()
	for _, id := range ids {
		if id.Network != engine.ManualNetwork {
			continue
		}
		records, _ := node.Records(id)
		for _, r := range records {
			for _, d := range terms.Directions {
				if isNetNS(sandbox.NetNSPath, r.Interface.NetNSInode) && r.Config.Limit(d) != nil {
					limited = append(limited, d)
				}
			}
		}
	}
	return limited
}

// listening opens the node for one pod that has nothing yet.
func (l *look) listening() (*engine.Node, error) {
	node, err := l.open()
	if err == nil {
		l.listen(node)
	}
	return node, err
}

// listen has the engine tell what it finds.
func (l *look) listen(node *engine.Node) {
	node.Planned, node.Drifted = l.note, l.drift
}

// claim has attachments let go that were looked after before the API server told of their pod, or that another worker
// looks at just now: each would be told and watched twice until the next pass.
func (l *look) claim(have []attached) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range have {
		k := key{id: a.id}
		if l.states[k] != nil || l.queue.has(k) {
			l.queue.add(k, 0)
		}
	}
}

// unable answers a node on which nothing can be shaped: that concerns only who
// asks for a limit.
func (l *look) unable(cause error) {
	conf, err := l.desired()
	if l.Asked = asked(conf); err == nil && !conf.Shaping.Limited() {
		l.clearFailures(engine.MainIfName)
		l.unlimited(conf)
		l.Reason = cause.Error()
		return
	}
	l.fail(cause)
	l.stays(nil)
}

// unlimited is the outcome of a pod that podweir has nothing to do for.
func (l *look) unlimited(conf *netconf.Config) {
	l.Outcome = Unlimited
	if len(conf.Shaping.Deferred) > 0 {
		l.Outcome, l.Reason = Deferred, conf.Shaping.Left()
	}
}

// hostNetwork tells the owner of a pod without interfaces of its own that its
// annotations do nothing.
func (l *look) hostNetwork() {
	var asked []string
	for _, name := range netconf.RateAnnotations {
		if v, ok := l.pod.Annotations.Values[name]; ok {
			asked = append(asked, fmt.Sprintf("%s %q", name, v))
			l.Asked = append(l.Asked, netconf.DirectionOf(name))
		}
	}
	if len(asked) == 0 {
		l.Outcome = Unlimited // looked at all the same: the agent waits for that
		return
	}
	l.Outcome = HostNetwork
	l.Reason = fmt.Sprintf("annotation %s: a pod with hostNetwork: true shares the node's interfaces and is not shaped; "+
		"accepted is a pod with a network of its own", strings.Join(asked, ", "))
	l.warn("BandwidthHostNetwork", l.Reason)
}

// bring makes of what a pod has what it asks for.
func (l *look) bring(ctx context.Context, node *engine.Node, have []attached) {
	conf, err := l.desired()
	l.Asked = asked(conf)
	_, known := l.rates()
	known = known && l.cfg.Pods.Current()
	if err != nil {
		l.invalid(ctx, node, conf, have, known, err)
		return
	}
	if len(have) > 0 && !known {
		// What the pod asks for now is not known: what it got stays.
		l.repair(ctx, node, have)
		return
	}
	own, others := ofPod(conf.Name, have)
	switch {
	case conf.Shaping.Limited() && len(own) == 0 && len(others) == 0:
		l.attach(ctx, conf, nil, nil)
		return
	case conf.Shaping.Limited():
		for _, a := range own {
			l.ensure(ctx, node, conf, a)
		}
		// The kubelet may have made it another sandbox, while what is left of the first one still has
		// the limits.
		if l.pod.Started() && !l.pod.Ending && l.pod.Network() != l.network() {
			l.attach(ctx, conf, nil, own)
		}
	default:
		l.clearFailures(engine.MainIfName)
		for _, a := range own {
			l.remove(ctx, node, conf, a.id)
		}
	}
	if len(others) > 0 {
		l.repair(ctx, node, others)
	}
	if l.Outcome == 0 {
		l.unlimited(conf)
	}
}

// ofPod are the attachments that the pod's annotations are for, and others: those of
// further networks, whose configuration is not known here. The pod's first interface is
// of the node's network, whatever that was called when the pod started.
func ofPod(network string, have []attached) (own, others []attached) {
	for _, a := range have {
		if a.id.IfName == engine.MainIfName || a.id.Network == network {
			own = append(own, a)
		} else {
			others = append(others, a)
		}
	}
	return own, others
}

// asked are the directions of a configuration that may be nil, also those that cannot be read.
func asked(conf *netconf.Config) []terms.Direction {
	var all []terms.Direction
	for _, d := range terms.Directions {
		if conf != nil && (conf.Shaping.Limit(d) != nil || slices.Contains(conf.Unread, d)) {
			all = append(all, d)
		}
	}
	return all
}

// network is the pod's when its limits were found, "" if that is not known, as after a start of the agent.
func (l *look) network() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.states[l.key]; s != nil {
		return s.network
	}
	return ""
}

// attach shapes a pod whose sandbox has nothing yet, only others of its that have; unread is what cannot be read of
// its configuration.
func (l *look) attach(ctx context.Context, conf *netconf.Config, unread error, others []attached) {
	if !l.pod.Started() {
		l.wait("its network is not set up yet")
		return
	}
	if l.pod.Ending {
		// Its DEL may have been; nobody would call another.
		l.wait("it is being deleted")
		return
	}
	sandbox, err := l.cfg.Sandboxes.Find(ctx, l.pod.RuntimeUID)
	if err != nil && len(others) > 0 { // as far as is known it has its limits
		l.unsure, l.retry = true, l.network() != ""
		return
	}
	if errors.Is(err, cri.ErrNoSandbox) {
		l.wait(err.Error())
		// The API server has the mirror of a static pod that was changed for some ten seconds longer.
		l.retry, l.missing = true, !errors.Is(err, cri.ErrEnded)
		return
	}
	if err != nil {
		l.fail(fmt.Errorf("find the pod's network namespace: %w", err))
		return
	}
	if slices.ContainsFunc(others, func(a attached) bool { return a.id.ContainerID == sandbox.ID }) {
		return
	}
	l.changed = false
	added := engine.Add(ctx, &engine.Adding{
		ContainerID: sandbox.ID, IfName: engine.MainIfName, NetNSPath: sandbox.NetNSPath, Pod: l.pod.Key(),
		By: apply.ByAgent, Ended: l.ended(ctx), Paths: l.cfg.Paths, Open: l.listening,
		Read:       func() (*netconf.Config, error) { return conf, unread },
		Interfaces: func(*netconf.Config) []string { return sandbox.Interfaces },
		Log:        func(*netconf.Config, attach.ID) *slog.Logger { return l.cfg.Log.With("pod", l.pod.Key()) },
	})
	if added.Holder != nil {
		l.clearFailures(engine.MainIfName)
		l.Outcome, l.Reason = Held, fmt.Sprintf("%s is shaped as %v", engine.MainIfName, added.Holder)
		l.await(sandbox.NetNSPath)
		return
	}
	l.keep(added.ID, added.Interfaces, added.Failed, Attached)
	if _, held := errors.AsType[*apply.HeldError](added.Failed); held || l.missing {
		l.await(sandbox.NetNSPath)
	}
}

// await has the namespace at a path watched for interfaces that are not there, or are another attachment's: what a pod
// gets anew, or that one lets go, is limited within a second or two.
func (l *look) await(path string) {
	var st syscall.Stat_t
	if syscall.Stat(path, &st) == nil {
		l.watched = append(l.watched, watched{iface: attach.Interface{NetNSPath: path, NetNSInode: st.Ino}, awaited: true})
	}
}

// ended is [engine.Adding.Ended] by the runtime's word.
func (l *look) ended(ctx context.Context) func(containerID string) bool {
	return func(containerID string) bool {
		known, err := l.cfg.Sandboxes.Knows(ctx, containerID)
		return err == nil && !known
	}
}

// ensure brings an attachment to what the pod asks for.
func (l *look) ensure(ctx context.Context, node *engine.Node, conf *netconf.Config, a attached) {
	what, path := Mended, a.records[0].Interface.NetNSPath
	for _, r := range a.records {
		if was := askedOf(r); !reflect.DeepEqual(was, conf.Shaping.Of(was.Among)) {
			what = Updated
		}
	}
	l.apply(ctx, node, &apply.Want{
		ID: a.id, NetNSPath: path, Names: a.names, Config: &conf.Shaping,
		ReplaceQdisc: conf.ReplaceQdisc, Pod: l.pod.Key(), Existing: true,
	}, what)
	if len(a.records) < len(a.names) {
		l.await(path)
	}
}

// askedOf is what an attachment was made for, before `podweir set` changed it.
func askedOf(r *apply.Record) *shaping.Config {
	if r.Asked != nil {
		return r.Asked
	}
	return &r.Config
}

// apply runs the engine; what is the outcome if it finds something to do.
func (l *look) apply(ctx context.Context, node *engine.Node, w *apply.Want, what Outcome) {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	l.changed = false
	states, err := node.Ensure(ctx, w)
	l.keep(w.ID, states, err, what)
}

// repair brings attachments back to what they were made for.
func (l *look) repair(ctx context.Context, node *engine.Node, have []attached) {
	for _, a := range have {
		bounded, cancel := context.WithTimeout(ctx, lockTimeout)
		l.changed = false
		states, err := node.Repair(bounded, a.id)
		cancel()
		l.keep(a.id, states, err, Mended)
	}
}

// keep takes what the engine answered for one attachment.
func (l *look) keep(id attach.ID, states []*attach.Desired, err error, what Outcome) {
	l.Limits = append(l.Limits, limitsOf(id, states)...)
	l.watched = append(l.watched, watchedOf(states)...)
	l.fighting()
	switch {
	case err != nil:
		if l.fail(err); l.Outcome != Waiting {
			l.stays(&id)
		}
		return
	case l.changed:
		l.worst(what)
	default:
		l.worst(Shaped)
	}
	if !l.unread {
		l.cured(id)
	}
	l.Reason = strings.Join(l.planned, "; ")
	l.tellOwner()
}

// stays keeps what the look before knew of an attachment, nil for all, after an error:
// what happens to it is noticed all the same, and as soon.
func (l *look) stays(id *attach.ID) {
	l.mu.Lock()
	var limits []KeptLimit
	if s := l.states[l.key]; s != nil {
		limits = slices.Clone(s.Limits)
	}
	l.mu.Unlock()
	before := l.watch.watched(l.key)
	for i := range limits {
		p := &limits[i]
		known := func(o KeptLimit) bool {
			return o.ID == p.ID && o.Interface == p.Interface && o.Direction == p.Direction
		}
		if id != nil && p.ID != *id || slices.ContainsFunc(l.Limits, known) {
			continue
		}
		p.Stale = true
		l.Limits = append(l.Limits, *p)
		same := func(w watched) bool { return w.iface == p.Interface }
		if n := slices.IndexFunc(before, same); n >= 0 && !slices.ContainsFunc(l.watched, same) {
			l.watched = append(l.watched, before[n])
		}
	}
}

// tellOwner says what of the pod's requests could not be met: a queue, a rate above the
// maximum, or values of podweir's own annotations.
func (l *look) tellOwner() {
	if l.event == nil {
		l.tellTampering()
	}
	for i := range l.Limits {
		if p := &l.Limits[i]; p.Queue.Is == terms.QueueNone && !p.Observed() && len(p.Notes) > 0 && l.event == nil {
			l.warn("BandwidthPoliced", fmt.Sprintf("%s of %s is policed, which keeps the limit but not within 1 %%: %s",
				p.Direction, p.Interface.PodName, strings.Join(p.Notes, "; ")))
		}
	}
	why := l.notTaken()
	switch {
	case l.event != nil:
	case len(l.capped) > 0:
		l.warn("BandwidthAboveMaximum", strings.Join(append(texts(l.capped), why...), "; ")+"; the maximum is enforced")
	case len(why) > 0:
		l.warn("BandwidthSettingIgnored", strings.Join(why, "; ")+"; the limit is enforced with the node's own setting")
	case l.Outcome == Attached || l.Outcome == Updated:
		l.tellObserved()
	}
}

// tellObserved says once that the limits of a pod are not enforced, by the operator's
// wish.
func (l *look) tellObserved() {
	if slices.ContainsFunc(l.Limits, func(p KeptLimit) bool { return p.Observed() }) {
		l.event = &kube.Event{
			Reason: "BandwidthObserved", Message: "the limit is observed only (enforce: observe): what exceeds it is counted, and nothing is held",
		}
	}
}

// notTaken lists the settings that the limit is kept without.
func (l *look) notTaken() []string {
	all := texts(l.ignored)
	for i := range l.Limits {
		for _, why := range l.Limits[i].Declined {
			all = append(all, l.Limits[i].Direction.String()+": "+why)
		}
	}
	return all
}

func texts(errs []*netconf.FieldError) (all []string) {
	for _, e := range errs {
		all = append(all, e.Error())
	}
	return all
}

// worst keeps the outcome that says most about a pod with several interfaces.
func (l *look) worst(o Outcome) {
	if l.Outcome == 0 || l.Outcome == Shaped || l.Outcome == Unlimited || l.Outcome == Deferred {
		l.Outcome = o
	}
}

func (l *look) remove(ctx context.Context, node *engine.Node, conf *netconf.Config, id attach.ID) {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	if err := node.Remove(ctx, id); err != nil {
		if l.fail(err); l.Outcome != Waiting {
			l.stays(&id)
		}
		return
	}
	l.cured(id)
	l.worst(Removed)
	l.Reason = "no limit is requested any more"
	if left := conf.Shaping.Left(); left != "" {
		l.Reason = left
	}
}

// note is [apply.Executor.Planned].
func (l *look) note(i attach.Interface, plan []attach.Action) {
	l.changed = true
	for _, a := range plan {
		l.planned = append(l.planned, i.PodName+" "+a.String())
	}
}

func (l *look) wait(reason string) { l.Outcome, l.Reason = Waiting, reason }

func (l *look) warn(reason, message string) {
	l.event = &kube.Event{Warning: true, Reason: reason, Message: message}
}

// fail sorts an error.
func (l *look) fail(err error) {
	var limit *netconf.LimitError
	var field *shaping.FieldError
	held, isHeld := errors.AsType[*apply.HeldError](err)
	switch {
	case isHeld && len(held.Lacks) > 0:
		l.Outcome = Refused
		l.retry = true // it may come with another error
	case isHeld: // it is another attachment's since this look began
		l.wait(err.Error())
		l.retry = true
		return
	case errors.Is(err, apply.ErrGone), errors.Is(err, apply.ErrNotAttached):
		// It is being set up or taken down; a watch tells of both. A DEL in the
		// middle of this look must not be undone by it.
		l.wait(err.Error())
		l.retry, l.missing = true, true
		return
	case errors.As(err, &limit), errors.As(err, &field):
		l.Outcome = Invalid
	case errors.Is(err, attach.ErrForeignQdisc), errors.Is(err, attach.ErrHookTaken), errors.Is(err, attach.ErrUnseen):
		l.Outcome = Refused
	default:
		l.Outcome = Failed
		l.retry = true
	}
	l.Err = err
	l.warn(l.reasonOf(), err.Error())
}

func (l *look) reasonOf() string {
	if l.Outcome == Invalid {
		return "BandwidthInvalid"
	}
	return "BandwidthNotEnforced"
}
