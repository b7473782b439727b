// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cilium_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cilium"
	"github.com/podweir/podweir/e2e/k8s/clustertest"
	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// policed are a pod with limits and a policy, and those that it is asked by.
type policed struct{ shaped, near, far, foe *workload.Pod }

// underPolicy makes the pods and the policy; name is the limited pod's.
func underPolicy(t *testing.T, name string) policed {
	t.Helper()
	p := policed{
		shaped: pod(t, name, name, 0, workload.Limits("20M", "10M")),
		near:   pod(t, "near", "friend", 0, nil),
		far:    pod(t, "far", "friend", 1, nil),
		foe:    pod(t, "foe", "foe", 1, nil),
	}
	policy(t, cilium.Policy(name, name, "friend"))
	return p
}

// limited fails the test unless podweir has this delivery, the pod that runs and
// a new one are limited with the ingress queue at this side, and the policy
// holds.
func (p policed) limited(t *testing.T, when, delivery, side string) {
	t.Helper()
	chooses(t, p.shaped.Node, delivery)
	began := time.Now()
	// Without a look at the node when Cilium's agent starts it took a minute.
	shapedWithin(t, 20*time.Second, p.shaped, side)
	t.Logf("%s: the pod that runs has its queue at side %s after %.0f s", when, side, time.Since(began).Seconds())
	p.holds(t, when)
	clustertest.Holds(t, when+", peer on the other node", p.shaped, p.far, 20_000_000, 10_000_000)
	clustertest.Holds(t, when+", peer on its node", p.shaped, p.near, 20_000_000, 10_000_000)
	late := pod(t, "late", "late", 0, workload.Limits("100M", "50M"))
	shaped(t, late, side)
	clustertest.Holds(t, when+", a new pod", late, p.far, 100_000_000, 50_000_000)
	must.OK(t, workload.Delete(t.Context(), suite.Cluster, "late"))
}

// holds fails the test unless friends are answered and the foe is not.
func (p policed) holds(t *testing.T, when string) {
	t.Helper()
	clustertest.Eventually(t, 20*time.Second, when+": policy", func(ctx context.Context) error {
		err := errors.Join(p.near.Reach(ctx, p.shaped), p.far.Reach(ctx, p.shaped))
		if p.foe.Reach(ctx, p.shaped) == nil {
			err = errors.Join(err, errors.New("the foe was answered"))
		}
		return err
	})
}

// agentDeleted deletes Cilium's agent under a flood.
func (p policed) agentDeleted(t *testing.T, side string) {
	t.Helper()
	r := must.Get(workload.Load{Pod: p.shaped, Peer: p.far}.While(t.Context(), func(ctx context.Context) error {
		if err := workload.Wait(2 * time.Second)(ctx); err != nil {
			return err
		}
		if err := release.DeleteAgent(ctx, p.shaped.Node); err != nil {
			return err
		}
		p.holds(t, "under a flood, after Cilium's agent was deleted")
		return workload.Wait(2 * time.Second)(ctx)
	}))(t)
	clustertest.Judge(t, "while Cilium's agent was deleted and came back", r, 20_000_000, 10_000_000)
	t.Logf("ingress in Mbit/s in each 100 ms: %.1f", workload.Tenths(r.In))
	shaped(t, p.shaped, side)
}
