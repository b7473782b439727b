// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"context"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/k8s/clustertest"
)

// suite is the cluster of all scenarios.
var suite = &clustertest.Suite{Start: start}

func TestMain(m *testing.M) { suite.Main(m) }

// start starts a cluster with ptp as its primary CNI.
func start(ctx context.Context, dir string) (*cluster.Cluster, error) {
	o, err := cluster.Prepare(ctx, ".", dir, "n1", "n2")
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
