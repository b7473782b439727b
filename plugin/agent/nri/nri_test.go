// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package nri_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"

	"github.com/podweir/podweir/plugin/agent/nri"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

var _ = mark.EveryTest(mark.NightlyKernels, "hardly anything in the package depends on the kernel")

// runtime is the runtime's end of the interface, the library that containerd and
// CRI-O have, with the sandboxes that it knows of.
type runtime struct {
	*adaptation.Adaptation
	mu        sync.Mutex
	sandboxes []*api.PodSandbox
}

// startRuntime listens on a socket until the test ends or stop is called.
func startRuntime(t *testing.T, socket string, sandboxes ...*api.PodSandbox) (r *runtime, stop func()) {
	t.Helper()
	r = &runtime{sandboxes: sandboxes}
	empty := t.TempDir()
	var err error
	r.Adaptation, err = adaptation.New("test", "2.1.0", r.sync,
		func(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) { return nil, nil },
		adaptation.WithSocketPath(socket), adaptation.WithPluginPath(empty), adaptation.WithPluginConfigPath(empty))
	must.OK(t, err)
	must.OK(t, r.Start())
	stop = sync.OnceFunc(r.Stop)
	t.Cleanup(stop)
	return r, stop
}

func (r *runtime) sync(ctx context.Context, call adaptation.SyncCB) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := call(ctx, r.sandboxes, nil)
	return err
}

// cable joins a plugin's socket with a runtime's, until it is cut: so a runtime
// that dies looks to a plugin. The library has no way to end as one.
type cable struct {
	to string

	mu    sync.Mutex
	conns []net.Conn
}

func startCable(t *testing.T, from, to string) *cable {
	t.Helper()
	c := &cable{to: to}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", from)
	must.OK(t, err)
	t.Cleanup(func() {
		_ = l.Close()
		c.cut()
	})
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := (&net.Dialer{}).DialContext(t.Context(), "unix", c.to)
			if err != nil {
				_ = near.Close()
				continue
			}
			c.mu.Lock()
			c.conns = append(c.conns, near, far)
			c.mu.Unlock()
			go copyAll(near, far)
			go copyAll(far, near)
		}
	}()
	return c
}

func copyAll(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
}

func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}

// run calls the hook as the runtime does when a pod's network is up.
func (r *runtime) run(t *testing.T, s *api.PodSandbox) error {
	t.Helper()
	// A runtime makes no pod while a plugin is being told what runs.
	defer r.BlockPluginSync().Unblock()
	return r.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Pod: s})
}

func sandbox(id, netns string, annotations map[string]string) *api.PodSandbox {
	s := &api.PodSandbox{
		Id: id, Name: "pod-" + id, Namespace: "default", Uid: "uid-" + id, Annotations: annotations,
		Linux: &api.LinuxPodSandbox{Namespaces: []*api.LinuxNamespace{{Type: "pid"}, {Type: "uts"}}},
	}
	if netns != "" {
		s.Linux.Namespaces = append(s.Linux.Namespaces, &api.LinuxNamespace{Type: "network", Path: netns})
	}
	return s
}

// startPlugin runs the agent's end until the test ends.
func startPlugin(t *testing.T, c nri.Config) *nri.Plugin {
	t.Helper()
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return runPlugin(t, nri.New(c))
}

// runPlugin runs it until the test ends.
func runPlugin(t *testing.T, p *nri.Plugin) *nri.Plugin {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run() = %v, want nil at the end", err)
			}
		case <-time.After(20 * time.Second):
			t.Error("Run does not end")
		}
	})
	return p
}

const connectTime = 20 * time.Second

func connected(t *testing.T, p *nri.Plugin) {
	t.Helper()
	testutil.Eventually(t, connectTime, "the plugin is connected", func() bool { return p.Err() == nil })
}

// shaper is a [nri.Shaper] that remembers what it is told.
type shaper struct {
	mu     sync.Mutex
	told   []string
	answer func(ctx context.Context, p *nri.Pod) (bool, error)
}

func (s *shaper) note(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, text)
}

func (s *shaper) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.told)
}

func (s *shaper) Shape(ctx context.Context, p *nri.Pod) (bool, error) {
	s.note("shape " + p.Namespace + "/" + p.Name + " " + p.UID + " in " + p.NetNS)
	s.mu.Lock()
	answer := s.answer
	s.mu.Unlock()
	if answer != nil {
		return answer(ctx, p)
	}
	return false, nil
}

func (s *shaper) Adopt(_ context.Context, p *nri.Pod) error {
	s.note("adopt " + p.Namespace + "/" + p.Name + " " + p.UID + " in " + p.NetNS)
	return nil
}

func (s *shaper) Forget(_ context.Context, p *nri.Pod) error {
	s.note("forget " + p.ID)
	return nil
}

func (s *shaper) Known(_ context.Context, ids []string) error {
	s.note("known " + strings.Join(ids, ","))
	return nil
}

func TestHooks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	socket, behind := filepath.Join(dir, "nri.sock"), filepath.Join(dir, "behind.sock")
	r, stop := startRuntime(t, behind, sandbox("old", "/run/netns/old", nil))
	wire := startCable(t, socket, behind)
	var mu sync.Mutex
	observed := map[string]int{}
	s := &shaper{}
	p := startPlugin(t, nri.Config{Socket: socket, Shaper: s, Observe: func(hook string, _ time.Duration, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			observed[hook]++
		}
	}})
	connected(t, p)
	testutil.Eventually(t, connectTime, "the pods that ran before are looked at", func() bool { return len(s.all()) == 2 })
	pod := sandbox("new", "/run/netns/new", nil)
	if err := r.run(t, pod); err != nil {
		t.Error(err)
	}
	if err := r.run(t, sandbox("host", "", nil)); err != nil {
		t.Error(err)
	}
	if err := r.StopPodSandbox(t.Context(), &api.StopPodSandboxRequest{Pod: pod}); err != nil {
		t.Error(err)
	}
	if err := r.RemovePodSandbox(t.Context(), &api.RemovePodSandboxRequest{Pod: pod}); err != nil {
		t.Error(err)
	}
	want := []string{
		"known old", "adopt default/pod-old uid-old in /run/netns/old",
		"shape default/pod-new uid-new in /run/netns/new", "shape default/pod-host uid-host in ",
		"forget new", "forget new",
	}
	if got := s.all(); !slices.Equal(got, want) {
		t.Errorf("the shaper was told %q, want %q", got, want)
	}
	mu.Lock()
	if observed["RunPodSandbox"] != 2 || observed["StopPodSandbox"] != 1 || observed["RemovePodSandbox"] != 1 {
		t.Errorf("observed hooks = %v", observed)
	}
	mu.Unlock()

	// The runtime restarts, with another pod.
	stop()
	wire.cut()
	testutil.Eventually(t, connectTime, "the end of the connection is noticed", func() bool { return p.Err() != nil })
	r, _ = startRuntime(t, behind, sandbox("later", "/run/netns/later", nil))
	connected(t, p)
	testutil.Eventually(t, connectTime, "the pods are looked at again", func() bool {
		return slices.Contains(s.all(), "known later")
	})
	if err := r.run(t, sandbox("last", "/run/netns/last", nil)); err != nil {
		t.Error(err)
	}
	if !slices.Contains(s.all(), "shape default/pod-last uid-last in /run/netns/last") {
		t.Errorf("the shaper was told %q, want the pod after the restart", s.all())
	}
}

// Whatever goes wrong here, the pod starts, unless the operator chose otherwise.
func TestPodsStart(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "nri.sock")
	r, _ := startRuntime(t, socket)
	s := &shaper{}
	p := nri.New(nri.Config{Socket: socket, Shaper: s, Log: slog.New(slog.DiscardHandler)})
	p.SetPatience(100 * time.Millisecond)
	connected(t, runPlugin(t, p))
	for name, test := range map[string]struct {
		answer  func(ctx context.Context, p *nri.Pod) (bool, error)
		refused string
	}{
		"an error":  {func(context.Context, *nri.Pod) (bool, error) { return false, errors.New("no bpffs") }, ""},
		"a refusal": {func(context.Context, *nri.Pod) (bool, error) { return true, errors.New("no bpffs") }, "no bpffs"},
		"a panic":   {func(context.Context, *nri.Pod) (bool, error) { panic("a fault") }, ""},
		"no answer": {func(ctx context.Context, _ *nri.Pod) (bool, error) {
			<-ctx.Done()
			return false, ctx.Err()
		}, ""},
	} {
		s.mu.Lock()
		s.answer = test.answer
		s.mu.Unlock()
		err := r.run(t, sandbox("x", "/run/netns/x", nil))
		if test.refused == "" && err != nil {
			t.Errorf("%s: RunPodSandbox = %v, want the pod to start", name, err)
		}
		if test.refused != "" && (err == nil || !strings.Contains(err.Error(), test.refused)) {
			t.Errorf("%s: RunPodSandbox = %v, want %q", name, err, test.refused)
		}
		if err := p.Err(); err != nil {
			t.Errorf("%s: the connection is lost: %v", name, err)
		}
	}
}

// Without a socket the agent goes on, and says where it looked.
func TestNoSocket(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "nri.sock")
	p := startPlugin(t, nri.Config{Socket: socket, Shaper: &shaper{}})
	testutil.Eventually(t, connectTime, "the socket is missed", func() bool {
		return strings.Contains(p.Err().Error(), socket)
	})
	startRuntime(t, socket)
	connected(t, p)
}
