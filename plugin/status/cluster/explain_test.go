// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cluster_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/status/cluster"
	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
)

// seen is a node with one pod whose egress has a limit of 20 Mbit/s, 5 MB in 2 s, at a
// time and with counters.
func seen(at time.Duration, policy terms.Policy, queue terms.Queue, c view.Counters) *cluster.Nodes {
	pod := view.Pod{Pod: "ns/web", State: view.Limited, Limits: []view.Limit{{
		Interface: "eth0", Counters: c,
		Limit: terms.Limit{Direction: terms.Name(terms.Egress), Rate: 20e6, Policy: terms.Name(policy), Queue: terms.Name(queue), CapHolds: true},
	}}}
	n := &view.Node{Time: time.Date(2026, 11, 24, 3, 0, 0, 0, time.UTC).Add(at), Pods: []view.Pod{pod}}
	return cluster.New([]cluster.Node{{Name: "n1", Answer: &cluster.Answer{Status: n}}}, 0)
}

func flow(port uint16, bytes uint64) view.Flow {
	return view.Flow{
		Protocol: 6, Source: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), port), Dest: netip.MustParseAddrPort("10.0.0.9:443"), Bytes: bytes,
	}
}

// A verdict says what two looks show, and no more.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		policy terms.Policy
		queue  terms.Queue
		c      view.Counters
		want   string
	}{
		"nothing": {terms.PolicyStrict, terms.QueueTBF, view.Counters{SentBytes: 100}, "egress carries next to nothing of its limit of 20 Mbit/s"},
		"below":   {terms.PolicyStrict, terms.QueueTBF, view.Counters{SentBytes: 2_500_000}, "50 % of its limit of 20 Mbit/s, drops nothing and nothing waits: the limit is not what slows it"},
		"in bursts": {
			terms.PolicyStrict, terms.QueueTBF,
			view.Counters{SentBytes: 2_500_000, LightBytes: 250_000, Drops: 20, WaitingBytes: 7},
			"50 % of its limit of 20 Mbit/s on average, and reaches it for moments: 10 packets/s were dropped and 7 bytes wait; light flows (1 Mbit/s) go before",
		},
		"one flow": {
			terms.PolicyStrict, terms.QueueTBF,
			view.Counters{SentBytes: 5_000_000, HeavyFlows: []view.Flow{flow(1, 250_000), flow(2, 4_500_000)}},
			"is at its limit of 20 Mbit/s: one flow, tcp 10.0.0.1:2 > 10.0.0.9:443, offers 90 % of the traffic; light flows (0 bit/s) go before",
		},
		"two flows": {
			terms.PolicyFlat, terms.QueueTBF,
			view.Counters{SentBytes: 5_000_000, HeavyFlows: []view.Flow{flow(1, 2_500_000), flow(2, 2_500_000)}},
			"the largest of 2 heavy flows, tcp 10.0.0.1:1 > 10.0.0.9:443, offers 50 % of the traffic; all flows wait in one queue",
		},
		"light alone": {terms.PolicyStrict, terms.QueueTBF, view.Counters{SentBytes: 5_000_000, LightBytes: 5_000_000}, "no heavy flow was seen, so that light flows use it"},
		"policed":     {terms.PolicyStrict, terms.QueueNone, view.Counters{SentBytes: 5_000_000}, "there is no queue, so that what exceeds the limit is dropped"},
	} {
		e := cluster.Explain("ns/web", seen(0, tt.policy, tt.queue, view.Counters{}), seen(2*time.Second, tt.policy, tt.queue, tt.c))
		if len(e.Directions) != 1 || !strings.Contains(e.Directions[0].Verdict, tt.want) {
			t.Errorf("%s: %+v, want %q", name, e.Directions, tt.want)
		}
		if status, why := e.Exit(); status != 0 {
			t.Errorf("%s: exit %d, %s", name, status, why)
		}
	}
	for want, since := range map[string]time.Duration{
		"has been at its limit of 20 Mbit/s since 03:00 UTC: no heavy flow": 24*time.Hour - time.Second,
		"has been at its limit of 20 Mbit/s since 2026-11-23 03:00 UTC: no": 24 * time.Hour,
	} {
		now := seen(2*time.Second, terms.PolicyStrict, terms.QueueTBF, view.Counters{SentBytes: 5_000_000})
		state := now.Nodes[0].Answer.Status
		state.Pods[0].Limits[0].AtLimitSince = state.Time.Add(-since)
		if e := cluster.Explain("ns/web", seen(0, terms.PolicyStrict, terms.QueueTBF, view.Counters{}), now); !strings.Contains(e.Directions[0].Verdict, want) {
			t.Errorf("verdict %q, want %q", e.Directions[0].Verdict, want)
		}
	}
	gone := cluster.Explain("ns/web", seen(0, terms.PolicyStrict, terms.QueueTBF, view.Counters{}), cluster.New(nil, 0))
	if status, why := gone.Exit(); status != cluster.ExitUnknown || gone.Node != "n1" || !strings.Contains(why, "not any more") {
		t.Errorf("a pod that went: %+v, exit %d, %s", gone, status, why)
	}
	down := cluster.New([]cluster.Node{{Name: "n1", Error: "no route to host"}}, 0)
	silent := cluster.Explain("ns/web", seen(0, terms.PolicyStrict, terms.QueueTBF, view.Counters{}), down)
	if status, why := silent.Exit(); status != cluster.ExitUnknown || !strings.Contains(why, "no route to host") {
		t.Errorf("a pod whose node does not answer any more: %+v, exit %d, %s", silent, status, why)
	}
}

// A node that answered only once has no rates, and says so.
func TestRatesOfSilentNodes(t *testing.T) {
	t.Parallel()
	once := seen(0, terms.PolicyStrict, terms.QueueTBF, view.Counters{})
	down := cluster.New([]cluster.Node{{Name: "n1", Error: "no route to host"}}, 0)
	for want, r := range map[string][]view.PodRate{
		"it answered once so far": cluster.Rates(down, once), "no route to host": cluster.Rates(once, down),
	} {
		if len(r) != 1 || r[0].Pod != "node n1" || r[0].Error != want {
			t.Errorf("%+v, want one with %q", r, want)
		}
	}
}
