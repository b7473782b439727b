// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cilium_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cilium"
	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/k8s/clustertest"
	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// TestPrivilegedManager turns Cilium's bandwidth manager on and off under a pod with
// limits. The kernel of these tests has no fq, on which the manager relies: the doctor
// says that nobody enforces the limits then (PW409). It is the last of the tests: it leaves
// Cilium 1.20.
func TestPrivilegedManager(t *testing.T) {
	bringVersion(t, cilium.Newest, cilium.BPF)
	p := underPolicy(t, "managed")
	suite.Install(t)
	t.Cleanup(func() { suite.Uninstall(t) })
	p.limited(t, "without the manager", "drop-in", "ifb")

	on := cilium.BPF
	on.BandwidthManager = true
	bringVersion(t, cilium.Newest, on)
	p.leftToCilium(t)

	bringVersion(t, cilium.Newest, cilium.BPF)
	shapedWithin(t, 30*time.Second, p.shaped, "ifb")
	// Cilium polices as well until it has made the pod's programs again.
	clustertest.Eventually(t, 2*time.Minute, "all of the limits is used", func(ctx context.Context) error {
		r, err := workload.Load{Pod: p.shaped, Peer: p.far}.For(ctx, 4*time.Second)
		if err != nil {
			return err
		}
		for _, d := range r.Directions(20_000_000, 10_000_000) {
			if err := d.Above(); err != nil {
				t.Error(err)
			}
		}
		return r.Err(20_000_000, 10_000_000)
	})
	p.limited(t, "without the manager again", "drop-in", "ifb")
}

// leftToCilium fails the test unless podweir leaves the running pod to Cilium, and says
// what Cilium's manager lacks.
func (p policed) leftToCilium(t *testing.T) {
	t.Helper()
	node := p.shaped.Node
	clustertest.Eventually(t, 60*time.Second, "limits left to Cilium", func(ctx context.Context) error {
		a, err := suite.Attachment(ctx, node, p.shaped.Name)
		if a != nil {
			err = fmt.Errorf("podweir has %+v", a)
		}
		return err
	})
	p.holds(t, "with Cilium's manager")
	report := must.Get(suite.Doctor(t.Context(), node))(t)
	for _, c := range report.Findings() {
		t.Log(c)
	}
	if !slices.ContainsFunc(report.Findings(), func(c cluster.Check) bool { return c.Code == "PW409" }) {
		t.Error("the doctor does not say that nobody enforces the limits without fq (PW409)")
	}
	for _, peer := range []*workload.Pod{p.far, p.near} {
		r := must.Get(workload.Load{Pod: p.shaped, Peer: peer}.For(t.Context(), 4*time.Second))(t)
		for _, d := range r.Directions(20_000_000, 10_000_000) {
			t.Logf("limited by Cilium's manager, peer on %s: %s", peer.Node.Name, d)
		}
	}
}
