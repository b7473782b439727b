// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package aws_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/clustertest"
	"github.com/podweir/podweir/e2e/k8s/workload"
)

// measured is how long rates are measured, with the time that TCP takes to find
// them.
const measured = 5 * time.Second

// install installs podweir as docs/howto/managed-clusters.md says, or changes its values.
func install(t *testing.T, set ...string) {
	t.Helper()
	clustertest.Install(t, suite.Cluster, chart, "eks", set...)
}

func uninstall(t *testing.T) {
	t.Helper()
	clustertest.Uninstall(t, suite.Cluster)
}

// green fails the test if a doctor finds anything.
func green(t *testing.T) {
	t.Helper()
	for _, n := range suite.Members {
		clustertest.Green(t, suite.Cluster, n)
	}
}

// shaped is whether the kernel has a queue in front of a pod, whatever podweir's
// agent says.
func shaped(p *workload.Pod) func(context.Context) error {
	return func(ctx context.Context) error {
		out, err := p.Node.Exec(ctx, "bash", "-c", `
			dev=$(ip -o route get "$0" | sed -n 's/.* dev \([^ ]*\).*/\1/p')
			tc qdisc show dev "$dev" root`, p.IP.String())
		if err == nil && (out == "" || strings.Contains(out, "noqueue")) {
			err = fmt.Errorf("%s has the root qdisc %q", p.Name, out)
		}
		return err
	}
}

// keeps fails the test unless a pod keeps to its caps, in bits per second, and uses
// them. 0 is no cap.
func keeps(t *testing.T, what string, p, peer *workload.Pod, ingress, egress uint64) {
	t.Helper()
	got, err := workload.Load{Pod: p, Peer: peer}.For(t.Context(), measured)
	if err == nil {
		err = got.Err(ingress, egress)
		t.Logf("%s: %s: %v", what, p.Name, got.Directions(ingress, egress))
	}
	if err != nil {
		t.Errorf("%s: %s: %v", what, p.Name, err)
	}
}
