// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/profiles"
	daemon "github.com/podweir/podweir/plugin/agent"
	"github.com/podweir/podweir/plugin/agent/cri"
	"github.com/podweir/podweir/plugin/agent/delivery"
	"github.com/podweir/podweir/plugin/agent/kube"
	"github.com/podweir/podweir/plugin/agent/metrics"
	"github.com/podweir/podweir/plugin/agent/nri"
	"github.com/podweir/podweir/plugin/agent/reconcile"
	"github.com/podweir/podweir/plugin/agent/serve"
	"github.com/podweir/podweir/plugin/agent/uninstall"
	"github.com/podweir/podweir/plugin/cni"
)

// agentParts are the parts of the agent, made of its settings.
type agentParts struct {
	o   *options
	log *slog.Logger

	manager    *delivery.Manager
	watch      *kube.Watch
	recorder   *kube.Recorder
	reconciler *reconcile.Reconciler
	nri        *onDemand
	plugin     *nri.Plugin
	runtime    *runtimeClient
	watcher    *uninstall.Watcher
	metrics    *metrics.Metrics
	node       *nodeCheck
	waiting    *waiting
	parts      []daemon.Part

	// entry is closed when podweir's entry is decided for the first time.
	entry       chan struct{}
	onceDecided sync.Once

	mu      sync.Mutex
	network string
	passed  bool
}

// newParts makes the parts; none of them works yet, but the port is taken. An
// error is in the settings.
func newParts(cmd *cobra.Command, o *options, log *slog.Logger) (*agentParts, error) {
	if err := checkAgent(o); err != nil {
		return nil, err
	}
	a := &agentParts{o: o, log: log, entry: make(chan struct{})}
	if err := a.makeDelivery(cmd); err != nil {
		return nil, err
	}
	if err := a.makeKube(); err != nil {
		return nil, err
	}
	a.makeReconciler()
	a.makeNRI()
	a.node = newNodeCheck(a)
	a.waiting = &waiting{agentParts: a}
	server, err := a.makeServer(cmd.Context())
	if err != nil {
		return nil, err
	}
	log.Info("HTTP", "address", server.Addr().String())
	a.parts = append(a.parts,
		daemon.Part{Name: "http", Run: server.Run},
		daemon.Part{Name: "events", Run: a.recorder.Run},
		daemon.Part{Name: "delivery", Waits: true, Run: a.manager.Run},
		daemon.Part{Name: "reconcile", Waits: true, Run: a.reconcile},
		daemon.Part{Name: "nri", Waits: true, Run: a.nri.run},
		daemon.Part{Name: "node", Waits: true, Run: a.node.run})
	return a, nil
}

func (a *agentParts) makeDelivery(cmd *cobra.Command) error {
	root := a.o.v.GetString("root")
	if err := checkRoot(root); err != nil {
		return err
	}
	given, err := cmd.Flags().GetStringArray("default")
	if err != nil {
		return err
	}
	defaults, err := parseDefaults(given)
	if err != nil {
		return err
	}
	a.manager, err = delivery.New(delivery.Config{
		Root: root, ConfDir: a.o.v.GetString("cni-conf-dir"), BinDir: a.o.v.GetString("cni-bin-dir"),
		State: a.o.v.GetString("state"), Runtime: a.o.v.GetString("runtime"), Binary: a.o.v.GetString("binary"),
		Delivery: profiles.Delivery(a.o.v.GetString("delivery")), Defaults: defaults,
		Live: &doctorKernel{options: a.o, root: root}, Log: a.log, OnDecision: a.decided,
		Hooked: func() bool { return a.plugin.Err() == nil },
	})
	return err
}

// decided starts and ends the delivery nri, and has the pods looked at: what they
// get by default may have changed.
func (a *agentParts) decided(d delivery.Decision) {
	a.nri.want(d.Delivery == profiles.NRI)
	if d.Entry != "" {
		a.onceDecided.Do(func() { close(a.entry) })
	}
	a.metrics.SetDelivery(string(d.Delivery))
	a.reconciler.Again()
	a.node.changed()
}

func (a *agentParts) makeKube() error {
	var config *kube.Config
	var err error
	if path := a.o.v.GetString("kubeconfig"); path != "" {
		config, err = kube.FromKubeconfig(path)
	} else {
		config, err = kube.InCluster(kube.ServiceAccountDir)
	}
	if err != nil {
		return err
	}
	client, err := kube.NewClient(config)
	if err != nil {
		return err
	}
	name := a.o.v.GetString("node-name")
	a.watch = kube.NewWatch(client, name, a.log)
	a.recorder = kube.NewRecorder(client, name, a.log)
	if own := a.o.v.GetString("daemonset"); own != "" {
		namespace, name, err := uninstall.ParseName(own)
		if err != nil {
			return err
		}
		a.watcher = uninstall.New(uninstall.NewDaemonSets(client, namespace, name), a.log)
		a.parts = append(a.parts, daemon.Part{Name: "daemonset", Run: func(ctx context.Context) error {
			a.watcher.Run(ctx)
			return nil
		}})
	}
	return nil
}

func (a *agentParts) makeReconciler() {
	a.runtime = &runtimeClient{root: a.o.v.GetString("root"), socket: a.o.v.GetString("cri-socket")}
	a.reconciler = reconcile.New(reconcile.Config{
		Pods: a.watch, Sandboxes: a.runtime, Events: a.recorder, NetConf: a.netConf, Paths: a.o.paths(),
		Pass: a.o.v.GetDuration("pass"), Log: a.log,
		Observe: func(o reconcile.Observation) { a.metrics.ObserveReconcile(o.Outcome.String(), o.Duration) },
	})
}

// decisionTime is how long pods wait for the first decision about the delivery: what
// the node's defaults are is part of it, and takes some 0.1 s.
const decisionTime = 10 * time.Second

// reconcile begins when it is known what pods get by default.
func (a *agentParts) reconcile(ctx context.Context) error {
	timer := time.NewTimer(decisionTime)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil
	case <-a.entry:
	case <-timer.C:
	}
	return a.reconciler.Run(ctx)
}

// runtimeClient is a client of the container runtime whose socket is looked for
// until it is there: pods that are shaped need none.
type runtimeClient struct {
	root, socket string

	mu     sync.Mutex
	client *cri.Client
}

func (r *runtimeClient) open() (*cri.Client, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.client != nil {
		return r.client, nil
	}
	socket := r.socket
	var err error
	if socket == "" {
		if socket, err = cri.FindSocket(r.root); err != nil {
			return nil, fmt.Errorf("--cri-socket: %w", err)
		}
	}
	r.client, err = cri.Open(socket)
	return r.client, err
}

// Find implements [reconcile.Sandboxes].
func (r *runtimeClient) Find(ctx context.Context, runtimeUID string) (cri.Sandbox, error) {
	c, err := r.open()
	if err != nil {
		return cri.Sandbox{}, err
	}
	return c.Find(ctx, runtimeUID)
}

// IDs implements [reconcile.Sandboxes].
func (r *runtimeClient) IDs(ctx context.Context) ([]string, error) {
	c, err := r.open()
	if err != nil {
		return nil, err
	}
	return c.IDs(ctx)
}

func (r *runtimeClient) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.client == nil {
		return nil
	}
	return r.client.Close()
}

func (a *agentParts) makeNRI() {
	a.plugin = nri.New(nri.Config{
		Socket: filepath.Join(a.o.v.GetString("root"), a.o.v.GetString("nri-socket")), Log: a.log,
		Observe: func(hook string, d time.Duration, err error) { a.metrics.ObserveHook(hook, d, err) },
		Shaper: &nri.Engine{
			Open: a.o.open, NetConf: a.netConf, Paths: a.o.paths(), Log: a.log,
			Unshaped: func(p *nri.Pod, err error) {
				a.recorder.Emit(&kube.Pod{Namespace: p.Namespace, Name: p.Name, UID: p.UID},
					kube.Event{Warning: true, Reason: "BandwidthNotEnforced", Message: err.Error()})
			},
		},
	})
	a.nri = &onDemand{wanted: make(chan bool, 1), f: a.plugin.Run}
}

func (a *agentParts) makeServer(ctx context.Context) (*serve.Server, error) {
	ready := a.checks()
	paths := a.o.paths()
	a.metrics = metrics.New(metrics.Config{
		Log: a.log, Pods: a.waiting.mute(metrics.NewPins(paths)), Unshaped: a.unshaped,
		Failures: func() (int, error) {
			if a.waiting.on() {
				return 0, nil // the other agent tells of them
			}
			all, err := paths.Failures()
			return len(all), err
		},
		Ready: func() map[string]bool {
			works := make(map[string]bool, len(ready))
			for _, c := range ready {
				works[c.Name] = c.Err() == nil
			}
			return works
		},
	})
	return serve.Listen(ctx, serve.Config{
		Address: a.o.v.GetString("address"), Metrics: a.metrics.Handler(), Ready: ready,
		Profile: a.o.v.GetBool("pprof"), Log: a.log,
	})
}

// onDemand runs something while it is wanted.
type onDemand struct {
	f func(ctx context.Context) error
	// wanted has room for one: the newest.
	wanted chan bool

	mu sync.Mutex
	on bool
}

func (d *onDemand) want(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.on == on {
		return
	}
	d.on = on
	select {
	case <-d.wanted:
	default:
	}
	d.wanted <- on
}

func (d *onDemand) isWanted() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.on
}

func (d *onDemand) run(ctx context.Context) error {
	on := false
	for ctx.Err() == nil {
		if on {
			on = d.during(ctx)
			continue
		}
		select {
		case <-ctx.Done():
		case on = <-d.wanted:
		}
	}
	return nil
}

// during runs f until something else is wanted, and returns that.
func (d *onDemand) during(ctx context.Context) (next bool) {
	inner, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { _ = d.f(inner) }) // it logs, tries again, and returns nil
	select {
	case <-ctx.Done():
		return false
	case next = <-d.wanted:
		return next
	}
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
	conf["cniVersion"], conf["name"] = "1.0.0", a.networkOf(d.ConfDir)
	return json.Marshal(conf)
}

// networkOf is the name of the network that podweir joins. While its file is being
// rewritten it is what it was.
func (a *agentParts) networkOf(confDir string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if dir, err := conflist.ReadDir(detect.HostRoot(a.o.v.GetString("root")), strings.TrimPrefix(confDir, "/")); err == nil {
		if f := dir.Original(); f != nil && f.Network != nil && f.Network.Name != "" {
			a.network = f.Network.Name
		}
	}
	if a.network == "" {
		return ownNetwork
	}
	return a.network
}

// remove takes podweir off the node: first out of the set-up of pods, so that none
// gets a limit that nobody takes off.
func (a *agentParts) remove(ctx context.Context) error {
	err := a.manager.Remove(ctx)
	detached, detachErr := detachAll(ctx, a.o)
	a.log.Info("limits are taken off", "attachments", len(detached))
	return errors.Join(err, unlessMounted(a.o.paths(), detachErr))
}

// unlessMounted drops the error of a removal that left nothing but an empty
// directory: in a container podweir's directories are mounts, or in a root that is
// read-only, and stay.
func unlessMounted(paths cni.Paths, err error) error {
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
