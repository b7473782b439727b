// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cluster_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/podweir/podweir/plugin/status/cluster"
	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/plugin/units"
)

// seen is a node with one pod whose egress has a limit of 20 Mbit/s, 5 MB in 2 s, at a
// time and with counters.
func seen(at time.Duration, policy terms.Policy, queue terms.Queue, c view.Counters) *cluster.Nodes {
	pod := view.Pod{Pod: "ns/web", State: view.Limited, Limits: []view.Limit{{
		Interface: "eth0", Counters: c,
		Limit: terms.Limit{Direction: terms.Name(terms.Egress), Rate: 20e6, Policy: terms.Name(policy), Queue: terms.Name(queue), CapHolds: true},
	}}}
	n := &view.Status{Time: time.Date(2026, 11, 24, 3, 0, 0, 0, time.UTC).Add(at), Pods: []view.Pod{pod}}
	return cluster.New([]cluster.Node{{Name: "n1", Answer: &cluster.Answer{Status: n}}}, 0)
}

// exits fails the test unless an exit status is this, and says why with a part.
func exits(t *testing.T, what string, exit func() (int, string), want int, part string) {
	t.Helper()
	status, why := exit()
	must.Be(t, what+": exit", want, status)
	must.Have(t, what+": why", why, part)
}

func flow(port uint16, bytes uint64) terms.Flow {
	return terms.Flow{
		Protocol: 6, Source: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), port), Dest: netip.MustParseAddrPort("10.0.0.9:443"), Bytes: bytes,
	}
}

// What a node does not know of its pods is told with its name, and is not exit status 0.
func TestStatusOfANodeThatDoubts(t *testing.T) {
	t.Parallel()
	n := seen(0, terms.PolicyStrict, terms.QueueTBF, view.Counters{})
	n.Nodes = append(n.Nodes, cluster.Node{Name: "n2", Answer: n.Nodes[0].Answer})
	n.Nodes[0].Answer.Status.Unread = []string{"what went past is not known: past.json"}
	n.Nodes[0].Answer.Status.Missing = []string{"pods: /run/podweir is full"}
	for _, text := range []string{n.Status(time.Time{}, true), n.Wide(time.Time{}, false)} {
		must.Have(t, "status", strings.Join(strings.Fields(text), " "),
			"On n1, n2: what went past is not known: past.json. Remove", "missing from this list: on n1, n2: pods: /run/podweir is full.")
	}
	exits(t, "status", n.StatusExit, cluster.ExitUnknown, "On n1, n2: what went past")
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
			view.Counters{SentBytes: 5_000_000, HeavyFlows: []terms.Flow{flow(1, 250_000), flow(2, 4_500_000)}},
			"is at its limit of 20 Mbit/s: one flow, tcp 10.0.0.1:2 > 10.0.0.9:443, offers 90 % of the traffic; light flows (0 bit/s) go before",
		},
		"two flows": {
			terms.PolicyFlat, terms.QueueTBF,
			view.Counters{SentBytes: 5_000_000, HeavyFlows: []terms.Flow{flow(1, 2_500_000), flow(2, 2_500_000)}},
			"the largest of 2 heavy flows, tcp 10.0.0.1:1 > 10.0.0.9:443, offers 50 % of the traffic; all flows wait in one queue",
		},
		"light alone": {terms.PolicyStrict, terms.QueueTBF, view.Counters{SentBytes: 5_000_000, LightBytes: 5_000_000}, "no heavy flow was seen, so that light flows use it"},
		"policed":     {terms.PolicyStrict, terms.QueueNone, view.Counters{SentBytes: 5_000_000}, "there is no queue, so that what exceeds the limit is dropped"},
	} {
		e := cluster.Explain("ns/web", seen(0, tt.policy, tt.queue, view.Counters{}), seen(2*time.Second, tt.policy, tt.queue, tt.c))
		must.Have(t, name, must.Len(t, "directions", 1, e.Directions)[0].Verdict, tt.want)
		exits(t, name, e.Exit, 0, "")
	}
	// What another party drops, or what goes past podweir, is told as status does.
	first, then := seen(0, terms.PolicyStrict, terms.QueueTBF, view.Counters{}), seen(2*time.Second, terms.PolicyStrict, terms.QueueTBF, view.Counters{})
	for i, n := range []*cluster.Nodes{first, then} {
		carried := uint64(i) * 5_000_000
		l := &n.Nodes[0].Answer.Status.Pods[0].Limits[0]
		l.Blocked, l.Passing = "tcx program x on veth1 drops every packet", []view.Passing{{Device: [2]uint64{carried, carried}, Seen: &[2]uint64{}}}
	}
	e := cluster.Explain("ns/web", first, then)
	status, _ := e.Exit()
	must.Be(t, "exit status of a pod that goes past", cluster.ExitBroken, status)
	must.Have(t, "explain", strings.Join(strings.Fields(e.Text(time.Time{})), " "), "NOT LIMITED ns/web on n1 cause egress of eth0: its device carries 20 Mbit/s past podweir", "cure kubectl podweir doctor names",
		"egress carries nothing: tcx program x on veth1 drops every packet, which is not podweir.")
	for want, since := range map[string]time.Duration{
		"has been at its limit of 20 Mbit/s since 03:00 UTC: no heavy flow": 24*time.Hour - time.Second,
		"has been at its limit of 20 Mbit/s since 2026-11-23 03:00 UTC: no": 24 * time.Hour,
	} {
		now := seen(2*time.Second, terms.PolicyStrict, terms.QueueTBF, view.Counters{SentBytes: 5_000_000})
		state := now.Nodes[0].Answer.Status
		state.Pods[0].Limits[0].AtLimitSince = state.Time.Add(-since)
		must.Have(t, "the verdict", cluster.Explain("ns/web", seen(0, terms.PolicyStrict, terms.QueueTBF, view.Counters{}), now).Directions[0].Verdict, want)
	}
	gone := cluster.Explain("ns/web", seen(0, terms.PolicyStrict, terms.QueueTBF, view.Counters{}), cluster.New(nil, 0))
	must.Be(t, "the node of a pod that went", "n1", gone.Node)
	exits(t, "a pod that went", gone.Exit, cluster.ExitUnknown, "not any more")
	down := cluster.New([]cluster.Node{{Name: "n1", Error: "no route to host"}}, 0)
	silent := cluster.Explain("ns/web", seen(0, terms.PolicyStrict, terms.QueueTBF, view.Counters{}), down)
	exits(t, "a pod whose node does not answer any more", silent.Exit, cluster.ExitUnknown, "no route to host")
}

// Explain says what the pod asks for where it has another limit, and which pods are at the other ends of its flows.
func TestExplainNamesDecisionsAndPods(t *testing.T) {
	t.Parallel()
	look := func(at time.Duration, bytes uint64) *cluster.Nodes {
		n := seen(at, terms.PolicyStrict, terms.QueueTBF, view.Counters{SentBytes: bytes, HeavyFlows: []terms.Flow{flow(1, bytes)}})
		state := n.Nodes[0].Answer.Status
		state.Pods[0].Limits[0].Asked, state.Pods[0].Limits[0].DecidedBy = 50e6, "maxRate"
		state.NameEnds(map[netip.Addr]string{netip.MustParseAddr("10.0.0.9"): "default/flood", netip.MustParseAddr("10.0.0.1"): "ns/web"})
		return n
	}
	text := cluster.Explain("ns/web", look(0, 0), look(2*time.Second, 5_000_000)).Text(time.Time{})
	must.Have(t, "the text", text, "Decided by maxRate: ns/web egress has 20 Mbit/s in place of 50 Mbit/s.\n", "\n           10.0.0.9 is default/flood\n")
	must.Have(t, "the text", text, "!10.0.0.1 is")
}

// A pod whose namespace has a limit is told what its share is and who decides it: what slows the pod is the share,
// and not the limit.
func TestVerdictsInAGroup(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		share   units.BitRate
		noShare string
		divided bool
		c       view.Counters
		want    []string
	}{
		"held": {2_500_000, "", true, view.Counters{SentBytes: 620_000, Drops: 20, WaitingBytes: 7}, []string{
			"egress is held by its share: the agent gives it 2.5 Mbit/s now of the 20 Mbit/s that the pods of its namespace have together on n1;",
			"it carries 2.48 Mbit/s, 10 packets/s were dropped and 7 bytes wait; light flows",
		}},
		"not held": {1_000_000, "", true, view.Counters{SentBytes: 25_000}, []string{
			"the limit is not what slows it; the agent gives it 1 Mbit/s now of the 20 Mbit/s",
		}},
		"all of it": {20_000_000, "", true, view.Counters{SentBytes: 5_000_000, WaitingBytes: 7}, []string{
			"is at its limit of 20 Mbit/s: no heavy flow", "; the agent gives it 20 Mbit/s now",
		}},
		"no agent": {2_500_000, "", false, view.Counters{SentBytes: 620_000, WaitingBytes: 7}, []string{
			"egress is held by its share: no agent divides: it keeps 2.5 Mbit/s of the 20 Mbit/s",
		}},
		"outside": {0, "it has no queue", true, view.Counters{SentBytes: 25_000}, []string{
			"it has no share of the 20 Mbit/s that the pods of its namespace have together on n1: it has no queue",
		}},
	} {
		look := func(at time.Duration, c view.Counters) *cluster.Nodes {
			all := seen(at, terms.PolicyStrict, terms.QueueTBF, c)
			state := all.Nodes[0].Answer.Status
			limit := &state.Pods[0].Limits[0].Limit
			limit.Group, limit.Share, limit.NoShare = 20e6, tt.share, tt.noShare
			if tt.divided {
				state.Groups = []terms.Group{{Namespace: "ns", Direction: terms.Name(terms.Egress), Limit: 20e6}}
			}
			return all
		}
		e := cluster.Explain("ns/web", look(0, view.Counters{}), look(2*time.Second, tt.c))
		must.Have(t, name, e.Directions[0].Verdict, tt.want...)
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
		must.Have(t, name, string(must.Get(json.Marshal(value))(t)), `"heavyFlows":[],"flowBitsPerSecond":[]`)
	}
}

// Many pods are counted, and listed where that is requested.
func TestPlanOfManyPods(t *testing.T) {
	t.Parallel()
	c := view.Counters{SentBytes: 6_000_000, WouldDropBytes: 1_000_000}
	p := cluster.MakePlan(beyond(0, 30, view.Counters{}), beyond(2*time.Second, 30, c), "ns")
	short, wide := p.Text(false), p.Text(true)
	must.Have(t, "status", short, "limit 30 pods", "WOULD DROP  and 20 more, see -o wide", "List the 30 pods and their limits with -o wide.")
	must.Be(t, "directions of -o wide", 30, strings.Count(wide, "WOULD DROP  ns/web"))
	must.Have(t, "-o wide", wide, "ns/web-29                   n1            20 Mbit/s")
	none := cluster.MakePlan(seen(0, terms.PolicyStrict, terms.QueueTBF, c), seen(2*time.Second, terms.PolicyStrict, terms.QueueTBF, c), "")
	must.Have(t, "a node that enforces its limit", none.Text(false), "No limit is observed only: to enforce limits would change nothing. Nothing\nchanges for 1 pod ")
	must.Len(t, "pods of the namespace n", 0, cluster.MakePlan(beyond(0, 30, c), beyond(2*time.Second, 30, c), "n").Pods)
}

// grouped gives the pods of a look limits that are observed, together with others of their namespace.
func grouped(at time.Duration, sent ...uint64) *cluster.Nodes {
	n := beyond(at, len(sent), view.Counters{})
	for i := range sent {
		p := &n.Nodes[0].Answer.Status.Pods[i]
		p.Pod = fmt.Sprintf("batch/etl-%d", i)
		p.Limits = slices.Clone(p.Limits)
		l := &p.Limits[0]
		l.Rate, l.Group, l.SentBytes = 200e6, 200e6, sent[i]
		switch i {
		case 0:
			l.Group = 400e6 // the default of another network
		case 3:
			l.NoShare = "it has no queue"
		case 4:
			l.Enforce = terms.Name(terms.EnforceLimit)
		}
	}
	return n
}

// A group with a pod that is observed is planned as the agent would divide it: pods that have their shares
// already count, and what is sent outside of the group is taken off its limit, the lowest of different ones.
func TestPlanOfAGroup(t *testing.T) {
	t.Parallel()
	const mbit = 1_000_000 / 8 * 2 // of the two seconds between the looks
	before, now := grouped(0, 0, 0, 0, 0, 0), grouped(2*time.Second, 120*mbit, 90*mbit, 8*mbit, 20*mbit, 4*mbit)
	p := cluster.MakePlan(before, now, "batch")
	want := []cluster.PlannedGroup{{
		Node: "n1", Namespace: "batch", Direction: terms.Name(terms.Egress), Limit: 200e6, Sent: 242e6,
		Members: []cluster.PlannedMember{
			{Pod: "batch/etl-0", Interface: "eth0", Sent: 120e6, Share: 82.5e6},
			{Pod: "batch/etl-1", Interface: "eth0", Sent: 90e6, Share: 82.5e6},
			{Pod: "batch/etl-3", Interface: "eth0", Sent: 20e6, Outside: "it has no queue"},
			{Pod: "batch/etl-2", Interface: "eth0", Sent: 8e6, Share: 10e6},
			{Pod: "batch/etl-4", Interface: "eth0", Sent: 4e6, Share: 5e6},
		},
	}}
	must.Match(t, "groups", want, p.Groups, cmpopts.IgnoreUnexported(cluster.PlannedMember{}))
	text := strings.Join(strings.Fields(p.Text(false)), " ")
	must.Have(t, "the text", text, "TOGETHER egress of namespace batch on n1: its pods would have 200 Mbit/s together, and send 242 Mbit/s now; "+
		"batch/etl-0 would have 82.5 Mbit/s, and sends 120 Mbit/s; batch/etl-1 would have 82.5 Mbit/s, and sends 90 Mbit/s; "+
		"batch/etl-3 would have no share, because it has no queue, and sends 20 Mbit/s", "!etl-2 would")
	must.Have(t, "-o wide", strings.Join(strings.Fields(p.Text(true)), " "), "batch/etl-2 would have 10 Mbit/s, and sends 8 Mbit/s")
	for i := range now.Nodes[0].Answer.Status.Pods {
		now.Nodes[0].Answer.Status.Pods[i].Limits[0].Enforce = terms.Name(terms.EnforceLimit)
	}
	must.Len(t, "groups that are divided already", 0, cluster.MakePlan(before, now, "").Groups)
	must.Len(t, "groups of another namespace", 0, cluster.MakePlan(before, grouped(2*time.Second, 0), "other").Groups)
}

// Of two agents on a node the one that knows its pods is heard.
func TestNewHearsWhoKnowsMost(t *testing.T) {
	knows := &cluster.Answer{Status: &view.Status{}}
	waits := &cluster.Answer{Error: "another agent manages this node"}
	got := cluster.New([]cluster.Node{
		{Name: "n2", Error: "no answer"}, {Name: "n1", Error: "no answer"}, {Name: "n1", Answer: waits}, {Name: "n1", Answer: knows},
	}, 1)
	want := &cluster.Nodes{Schema: 1, Missing: 1, Nodes: []cluster.Node{{Name: "n1", Answer: knows}, {Name: "n2", Error: "no answer"}}}
	must.Match(t, "New", want, got)
}
