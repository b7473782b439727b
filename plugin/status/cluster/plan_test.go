// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cluster_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/status/cluster"
	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
)

// beyond is a look at a node with pods whose egress is observed at 20 Mbit/s.
func beyond(at time.Duration, pods int, c view.Counters) *cluster.Nodes {
	n := seen(at, terms.PolicyStrict, terms.QueueNone, c)
	all := &n.Nodes[0].Answer.Status.Pods
	(*all)[0].State, (*all)[0].Limits[0].Enforce = view.Observed, terms.Name(terms.EnforceObserve)
	for i := 1; i < pods; i++ {
		p := (*all)[0]
		p.Pod = fmt.Sprintf("ns/web-%02d", i)
		*all = append(*all, p)
	}
	return n
}

// A node that was not heard at the first look has counters and no rates.
func TestPlanOfOneLook(t *testing.T) {
	t.Parallel()
	down := cluster.New([]cluster.Node{{Name: "n1", Error: "no route to host"}}, 0)
	p := cluster.MakePlan(down, beyond(0, 1, view.Counters{SentBytes: 1000, WouldDropBytes: 250}), "")
	d := p.Pods[0].Directions[0]
	if d.Effect != cluster.DidExceed || d.WouldDropShare != 0.25 || d.SentBitsPerSecond != 0 || d.Rate != 20e6 {
		t.Errorf("one look: %+v", d)
	}
	for name, value := range map[string]any{"plan": p, "rates": cluster.Rates(down, down)} {
		if b, err := json.Marshal(value); err != nil || !strings.Contains(string(b), `"heavyFlows":[],"flowBitsPerSecond":[]`) {
			t.Errorf("%s without empty lists of flows: %s, %v", name, b, err)
		}
	}
}

// Many pods are counted, and listed where that is requested.
func TestPlanOfManyPods(t *testing.T) {
	t.Parallel()
	c := view.Counters{SentBytes: 6_000_000, WouldDropBytes: 1_000_000}
	p := cluster.MakePlan(beyond(0, 30, view.Counters{}), beyond(2*time.Second, 30, c), "ns")
	short, wide := p.Text(false), p.Text(true)
	for _, want := range []string{"limit 30 pods", "WOULD DROP  and 20 more, see -o wide", "List the 30 pods and their limits with -o wide."} {
		if !strings.Contains(short, want) {
			t.Errorf("no %q in:\n%s", want, short)
		}
	}
	if n := strings.Count(wide, "WOULD DROP  ns/web"); n != 30 || !strings.Contains(wide, "ns/web-29                   n1            20 Mbit/s") {
		t.Errorf("-o wide lists %d directions:\n%s", n, wide)
	}
	none := cluster.MakePlan(seen(0, terms.PolicyStrict, terms.QueueTBF, c), seen(2*time.Second, terms.PolicyStrict, terms.QueueTBF, c), "")
	if text := none.Text(false); !strings.HasPrefix(text, "No limit is observed only: to enforce limits would change nothing. Nothing\nchanges for 1 pod ") {
		t.Errorf("a node that enforces its limit: %s", text)
	}
	if other := cluster.MakePlan(beyond(0, 30, c), beyond(2*time.Second, 30, c), "n"); len(other.Pods) != 0 {
		t.Errorf("namespace n has %d pods of ns", len(other.Pods))
	}
}
