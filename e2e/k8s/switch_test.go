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
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// change is a change of the delivery by helm upgrade.
type change struct {
	delivery string
	// handed says that the primary CNI writes podweir into its own chain after the
	// upgrade, plain that it takes it out again.
	handed, plain bool
	// gap says that pods may start without a limit until the next agent is ready,
	// as they may whenever an agent that is called by the runtime is replaced.
	gap bool
	// chain, dropIn and binary are the files of podweir's that are there afterwards.
	chain, dropIn, binary bool
}

// TestPrivilegedDeliveryChanged goes through all deliveries in place, by nothing but
// the value delivery, with a pod under load, and pods that are made during each
// change.
func TestPrivilegedDeliveryChanged(t *testing.T) {
	mark.Nightly(t, "it takes minutes")
	suite.Uninstall(t)
	suite.Install(t, "delivery=chain")
	node := suite.Members[0]
	t.Cleanup(func() { primaryWrites(t) })
	p := run(t, "steady", 0, workload.Limits("20M", "10M"))
	peer := run(t, "peer", 1, nil)
	from := "chain"
	for _, c := range []change{
		{delivery: "nri"},
		{delivery: "watch", gap: true},
		{delivery: "drop-in", gap: true, dropIn: true, binary: true},
		{delivery: "handed", handed: true, binary: true},
		{delivery: "chain", plain: true, chain: true, binary: true},
	} {
		what := from + " to " + c.delivery
		r := load(t, p, peer, func(context.Context) error {
			c.carryOut(t, node, what)
			return nil
		})
		clustertest.Judge(t, what, r, 20_000_000, 10_000_000)
		c.left(t, node, what)
		made := run(t, "after-"+c.delivery, 0, workload.Limits("10M", "20M"))
		if c.delivery == "watch" { // which sees a pod in the API server, when it runs
			made.limited(t, 10_000_000, 20_000_000)
		} else if !hasLimit(t, made) {
			t.Errorf("%s: a pod from afterwards starts without a limit", what)
		}
		made.holds(t, peer, what+": a pod from afterwards", 10_000_000, 20_000_000)
		if c.delivery == "watch" {
			killAgent(t, p, peer)
		}
		suite.Green(t, node)
		from = c.delivery
	}
}

// carryOut changes the delivery, and makes pods meanwhile.
func (c *change) carryOut(t *testing.T, node *cluster.Node, what string) {
	t.Helper()
	suite.Upgrade(t, "delivery="+c.delivery)
	var late []*pod
	for i := range 4 {
		if i == 1 && c.handed {
			// Until then the former delivery goes on.
			primaryWrites(t, cluster.Plugin{
				"type": "podweir-cni", "capabilities": map[string]bool{"bandwidth": true, "io.kubernetes.cri.pod-annotations": true},
			})
		}
		born := run(t, fmt.Sprintf("born-%s-%d", c.delivery, i), 0, workload.Limits("20M", "10M"))
		if !hasLimit(t, born) {
			late = append(late, born)
		}
	}
	if err := suite.Rollout(t.Context()); err != nil {
		_, notReady := node.Fetch(t.Context(), "/readyz")
		t.Fatalf("%s: %v\n%v", what, err, notReady)
	}
	if c.plain {
		primaryWrites(t)
	}
	t.Logf("pods made during the change from %s: 4, %d of them without a limit at first", what, len(late))
	if len(late) > 0 && !c.gap {
		t.Errorf("%s: %d of 4 pods start without a limit", what, len(late))
	}
	for _, born := range late {
		born.limited(t, 20_000_000, 10_000_000)
	}
}

// primaryWrites lets the primary CNI write its conflist, with these plugins behind
// its own.
func primaryWrites(t *testing.T, chained ...cluster.Plugin) {
	t.Helper()
	for _, n := range suite.Members {
		must.OK(t, n.WriteFile(cluster.ConflistFile, cluster.Conflist(append([]cluster.Plugin{n.Ptp()}, chained...)...)))
	}
}

// hasLimit says whether the pod's egress has its queue now.
func hasLimit(t *testing.T, p *pod) bool {
	t.Helper()
	out := must.Get(p.tc(t.Context(), "qdisc", "show", "dev", "eth0", "root"))(t)
	return strings.Contains(out, "tbf")
}

// left waits until exactly those files of podweir's are on the node that the
// delivery needs.
func (c *change) left(t *testing.T, node *cluster.Node, what string) {
	t.Helper()
	clustertest.Eventually(t, 20*time.Second, "files after "+what, func(ctx context.Context) error {
		out, err := node.Exec(ctx, "bash", "-c", "find /etc/cni /opt/cni /var/lib/podweir -name '*podweir*' ! -type d -o -path '/var/lib/podweir/*'")
		if err != nil {
			return err
		}
		for part, want := range map[string]bool{
			"/etc/cni/net.d/00-podweir-10-lab.conflist": c.chain, "/etc/cni/net.d/lab/50-podweir.conf": c.dropIn,
			"/opt/cni/bin/podweir-cni": c.binary, "/var/lib/podweir/": c.binary,
		} {
			if strings.Contains(out, part) != want {
				err = errors.Join(err, fmt.Errorf("%s is there: %v, want %v:\n%s", part, !want, want, out))
			}
		}
		return err
	})
}
