// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package nri_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/netconf"
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
	l := must.Get((&net.ListenConfig{}).Listen(t.Context(), "unix", from))(t)
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
	testutil.During(t, p.Run)
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
	must.OK(t, r.run(t, pod))
	must.OK(t, r.run(t, sandbox("host", "", nil)))
	must.OK(t, r.StopPodSandbox(t.Context(), &api.StopPodSandboxRequest{Pod: pod}))
	must.OK(t, r.RemovePodSandbox(t.Context(), &api.RemovePodSandboxRequest{Pod: pod}))
	must.Match(t, "what the shaper was told", []string{
		"known old", "adopt default/pod-old uid-old in /run/netns/old",
		"shape default/pod-new uid-new in /run/netns/new", "shape default/pod-host uid-host in ",
		"forget new", "forget new",
	}, s.all())
	mu.Lock()
	must.Match(t, "observed hooks", map[string]int{"RunPodSandbox": 2, "StopPodSandbox": 1, "RemovePodSandbox": 1}, observed)
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
	must.OK(t, r.run(t, sandbox("last", "/run/netns/last", nil)))
	must.Have(t, "what the shaper was told after the restart", strings.Join(s.all(), "\n"), "shape default/pod-last uid-last in /run/netns/last")
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
		must.Part(t, name+": why the pod does not start", test.refused, must.Text(err))
		must.OK(t, p.Err()) // the connection is there
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

// A runtime that ends the connection before the agent is registered, as one that is just starting or ending, does not end
// the agent.
func TestConnectionThatEndsAtOnce(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "nri.sock")
	l := must.Get((&net.ListenConfig{}).Listen(t.Context(), "unix", socket))(t)
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			_ = conn.Close()
		}
	}()
	p := startPlugin(t, nri.Config{Socket: socket, Shaper: &shaper{}})
	testutil.Eventually(t, connectTime, "the failure is told", func() bool {
		return strings.Contains(p.Err().Error(), "closed")
	})
	must.OK(t, l.Close())
	startRuntime(t, socket)
	connected(t, p)
}

// node is a namespace that plays the host, with the agent's end of the interface.
type node struct {
	*testutil.NetNS
	paths  engine.Paths
	entry  string
	socket string
	pods   int
	// claimed are the UIDs of pods that the API server tells of.
	claimed []string

	mu       sync.Mutex
	unshaped map[string]error
}

const (
	network    = "net"
	openEntry  = `{"cniVersion":"1.0.0","name":"net","type":"podweir-cni"}`
	closeEntry = `{"cniVersion":"1.0.0","name":"net","type":"podweir-cni","onError":"closed"}`
)

func newNode(t *testing.T) *node {
	t.Helper()
	return &node{
		NetNS: testutil.NewNetNS(t), entry: openEntry, socket: filepath.Join(t.TempDir(), "nri.sock"),
		paths:    engine.Paths{Pins: filepath.Join(testutil.BPFFS(t), "podweir"), Run: t.TempDir()},
		unshaped: map[string]error{},
	}
}

func (n *node) open() (out *engine.Node, err error) {
	err = n.Do(func() error {
		out, err = engine.Open(n.paths)
		return err
	})
	return out, err
}

func (n *node) limiter() *nri.Limiter {
	return &nri.Limiter{
		Open: n.open, Paths: n.paths, Log: slog.New(slog.DiscardHandler),
		Claimed: func(uid string) bool { return slices.Contains(n.claimed, uid) },
		NetConf: func() (json.RawMessage, error) { return json.RawMessage(n.entry), nil },
		Unshaped: func(p *nri.Pod, err error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.unshaped[p.ID] = err
		},
	}
}

// pod makes a pod's namespace with a pair of devices, as a CNI plugin does.
func (n *node) pod(t *testing.T) *testutil.NetNS {
	t.Helper()
	n.pods++
	pod := testutil.NewNetNS(t)
	testutil.VethPair(t, testutil.End{NetNS: pod, Name: "eth0"},
		testutil.End{NetNS: n.NetNS, Name: fmt.Sprintf("veth%d", n.pods)})
	return pod
}

// shapes has the limiter shape a pod.
func (n *node) shapes(t *testing.T, p *nri.Pod) {
	t.Helper()
	must.OK(t, must.Err(n.limiter().Shape(t.Context(), p)))
}

// podOf is what the runtime tells of a pod.
func podOf(id string, pod *testutil.NetNS, annotations map[string]string) *nri.Pod {
	return &nri.Pod{ID: id, Namespace: "a", Name: id, Annotations: netconf.KeepAnnotations(annotations), NetNS: pod.Path()}
}

// failures are those on record.
func (n *node) failures(t *testing.T) []mailbox.Failure {
	t.Helper()
	return must.Get(n.paths.Mail().Failures())(t)
}

// limits returns the caps of a sandbox's pod in bits per second, none if it is not
// shaped, as they are pinned.
func (n *node) limits(t *testing.T, id string) (egress, ingress uint64) {
	t.Helper()
	node := must.Get(n.open())(t)
	defer node.Close()
	for _, r := range must.Get(node.Records(attach.ID{Network: network, ContainerID: id, IfName: "eth0"}))(t) {
		if r.Config.Egress != nil {
			egress = uint64(r.Config.Egress.Rate)
		}
		if r.Config.Ingress != nil {
			ingress = uint64(r.Config.Ingress.Rate)
		}
	}
	return egress, ingress
}

// queued says whether the pod's own side has a queue, by tc(8) and not by podweir.
func queued(t *testing.T, pod *testutil.NetNS) bool {
	t.Helper()
	return strings.Contains(pod.Run(t, "tc", "qdisc", "show", "dev", "eth0"), "tbf")
}

// has fails the test unless a sandbox's pod has these limits, and a queue if it has one of egress.
func (n *node) has(t *testing.T, id string, pod *testutil.NetNS, egress, ingress uint64) {
	t.Helper()
	out, in := n.limits(t, id)
	must.Be(t, id+": egress, ingress", [2]uint64{egress, ingress}, [2]uint64{out, in})
	must.Be(t, id+": a queue", egress > 0, queued(t, pod))
}

var limited = map[string]string{
	"kubernetes.io/egress-bandwidth": "10M", "kubernetes.io/ingress-bandwidth": "20M", "other.io/x": "y",
}

func (n *node) start(t *testing.T, sandboxes ...*api.PodSandbox) *runtime {
	t.Helper()
	r, _ := startRuntime(t, n.socket, sandboxes...)
	connected(t, startPlugin(t, nri.Config{Socket: n.socket, Shaper: n.limiter()}))
	return r
}

func TestPrivilegedPodIsShapedBeforeItsContainersStart(t *testing.T) {
	testutil.RequireQdisc(t, "tbf")
	n := newNode(t)
	r := n.start(t)
	pod := n.pod(t)
	s := sandbox("one", pod.Path(), limited)
	must.Be(t, "the pod is shaped to begin with", false, queued(t, pod))
	must.OK(t, r.run(t, s))
	n.has(t, "one", pod, 10e6, 20e6)
	// The hook comes again if the kubelet retries.
	must.OK(t, r.run(t, s))
	must.OK(t, r.StopPodSandbox(t.Context(), &api.StopPodSandboxRequest{Pod: s}))
	n.has(t, "one", pod, 0, 0)
	must.OK(t, r.RemovePodSandbox(t.Context(), &api.RemovePodSandboxRequest{Pod: s}))
}

func TestPrivilegedPodsThatRanBefore(t *testing.T) {
	n := newNode(t)
	first, second, gone := n.pod(t), n.pod(t), ""
	t.Run("pod", func(t *testing.T) {
		pod := n.pod(t)
		n.shapes(t, podOf("gone", pod, limited))
		gone = pod.Path()
	})
	egress, _ := n.limits(t, "gone")
	must.Be(t, "limit of the pod in "+gone, 10e6, egress)
	n.start(t, sandbox("first", first.Path(), limited), sandbox("plain", second.Path(), nil))
	testutil.Eventually(t, connectTime, "the pod that ran before is shaped", func() bool {
		egress, ingress := n.limits(t, "first")
		return egress == 10e6 && ingress == 20e6 && queued(t, first)
	})
	testutil.Eventually(t, connectTime, "what a pod left that is gone is removed", func() bool {
		egress, _ := n.limits(t, "gone")
		return egress == 0
	})
	must.Be(t, "a pod without limits is shaped", false, queued(t, second))
}

// TestPrivilegedPodsThatChangedSinceTheirCreation: the runtime tells of the annotations
// that a pod was made with. They change nothing of a pod that is shaped, and of one that
// the API server tells of.
func TestPrivilegedPodsThatChangedSinceTheirCreation(t *testing.T) {
	n := newNode(t)
	bad := map[string]string{"kubernetes.io/egress-bandwidth": "fast"}
	now := map[string]string{"kubernetes.io/egress-bandwidth": "20M"}
	first := map[string]*testutil.NetNS{}
	for _, id := range []string{"changed", "known", "corrected", "removed", "wrong", "last"} {
		first[id] = n.pod(t)
	}
	for _, id := range []string{"changed", "known"} {
		n.shapes(t, podOf(id, first[id], limited))
	}
	for _, id := range []string{"changed", "known", "corrected"} {
		n.shapes(t, podOf(id, first[id], now))
	}
	// The limits of these were removed; the API server tells of one more.
	n.claimed = []string{"uid-removed", "uid-wrong", "uid-known"}
	n.start(t, sandbox("changed", first["changed"].Path(), limited), sandbox("known", first["known"].Path(), limited),
		sandbox("corrected", first["corrected"].Path(), bad), sandbox("removed", first["removed"].Path(), limited),
		sandbox("wrong", first["wrong"].Path(), bad), sandbox("last", first["last"].Path(), limited))
	testutil.Eventually(t, connectTime, "the pod without a limit of which nothing is known is shaped", func() bool {
		egress, ingress := n.limits(t, "last")
		return egress == 10e6 && ingress == 20e6
	})
	for id, want := range map[string]uint64{"changed": 20e6, "known": 20e6, "corrected": 20e6, "removed": 0, "wrong": 0} {
		n.has(t, id, first[id], want, 0) // as before
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	must.Len(t, "failures", 0, n.failures(t))
	must.Be(t, "pods that are told of", 0, len(n.unshaped))
}

func TestPrivilegedPodThatCannotBeShaped(t *testing.T) {
	n := newNode(t)
	r := n.start(t)
	pod := n.pod(t)
	bad := sandbox("bad", pod.Path(), map[string]string{"kubernetes.io/egress-bandwidth": "fast"})
	must.OK(t, r.run(t, bad)) // the pod starts
	if failures := n.failures(t); len(failures) != 1 || failures[0].ID.ContainerID != "bad" || !strings.Contains(failures[0].Error, `"fast"`) {
		t.Errorf("Failures() = %v, want one that names the value", failures)
	}
	must.Fail(t, "what is told", n.unshaped["bad"])
	n.entry = closeEntry
	must.Fail(t, "RunPodSandbox with onError closed", r.run(t, bad), `"fast"`)
	must.OK(t, r.StopPodSandbox(t.Context(), &api.StopPodSandboxRequest{Pod: bad}))
	must.Be(t, "failures after the end", 0, len(n.failures(t)))
}

// A pod that ADD shaped under the name of another network is not shaped twice. If its eth0 was made anew, it is shaped again.
func TestPrivilegedPodThatIsShapedAlready(t *testing.T) {
	n := newNode(t)
	pod := n.pod(t)
	n.entry = `{"cniVersion":"1.0.0","name":"other","type":"podweir-cni"}`
	p := podOf("one", pod, limited)
	n.shapes(t, p)
	n.entry = openEntry
	n.shapes(t, p)
	node := must.Get(n.open())(t)
	defer node.Close()
	must.Be(t, "attachments of the pod", 1, len(must.Get(node.List())(t)))
	pod.Run(t, "ip", "link", "del", "eth0")
	testutil.VethPair(t, testutil.End{NetNS: pod, Name: "eth0"}, testutil.End{NetNS: n.NetNS, Name: "anew"})
	must.OK(t, n.limiter().Adopt(t.Context(), p))
	must.Be(t, "the new eth0 has a queue", true, queued(t, pod))
	must.OK(t, n.limiter().Forget(t.Context(), p))
	must.Be(t, "it has one when the pod is forgotten", false, queued(t, pod))
}

// A pod gets what is set on its namespace before its containers start, and its own
// annotations are read as by podweir-cni.
func TestPrivilegedRatesOfTheNamespace(t *testing.T) {
	testutil.RequireQdisc(t, "tbf")
	n := newNode(t)
	shaper := n.limiter()
	var asked []string
	shaper.Rates = func(ctx context.Context, namespace string) netconf.Namespace {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("the pod would wait for ever")
		}
		asked = append(asked, namespace)
		return netconf.Namespace{"podweir.io/max-egress-rate": "5M", "podweir.io/default-ingress-rate": "6M"}
	}
	pod := n.pod(t)
	p := &nri.Pod{ID: "one", Namespace: "team", Name: "x", NetNS: pod.Path(), Annotations: netconf.KeepAnnotations(map[string]string{"podweir.io/egress-rate": "7M"})}
	must.Be(t, "refused", false, must.Get(shaper.Shape(t.Context(), p))(t))
	n.has(t, "one", pod, 5e6, 6e6) // the namespace's maximum and default
	must.OK(t, must.Err(shaper.Shape(t.Context(), &nri.Pod{ID: "host", Namespace: "kube-system"})))
	must.Match(t, "namespaces that were requested: that of the pod with a network of its own", []string{"team"}, asked)
}

// Every interface that leads to the host is limited, not the first one alone: aws-cni
// gives a pod several, and the runtime names none of them here.
func TestPrivilegedAllInterfacesOfThePod(t *testing.T) {
	testutil.RequireQdisc(t, "tbf")
	n := newNode(t)
	pod := n.pod(t)
	testutil.VethPair(t, testutil.End{NetNS: pod, Name: "mNicIf1"}, testutil.End{NetNS: n.NetNS, Name: "second"})
	n.shapes(t, podOf("one", pod, limited))
	for name, queue := range map[string]string{"eth0": "tbf", "mNicIf1": "tbf", "lo": "!tbf"} {
		must.Have(t, name, pod.Run(t, "tc", "qdisc", "show", "dev", name), queue)
	}
}

// Whether a pod starts that cannot be limited is decided as by the CNI verb: who only
// observes refuses none.
func TestPrivilegedObservedPodIsNeverRefused(t *testing.T) {
	n := newNode(t)
	pod := n.pod(t)
	n.paths.Pins = filepath.Join(t.TempDir(), "podweir") // not on bpffs
	for entry, refused := range map[string]bool{
		`"onError":"closed"`:                     true,
		`"onError":"closed","enforce":"observe"`: false,
		`"onError":"open"`:                       false,
		`"cniVersion":"9.9.9"`:                   false,
	} {
		n.entry = strings.TrimSuffix(openEntry, "}") + "," + entry + "}"
		refuse, err := n.limiter().Shape(t.Context(), podOf("one", pod, limited))
		if failures := n.failures(t); refuse != refused || err == nil || (len(failures) == 0) != refused {
			t.Errorf("%s: refuse = %v, %v, records %v, want %v, an error, and a record if the pod starts", entry, refuse, err, failures, refused)
		}
		n.paths.Mail().ClearFailure(attach.ID{ContainerID: "one", IfName: "eth0"})
	}
}
