// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/podweir/podweir/plugin/agent/cri"
	"github.com/podweir/podweir/plugin/agent/kube"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/cni"
	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/shaping"
)

// defaultIfName is what Kubernetes runtimes call a pod's first interface.
const defaultIfName = "eth0"

// look is one look at one key.
type look struct {
	*Reconciler
	key key
	PodState

	pod      *kube.Pod
	warnings []string
	// ignored are the pod's wishes that were not accepted.
	ignored []*netconf.FieldError
	event   *kube.Event
	// retry asks for another look soon.
	retry bool
	// missing says that the network of a pod with a limit was looked for in vain.
	missing bool
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
	l.Namespace, l.Name, l.UID = pod.Namespace, pod.Name, pod.UID
	if pod.HostNetwork {
		l.hostNetwork()
		return true
	}
	node, err := l.open()
	if err != nil {
		l.unable(err)
		return true
	}
	defer node.Close()
	node.Engine.Planned = l.note
	have, err := l.attachments(node)
	if err != nil {
		l.fail(err)
		return true
	}
	l.claim(have)
	l.bring(ctx, node, have)
	return true
}

// claim has attachments let go that were looked after before the API server
// told of their pod: each would be watched twice until the next pass.
func (l *look) claim(have []attached) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range have {
		k := key{id: a.id}
		if l.states[k] != nil {
			l.queue.add(k, 0)
		}
	}
}

// unable answers a node on which nothing can be shaped: that concerns only who
// asks for a limit.
func (l *look) unable(cause error) {
	if conf, err := l.desired(); err == nil && !conf.Shaping.Limited() {
		l.unlimited(conf)
		l.Reason = cause.Error()
		return
	}
	l.fail(cause)
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
	for _, name := range []string{netconf.EgressAnnotation, netconf.IngressAnnotation} {
		if v, ok := l.pod.Annotations[name]; ok {
			asked = append(asked, fmt.Sprintf("%s %q", name, v))
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
func (l *look) bring(ctx context.Context, node *cni.Node, have []attached) {
	conf, err := l.desired()
	if err != nil {
		l.invalid(ctx, node, conf, have, err)
		return
	}
	if len(have) > 0 && !l.cfg.Pods.Current() {
		// What the pod asks for now is not known: what it got stays.
		l.repair(ctx, node, have)
		return
	}
	var own, others []attached
	for _, a := range have {
		if a.id.Network == conf.Name {
			own = append(own, a)
		} else {
			// Of another network, whose configuration is not known here.
			others = append(others, a)
		}
	}
	switch {
	case conf.Shaping.Limited() && len(own) == 0 && len(others) == 0:
		l.attach(ctx, node, conf)
		return
	case conf.Shaping.Limited():
		for _, a := range own {
			l.ensure(ctx, node, conf, a)
		}
	default:
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

// attach shapes a pod that has nothing yet.
func (l *look) attach(ctx context.Context, node *cni.Node, conf *netconf.Config) {
	if !l.pod.Started {
		l.wait("its network is not set up yet")
		return
	}
	if l.pod.Ending {
		// Its DEL may have been; nobody would call another.
		l.wait("it is being deleted")
		return
	}
	sandbox, err := l.cfg.Sandboxes.Find(ctx, l.pod.RuntimeUID)
	if errors.Is(err, cri.ErrNoSandbox) {
		l.wait(err.Error())
		l.retry, l.missing = true, true
		return
	}
	if err != nil {
		l.fail(fmt.Errorf("find the pod's network namespace: %w", err))
		return
	}
	id := attach.ID{Network: conf.Name, ContainerID: sandbox.ID, IfName: defaultIfName}
	names := sandbox.Interfaces
	if len(names) == 0 {
		names = []string{id.IfName}
	}
	for _, name := range names {
		iface, err := node.Engine.Interfaces.Find(sandbox.NetNSPath, name)
		if err != nil {
			l.fail(err)
			return
		}
		holder, held, err := node.Holder(&iface, id)
		if err != nil {
			l.fail(err)
			return
		}
		if held {
			l.Outcome, l.Reason = Held, fmt.Sprintf("%s is shaped as %v", name, holder)
			return
		}
	}
	l.apply(ctx, node, &attach.Want{
		ID: id, NetNSPath: sandbox.NetNSPath, Names: names, Config: &conf.Shaping,
		ReplaceQdisc: conf.ReplaceQdisc, Pod: l.pod.Key(), By: attach.ByAgent,
	}, Attached)
	if l.Err != nil && l.Outcome != Waiting {
		l.cfg.Paths.RecordFailure(l.cfg.Log, id, l.Err)
	}
}

// ensure brings an attachment to what the pod asks for.
func (l *look) ensure(ctx context.Context, node *cni.Node, conf *netconf.Config, a attached) {
	names := make([]string, len(a.records))
	what := Mended
	for i, r := range a.records {
		names[i] = r.Interface.PodName
		asked := &r.Config
		if r.Asked != nil {
			asked = r.Asked
		}
		if !reflect.DeepEqual(asked, &conf.Shaping) {
			what = Updated
		}
	}
	l.apply(ctx, node, &attach.Want{
		ID: a.id, NetNSPath: a.records[0].Interface.NetNSPath, Names: names, Config: &conf.Shaping,
		ReplaceQdisc: conf.ReplaceQdisc, Pod: l.pod.Key(), Existing: true,
	}, what)
}

// apply runs the engine; what is the outcome if it finds something to do.
func (l *look) apply(ctx context.Context, node *cni.Node, w *attach.Want, what Outcome) {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	l.changed = false
	states, err := node.Engine.Ensure(ctx, w)
	l.keep(w.ID, states, err, what)
}

// repair brings attachments back to what they were made for.
func (l *look) repair(ctx context.Context, node *cni.Node, have []attached) {
	for _, a := range have {
		bounded, cancel := context.WithTimeout(ctx, lockTimeout)
		l.changed = false
		states, err := node.Engine.Repair(bounded, a.id)
		cancel()
		l.keep(a.id, states, err, Mended)
	}
}

// keep takes what the engine answered for one attachment.
func (l *look) keep(id attach.ID, states []*attach.Desired, err error, what Outcome) {
	l.Limits = append(l.Limits, limitsOf(id, states)...)
	l.watched = append(l.watched, watchedOf(states)...)
	switch {
	case err != nil:
		l.fail(err)
		return
	case l.changed:
		l.worst(what)
	default:
		l.worst(Shaped)
	}
	l.cfg.Paths.ClearFailure(id)
	l.Reason = strings.Join(l.planned, "; ")
	l.tellOwner()
}

// tellOwner says what of the pod's wishes could not be had: a queue, or values of
// podweir's own annotations.
func (l *look) tellOwner() {
	for i := range l.Limits {
		if p := &l.Limits[i]; p.Queue == shaping.QueueNone && len(p.Notes) > 0 && l.event == nil {
			l.warn("BandwidthPoliced", fmt.Sprintf("%s of %s is policed, which keeps the limit but not within 1 %%: %s",
				p.Direction, p.Interface.PodName, strings.Join(p.Notes, "; ")))
		}
	}
	if why := l.notTaken(); len(why) > 0 && l.event == nil {
		l.warn("BandwidthSettingIgnored", strings.Join(why, "; ")+"; the limit is enforced with the node's own setting")
	}
}

// notTaken lists the settings that the limit is kept without.
func (l *look) notTaken() []string {
	var all []string
	for _, e := range l.ignored {
		all = append(all, e.Error())
	}
	for i := range l.Limits {
		for _, why := range l.Limits[i].Declined {
			all = append(all, l.Limits[i].Direction.String()+": "+why)
		}
	}
	return all
}

// worst keeps the outcome that says most about a pod with several interfaces.
func (l *look) worst(o Outcome) {
	if l.Outcome == 0 || l.Outcome == Shaped || l.Outcome == Unlimited || l.Outcome == Deferred {
		l.Outcome = o
	}
}

func (l *look) remove(ctx context.Context, node *cni.Node, conf *netconf.Config, id attach.ID) {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	if err := node.Engine.Remove(ctx, id); err != nil {
		l.fail(err)
		return
	}
	l.cfg.Paths.ClearFailure(id)
	l.worst(Removed)
	l.Reason = "no limit is asked for any more"
	if left := conf.Shaping.Left(); left != "" {
		l.Reason = left
	}
}

// invalid answers a configuration that cannot be read: what was there stays,
// and is kept as it was. Of a pod that has nothing yet the direction whose rate
// can be read gets its limit.
func (l *look) invalid(ctx context.Context, node *cni.Node, conf *netconf.Config, have []attached, cause error) {
	stays := "the pod is not shaped"
	switch {
	case len(have) > 0:
		l.repair(ctx, node, have)
		stays = "the limit from before stays"
	case conf != nil && conf.Shaping.Limited():
		if l.attach(ctx, node, conf); l.Err != nil || l.Outcome == Waiting {
			return
		}
		stays = "the other direction is limited"
	}
	l.event = nil
	l.fail(cause)
	l.Reason = stays
	l.warn(l.reasonOf(), cause.Error()+"; "+stays)
}

// note is [attach.Engine.Planned].
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
	switch {
	case errors.Is(err, attach.ErrGone), errors.Is(err, attach.ErrNotAttached):
		// It is being set up or taken down; a watch tells of both. A DEL in the
		// middle of this look must not be undone by it.
		l.wait(err.Error())
		l.retry, l.missing = true, true
		return
	case errors.As(err, &limit), errors.As(err, &field):
		l.Outcome = Invalid
	case errors.Is(err, attach.ErrForeignQdisc), errors.Is(err, attach.ErrHookTaken):
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
