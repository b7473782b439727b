// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/plugin/agent/kube/apitest"
	"github.com/podweir/podweir/tools/perfrig/stats"
)

const (
	// podsNamespace and nodeName are what the API server of the tests tells.
	podsNamespace = "default"
	nodeName      = "node"
	// manifestBytes is the weight of a pod's manifest, most of which the agent
	// does not keep.
	manifestBytes = 25_000
	// agentReady is how long the agent may take to look at all pods.
	agentReady = 60 * time.Second
	// agentReads of its memory, agentPause apart: garbage collection comes and
	// goes. There is a scrape before every tenth, in 2.5 s; with one before each
	// the agent had 3 MiB more beside 110 pods, which no Prometheus asks for.
	agentReads  = 20
	agentPause  = 250 * time.Millisecond
	agentScrape = 10
)

// agentMemory starts podweir's agent beside pods that are shaped, with an API
// server and a container runtime that know them, waits until it has looked at
// all of them, and records its anonymous resident set.
func (r *run) agentMemory(ctx context.Context, l *lab.Lab, conflist string, pods []*lab.Pod) (err error) {
	if err := aloneHere(ctx, l); err != nil {
		return err
	}
	var api *apitest.Server
	// In the namespace of the node, as the agent is.
	if err := l.Node().Do(func() error { api = apitest.New(); return nil }); err != nil {
		return err
	}
	defer func() { api.CloseClientConnections(); api.Close() }()
	for _, p := range pods {
		api.Put(r.manifest(p))
	}
	n := &nodeFiles{root: filepath.Join(l.Dir(), "root"), plugins: r.opts.PluginDirs}
	if err := n.write(conflist, api); err != nil {
		return err
	}
	stop, err := serveRuntime(n.root, pods)
	if err != nil {
		return err
	}
	defer stop()
	a, err := r.startAgent(ctx, l, n)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.stop()) }()
	if err := a.looked(ctx, len(pods)); err != nil {
		return err
	}
	var bytesOf []float64
	for n := range agentReads {
		if n%agentScrape == 0 {
			if _, err := a.scrape(ctx); err != nil {
				return err
			}
		}
		if err := sleep(ctx, agentPause); err != nil {
			return err
		}
		anonymous, err := a.anonymous()
		if err != nil {
			return err
		}
		bytesOf = append(bytesOf, float64(anonymous))
	}
	s := stats.Summarise(bytesOf)
	r.set("agent_rss_p50_bytes", s.Median)
	r.set("agent_rss_max_bytes", s.Max)
	return nil
}

// aloneHere waits until no other lab has attachments: an agent looks after all
// that are pinned.
func aloneHere(ctx context.Context, l *lab.Lab) error {
	var other string
	for end := time.Now().Add(agentReady); time.Now().Before(end); {
		rep, err := nodeStatus(l)
		if err != nil {
			return err
		}
		other = ""
		for i := range rep.Attachments {
			if id := rep.Attachments[i].ID.ContainerID; !ofLab(l, id) {
				other = id
			}
		}
		if other == "" {
			return nil
		}
		if err := sleep(ctx, agentPause); err != nil {
			return err
		}
	}
	return fmt.Errorf("container %s, which is none of this lab's, is shaped on this machine: the agent would look after it", other)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (r *run) manifest(p *lab.Pod) apitest.Pod {
	rate := strconv.FormatUint(r.cell.Rate, 10)
	return apitest.Pod{
		Namespace: podsNamespace, Name: p.Name, UID: "uid-" + p.Name, Node: nodeName, PodIP: p.V4.String(),
		Annotations: map[string]string{
			"kubernetes.io/egress-bandwidth": rate, "kubernetes.io/ingress-bandwidth": rate,
		},
		Fat: manifestBytes,
	}
}

// nodeFiles is a root directory with what the agent reads of a node.
type nodeFiles struct {
	root    string
	plugins []string
}

func (n *nodeFiles) path(name string) string { return filepath.Join(n.root, name) }

func (n *nodeFiles) write(conflist string, api *apitest.Server) error {
	for _, dir := range []string{"etc/cni/net.d", "opt/cni/bin", "run/containerd"} {
		if err := os.MkdirAll(n.path(dir), 0o755); err != nil {
			return err
		}
	}
	raw, err := plainConflist(conflist)
	if err != nil {
		return err
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})
	config := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "lab",
"clusters": [{"name": "lab", "cluster": {"server": %q, "certificate-authority": %q}}],
"users": [{"name": "lab", "user": {"token": %q}}],
"contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}]}`, api.URL, n.path("ca.crt"), apitest.Token)
	return errors.Join(
		os.WriteFile(n.path("etc/cni/net.d/10-lab.conflist"), raw, 0o600),
		os.WriteFile(n.path("ca.crt"), ca, 0o600),
		os.WriteFile(n.path("kubeconfig"), []byte(config), 0o600),
	)
}

// plainConflist is a conflist without what stands behind the first plugin: the
// agent puts podweir there.
func plainConflist(file string) ([]byte, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var list map[string]any
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	plugins, ok := list["plugins"].([]any)
	if !ok || len(plugins) == 0 {
		return nil, fmt.Errorf("%s has no plugins", file)
	}
	list["plugins"] = plugins[:1]
	return json.Marshal(list)
}

// sandboxes is a container runtime as far as the agent asks one.
type sandboxes struct {
	runtime.UnimplementedRuntimeServiceServer
	all []*runtime.PodSandbox
}

// ListPodSandbox tells all of them.
func (s *sandboxes) ListPodSandbox(context.Context, *runtime.ListPodSandboxRequest) (*runtime.ListPodSandboxResponse, error) {
	return &runtime.ListPodSandboxResponse{Items: s.all}, nil
}

// Version says who it is.
func (*sandboxes) Version(context.Context, *runtime.VersionRequest) (*runtime.VersionResponse, error) {
	return &runtime.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "2.1.3"}, nil
}

// serveRuntime listens where containerd does.
func serveRuntime(root string, pods []*lab.Pod) (stop func(), err error) {
	s := &sandboxes{}
	for _, p := range pods {
		s.all = append(s.all, &runtime.PodSandbox{
			Id: p.ContainerID, State: runtime.PodSandboxState_SANDBOX_READY,
			Metadata: &runtime.PodSandboxMetadata{Namespace: podsNamespace, Name: p.Name, Uid: "uid-" + p.Name},
			Labels:   map[string]string{"io.kubernetes.pod.uid": "uid-" + p.Name},
		})
	}
	at, err := net.Listen("unix", filepath.Join(root, "run/containerd/containerd.sock"))
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	runtime.RegisterRuntimeServiceServer(server, s)
	go func() { _ = server.Serve(at) }() // it ends with Stop
	return server.Stop, nil
}

// agentProcess is podweir's agent.
type agentProcess struct {
	cmd  *exec.Cmd
	log  bytes.Buffer
	node *lab.Netns
	http *http.Client
}

// agentAddress is in the namespace of the node.
const agentAddress = "127.0.0.1:9479"

func (r *run) startAgent(ctx context.Context, l *lab.Lab, n *nodeFiles) (*agentProcess, error) {
	bin, err := r.plugin("podweir")
	if err != nil {
		return nil, err
	}
	a := &agentProcess{node: l.Node()}
	a.cmd = exec.CommandContext(ctx, bin, "agent", "--root", n.root, "--node-name", nodeName,
		"--kubeconfig", n.path("kubeconfig"), "--address", agentAddress)
	a.cmd.Stdout, a.cmd.Stderr = &a.log, &a.log
	a.cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	// A connection belongs to the namespace that its socket was made in.
	a.http = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (conn net.Conn, err error) {
			err = a.node.Do(func() error {
				conn, err = (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", agentAddress)
				return err
			})
			return conn, err
		},
	}}
	return a, a.node.Do(a.cmd.Start)
}

// stop ends the agent as kubelet does; what is shaped stays shaped.
func (a *agentProcess) stop() error {
	if err := a.cmd.Process.Signal(unix.SIGTERM); err != nil {
		return err
	}
	if err := a.cmd.Wait(); err != nil {
		return fmt.Errorf("podweir agent: %w: %s", err, a.lastWords())
	}
	return nil
}

func (a *agentProcess) lastWords() []byte {
	const most = 2000
	return a.log.Bytes()[max(0, a.log.Len()-most):]
}

// looked waits until the agent has looked at so many pods and all are shaped.
func (a *agentProcess) looked(ctx context.Context, pods int) error {
	var looks, shaped float64
	for end := time.Now().Add(agentReady); time.Now().Before(end); {
		page, err := a.scrape(ctx)
		if err == nil {
			looks = sumOfSeries(page, "podweir_reconcile_duration_seconds_count")
			shaped = sumOfSeries(page, "podweir_shaped_pods")
		}
		if looks >= float64(pods) && shaped == float64(pods) {
			return nil
		}
		if err := sleep(ctx, agentPause); err != nil {
			return err
		}
	}
	return fmt.Errorf("after %v the agent has looked %.0f times and shapes %.0f of %d pods: %s",
		agentReady, looks, shaped, pods, a.lastWords())
}

// sumOfSeries adds up all series of a metric in a page for Prometheus.
func sumOfSeries(page []byte, name string) float64 {
	sum := 0.0
	for line := range strings.Lines(string(page)) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if metric, _, _ := strings.Cut(series, "{"); metric != name {
			continue
		}
		// Values have no spaces, labels may.
		if i := strings.LastIndexByte(value, ' '); i >= 0 {
			value = value[i+1:]
		}
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			sum += v
		}
	}
	return sum
}

func (a *agentProcess) scrape(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+agentAddress+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	res, err := a.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	return io.ReadAll(res.Body)
}

// anonymous is the agent's anonymous resident set, in bytes.
func (a *agentProcess) anonymous() (int64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	return statusField(string(raw), "RssAnon")
}

// statusField is a field of /proc/PID/status, in bytes.
func statusField(text, name string) (int64, error) {
	scan := bufio.NewScanner(strings.NewReader(text))
	for scan.Scan() {
		key, value, ok := strings.Cut(scan.Text(), ":")
		if !ok || key != name {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		return kib << 10, nil
	}
	return 0, fmt.Errorf("no %s in the status of the process", name)
}
