// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package aws_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/aws"
	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/k8s/clustertest"
	"github.com/podweir/podweir/e2e/k8s/workload"
)

const (
	here  = "../../aws"
	chart = "../../../chart"
)

// suite is the cluster of all scenarios, with the VPC CNI as its primary CNI, vpc
// what of AWS's is in it.
var (
	suite  = &clustertest.Suite{Start: start, Stop: func() error { return amazon.Close() }}
	amazon *aws.VPC
)

func TestMain(m *testing.M) { suite.Main(m) }

// start starts a cluster with the VPC CNI, without network policy.
func start(ctx context.Context, dir string) (*cluster.Cluster, error) {
	o, err := cluster.Prepare(ctx, "..", dir, "n1", "n2")
	if err != nil {
		return nil, err
	}
	made, images, err := aws.Build(ctx, here)
	if err != nil {
		return nil, err
	}
	o.Images, o.NoCNI = append(o.Images, images...), true
	c, err := cluster.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	amazon, err = aws.New(ctx, c, here, made)
	if err == nil {
		err = errors.Join(amazon.Install(ctx), amazon.Wait(ctx))
	}
	if err == nil {
		_, err = c.Kubectl(ctx, "", "wait", "--for=condition=Ready", "node", "--all", "--timeout=60s")
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func create(t *testing.T, manifests ...map[string]any) {
	t.Helper()
	clustertest.Create(t, suite.Cluster, manifests...)
}

// manifest is a pod that serves on a node.
func manifest(name string, node int, annotations map[string]string) map[string]any {
	return workload.Manifest(name, suite.Members[node], annotations)
}

func ready(t *testing.T, name string) *workload.Pod {
	t.Helper()
	return clustertest.Ready(t, suite.Cluster, name)
}

// run makes a pod and waits for it.
func run(t *testing.T, name string, node int, annotations map[string]string) *workload.Pod {
	t.Helper()
	create(t, manifest(name, node, annotations))
	return ready(t, name)
}

func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return clustertest.Kubectl(t, suite.Cluster, args...)
}

func eventually(t *testing.T, limit time.Duration, what string, try func(context.Context) error) {
	t.Helper()
	clustertest.Eventually(t, limit, what, try)
}
