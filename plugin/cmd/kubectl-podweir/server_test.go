// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/status/cluster"
	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// fakeCluster is an API server with agents behind its proxy.
type fakeCluster struct {
	*httptest.Server

	// desired is how many agents the DaemonSet wants, strays how many it has where it wants
	// none, pods how many each node limits.
	nodes, desired, strays, pods int
	// down are nodes whose agents cannot be reached, stuck those whose agents do not
	// answer, deaf those whose agents do not reach the API server, sick those with a failed
	// check and a pod that is not limited, evicted those that have an ended agent, too.
	down, stuck, deaf, sick, evicted []string
	// change changes the answer of a node.
	change func(*cluster.Answer)
	// observed are nodes whose limits are observed; their first pod sends 25 Mbit/s.
	observed []string
	// grouped are nodes on which egress of team-a has a limit together.
	grouped []string
	// behind are nodes that an upgrade has not reached.
	behind []string
	// forbidden is part of a path that the reader has no right to.
	forbidden string

	mu    sync.Mutex
	looks map[string]int
	// tokens is how many were made; the agents accept the last one only.
	tokens int
	// busy is how many times each agent answers 429 first.
	busy int
	// made are answers that were made beforehand, by node and look; the last is for all
	// later looks.
	made map[string][][]byte
}

func start(tb testing.TB, f *fakeCluster) *fakeCluster {
	tb.Helper()
	f.looks = map[string]int{}
	if f.desired == 0 {
		f.desired = f.nodes
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/namespaces/kube-system/pods", f.list)
	mux.HandleFunc("GET /apis/apps/v1/namespaces/kube-system/daemonsets/podweir", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"status": {"desiredNumberScheduled": %d, "numberMisscheduled": %d}}`, f.desired, f.strays)
	})
	mux.HandleFunc("POST /api/v1/namespaces/kube-system/serviceaccounts/podweir-reader/token", f.makeToken)
	mux.HandleFunc("GET /api/v1/namespaces/kube-system/pods/{pod}/proxy/v1/node", f.agent)
	f.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer me":
			refuse(w, http.StatusUnauthorized, "Unauthorized")
		case f.forbidden != "" && strings.Contains(r.URL.Path, f.forbidden):
			refuse(w, http.StatusForbidden, r.URL.Path+" is forbidden: User \"me\" cannot do that")
		default:
			mux.ServeHTTP(w, r)
		}
	}))
	f.EnableHTTP2 = true
	f.StartTLS()
	tb.Cleanup(f.Close)
	return f
}

func refuse(w http.ResponseWriter, status int, message string) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "message": message})
}

// list has the pods in pages of 200, and one that is none of a DaemonSet.
func (f *fakeCluster) list(w http.ResponseWriter, r *http.Request) {
	first := 0
	_, _ = fmt.Sscan(r.URL.Query().Get("continue"), &first)
	only := strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "spec.nodeName=")
	var items []any
	last := min(first+200, f.nodes)
	for i := first; i < last; i++ {
		node := fmt.Sprintf("n%d", i+1)
		if only != "" && only != node {
			continue
		}
		phase := "Running"
		if slices.Contains(f.evicted, node) {
			phase = "Failed"
			f.evicted, i = nil, i-1
			node += "-ended"
		}
		items = append(items, map[string]any{
			"metadata": map[string]any{"name": "podweir-" + node, "ownerReferences": []any{map[string]any{"kind": "DaemonSet", "name": "podweir"}}},
			"spec": map[string]any{"nodeName": strings.TrimSuffix(node, "-ended"), "containers": []any{map[string]any{"ports": []any{
				map[string]any{"name": "metrics", "containerPort": 9479}, map[string]any{"name": "cluster", "containerPort": 9477},
			}}}},
			"status": map[string]any{"phase": phase},
		})
	}
	items = append(items, map[string]any{"metadata": map[string]any{"name": "podweir-by-hand"}, "spec": map[string]any{"nodeName": "n1"}})
	next := ""
	if last < f.nodes {
		next = fmt.Sprint(last)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"metadata": map[string]any{"continue": next}, "items": items})
}

func (f *fakeCluster) makeToken(w http.ResponseWriter, r *http.Request) {
	var asked struct{ Spec struct{ Audiences []string } }
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || !slices.Equal(asked.Spec.Audiences, []string{"podweir"}) {
		refuse(w, http.StatusBadRequest, fmt.Sprintf("audiences %q, %v", asked.Spec.Audiences, err))
		return
	}
	f.mu.Lock()
	f.tokens++
	token := tokenOf(f.tokens)
	f.mu.Unlock()
	w.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintf(w, `{"status": {"token": %q}}`, token)
}

// tokenOf is the nth token.
func tokenOf(n int) string { return fmt.Sprint("for-podweir-", n) }

// agent answers as an agent does behind the API server's proxy.
func (f *fakeCluster) agent(w http.ResponseWriter, r *http.Request) {
	node, ok := strings.CutPrefix(r.PathValue("pod"), "https:podweir-")
	node, port := strings.TrimSuffix(node, ":9477"), strings.HasSuffix(node, ":9477")
	f.mu.Lock()
	f.looks[node]++
	look, token := f.looks[node], tokenOf(f.tokens)
	f.mu.Unlock()
	switch {
	case !ok || !port:
		refuse(w, http.StatusNotFound, r.URL.Path)
	case slices.Contains(f.down, node):
		refuse(w, http.StatusServiceUnavailable, "error trying to reach service: dial tcp 10.0.0."+node[1:]+":9477: connect: no route to host")
	case slices.Contains(f.stuck, node):
		<-r.Context().Done()
	case slices.Contains(f.deaf, node):
		w.WriteHeader(http.StatusServiceUnavailable)
	case r.Header.Get("Podweir-Token") != token:
		w.WriteHeader(http.StatusForbidden)
	case look <= f.busy:
		w.WriteHeader(http.StatusTooManyRequests)
	default:
		var b []byte
		if made := f.made[node]; made != nil {
			b = made[min(look, len(made))-1]
		} else {
			b = f.encode(node, look)
		}
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(b)
	}
}

// make makes the answers of so many looks: agents do that on processors of their own.
func (f *fakeCluster) make(looks int) {
	f.made = map[string][][]byte{}
	for i := range f.nodes {
		node := fmt.Sprintf("n%d", i+1)
		for look := range looks {
			f.made[node] = append(f.made[node], f.encode(node, look+1))
		}
	}
}

func (f *fakeCluster) encode(node string, look int) []byte {
	var b bytes.Buffer
	gz := gzip.NewWriter(&b)
	_ = json.NewEncoder(gz).Encode(f.answer(node, look))
	_ = gz.Close()
	return b.Bytes()
}

// answer to the nth look. The first pod of a node has a heavy flow that fills its
// limit; looks are 2 s apart by the node's clock.
func (f *fakeCluster) answer(node string, look int) *cluster.Answer {
	state := &view.Status{Schema: view.Schema, Time: time.Date(2026, 11, 24, 3, 0, 2*look, 0, time.UTC)}
	for i := range f.pods {
		p := view.Pod{Pod: fmt.Sprintf("team-a/%s-%d", node, i), State: view.Limited}
		sent := uint64(0)
		if i == 0 {
			sent = uint64(look) * 5_000_000
		}
		for _, d := range terms.Directions {
			l := view.Limit{Interface: "eth0", Limit: terms.Limit{
				Direction: terms.Name(d), Rate: 20e6, Policy: terms.Name(terms.PolicyStrict), Queue: terms.Name(terms.QueueTBF), CapHolds: true,
			}}
			if d == terms.Egress {
				l.Counters = view.Counters{SentBytes: sent, HeavyBytes: sent * 97 / 100, LightBytes: sent * 3 / 100}
				if i == 0 {
					held := 0.9
					l.Reached = terms.Reached{AtLimitSince: time.Date(2026, 11, 23, 14, 2, 31, 0, time.UTC), HeldShare: &held}
					l.HeavyFlows = []terms.Flow{{
						Protocol: 6, Source: netip.MustParseAddrPort("10.0.0.1:4242"), Dest: netip.MustParseAddrPort("10.0.0.9:443"), Bytes: sent * 97 / 100,
					}}
				}
			}
			p.Limits = append(p.Limits, l)
		}
		state.Add(&p)
	}
	rep := &doctor.Report{Schema: doctor.Schema, Version: "0.1.0", Kernel: "6.12.0", Runtime: "containerd://2.1.3", Profile: "cilium", Delivery: "chain"}
	rep.Checks = []doctor.Outcome{{Code: "PW101", Title: "the kernel is new enough", Category: doctor.CategoryNode, Status: doctor.OK}}
	if slices.Contains(f.sick, node) {
		state.Add(&view.Pod{Pod: "team-b/" + node, State: view.NotLimited, Cause: "no memory for the queue", Cure: terms.ByKubectl + " doctor"})
		rep.Checks = append(rep.Checks, doctor.Outcome{
			Code: "PW602", Title: "what is attached is what should be", Category: doctor.CategoryDatapath, Status: doctor.Fail,
			Seen: "a queue is missing", Expected: "the queue", Fix: "podweir repair",
		})
	}
	answer := &cluster.Answer{
		Schema: cluster.Schema, Node: node, Version: "0.1.0", Status: state, Doctor: rep, DoctorTime: time.Now().Add(-time.Minute),
	}
	answer.Unlimited = &cluster.Unlimited{None: map[string]int{"team-a": 2, "team-c": 1}, Pods: []cluster.UnlimitedPod{
		{Pod: "team-c/host-" + node, Cause: "it has hostNetwork"}, {Pod: "team-c/left-" + node, LeftToOthers: true, Cause: "its egress is left to Cilium"},
	}}
	if slices.Contains(f.behind, node) {
		answer.Version, rep.Version = "0.0.9", "0.0.9"
	}
	if slices.Contains(f.grouped, node) {
		state.Groups = []terms.Group{{
			Namespace: "team-a", Direction: terms.Name(terms.Egress), Limit: 200e6, Sent: 199e6, Pods: 2, Largest: "team-a/" + node + "-0", LargestPart: 0.7,
			AtLimitSince: time.Date(2026, 11, 23, 14, 2, 31, 0, time.UTC),
		}}
	}
	if slices.Contains(f.observed, node) {
		observe(state, uint64(look))
	}
	if f.change != nil {
		f.change(answer)
	}
	return answer
}

// observe makes a node of limits one whose limits are observed. The first pod exceeds its
// limit, the second waits, the third did before.
func observe(n *view.Status, look uint64) {
	for i := range n.Pods {
		p := &n.Pods[i]
		if p.State != view.Limited {
			continue
		}
		p.State = view.Observed
		for j := range p.Limits {
			p.Limits[j].Enforce, p.Limits[j].Queue, p.Limits[j].HeavyFlows = terms.Name(terms.EnforceObserve), terms.Name(terms.QueueNone), nil
		}
		switch i {
		case 0:
			p.Limits[0].Counters = view.Counters{SentBytes: look * 6_250_000, WouldWaitBytes: look * 2_500_000, WouldDropBytes: look * 1_250_000}
			p.Notes = []string{"annotation podweir.io/policy: \"fast\" is not accepted"}
		case 1:
			p.Limits[1].Counters = view.Counters{SentBytes: look * 5_000_000, WouldWaitBytes: look * 500_000}
		case 2:
			p.Limits[0].Counters = view.Counters{SentBytes: 1_000_000, WouldDropBytes: 100}
		}
	}
}

// run runs the command against the cluster, with a kubeconfig of its own.
func (f *fakeCluster) run(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	var b bytes.Buffer
	root := newRoot()
	root.SetOut(&b)
	root.SetErr(&b)
	root.SetArgs(append([]string{"--kubeconfig", f.kubeconfig(t)}, args...))
	err = root.ExecuteContext(t.Context())
	return b.String(), err
}

func (f *fakeCluster) kubeconfig(tb testing.TB) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "t", "clusters": [{"name": "t", "cluster": {"server": %q, "insecure-skip-tls-verify": true}}],
"users": [{"name": "t", "user": {"token": "me"}}, {"name": "login", "user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "command": "sh",
	"args": ["-c", %q]}}}],
"contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}, {"name": "login", "context": {"cluster": "t", "user": "login"}}, {"name": "old", "context": {"cluster": "gone", "user": "t"}}]}`,
		f.URL, `sleep 1.5; echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "me"}}'`)
	must.OK(tb, os.WriteFile(path, []byte(text), 0o600))
	return path
}
