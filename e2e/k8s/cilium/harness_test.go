// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cilium_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cilium"
	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/k8s/clustertest"
	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/plugin/testutil/must"
)

const here = "../../cilium"

// suite is the cluster of all scenarios, with Cilium as its primary CNI, release
// Cilium's, made what each of its versions is installed from.
var (
	suite   = &clustertest.Suite{Start: start, Chart: "../../../chart", Values: "cilium"}
	release *cilium.Release
	made    = map[string]cilium.Made{}
)

func TestMain(m *testing.M) { suite.Main(m) }

// start starts a cluster without a CNI, for Cilium to come.
func start(ctx context.Context, dir string) (*cluster.Cluster, error) {
	var images []string
	for _, version := range []string{cilium.Newest, cilium.Old} {
		m, err := cilium.Prepare(ctx, here, version)
		if err != nil {
			return nil, err
		}
		made[version], images = m, append(images, m.Archive())
	}
	o, err := cluster.Prepare(ctx, "..", dir, "", "n1", "n2")
	if err != nil {
		return nil, err
	}
	o.NoCNI = true
	o.Images = append(o.Images, images...)
	c, err := cluster.Start(ctx, o)
	release = &cilium.Release{Cluster: c}
	return c, err
}

// bring brings Cilium 1.15 to these settings.
func bring(t *testing.T, s cilium.Settings) {
	t.Helper()
	bringVersion(t, cilium.Old, s)
}

func bringVersion(t *testing.T, version string, s cilium.Settings) {
	t.Helper()
	release.Made = made[version]
	must.OK(t, release.Install(t.Context(), s))
}

// pod makes a pod that policies know by app, and waits for it. It is deleted
// with the test.
func pod(t *testing.T, name, app string, node int, annotations map[string]string) *workload.Pod {
	t.Helper()
	m := workload.Manifest(name, suite.Members[node], annotations)
	m["metadata"].(map[string]any)["labels"] = cilium.Labels(app)
	return suite.Run(t, m)
}

// policy brings a policy, which goes with the test.
func policy(t *testing.T, manifest map[string]any) {
	t.Helper()
	text := must.Get(json.Marshal(manifest))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if _, err := suite.Cluster.Kubectl(ctx, string(text), "delete", "--ignore-not-found", "-f", "-"); err != nil {
			t.Error(err)
		}
	})
	must.OK(t, must.Err(suite.Cluster.Kubectl(t.Context(), string(text), "apply", "-f", "-")))
}
