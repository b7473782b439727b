// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/k8s/clustertest"
	"github.com/podweir/podweir/e2e/k8s/snapshot"
	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// suite is the cluster of all scenarios.
var suite = &clustertest.Suite{Start: start}

func TestMain(m *testing.M) { suite.Main(m) }

// start starts a cluster with ptp as its primary CNI.
func start(ctx context.Context, dir string) (*cluster.Cluster, error) {
	o, err := cluster.Prepare(ctx, ".", dir, "", "n1", "n2")
	if err != nil {
		return nil, err
	}
	return cluster.Start(ctx, o)
}

func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return clustertest.Kubectl(t, suite.Cluster, args...)
}

func eventually(t *testing.T, limit time.Duration, what string, try func(context.Context) error) {
	t.Helper()
	clustertest.Eventually(t, limit, what, try)
}

// take is what a node is made of.
func take(t *testing.T, n *cluster.Node) snapshot.Snapshot {
	t.Helper()
	s, err := snapshot.Take(t.Context(), n)
	must.OK(t, err)
	return s
}

// unchanged compares a node with what it was before.
func unchanged(t *testing.T, n *cluster.Node, before snapshot.Snapshot) {
	t.Helper()
	for _, d := range snapshot.Compare(before, take(t, n), nil) {
		t.Errorf("%s: after the uninstall %s", n.Name, d)
	}
	t.Logf("lines of %s compared: %d", n.Name, len(before))
}

// measured is how long a load runs.
const measured = 4 * time.Second

// traffic is what passed a pod.
type traffic struct {
	workload.Traffic
	// again loads the pod once more; nil where something happened meanwhile.
	again func() traffic
}

// load sends to a pod and lets it send, at the same time, from and to a peer on
// the other node, and counts what arrives while f runs.
func load(t *testing.T, p, peer *pod, f func(ctx context.Context) error) traffic {
	t.Helper()
	r, err := workload.Load{Pod: p.Pod, Peer: peer.Pod}.While(t.Context(), f)
	must.OK(t, err)
	return traffic{Traffic: r}
}

// measure loads a pod for a while.
func measure(t *testing.T, p, peer *pod) traffic {
	t.Helper()
	r := load(t, p, peer, wait(measured))
	r.again = func() traffic { return load(t, p, peer, wait(measured)) }
	return r
}

// wait does nothing for a time.
func wait(length time.Duration) func(context.Context) error { return workload.Wait(length) }

// holds fails the test unless both directions keep to their caps, in bits per
// second, and use them. 0 is no cap. What is too little is measured once more, and too
// much never.
func (r traffic) holds(t *testing.T, what string, ingress, egress uint64) {
	t.Helper()
	if r.again != nil && r.TooLittle(ingress, egress) {
		t.Logf("%s: %v, measured again", what, r.Err(ingress, egress))
		r = r.again()
	}
	for _, d := range r.Directions(ingress, egress) {
		if err := d.Err(); err != nil {
			t.Errorf("%s: %v; Mbit/s in each 100 ms: %.1f", what, err, workload.Tenths(d.Series))
		}
		t.Logf("%s: %s", what, d)
	}
}

const egressKey = workload.EgressKey

// limits are annotations that ask for a cap in each direction.
func limits(ingress, egress string) map[string]string { return workload.Limits(ingress, egress) }

// pod is one that was made and runs.
type pod struct{ *workload.Pod }

// manifest is a pod with the program work; it serves.
func manifest(name string, node *cluster.Node, annotations map[string]string) map[string]any {
	return workload.Manifest(name, node, annotations)
}

func create(t *testing.T, manifests ...map[string]any) {
	t.Helper()
	clustertest.Create(t, suite.Cluster, manifests...)
}

// ready waits for a pod that was created.
func ready(t *testing.T, name string) *pod {
	t.Helper()
	return &pod{clustertest.Ready(t, suite.Cluster, name)}
}

// run makes a pod and waits for it.
func run(t *testing.T, name string, node int, annotations map[string]string) *pod {
	t.Helper()
	create(t, manifest(name, suite.Members[node], annotations))
	return ready(t, name)
}

// annotate changes annotations of a running pod; an empty value removes one.
func (p *pod) annotate(t *testing.T, annotations map[string]string) {
	t.Helper()
	must.OK(t, p.Annotate(t.Context(), annotations))
}

// event is what the API server keeps of one.
type event struct {
	Type, Reason, Message string
	InvolvedObject        struct{ Kind, Name, Namespace string }
}

// events are those about an object, of any kind and namespace.
func events(ctx context.Context, name string) ([]event, error) {
	var list struct{ Items []event }
	err := suite.Get(ctx, &list, "events", "--all-namespaces", "--field-selector", "involvedObject.name="+name)
	return list.Items, err
}

// sees waits for an Event about an object whose message has all the texts.
func sees(t *testing.T, name string, texts ...string) event {
	t.Helper()
	var found event
	eventually(t, 20*time.Second, "Event", func(ctx context.Context) error {
		list, err := events(ctx, name)
		if err != nil {
			return err
		}
		for _, e := range list {
			all := true
			for _, text := range texts {
				all = all && strings.Contains(e.Message, text)
			}
			if all {
				found = e
				return nil
			}
		}
		return fmt.Errorf("none of %s has %q: %+v", name, texts, list)
	})
	return found
}

const (
	chart     = "../../chart"
	namespace = cluster.Namespace
)

// install brings the release to these values, from whatever it is, and waits
// until every agent is ready.
func install(t *testing.T, set ...string) {
	t.Helper()
	clustertest.Install(t, suite.Cluster, chart, "generic", set...)
}

// upgrade does not wait for agents.
func upgrade(t *testing.T, set ...string) {
	t.Helper()
	must.OK(t, suite.Upgrade(t.Context(), chart, "generic", set...))
}

func uninstall(t *testing.T) {
	t.Helper()
	clustertest.Uninstall(t, suite.Cluster)
}

// agent is the name of the agent of a node.
func agent(t *testing.T, n *cluster.Node) string {
	t.Helper()
	all, err := suite.Agents(t.Context())
	must.OK(t, err)
	if all[n.Name] == "" {
		t.Fatalf("no agent on %s: %v", n.Name, all)
	}
	return all[n.Name]
}

// podweir runs podweir in the agent of a node.
func podweir(t *testing.T, n *cluster.Node, args ...string) (string, error) {
	t.Helper()
	return suite.Podweir(t.Context(), n, args...)
}

// fetch reads from the HTTP port of a node's agent.
func fetch(ctx context.Context, n *cluster.Node, path string) (string, error) {
	return n.Fetch(ctx, path)
}

// metrics waits until a node's metrics are as they should be.
func metrics(t *testing.T, n *cluster.Node, want func(page string) error) {
	t.Helper()
	eventually(t, 20*time.Second, "metrics of "+n.Name, func(ctx context.Context) error {
		page, err := fetch(ctx, n, "/metrics")
		if err != nil {
			return err
		}
		return want(page)
	})
}

func green(t *testing.T, n *cluster.Node) {
	t.Helper()
	clustertest.Green(t, suite.Cluster, n)
}

// mostAnonymous is the agent's bar (ruling 17 of the design), in KiB.
const mostAnonymous = 15 << 10

// small holds the anonymous memory of a node's agent to its bar.
func small(t *testing.T, n *cluster.Node) {
	t.Helper()
	out, err := n.Exec(t.Context(), "bash", "-c", "sed -n 's/^RssAnon:[[:space:]]*//p' /proc/$(pgrep -x podweir)/status")
	must.OK(t, err)
	var kib int
	if _, err := fmt.Sscanf(out, "%d kB", &kib); err != nil {
		t.Fatalf("RssAnon %q: %v", out, err)
	}
	t.Logf("anonymous memory of the agent: %.1f MiB", float64(kib)/1024)
	if kib > mostAnonymous {
		t.Errorf("the agent has %d KiB of anonymous memory, want at most %d", kib, mostAnonymous)
	}
}

// grep are the lines of a text that have a part.
func grep(text, part string) string {
	var found strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			found.WriteString(line)
		}
	}
	return found.String()
}
