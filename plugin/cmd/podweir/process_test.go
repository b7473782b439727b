// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/agent/cri/critest"
	"github.com/podweir/podweir/plugin/agent/kube/apitest"
	"github.com/podweir/podweir/plugin/agent/serve"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/logged"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// With envCommand set, the test binary is the command podweir: a process whose memory
// is its own.
const envCommand = "PODWEIR_TEST_COMMAND"

func TestMain(m *testing.M) {
	// Beside much else an answer of a test's own server took more than two seconds.
	patience = 20
	switch {
	case os.Getenv(envCommand) != "":
		main()
		return
	}
	m.Run()
}

// testNode is a network namespace that plays a node, with an API server, a container
// runtime and the files that the agent reads.
type testNode struct {
	*testutil.NetNS

	root, pins, run string
	api             *apitest.Server
	runtime         *critest.Runtime
	// stop ends the runtime.
	stop func()
	// plugin is what the agent installs as podweir-cni.
	plugin string
}

func newTestNode(t *testing.T) *testNode {
	t.Helper()
	return newTestNodeIn(t, testutil.NewNetNS(t), filepath.Join(testutil.BPFFS(t), "podweir"), t.TempDir())
}

// newTestNodeIn is newTestNode in a namespace that is there, with podweir's directories.
func newTestNodeIn(t *testing.T, ns *testutil.NetNS, pins, run string) *testNode {
	t.Helper()
	n := &testNode{NetNS: ns, root: t.TempDir(), run: run, pins: pins, runtime: &critest.Runtime{}, plugin: "#!/bin/sh\n"}
	must.OK(t, n.Do(func() error { n.api = apitest.New(); return nil }))
	t.Cleanup(n.api.Close)
	t.Cleanup(n.api.CloseClientConnections)
	for _, dir := range []string{"etc/cni/net.d", "opt/cni/bin", "run/containerd"} {
		must.OK(t, os.MkdirAll(filepath.Join(n.root, dir), 0o755))
	}
	n.write(t, "etc/cni/net.d/10-net.conflist", `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"ptp"}]}`)
	n.write(t, "ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: n.api.Certificate().Raw})))
	n.write(t, "token", apitest.Token)
	n.stop = must.Get(n.runtime.Serve(filepath.Join(n.root, "run/containerd/containerd.sock")))(t)
	t.Cleanup(n.stop)
	return n
}

// commands runs commands on the node.
func (n *testNode) commands(t *testing.T) *cli {
	t.Helper()
	makePins(t, n.pins)
	return &cli{node: n.NetNS, pins: n.pins, run: n.run}
}

func (n *testNode) write(t *testing.T, name, text string) {
	t.Helper()
	must.OK(t, os.WriteFile(filepath.Join(n.root, name), []byte(text), 0o600))
}

// pod makes a pod that runs without a limit yet, known to the API server and to the
// runtime, and returns its namespace.
func (n *testNode) pod(t *testing.T, i int, annotations map[string]string) *testutil.NetNS {
	t.Helper()
	ns := testutil.NewNetNS(t)
	testutil.VethPair(t, testutil.End{NetNS: ns, Name: "eth0"}, testutil.End{NetNS: n.NetNS, Name: fmt.Sprintf("veth%d", i)})
	err := n.runtime.Add(critest.Sandbox{ID: fmt.Sprintf("sandbox-%d", i), UID: fmt.Sprintf("uid-%d", i), Namespace: "default", Name: fmt.Sprintf("pod-%d", i), NetNS: ns.Path(), Annotations: annotations})
	must.OK(t, err)
	n.api.Put(n.podOf(i, annotations))
	return ns
}

// podOf is a pod as the API server knows it.
func (n *testNode) podOf(i int, annotations map[string]string) apitest.Pod {
	return apitest.Pod{
		Namespace: "default", Name: fmt.Sprintf("pod-%d", i), UID: fmt.Sprintf("uid-%d", i), Node: "node", PodIP: "10.0.0.2",
		Annotations: annotations, Fat: 20_000,
	}
}

// Where the agent of a test serves, in the namespace of its node.
const (
	testMetrics = ":9479"
	testHealth  = "127.0.0.1:9478"
	testCluster = ":9477"
)

// agentProcess is an agent that runs, with its log.
type agentProcess struct {
	cmd  *exec.Cmd
	node *testNode
	once sync.Once

	logged.Log

	// most is the highest anonymous resident set that was seen, in bytes.
	most int
}

// end ends the agent as the kubelet does, once.
func (a *agentProcess) end() {
	a.once.Do(func() {
		_ = a.cmd.Process.Signal(unix.SIGTERM)
		_ = a.cmd.Wait()
	})
}

// outcomes is how often the log tells of an outcome as news.
func (a *agentProcess) outcomes(name string) (n int) {
	for line := range strings.Lines(a.String()) {
		if strings.Contains(line, `"level":"INFO"`) && strings.Contains(line, fmt.Sprintf(`"outcome":%q`, name)) {
			n++
		}
	}
	return n
}

// script is a program of this text, in the form of [testNode.startAs].
func script(t *testing.T, text string) []string {
	t.Helper()
	return []string{filepath.Join(must.Files(t, t.TempDir(), map[string]string{"agent": text}), "agent")}
}

// start runs the agent until the test ends.
func (n *testNode) start(t *testing.T) *agentProcess {
	t.Helper()
	return n.startAs(t, nil)
}

// startAs is start by way of another command.
func (n *testNode) startAs(t *testing.T, by []string) *agentProcess {
	t.Helper()
	a := &agentProcess{node: n}
	plugin := filepath.Join(must.Files(t, n.root, map[string]string{"podweir-cni": n.plugin}), "podweir-cni")
	argv := append(slices.Clip(by), os.Args[0],
		"agent", "--root", n.root, "--pins", n.pins, "--run", n.run, "--node-name", "node", "--credentials", n.root,
		"--address", testMetrics, "--health-address", testHealth,
		"--cluster-address", testCluster, "--cluster-reader", "kube-system/podweir-reader", "--binary", plugin, "--log-level", "info", "--doctor-interval", "0")
	a.cmd = exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	host, port, _ := strings.Cut(strings.TrimPrefix(n.api.URL, "https://"), ":")
	a.cmd.Env = append(os.Environ(), envCommand+"=1", "KUBERNETES_SERVICE_HOST="+host, "KUBERNETES_SERVICE_PORT="+port)
	a.cmd.Stdout, a.cmd.Stderr = a, a
	a.cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	a.cmd.Cancel = func() error { return a.cmd.Process.Signal(unix.SIGTERM) }
	a.cmd.WaitDelay = 20 * time.Second
	must.OK(t, n.Do(a.cmd.Start))
	t.Cleanup(func() {
		a.end()
		t.Logf("memory: at most %.1f MiB of RssAnon; %d lines of log", float64(a.most)/(1<<20), strings.Count(a.String(), "\n"))
		if t.Failed() {
			const last = 4000
			log := a.String()
			t.Logf("the agent's log ends with\n%s", log[max(0, len(log)-last):])
		}
	})
	return a
}

var anonymous = regexp.MustCompile(`(?m)^RssAnon:\s+(\d+) kB$`)

// memory is the agent's anonymous resident set in bytes. The most counts from its first line of log on: a moment
// after it was started it may still have the test's own.
func (a *agentProcess) memory(t *testing.T) int {
	t.Helper()
	b := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/status", a.cmd.Process.Pid)))(t)
	m := anonymous.FindSubmatch(b)
	if m == nil {
		t.Fatal("no RssAnon: the agent has ended")
	}
	kib := must.Get(strconv.Atoi(string(m[1])))(t)
	if a.String() != "" {
		a.most = max(a.most, kib<<10)
	}
	return kib << 10
}

// get asks the agent once, over a connection of its own.
func (a *agentProcess) get(ctx context.Context, address, path string) (status int, body string, err error) {
	return a.getAs(ctx, "http://"+address+path, "")
}

// getAs is get with a token for the state of the node.
func (a *agentProcess) getAs(ctx context.Context, url, token string) (status int, body string, err error) {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // as the API server does
		DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
			err = a.node.Do(func() error { conn, err = (&net.Dialer{}).DialContext(ctx, network, address); return err })
			return conn, err
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	req.Header.Set(serve.TokenHeader, token)
	res, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, string(b), errors.Join(err, res.Body.Close())
}

// samplePause is the time between two samples of the agent's memory.
const samplePause = 20 * time.Millisecond

// until samples the agent's memory until ok or the deadline.
func (a *agentProcess) until(t *testing.T, deadline time.Duration, what string, ok func() (bool, string)) {
	t.Helper()
	last := ""
	for end := time.Now().Add(deadline); time.Now().Before(end); <-time.After(samplePause) {
		a.memory(t)
		var is bool
		if is, last = ok(); is {
			return
		}
	}
	t.Fatalf("not within %v: %s: %s", deadline, what, last)
}

// sample samples the agent's memory for a time.
func (a *agentProcess) sample(t *testing.T, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); <-time.After(samplePause) {
		a.memory(t)
	}
}

// ready asks /readyz.
func (a *agentProcess) ready(ctx context.Context) (bool, string) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	status, body, err := a.get(ctx, testHealth, "/readyz")
	if err != nil {
		return false, err.Error()
	}
	return status == http.StatusOK, strings.TrimSpace(body)
}
