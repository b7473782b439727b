// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/k8s/clustertest"
	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// killAgent kills the agent of a pod's node while the pod is under load, and
// waits for the next one. The pod's caps are 20M and 10M.
func killAgent(t *testing.T, p, peer *pod) {
	t.Helper()
	name := agent(t, p.Node)
	before := restarts(t, name)
	r := load(t, p, peer, func(ctx context.Context) error {
		if err := workload.Wait(2 * time.Second)(ctx); err != nil {
			return err
		}
		if _, err := p.Node.Exec(ctx, "pkill", "-KILL", "-x", "podweir"); err != nil {
			return err
		}
		err := cluster.Eventually(ctx, time.Minute, func(ctx context.Context) error {
			if restarts(t, name) == before {
				return errors.New("the kubelet has not restarted it")
			}
			_, err := p.Node.Fetch(ctx, "/readyz")
			return err
		})
		return errors.Join(err, workload.Wait(2*time.Second)(ctx))
	})
	clustertest.Judge(t, "while the agent was killed and came back", r, 20_000_000, 10_000_000)
}

// restarts is how often a pod of podweir was restarted.
func restarts(t *testing.T, name string) string {
	t.Helper()
	return suite.Kubectl(t, "-n", namespace, "get", "pod", name, "-o", "jsonpath={.status.containerStatuses[0].restartCount}")
}

// TestPrivilegedAnnotations changes the annotations of a pod while it runs.
func TestPrivilegedAnnotations(t *testing.T) {
	suite.Install(t)
	p := run(t, "changing", 0, workload.Limits("20M", "10M"))
	peer := run(t, "peer", 1, nil)
	p.holds(t, peer, "as it was made", 20_000_000, 10_000_000)
	for _, step := range []struct {
		what            string
		change          map[string]string
		ingress, egress uint64
	}{
		{"both rates changed", workload.Limits("10M", "30M"), 10_000_000, 30_000_000},
		{"egress removed", map[string]string{workload.EgressKey: ""}, 10_000_000, 0},
		{"egress added again", map[string]string{workload.EgressKey: "20M"}, 10_000_000, 20_000_000},
	} {
		p.annotate(t, step.change)
		p.limited(t, step.ingress, step.egress)
		p.holds(t, peer, step.what, step.ingress, step.egress)
	}

	p.annotate(t, map[string]string{workload.EgressKey: "20Q"})
	e := sees(t, p.Name, workload.EgressKey, "20Q")
	if e.Type != "Warning" || e.InvolvedObject.Namespace != "default" {
		t.Errorf("the Event about a bad value is %+v, want a warning in the pod's namespace", e)
	}
	t.Logf("%s %s: %s", e.Type, e.Reason, e.Message)
	p.holds(t, peer, "after a bad value", 10_000_000, 20_000_000)
	must.Be(t, "the pod's restarts", "0", suite.Kubectl(t, "get", "pod", p.Name, "-o", "jsonpath={.status.containerStatuses[0].restartCount}"))
}

// limited waits until the agent of the pod's node says that these caps are in
// force, in bits per second; 0 is none.
func (p *pod) limited(t *testing.T, ingress, egress uint64) {
	t.Helper()
	want := ""
	for _, d := range []struct {
		name string
		bits uint64
	}{{"egress", egress}, {"ingress", ingress}} {
		if d.bits > 0 {
			want += fmt.Sprintf("podweir_pod_limit_bits_per_second{direction=%q,interface=\"eth0\",namespace=\"default\",pod=%q} %g\n", d.name, p.Name, float64(d.bits))
		}
	}
	metrics(t, p.Node, func(page string) error {
		got := grep(grep(page, "podweir_pod_limit_bits_per_second{"), fmt.Sprintf("pod=%q", p.Name))
		if got != want {
			return fmt.Errorf("caps are\n%s\nwant\n%s", got, strings.TrimSpace(want))
		}
		return nil
	})
}

// TestPrivilegedDropInWithoutTheAgent stops the agent: what limits a pod, or refuses
// it, is the plugin that the container runtime calls. Ingress queues belong on an ifb, as
// beside Cilium: the agent, with the few rights that the chart gives it, is the first to
// try the kernel, for a pod that runs already.
func TestPrivilegedDropInWithoutTheAgent(t *testing.T) {
	suite.Uninstall(t)
	early := run(t, "early", 0, workload.Limits("20M", "10M"))
	suite.Install(t, "delivery=drop-in", "defaults.onError=closed", "defaults.ingressPlace=prefer-ifb")
	peer := run(t, "peer", 1, nil)
	early.limited(t, 20_000_000, 10_000_000)
	early.holds(t, peer, "a pod from before, queued on an ifb", 20_000_000, 10_000_000)
	if a := must.Get(suite.Attachment(t.Context(), early.Node, early.Name))(t); a == nil || len(a.Directions) != 2 || a.Directions[1].Side != "ifb" {
		t.Errorf("%+v, want ingress on an ifb", a)
	}
	suite.Green(t, suite.Members[0])
	stopAgent(t, suite.Members[0])
	p := run(t, "alone", 0, workload.Limits("20M", "10M"))
	p.holds(t, peer, "made while the agent was stopped, with a drop-in", 20_000_000, 10_000_000)

	hideBPFFS(t, suite.Members[0])
	suite.Create(t, workload.Manifest("refused", suite.Members[0], workload.Limits("20M", "10M")))
	clustertest.Eventually(t, 20*time.Second, "refusal", func(ctx context.Context) error {
		list, err := events(ctx, "refused")
		if err != nil {
			return err
		}
		for _, e := range list {
			if e.Reason == "FailedCreatePodSandBox" && strings.Contains(e.Message, "BPF file system") {
				return nil
			}
		}
		return fmt.Errorf("no Event says that podweir refused it: %+v", list)
	})
	must.Be(t, "the pod that cannot be limited", "Pending", suite.Kubectl(t, "get", "pod", "refused", "-o", "jsonpath={.status.phase}"))
}

// hideBPFFS takes what podweir needs from a node for the rest of the test.
func hideBPFFS(t *testing.T, n *cluster.Node) {
	t.Helper()
	const dir = "/sys/fs/bpf"
	must.OK(t, must.Err(n.Exec(t.Context(), "mount", "-t", "tmpfs", "none", dir)))
	t.Cleanup(func() { must.OK(t, must.Err(n.Exec(context.Background(), "umount", dir))) })
}

// stopAgent stops the agent's process on a node for the rest of the test. The
// kubelet would end it after a minute without an answer.
func stopAgent(t *testing.T, n *cluster.Node) {
	t.Helper()
	signal := func(ctx context.Context, name string) error {
		_, err := n.Exec(ctx, "pkill", "-"+name, "-x", "podweir")
		return err
	}
	must.OK(t, signal(t.Context(), "STOP"))
	t.Cleanup(func() {
		// The test's own context is over by now.
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		err := signal(ctx, "CONT")
		if err == nil {
			err = cluster.Eventually(ctx, 20*time.Second, func(ctx context.Context) error {
				_, err := n.Fetch(ctx, "/readyz")
				return err
			})
		}
		if err != nil {
			t.Error(errors.Join(errors.New("the agent does not go on"), err))
		}
	})
}
