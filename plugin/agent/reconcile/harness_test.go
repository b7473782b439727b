// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/podweir/podweir/plugin/agent/cri"
	"github.com/podweir/podweir/plugin/agent/kube"
	"github.com/podweir/podweir/plugin/agent/kube/apitest"
	"github.com/podweir/podweir/plugin/agent/reconcile"
	"github.com/podweir/podweir/plugin/cni"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/logged"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

var _ = mark.EveryTest(mark.NightlyKernels, "hardly anything in the package depends on the kernel")

const (
	egress  = "kubernetes.io/egress-bandwidth"
	ingress = "kubernetes.io/ingress-bandwidth"
	// soon is how long a test waits for what comes within a second on a
	// machine that has nothing else to do.
	soon = 30 * time.Second
)

// both is a pair of annotations.
func both(out, in string) map[string]string { return map[string]string{egress: out, ingress: in} }

// node is a network namespace that plays a node, with an API server and the
// sandboxes of a container runtime.
type node struct {
	*testutil.NetNS
	api     *apitest.Server
	paths   engine.Paths
	dir     string
	log     *logged.Log
	sandbox *sandboxes
	pods    int
	// overdue is [reconcile.Config]'s.
	overdue time.Duration
	// namespaces is the time between two looks at a Namespace, 0 for none.
	namespaces time.Duration

	mu sync.Mutex
	// conf is the entry of podweir-cni in the conflist.
	conf map[string]any
}

// probed is what the kernel was found to have, for all tests.
var probed struct {
	sync.Mutex
	features []byte
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{
		NetNS: testutil.NewNetNS(t), api: apitest.New(), dir: t.TempDir(), log: &logged.Log{}, sandbox: newSandboxes(),
		paths: engine.Paths{Pins: filepath.Join(testutil.BPFFS(t), "podweir"), Run: t.TempDir()},
		conf:  map[string]any{"cniVersion": "1.1.0", "name": "net", "type": "podweir-cni"},
	}
	t.Cleanup(n.api.Close)
	t.Cleanup(n.api.CloseClientConnections)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(n.log.String())
		}
	})
	n.write(t, "token", apitest.Token)
	n.write(t, "ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: n.api.Certificate().Raw})))
	cache := filepath.Join(n.paths.Run, "features.json")
	probed.Lock()
	defer probed.Unlock()
	if probed.features != nil {
		must.OK(t, os.WriteFile(cache, probed.features, 0o600))
		return n
	}
	p := n.newPod(t)
	p.api.Annotations = both("10M", "10M")
	must.OK(t, errors.Join(p.call(t, "ADD"), p.call(t, "DEL")))
	probed.features = must.Get(os.ReadFile(cache))(t)
	return n
}

// withoutTCX makes the node one whose kernel lacks TCX.
func (n *node) withoutTCX(t *testing.T) {
	t.Helper()
	testutil.Probed(t, n.paths.Run, map[string]any{"tcx": false})
}

func (n *node) write(t *testing.T, name, text string) {
	t.Helper()
	must.OK(t, os.WriteFile(filepath.Join(n.dir, name), []byte(text), 0o600))
}

func (n *node) open(t *testing.T) *engine.Node {
	t.Helper()
	var open *engine.Node
	must.OK(t, n.Do(func() (err error) { open, err = engine.Open(n.paths); return err }))
	return open
}

// configure sets a key of podweir-cni's entry in the conflist.
func (n *node) configure(key string, value any) {
	n.mu.Lock()
	n.conf[key] = value
	n.mu.Unlock()
}

func (n *node) netconf() (json.RawMessage, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return json.Marshal(n.conf)
}

// pod is a pod that runs.
type pod struct {
	node      *node
	ns        *testutil.NetNS
	dev, host hostif.Interface
	api       apitest.Pod
	container string
	// addr and gateway are the addresses of the two ends.
	addr, gateway string
}

// newPod makes the network of a pod, and its sandbox, as a runtime does without
// podweir. The API server does not know it yet.
func (n *node) newPod(t *testing.T) *pod {
	t.Helper()
	n.pods++
	p := &pod{
		node: n, ns: testutil.NewNetNS(t), container: fmt.Sprintf("sandbox-%d", n.pods),
		addr: fmt.Sprintf("10.79.%d.2", n.pods), gateway: fmt.Sprintf("10.79.%d.1", n.pods),
	}
	p.dev, p.host = testutil.VethPair(t,
		testutil.End{NetNS: p.ns, Name: "eth0", CIDRs: []string{p.addr + "/24"}},
		testutil.End{NetNS: n.NetNS, Name: fmt.Sprintf("veth%d", n.pods), CIDRs: []string{p.gateway + "/24"}})
	p.api = apitest.Pod{
		Namespace: "default", Name: fmt.Sprintf("pod-%d", n.pods), UID: fmt.Sprintf("uid-%d", n.pods), Node: "n1",
		PodIP: p.addr, Fat: 30000,
	}
	n.sandbox.set(p.api.UID, cri.Sandbox{ID: p.container, NetNSPath: p.ns.Path(), Interfaces: []string{"eth0"}})
	return p
}

// annotate gives the pod annotations, in the API.
func (p *pod) annotate(annotations map[string]string) {
	p.api.Annotations = annotations
	p.node.api.Put(p.api)
}

// call runs a verb of podweir-cni for the pod with the annotations that it has.
func (p *pod) call(t *testing.T, verb string) error {
	t.Helper()
	return p.callFor(t, verb, "net", "eth0")
}

// callFor is [pod.call] for an interface of a network.
func (p *pod) callFor(t *testing.T, verb, network, ifName string) error {
	t.Helper()
	p.node.mu.Lock()
	defer p.node.mu.Unlock()
	conf := map[string]any{"onError": "closed"}
	maps.Copy(conf, p.node.conf)
	conf["name"] = network
	conf["runtimeConfig"] = map[string]any{"io.kubernetes.cri.pod-annotations": p.api.Annotations}
	conf["prevResult"] = map[string]any{
		"cniVersion": "1.1.0", "interfaces": []any{map[string]any{"name": ifName, "sandbox": p.ns.Path()}},
	}
	stdin := must.Get(json.Marshal(conf))(t)
	plugin := cni.Plugin{Stdout: &bytes.Buffer{}, Stderr: p.node.log, Paths: p.node.paths}
	args := &skel.CmdArgs{
		ContainerID: p.container, Netns: p.ns.Path(), IfName: ifName, StdinData: stdin,
		Args: "K8S_POD_NAMESPACE=" + p.api.Namespace + ";K8S_POD_NAME=" + p.api.Name,
	}
	f := plugin.Funcs()
	verbs := map[string]func(*skel.CmdArgs) error{"ADD": f.Add, "DEL": f.Del, "CHECK": f.Check}
	return p.node.Do(func() error { return verbs[verb](args) })
}

// sandboxes stand for the container runtime.
type sandboxes struct {
	mu   sync.Mutex
	pods map[string]cri.Sandbox
	err  error
}

func newSandboxes() *sandboxes { return &sandboxes{pods: make(map[string]cri.Sandbox)} }

func (s *sandboxes) set(uid string, sandbox cri.Sandbox) {
	s.mu.Lock()
	s.pods[uid] = sandbox
	s.mu.Unlock()
}

func (s *sandboxes) drop(uid string) {
	s.mu.Lock()
	delete(s.pods, uid)
	s.mu.Unlock()
}

func (s *sandboxes) fail(err error) {
	s.mu.Lock()
	s.err = err
	s.mu.Unlock()
}

// Find implements reconcile.Sandboxes.
func (s *sandboxes) Find(_ context.Context, uid string) (cri.Sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return cri.Sandbox{}, s.err
	}
	found, ok := s.pods[uid]
	switch {
	case !ok:
		return cri.Sandbox{}, cri.ErrNoSandbox
	case found.NetNSPath == "":
		return cri.Sandbox{}, fmt.Errorf("%w: %w", cri.ErrNoSandbox, cri.ErrEnded)
	}
	return found, nil
}

// Knows implements reconcile.Sandboxes.
func (s *sandboxes) Knows(_ context.Context, id string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sandbox := range s.pods {
		if sandbox.ID == id {
			return true, s.err
		}
	}
	return false, s.err
}

// Runs implements reconcile.Sandboxes.
func (s *sandboxes) Runs(_ context.Context, id string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sandbox := range s.pods {
		if sandbox.ID == id && sandbox.NetNSPath != "" {
			return true, s.err
		}
	}
	return false, s.err
}

// agent is a reconciler that runs.
type agent struct {
	*reconcile.Reconciler
	node *node
	pods *kube.Watch
	stop func()
}

// start runs a reconciler until stop, or the end of the test.
func (n *node) start(t *testing.T, pass time.Duration) *agent {
	t.Helper()
	client := must.Get(kube.NewClient(&kube.Config{
		Server: n.api.URL, Token: func() (string, error) { return apitest.Token, nil },
		CA: func() ([]byte, error) { return os.ReadFile(filepath.Join(n.dir, "ca.crt")) },
	}))(t)
	log := slog.New(slog.NewTextHandler(n.log, nil))
	recorder := kube.NewRecorder(client, "n1", terms.OnPath, log)
	pods := kube.NewWatch(client, "n1", log)
	var namespaces *kube.Namespaces
	if n.namespaces != 0 {
		namespaces = kube.NewNamespaces(client, pods, n.namespaces, log)
	}
	a := &agent{node: n, pods: pods, Reconciler: reconcile.New(reconcile.Config{
		Namespaces: namespaces,
		Pods:       pods, Sandboxes: n.sandbox, Events: recorder, NetConf: n.netconf,
		Paths: n.paths, Pass: pass, Log: log, Overdue: n.overdue,
	})}
	tell := testutil.During(t, recorder.Run)
	run := testutil.During(t, func(ctx context.Context) error { return n.Do(func() error { return a.Run(ctx) }) })
	a.stop = func() { run(); tell() }
	return a
}

// state is what the reconciler knows of a pod.
func (a *agent) state(p *pod) reconcile.PodState {
	for _, s := range a.Snapshot() {
		if s.Name == p.api.Name {
			return s
		}
	}
	return reconcile.PodState{}
}

// becomes waits for a pod's outcome.
func (a *agent) becomes(t *testing.T, p *pod, o reconcile.Outcome) reconcile.PodState {
	t.Helper()
	testutil.Eventually(t, soon, fmt.Sprintf("pod is %v", o), func() bool { return a.state(p).Outcome == o })
	return a.state(p)
}

// has waits until a pod has what it asks for, in so many limits.
func (a *agent) has(t *testing.T, p *pod, limits int) reconcile.PodState {
	t.Helper()
	testutil.Eventually(t, soon, fmt.Sprintf("pod has %d limits", limits), func() bool {
		s := a.state(p)
		return s.Outcome.Enforced() && len(s.Limits) == limits
	})
	return a.state(p)
}

// rate of the tbf on a device, by tc(8), empty if there is none.
func rate(t *testing.T, ns *testutil.NetNS, dev string) string {
	t.Helper()
	found := regexp.MustCompile(`qdisc tbf .* rate (\S+)`).FindStringSubmatch(ns.Run(t, "tc", "qdisc", "show", "dev", dev))
	if found == nil {
		return ""
	}
	return found[1]
}

// gets waits until both directions of the pod have a tbf of this rate on both
// ends of its veth.
func (p *pod) gets(t *testing.T, out, in string) {
	t.Helper()
	testutil.Eventually(t, soon, fmt.Sprintf("egress %q and ingress %q", out, in), func() bool {
		return rate(t, p.ns, "eth0") == out && rate(t, p.node.NetNS, p.host.Name) == in
	})
}

// attachment is what status tells of the pod.
func (p *pod) attachment(t *testing.T) *status.Attachment {
	t.Helper()
	open := p.node.open(t)
	defer open.Close()
	rep := must.Get(status.Collect(open))(t)
	for i := range rep.Attachments {
		if rep.Attachments[i].Pod == p.api.Namespace+"/"+p.api.Name {
			return &rep.Attachments[i]
		}
	}
	return nil
}

// unlimited fails the test if status tells of a limit of the pod.
func (p *pod) unlimited(t *testing.T, when string) {
	t.Helper()
	if att := p.attachment(t); att != nil {
		t.Errorf("%s there is %+v", when, att)
	}
}

// refuse has no queue of podweir's fit on the pod's device and, on a node without TCX, no policing
// either: another party has both places. accept ends that.
func (p *pod) refuse(t *testing.T) {
	t.Helper()
	p.ns.Run(t, "tc", "qdisc", "add", "dev", "eth0", "root", "handle", "7:", "htb")
	p.ns.Run(t, "tc", "qdisc", "add", "dev", "eth0", "clsact")
	p.ns.Run(t, "tc", "filter", "add", "dev", "eth0", "egress", "bpf", "bytecode", "1,6 0 0 0,")
}

func (p *pod) accept(t *testing.T) {
	t.Helper()
	p.ns.Run(t, "tc", "qdisc", "del", "dev", "eth0", "clsact")
	p.ns.Run(t, "tc", "qdisc", "del", "dev", "eth0", "root")
}

// programs tells the ids of filters and the handles of queues on both ends.
func (p *pod) programs(t *testing.T) string {
	t.Helper()
	ids := regexp.MustCompile(`\bid \d+|qdisc \w+ [0-9a-f]+:`)
	out := p.ns.Run(t, "tc", "filter", "show", "dev", "eth0", "egress") + p.ns.Run(t, "tc", "qdisc", "show", "dev", "eth0") +
		p.node.Run(t, "tc", "qdisc", "show", "dev", p.host.Name)
	return strings.Join(ids.FindAllString(out, -1), " ")
}

// event waits for an Event of the pod with this reason.
func (p *pod) event(t *testing.T, reason string) apitest.Event {
	t.Helper()
	var found apitest.Event
	testutil.Eventually(t, soon, "event "+reason, func() bool {
		for _, e := range p.node.api.Events() {
			if e.Reason == reason && e.InvolvedObject.UID == p.api.UID {
				found = e
				return true
			}
		}
		return false
	})
	return found
}

// told waits for an Event with this reason, of which the message has these parts.
func (p *pod) told(t *testing.T, reason string, parts ...string) {
	t.Helper()
	must.Have(t, "the event "+reason, p.event(t, reason).Message, parts...)
}

// limits looks at once for a tbf of these rates on both ends of the pod's veth.
func (p *pod) limits(t *testing.T, what, out, in string) {
	t.Helper()
	if o, i := rate(t, p.ns, "eth0"), rate(t, p.node.NetNS, p.host.Name); o != out || i != in {
		t.Errorf("%s the limits are %q and %q, want %q and %q", what, o, i, out, in)
	}
}

var errAway = errors.New("the runtime is away")
