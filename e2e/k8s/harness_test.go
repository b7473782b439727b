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
var suite = &clustertest.Suite{Start: start, Chart: chart, Values: "generic"}

func TestMain(m *testing.M) { suite.Main(m) }

// start starts a cluster with ptp as its primary CNI.
func start(ctx context.Context, dir string) (*cluster.Cluster, error) {
	o, err := cluster.Prepare(ctx, ".", dir, "", "n1", "n2")
	if err != nil {
		return nil, err
	}
	return cluster.Start(ctx, o)
}

// take is what a node is made of.
func take(t *testing.T, n *cluster.Node) snapshot.Snapshot {
	t.Helper()
	return must.Get(snapshot.Take(t.Context(), n))(t)
}

// unchanged compares a node with what it was before.
func unchanged(t *testing.T, n *cluster.Node, before snapshot.Snapshot) {
	t.Helper()
	for _, d := range snapshot.Compare(before, take(t, n), nil) {
		t.Errorf("%s: after the uninstall %s", n.Name, d)
	}
	t.Logf("lines of %s compared: %d", n.Name, len(before))
}

// load sends to a pod and lets it send, at the same time, from and to a peer on
// the other node, and counts what arrives while f runs.
func load(t *testing.T, p, peer *pod, f func(ctx context.Context) error) workload.Traffic {
	t.Helper()
	return must.Get(workload.Load{Pod: p.Pod, Peer: peer.Pod}.While(t.Context(), f))(t)
}

// holds fails the test unless a loaded pod keeps to its caps and uses them.
func (p *pod) holds(t *testing.T, peer *pod, what string, ingress, egress uint64) {
	t.Helper()
	clustertest.Holds(t, what, p.Pod, peer.Pod, ingress, egress)
}

// pod is one that was made and runs.
type pod struct{ *workload.Pod }

// run makes a pod and waits for it.
func run(t *testing.T, name string, node int, annotations map[string]string) *pod {
	t.Helper()
	return &pod{suite.Run(t, workload.Manifest(name, suite.Members[node], annotations))}
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
	clustertest.Eventually(t, 20*time.Second, "Event", func(ctx context.Context) error {
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

// agent is the name of the agent of a node.
func agent(t *testing.T, n *cluster.Node) string {
	t.Helper()
	all := must.Get(suite.Agents(t.Context()))(t)
	if all[n.Name] == "" {
		t.Fatalf("no agent on %s: %v", n.Name, all)
	}
	return all[n.Name]
}

// metrics waits until a node's metrics are as they should be.
func metrics(t *testing.T, n *cluster.Node, want func(page string) error) {
	t.Helper()
	clustertest.Eventually(t, 20*time.Second, "metrics of "+n.Name, func(ctx context.Context) error {
		page, err := n.Fetch(ctx, "/metrics")
		if err != nil {
			return err
		}
		return want(page)
	})
}

// mostAnonymous is the agent's bar (ruling 17 of the design), in KiB.
const mostAnonymous = 15 << 10

// small holds the anonymous memory of a node's agent to its bar.
func small(t *testing.T, n *cluster.Node) {
	t.Helper()
	out := must.Get(n.Exec(t.Context(), "bash", "-c", "sed -n 's/^RssAnon:[[:space:]]*//p' /proc/$(pgrep -x podweir)/status"))(t)
	var kib int
	if _, err := fmt.Sscanf(out, "%d kB", &kib); err != nil {
		t.Fatalf("RssAnon %q: %v", out, err)
	}
	t.Logf("anonymous memory of the agent: %.1f MiB", float64(kib)/1024)
	must.AtMost(t, "KiB of anonymous memory of the agent", mostAnonymous, kib)
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
