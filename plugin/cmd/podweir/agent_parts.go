// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/compat/profiles"
	daemon "github.com/podweir/podweir/plugin/agent"
	"github.com/podweir/podweir/plugin/agent/cri"
	"github.com/podweir/podweir/plugin/agent/delivery"
	"github.com/podweir/podweir/plugin/agent/divide"
	"github.com/podweir/podweir/plugin/agent/enforce"
	"github.com/podweir/podweir/plugin/agent/kube"
	"github.com/podweir/podweir/plugin/agent/metrics"
	"github.com/podweir/podweir/plugin/agent/nri"
	"github.com/podweir/podweir/plugin/agent/reconcile"
	"github.com/podweir/podweir/plugin/agent/serve"
	"github.com/podweir/podweir/plugin/agent/uninstall"
	"github.com/podweir/podweir/plugin/cmd/settings"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/terms"
)

// agentParts are the parts of the agent, made of its settings.
type agentParts struct {
	o   *options
	log *slog.Logger

	manager     *delivery.Manager
	client      *kube.Client
	watch       *kube.Watch
	namespaces  *kube.Namespaces
	recorder    *kube.Recorder
	rights      *kube.Rights
	reconciler  *reconcile.Reconciler
	nri         *onDemand
	plugin      *nri.Plugin
	runtime     *cri.Client
	watcher     *uninstall.Watcher
	metrics     *metrics.Metrics
	enforcement *enforce.Watcher
	node        *nodeCheck
	waiting     *waiting
	// notes are of what does not keep the agent from working.
	notes []serve.Check
	parts []daemon.Part

	// entry is closed when podweir's entry is decided for the first time.
	entry       chan struct{}
	onceDecided sync.Once

	mu     sync.Mutex
	passed bool
	// strangers is how many pods run, none of which the API server has on the node; -1 before the
	// first look.
	strangers int
}

// newParts makes the parts; none of them works yet, but the port is taken. An
// error is in the settings.
func newParts(cmd *cobra.Command, o *options, log *slog.Logger) (*agentParts, error) {
	if err := checkAgent(o); err != nil {
		return nil, err
	}
	a := &agentParts{
		o: o, log: log, entry: make(chan struct{}), strangers: -1,
		// Whether the file of settings has others than the agent works by.
		notes: []serve.Check{{Name: "settings", Note: true, Err: settings.Since(o.v.GetString(settings.Flag))}},
	}
	if err := a.makeDelivery(cmd); err != nil {
		return nil, err
	}
	if err := a.makeKube(); err != nil {
		return nil, err
	}
	a.makeReconciler()
	a.makeEnforcement()
	a.makeNRI()
	a.node = newNodeCheck(a)
	a.waiting = &waiting{agentParts: a}
	server, err := a.makeServer(cmd.Context())
	if err != nil {
		return nil, err
	}
	log.Info("HTTP ports opened", "address", server.Addr().String(), "healthAddress", server.HealthAddr().String(),
		"clusterAddress", o.v.GetString("cluster-address"))
	a.parts = append(a.parts,
		daemon.Part{Name: "http", Yields: true, Run: server.Run},
		daemon.Part{Name: "events", Run: a.recorder.Run},
		daemon.Part{Name: "rights", Run: a.rights.Run},
		daemon.Part{Name: "directories", Run: a.places().Watch},
		daemon.Part{Name: "delivery", Waits: true, Run: a.manager.Run},
		daemon.Part{Name: "reconcile", Waits: true, Run: a.reconcile},
		daemon.Part{Name: "enforcement", Waits: true, Run: a.enforcement.Run},
		daemon.Part{Name: "groups", Waits: true, Run: a.divide},
		daemon.Part{Name: "nri", Waits: true, Run: a.nri.run},
		daemon.Part{Name: "strangers", Waits: true, Run: a.findStrangers},
		daemon.Part{Name: "node", Waits: true, Run: a.node.run})
	return a, nil
}

// places are the node's directories that the agent works in.
func (a *agentParts) places() *daemon.Places {
	root, paths := a.o.v.GetString("root"), a.o.paths()
	return &daemon.Places{Root: root, Dirs: func() []string {
		d := a.manager.Decision()
		return []string{
			filepath.Dir(paths.Pins), paths.Run, filepath.Join(root, d.ConfDir), filepath.Join(root, d.BinDir), filepath.Join(root, delivery.StateDir),
		}
	}}
}

func (a *agentParts) makeDelivery(cmd *cobra.Command) error {
	config, err := deliveryConfig(a.o, cmd)
	if err != nil {
		return err
	}
	config.Run, config.Log, config.OnDecision = a.o.paths().Run, a.log, a.decided
	config.Hooked = func() bool { return a.plugin.Err() == nil }
	a.manager, err = delivery.New(config)
	return err
}

// decided starts and ends the delivery nri, and has the pods looked at: what they
// get by default may have changed.
func (a *agentParts) decided(d delivery.Decision) {
	a.nri.want(d.Delivery == profiles.NRI)
	if d.Entry != "" {
		a.onceDecided.Do(func() { close(a.entry) })
	}
	a.reconciler.Again()
	a.node.changed()
}

func (a *agentParts) makeKube() error {
	config, err := kube.InCluster(a.o.v.GetString("credentials"))
	if err != nil {
		return err
	}
	client, err := kube.NewClient(config)
	if err != nil {
		return err
	}
	a.client = client
	name := a.o.v.GetString("node-name")
	a.watch = kube.NewWatch(client, name, a.log)
	a.recorder = kube.NewRecorder(client, name, a.o.runByReaders(), a.log)
	wanted := []kube.Right{{Verb: "create", Resource: "events", Without: "no Event tells of pods or the node"}}
	if a.o.v.GetBool("tls") || a.o.v.GetString("cluster-address") != "" {
		wanted = append(wanted, kube.Right{
			Verb: "create", Group: "authentication.k8s.io", Resource: "tokenreviews", Without: "neither kubectl podweir nor metrics over TLS answer",
		})
	}
	if a.o.v.GetBool("tls") {
		wanted = append(wanted, kube.Right{
			Verb: "create", Group: "authorization.k8s.io", Resource: "subjectaccessreviews", Without: "metrics over TLS do not answer",
		})
	}
	if every := a.o.v.GetDuration("namespace-interval"); every != 0 {
		a.namespaces = kube.NewNamespaces(client, a.watch, every, a.log)
	}
	if own := a.o.v.GetString("daemonset"); own != "" {
		namespace, name, err := uninstall.ParseName(own)
		if err != nil {
			return err
		}
		a.watcher = uninstall.New(kube.NewDaemonSet(client, namespace, name), a.log)
		a.parts = append(a.parts, daemon.Part{Name: "daemonset", Run: func(ctx context.Context) error {
			a.watcher.Run(ctx)
			return nil
		}})
		wanted = append(wanted, kube.Right{
			Verb: "list", Group: "apps", Resource: "daemonsets", Namespace: namespace, Name: name, Without: "an uninstallation leaves podweir on this node",
		})
	}
	a.rights = kube.NewRights(client, wanted)
	a.notes = append(a.notes, serve.Check{Name: "rights", Note: true, Err: a.rights.Err})
	return nil
}

func (a *agentParts) makeReconciler() {
	a.runtime = &cri.Client{Root: a.o.v.GetString("root"), Socket: a.o.v.GetString("cri-socket")}
	a.reconciler = reconcile.New(reconcile.Config{
		Pods: a.watch, Namespaces: a.namespaces, Sandboxes: a.runtime, Events: a.recorder, NetConf: a.netConf, Paths: a.o.paths(),
		Pass: a.o.v.GetDuration("pass"), Log: a.log,
		Observe: func(o reconcile.Outcome, d time.Duration) { a.metrics.ObserveReconcile(o.String(), d) },
	})
}

func (a *agentParts) makeEnforcement() {
	a.enforcement = enforce.New(enforce.Config{
		Pods: a.reconciler, Events: a.recorder, Paths: a.o.paths(), Log: a.log,
		Open: func() (enforce.Counters, error) { return enforce.Open(a.o.paths()) },
	})
}

// decisionTime is how long pods wait for the first decision about the delivery: what
// the node's defaults are is part of it, and takes some 0.1 s.
const decisionTime = 10 * time.Second

// reconcile begins when it is known what pods get by default.
func (a *agentParts) reconcile(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-a.entry:
	case <-time.After(decisionTime):
	}
	return a.reconciler.Run(ctx)
}

// divide divides the limits of namespaces, and tells the pod that has most of one that has been
// reached for long.
func (a *agentParts) divide(ctx context.Context) error {
	return divide.Run(ctx, a.o.paths(), a.log, func(g *mailbox.Group) {
		if pod, event := atLimit(a.watch.List(), &g.Group); pod != nil {
			a.recorder.Emit(pod, event)
		}
	})
}

// atLimit is the Event of a limit that has been reached for long, and the pod that gets it: the one that
// has most of it, or another of the namespace if that has gone.
func atLimit(pods []kube.Pod, g *terms.Group) (*kube.Pod, kube.Event) {
	var to *kube.Pod
	for i := range pods {
		p := &pods[i]
		if name := p.Namespace + "/" + p.Name; p.Namespace == g.Namespace && (to == nil || name == g.Largest) {
			to = p
		}
	}
	return to, kube.Event{Reason: "NamespaceAtLimit", Message: fmt.Sprintf("%v of namespace %s is at its limit of %v on this node since %s; %s has %.0f %% of it",
		g.Direction, g.Namespace, g.Limit, g.AtLimitSince.UTC().Format(time.RFC3339), g.Largest, 100*g.LargestPart)}
}

func (a *agentParts) makeNRI() {
	var rates func(ctx context.Context, namespace string) netconf.Namespace
	if a.namespaces != nil {
		rates = a.namespaces.Ask
	}
	a.plugin = nri.New(nri.Config{
		Socket: filepath.Join(a.o.v.GetString("root"), a.o.v.GetString("nri-socket")), Log: a.log,
		Observe: func(hook string, d time.Duration, err error) { a.metrics.ObserveHook(hook, d, err) },
		Shaper: &nri.Limiter{
			Open: a.o.open, NetConf: a.netConf, Rates: rates, Claimed: a.claimed, Paths: a.o.paths(), Log: a.log,
			Unshaped: func(p *nri.Pod, err error) {
				a.recorder.Emit(&kube.Pod{Namespace: p.Namespace, Name: p.Name, UID: p.UID},
					kube.Event{Warning: true, Reason: "BandwidthNotEnforced", Message: err.Error()})
			},
		},
	})
	a.nri = &onDemand{changed: make(chan struct{}, 1), f: a.plugin.Run}
}

// claimed says whether the API server tells of a pod, by the UID that the runtime has:
// what the pod asks for now is known then, and the reconciler sees to it.
func (a *agentParts) claimed(uid string) bool {
	return a.watch.Current() && slices.ContainsFunc(a.watch.List(), func(p kube.Pod) bool { return p.RuntimeUID == uid })
}

func (a *agentParts) makeServer(ctx context.Context) (*serve.Server, error) {
	ready := a.checks()
	paths := a.o.paths()
	a.metrics = metrics.New(metrics.Config{
		Log: a.log, Pods: unlessWaiting(a.waiting, metrics.NewPins(paths).Read), Unshaped: a.unshaped, Enforced: a.enforcement.States, Held: a.enforcement.Held,
		Groups: unlessWaiting(a.waiting, paths.Mail().Groups),
		Failures: unlessWaiting(a.waiting, func() (int, error) {
			all, err := paths.Mail().Failures()
			return len(slices.DeleteFunc(all, func(f mailbox.Failure) bool { return f.Ended() })), err
		}),
		Doctor:   a.node.last,
		Delivery: func() string { return string(a.manager.Decision().Delivery) },
		Ready: func() map[string]bool {
			works := make(map[string]bool, len(ready))
			for _, c := range ready {
				works[c.Name] = c.Err() == nil
			}
			return works
		},
	})
	config := serve.Config{
		Address: a.o.v.GetString("address"), Metrics: serve.NewPage(metrics.ContentType, a.metrics.Write, a.log), CertDir: a.o.v.GetString("tls-dir"),
		HealthAddress: a.o.v.GetString("health-address"), Ready: append(runnable(ready, a.o.runByReaders()), a.notes...), Profile: a.o.v.GetBool("pprof"), Log: a.log,
	}
	if a.o.v.GetBool("tls") {
		config.Review = a.client.MayGet
	}
	a.serveNode(ctx, &config, ready)
	return serve.Listen(ctx, config)
}

// onDemand runs something while it is wanted.
type onDemand struct {
	f func(ctx context.Context) error
	// changed has room for one.
	changed chan struct{}
	wanted  atomic.Bool
}

func (d *onDemand) want(on bool) {
	d.wanted.Store(on)
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

func (d *onDemand) run(ctx context.Context) error {
	for ctx.Err() == nil {
		inner, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		on := d.wanted.Load()
		if on {
			wg.Go(func() { _ = d.f(inner) }) // it logs, tries again, and returns nil
		}
		for ctx.Err() == nil && d.wanted.Load() == on {
			select {
			case <-ctx.Done():
			case <-d.changed:
			}
		}
		cancel()
		wg.Wait()
	}
	return nil
}

// ownNetwork names the attachments where no primary CNI has a network that podweir
// could join.
const ownNetwork = "podweir"

// netConf is podweir's entry in the chain, with the network that it belongs to.
func (a *agentParts) netConf() (json.RawMessage, error) {
	d := a.manager.Decision()
	if d.Entry == "" {
		return nil, fmt.Errorf("delivery: %s", d.Problem)
	}
	conf := map[string]any{}
	if err := json.Unmarshal([]byte(d.Entry), &conf); err != nil {
		return nil, fmt.Errorf("read podweir's entry: %w", err)
	}
	conf["cniVersion"], conf["name"] = "1.0.0", cmp.Or(d.Network, ownNetwork)
	return json.Marshal(conf)
}

// remove takes podweir off the node: first out of the set-up of pods, so that none
// gets a limit that nobody takes off.
func (a *agentParts) remove(ctx context.Context) error {
	err := a.manager.Remove(ctx)
	if errors.Is(err, delivery.ErrCalled) {
		return err
	}
	done, detachErr := detachAll(ctx, a.o)
	a.log.Info("limits removed", "attachments", len(done.Detach))
	return errors.Join(err, unlessMounted(a.o.paths(), detachErr))
}

// unlessMounted drops the error of a removal that left nothing but an empty
// directory: in a container podweir's directories are mounts, or in a root that is
// read-only, and stay.
func unlessMounted(paths engine.Paths, err error) error {
	if !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.EROFS) {
		return err
	}
	for _, dir := range []string{paths.Pins, paths.Run} {
		left, readErr := os.ReadDir(dir)
		if len(left) > 0 || readErr != nil && !errors.Is(readErr, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
