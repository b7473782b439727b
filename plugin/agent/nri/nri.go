// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package nri shapes pods when the container runtime starts them, through its Node
// Resource Interface: after their network is set up and before their containers
// start, without a CNI configuration or a binary of ours on the node.
//
// A pod always starts, unless the operator chose that no pod starts unshaped: an
// error that a hook returns fails the pod's start, and so does nothing else here.
// A runtime that finds nobody on its socket starts pods without us; they are shaped
// when the agent returns.
package nri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/net/multiplex"
	"github.com/containerd/ttrpc"

	"github.com/podweir/podweir/plugin/netconf"
)

// DefaultSocket is where runtimes listen for plugins: the library says /var/run,
// which is a link to this directory, and leads elsewhere below a mounted root.
const DefaultSocket = "/run/nri/nri.sock"

// The name under which the runtime knows the agent. The index is its place among
// the plugins: late, after those that give a pod devices.
const (
	pluginName  = "podweir"
	pluginIndex = "90"
)

// Pod is a pod's sandbox as the runtime tells of it.
type Pod struct {
	// ID is the sandbox's, UID the pod's.
	ID, Namespace, Name, UID string
	Annotations              netconf.PodAnnotations
	// NetNS is the path of its network namespace, "" with hostNetwork.
	NetNS string
}

// Shaper shapes pods.
type Shaper interface {
	// Shape brings a pod to what its annotations ask for; one that asks for nothing
	// is left alone. Only with refuse the pod must not start because of err.
	Shape(ctx context.Context, p *Pod) (refuse bool, err error)
	// Adopt does the same for a pod that ran before the connection was made. The runtime
	// keeps the annotations of the pod's creation: where something newer is known of what
	// the pod asks for, it counts.
	Adopt(ctx context.Context, p *Pod) error
	// Forget removes what was made for a sandbox that ends.
	Forget(ctx context.Context, p *Pod) error
	// Known is told all sandboxes of the runtime: what was made for others, and
	// whose namespace is gone, is removed.
	Known(ctx context.Context, ids []string) error
}

// Config is what a [Plugin] works with.
type Config struct {
	// Socket is the runtime's, [DefaultSocket] if empty.
	Socket string
	Shaper Shaper
	// Observe is called after every hook with the time for which it held up the
	// runtime; nil does nothing.
	Observe func(hook string, d time.Duration, err error)
	Log     *slog.Logger
}

// Times.
const (
	// hookTimeout is below the 2 s after which containerd drops a plugin
	// (plugin_request_timeout).
	hookTimeout = 1500 * time.Millisecond
	// startTimeout is above the 5 s in which a runtime registers a plugin
	// (plugin_registration_timeout).
	startTimeout = 10 * time.Second
	// The pause before the next attempt to connect: a runtime that restarts is back
	// within some seconds, and pods that it starts meanwhile are not shaped.
	pauseMin = 100 * time.Millisecond
	pauseMax = 5 * time.Second
)

// Plugin is the agent's end of the connection.
type Plugin struct {
	config Config
	// patience is how long a hook may take.
	patience time.Duration
	// syncs has room for one: what a runtime had when it connected, newest.
	syncs chan []*Pod

	mu      sync.Mutex
	err     error
	runtime string
}

var errNotConnected = errors.New("no connection to the container runtime yet")

// New returns a plugin that does nothing until [Plugin.Run].
func New(c Config) *Plugin {
	if c.Socket == "" {
		c.Socket = DefaultSocket
	}
	if c.Observe == nil {
		c.Observe = func(string, time.Duration, error) {}
	}
	return &Plugin{config: c, patience: hookTimeout, syncs: make(chan []*Pod, 1), err: errNotConnected}
}

// Err says why pods that start now would not be shaped, nil if they are.
func (p *Plugin) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

func (p *Plugin) set(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

// Run keeps the connection to the runtime until the context ends and then returns
// nil. Pods stay as they are.
func (p *Plugin) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { p.synchronizer(ctx) })
	defer wg.Wait()
	defer p.set(errNotConnected) // it may run again
	pause := pauseMin
	told := ""
	for ctx.Err() == nil {
		began := time.Now()
		err := p.connect(ctx)
		if ctx.Err() != nil {
			break
		}
		p.set(err)
		if time.Since(began) > pauseMax {
			pause, told = pauseMin, ""
		}
		if text := err.Error(); text != told {
			told = text
			p.config.Log.Error("no connection to the container runtime: pods that start now are not shaped", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, pauseMax)
	}
	return nil
}

// connect registers with the runtime and returns when the connection ends, always
// with an error.
func (p *Plugin) connect(ctx context.Context) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", p.config.Socket)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no NRI socket at %s; containerd 1.7 needs disable = false in [plugins.\"io.containerd.nri.v1.nri\"], 2.0 and later have it on: %w", p.config.Socket, err)
	}
	if err != nil {
		return fmt.Errorf("connect to the NRI socket: %w", err)
	}
	l, err := open(ctx, conn, &service{plugin: p, configured: make(chan struct{}), synced: make(chan struct{})})
	if err != nil {
		return errors.Join(fmt.Errorf("register with the runtime on %s: %w", p.config.Socket, err), conn.Close())
	}
	p.set(nil)
	p.config.Log.Info("connected to the container runtime", "socket", p.config.Socket, "runtime", p.runtimeName())
	select {
	case <-ctx.Done():
	case <-l.closed:
	}
	l.close()
	return fmt.Errorf("the runtime ended the connection on %s", p.config.Socket)
}

func (p *Plugin) runtimeName() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runtime
}

// synchronizer looks after the pods that ran before, outside of any hook: 110 of them
// take longer than the runtime waits.
func (p *Plugin) synchronizer(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case pods := <-p.syncs:
			p.synchronize(ctx, pods)
		}
	}
}

func (p *Plugin) synchronize(ctx context.Context, pods []*Pod) {
	ids := make([]string, len(pods))
	for i, pod := range pods {
		ids[i] = pod.ID
	}
	if err := p.config.Shaper.Known(ctx, ids); err != nil && ctx.Err() == nil {
		p.config.Log.Error("leftovers of deleted pods not removed", "error", err)
	}
	for _, pod := range pods {
		if ctx.Err() != nil {
			return
		}
		if err := p.config.Shaper.Adopt(ctx, pod); err != nil && ctx.Err() == nil {
			p.config.Log.Error("pod runs unshaped", "pod", pod.Namespace+"/"+pod.Name, "containerID", pod.ID, "error", err)
		}
	}
	p.config.Log.Info("pods that ran before checked", "pods", len(pods))
}

// hook is every call of the runtime about a pod. It is bounded in time, and lets only a refusal
// through: every error that it returned would fail the pod.
func (p *Plugin) hook(ctx context.Context, name string, s *api.PodSandbox) error {
	ctx, cancel := context.WithTimeout(ctx, p.patience)
	defer cancel()
	pod := podOf(s)
	began := time.Now()
	refuse, err := p.guarded(ctx, name, pod)
	p.config.Observe(name, time.Since(began), err)
	if err == nil {
		return nil
	}
	log := p.config.Log.With("hook", name, "pod", pod.Namespace+"/"+pod.Name, "containerID", pod.ID)
	if refuse {
		log.Error("pod is refused", "error", err)
		return fmt.Errorf("podweir: %w", err)
	}
	log.Error("pod goes on without podweir", "error", err)
	return nil
}

// guarded turns a panic into an error: it must not take the agent along.
func (p *Plugin) guarded(ctx context.Context, hook string, pod *Pod) (refuse bool, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			refuse, err = false, fmt.Errorf("a fault of podweir, please report it: %v", cause)
		}
	}()
	if hook == hooks[api.Event_RUN_POD_SANDBOX] {
		return p.config.Shaper.Shape(ctx, pod)
	}
	return false, p.config.Shaper.Forget(ctx, pod)
}

// networkNamespace is the type of a namespace in the OCI specification.
const networkNamespace = "network"

func podOf(s *api.PodSandbox) *Pod {
	p := &Pod{
		ID: s.GetId(), Namespace: s.GetNamespace(), Name: s.GetName(), UID: s.GetUid(),
		Annotations: netconf.KeepAnnotations(s.GetAnnotations()),
	}
	for _, ns := range s.GetLinux().GetNamespaces() {
		if ns.GetType() == networkNamespace {
			p.NetNS = ns.GetPath()
		}
	}
	return p
}

// link is one connection to the runtime: it calls us on one half of it, and we have
// called it on the other. The library's own plugin side is not used, because it
// waits without end for a runtime that answers halfway.
type link struct {
	server *ttrpc.Server
	client *ttrpc.Client
	mux    multiplex.Mux
	// closed is closed when the runtime is gone.
	closed chan struct{}
	served sync.WaitGroup
}

// open registers on a connection and returns when the runtime has configured us and
// told what runs.
func open(ctx context.Context, conn net.Conn, s *service) (_ *link, err error) {
	l := &link{mux: multiplex.Multiplex(conn), closed: make(chan struct{})}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	listener, err := l.mux.Listen(multiplex.PluginServiceConn)
	if err != nil {
		return nil, err
	}
	if l.server, err = ttrpc.NewServer(ttrpc.WithUnaryServerInterceptor(answer)); err != nil {
		return nil, err
	}
	api.RegisterPluginService(l.server, s)
	serving := context.WithoutCancel(ctx)
	l.served.Go(func() { _ = l.server.Serve(serving, listener) }) // it ends with the connection
	calls, err := l.mux.Open(multiplex.RuntimeServiceConn)
	if err != nil {
		return nil, err
	}
	l.client = ttrpc.NewClient(calls, ttrpc.WithOnClose(sync.OnceFunc(func() { close(l.closed) })))
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	_, err = api.NewRuntimeClient(l.client).RegisterPlugin(ctx, &api.RegisterPluginRequest{
		PluginName: pluginName, PluginIdx: pluginIndex,
	})
	if err != nil {
		return nil, err
	}
	for _, step := range []struct {
		done chan struct{}
		what string
	}{{s.configured, "configure the plugin"}, {s.synced, "tell what runs"}} {
		select {
		case <-step.done:
		case <-l.closed:
			return nil, fmt.Errorf("the runtime ended the connection before it did %s", step.what)
		case <-ctx.Done():
			return nil, fmt.Errorf("the runtime did not %s within %v: %w", step.what, startTimeout, ctx.Err())
		}
	}
	return l, nil
}

func (l *link) close() {
	if l.client != nil {
		_ = l.client.Close()
	}
	if l.server != nil {
		_ = l.server.Close()
	}
	_ = l.mux.Close()
	l.served.Wait()
}
