// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni_test

import (
	"testing"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
)

// The list of the host's queues is read once for all pods, and again for one that
// came after it.
func TestPrivilegedQueuesOfALaterPod(t *testing.T) {
	testutil.RequireRoot(t)
	testutil.RequireQdisc(t, "tbf", "clsact")
	n := newNode(t)
	first, later := n.newPod(t), n.newPod(t)
	first.must(t, "ADD", first.conf(both(conf{"ingressPlace": "host"})))
	first.onNode(t, func(node *engine.Node) error {
		queues := node.Queues()
		counters := func(p *pod, s terms.Side) uint64 {
			t.Helper()
			records, err := node.Records(attach.ID{Network: "net", ContainerID: p.container, IfName: "eth0"})
			if err != nil || len(records) != 1 {
				t.Fatalf("Records() = %v, %v, want one", records, err)
			}
			got, err := queues.Statistics(records[0], s)
			if err != nil {
				t.Fatal(err)
			}
			return got.Packets
		}
		before := counters(first, terms.SideHost)
		later.must(t, "ADD", later.conf(both(conf{"ingressPlace": "host"})))
		later.crosses(t)
		first.crosses(t)
		if got := counters(first, terms.SideHost); got != before {
			t.Errorf("the list of the host was read again: %d packets after %d", got, before)
		}
		if got := counters(later, terms.SideHost); got == 0 {
			t.Error("a pod that came later has no packets to it")
		}
		if got := counters(later, terms.SidePod); got == 0 {
			t.Error("a pod that came later has no packets from it")
		}
		return nil
	})
}
