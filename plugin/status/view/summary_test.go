// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package view_test

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/plugin/units"
)

var now = time.Date(2026, 11, 24, 3, 0, 0, 0, time.UTC)

func limited(name string) view.Pod {
	return view.Pod{Pod: name, State: view.Limited, Limits: []view.Limit{
		{Interface: "eth0", Limit: limitOf(terms.Egress, 10e6)}, {Interface: "eth0", Limit: limitOf(terms.Ingress, 20e6)},
	}}
}

// limitOf is a limit with the usual queue.
func limitOf(d terms.Direction, rate units.BitRate) terms.Limit {
	return terms.Limit{
		Direction: terms.Name(d), Rate: rate, Policy: terms.Name(terms.PolicyStrict), Queue: terms.Name(terms.QueueTBF), CapHolds: true,
	}
}

// five are pods of each kind, with causes as long as they get.
func five() []view.Pod {
	long := strings.Repeat("cannot make the queue on eth0: the kernel has no memory left for it; ", 4)
	return []view.Pod{
		{Pod: "team-a/web-5d8f7c9b6d-x2x4q", State: view.NotLimited, Cause: long, Cure: "the agent tries again by itself; podweir doctor finds what prevents it", Since: now.Add(-13 * time.Minute)},
		{Pod: "team-a/cache-0", State: view.Exceeded, Cause: "egress of eth0 has a limit of 10 Mbit/s and carried 25 Mbit/s; likely cause: a process with a raw socket", Cure: "podweir explain PW612", Since: now.Add(-40 * time.Second)},
		{Pod: "team-b/db-0", State: view.Differs, Cause: "egress build-queue: eth0: no root qdisc, want tbf; egress attach: no filter", Cure: "podweir repair"},
		{Pod: "team-b/db-1", State: view.Unknown, Cause: "its record cannot be read: unexpected end of JSON input", Cure: "podweir doctor"},
		{Pod: "team-c/batch", State: view.Tampered, Cause: "ingress of eth0 has a limit of 1 Gbit/s, which holds though it is taken away again and again; likely cause: " + long, Cure: "podweir explain PW612", Since: now.Add(-3 * time.Hour)},
	}
}

func node(pods ...view.Pod) *view.Status {
	n := &view.Status{Schema: view.Schema, Time: now}
	for i := range pods {
		n.Add(&pods[i])
	}
	n.Sort()
	return n
}

// fits fails the test if a line is wider than a screen.
func fits(t *testing.T, lines []string, width int) {
	t.Helper()
	for _, l := range lines {
		must.AtMost(t, "columns of "+l, width, utf8.RuneCountInString(l))
	}
}

// The state of 110 pods of which 5 are broken fits a screen of 80 columns and 24 lines, and
// names all five.
func TestSummaryFitsAScreen(t *testing.T) {
	pods := five()
	for i := range 105 {
		pods = append(pods, limited(fmt.Sprintf("default/web-%03d", i)))
	}
	text := node(pods...).Summary("this node", false)
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) > 23 { // one is the prompt's
		t.Errorf("the summary has %d lines:\n%s", len(lines), text)
	}
	fits(t, lines, terms.Width)
	for _, p := range five() {
		must.Have(t, "the summary", text, p.Pod)
	}
	must.Have(t, "the summary", text,
		"105 of 110 pods are limited as they should be; 5 are not:\nNOT LIMITED team-a/web-5d8f7c9b6d-x2x4q since 2026-11-24T02:47:00Z (13 min)\n  cause  cannot make",
		"EXCEEDED    team-a/cache-0 since", "  cure   podweir repair\n",
		"105 pods as they should be: limits 105 egress, 105 ingress (210 by tbf). List\nthem with -o wide.\n",
	)
}

// The file to remove is a part of the cause, and is read as a whole.
func TestACauseIsNotCutWhereThereIsRoom(t *testing.T) {
	p := five()[3]
	p.Cause = "the record of why is damaged: remove /run/podweir/failures/" + strings.Repeat("0123456789abcdef", 4) + ",eth0.json: it says nothing"
	must.Have(t, "the summary", strings.Join(strings.Fields(node(p).Summary("this node", false)), ""), "eth0.json:itsaysnothing")
}

// A limit without a queue is no fault, and is told.
func TestSummaryNamesRoughLimits(t *testing.T) {
	var pods []view.Pod
	for i := range 5 {
		p := limited(fmt.Sprintf("ns/p%d", i))
		p.Limits[1].CapHolds, p.Limits[1].Queue = false, terms.Name(terms.QueueNone)
		pods = append(pods, p)
	}
	want := "\nLimits that a single second may exceed, as -o wide explains: ns/p0 ingress,\nns/p1 ingress, ns/p2 ingress and 2 more.\n"
	must.Have(t, "five policed pods", node(pods...).Summary("this node", false), want)
}

// Pods that are observed only are said not to be limited, and are no fault.
func TestSummaryOfObservedPods(t *testing.T) {
	pods := []view.Pod{limited("default/web"), limited("default/api"), limited("default/db")}
	for i := range 2 {
		pods[i].State = view.Observed
		for j := range pods[i].Limits {
			pods[i].Limits[j].Enforce, pods[i].Limits[j].Queue = terms.Name(terms.EnforceObserve), terms.Name(terms.QueueNone)
		}
	}
	want := `2 pods are observed only: what exceeds their limits is counted, and nothing is held.
The only pod with a limit is limited as it should be.

POD                                       EGRESS         INGRESS        POLICY
default/api                               10 Mbit/s      20 Mbit/s      observed
default/web                               10 Mbit/s      20 Mbit/s      observed
default/db                                10 Mbit/s      20 Mbit/s      strict
`
	n := node(pods...)
	must.Match(t, "two pods observed and one limited", want, n.Summary("this node", false))
	must.Len(t, "broken", 0, n.Broken())
	must.Have(t, "one pod observed", node(pods[0]).Summary("this node", false), "1 pod is observed only: what exceeds its limits", "!limited as")
	both := node(limited("ns/both"), pods[0])
	both.Add(&view.Pod{Pod: "ns/both", State: view.Observed})
	both.Add(&view.Pod{Pod: pods[0].Pod, State: view.Limited})
	must.Have(t, "two pods with one interface observed, and another limited", both.Summary("this node", false), "All 2 pods with a limit are limited", "!observed only")
	for range 12 {
		pods = append(pods, pods[0])
		pods[len(pods)-1].Pod = fmt.Sprintf("ns/p%d", len(pods))
	}
	must.Have(t, "the summary", node(pods...).Summary("this node", false), "(2 by tbf, 28 observed")
	n.Add(&view.Pod{Pod: "default/web", State: view.NotLimited, Cause: "no bpf file system"})
	if n.Sort(); n.Pods[0].State != view.NotLimited || n.Pods[0].Cause != "no bpf file system" {
		t.Errorf("an observed pod that is broken is %+v", n.Pods[0])
	}
}

// A pod is one, whatever is found out about it; its worst state counts.
func TestAddJoinsWhatIsOfOnePod(t *testing.T) {
	pod := limited("ns/web")
	n := node(pod,
		view.Pod{Pod: "ns/web", State: view.Tampered, Cause: "taken away", Cure: "a"},
		view.Pod{Pod: "ns/web", State: view.NotLimited, Cause: "gone", Cure: "b"},
		view.Pod{Pod: "ns/web", State: view.Differs, Cause: "other", Cure: "c"})
	want := []view.Pod{{
		Pod: "ns/web", State: view.NotLimited, Limits: pod.Limits,
		Cause: "gone; also tampered: taken away; also differs: other", Cure: "b",
	}}
	must.Match(t, "pods", want, n.Pods)
}

// looks are two looks at pods with a limit of 10 Mbit/s, half a second apart, in which the
// device of each carries so many bytes, of which podweir sees so many.
func looks(change func(pod int, l *view.Limit), carried, seen []uint64) *view.Status {
	look := func(second time.Duration, part uint64) *view.Status {
		n := &view.Status{Time: now.Add(second)}
		for i := range carried {
			sum := seen[i] * part
			both := [2]uint64{sum, sum}
			l := view.Limit{
				Interface: "eth0", Limit: limitOf(terms.Egress, 10e6),
				Passing: []view.Passing{{Seen: &both, Device: [2]uint64{1e9 + carried[i]*part, 1e9 + carried[i]*part}}}, Counters: view.Counters{SentBytes: sum},
			}
			change(i, &l)
			n.Pods = append(n.Pods, view.Pod{Pod: fmt.Sprintf("ns/pod-%02d", i), State: view.Limited, Limits: []view.Limit{l}})
		}
		return n
	}
	before, is := look(0, 0), look(500*time.Millisecond, 1)
	is.Looked(before)
	return is
}

// What a pod wrote as its rate and nobody can read is beside the limit that it got.
func TestStatusOfARateThatCannotBeRead(t *testing.T) {
	t.Parallel()
	n := looks(func(_ int, l *view.Limit) { l.AskedText, l.AskedIn, l.DecidedBy = "8", "annotation x", "defaultRate" }, []uint64{0}, []uint64{0})
	for _, want := range []string{"ns/pod-00 egress has 10 Mbit/s in place of \"8\" (annotation x), where a rate in bits per second from 1k to 400G, written as a Kubernetes quantity such as 10M is accepted", "egress        ?    10M"} {
		must.Have(t, "status", strings.Join(strings.Fields(n.Summary("this node", false)), " "), strings.Join(strings.Fields(want), " "))
	}
}

// Each limit has a line with what the pod asks for, what is in force, what it carries, and
// what goes past podweir.
func TestStatusLines(t *testing.T) {
	t.Parallel()
	n := looks(func(pod int, l *view.Limit) {
		switch pod {
		case 1:
			l.Rate, l.Asked, l.DecidedBy = 200e3, 50e6, "maxRate"
			l.Drops = 1234
		case 2:
			l.DecidedBy = "defaultRate"
		case 3:
			l.Ceiling = true
		case 4:
			l.Blocked = `tcx program "x" (7) on veth1 drops every packet`
		}
	}, []uint64{0, 12_400, 300_000, 5e6, 0, 9e6}, []uint64{0, 12_400, 300_000, 500_000, 0, 100_000})
	want := `5 of 6 pods are limited as they should be; 1 is not:
NOT LIMITED ns/pod-05
  cause  egress of eth0: its device carries 142 Mbit/s past podweir, which sees
         1.6 Mbit/s
  cure   podweir doctor names the programs of others on the way (PW501, PW502,
         PW506)
1 pod has a lower limit than it asks for.

POD                      DIR      ASKED  LIMIT    NOW  DROPS   PAST  (bit/s)
ns/pod-00                egress     10M    10M      0      0      0  idle
ns/pod-01                egress     50M   200k   198k  1.23k      0  at limit
ns/pod-02                egress       -    10M   4.8M      0      0  below it
ns/pod-03                egress     10M    10M     8M      0    72M  below it
ns/pod-04                egress     10M    10M      0      0      0  BLOCKED
ns/pod-05                egress     10M    10M   1.6M      0   142M  NOT LIMITED
ns/pod-03 egress: 72 Mbit/s go past its queue: a process in the pod goes around
the queue with a packet socket, or took the queue away; the ceiling on the host
side keeps the limit.
ns/pod-04 egress: tcx program "x" (7) on veth1 drops every packet. That is not
podweir.
Decided by maxRate: ns/pod-01 egress has 200 kbit/s in place of 50 Mbit/s.
`
	must.Match(t, "status", want, n.Summary("this node", false))
}

// Among many pods only those that a user may ask about have a line.
func TestStatusLinesOfManyPods(t *testing.T) {
	t.Parallel()
	carried := make([]uint64, 30)
	carried[7], carried[9] = 625_000, 200_000
	text := looks(func(int, *view.Limit) {}, carried, carried).Summary("this node", false)
	must.Have(t, "status of 30 pods, one of them at its limit", text,
		"ns/pod-07                egress     10M    10M    10M      0      0  at limit\n", "30 pods as they should be: limits 30 egress (30 by tbf).")
	must.Be(t, "pods with a line", 1, strings.Count(text, "ns/pod-"))
}

// Where no limit is at work it is said since when, and where to look next.
func TestStatusWhenPodweirIsNotTheCause(t *testing.T) {
	t.Parallel()
	attached := now.Add(-time.Hour)
	idle := func(_ int, l *view.Limit) { l.Attached = attached }
	one := []uint64{300_000}
	for name, tt := range map[string]struct {
		n    *view.Status
		want string
	}{
		"idle":                   {looks(idle, []uint64{0}, []uint64{0}), "Limits idle since " + attached.Format(time.RFC3339) + ": what is slow or lost is not podweir. Next: podweir explain"},
		"the clock was set back": {looks(func(i int, l *view.Limit) { idle(i, l); l.Attached = now.Add(time.Hour) }, one, one), "No limit is at work now"},
		"dropped before":         {looks(func(_ int, l *view.Limit) { l.Drops = 3 }, one, one), "No limit is at work now: what is slow or lost is not podweir. Next:"},
		"at its limit":           {looks(idle, []uint64{625_000}, []uint64{625_000}), ""},
		"past its limit":         {looks(idle, []uint64{9e6}, []uint64{0}), ""},
		"lost by a rule":         {losing(looks(idle, one, one)), "is not podweir. Packets are lost elsewhere on this node: nftables rule 3: 5 packets just now, 7 in all."},
		"lost in many places": {func() *view.Status {
			n := looks(idle, one, one)
			n.Losing = view.Losing(nil, []terms.Loss{{Where: "a", Packets: 1}, {Where: "b", Packets: 2}, {Where: "c", Packets: 2}, {Where: "nftables rule 3", Packets: 9}, {Where: "d", Packets: 0}})
			return n
		}(), "on this node: nftables rule 3: 9 packets just now, 9 in all; b: 2 packets just now, 2 in all; c: 2 packets just now, 2 in all and 1 more."},
		"nobody is there": {&view.Status{Rates: []view.PodRate{}}, ""},
	} {
		text := strings.Join(strings.Fields(tt.n.Summary("this node", false)), " ")
		if tt.want == "" && strings.Contains(text, "not podweir") || !strings.Contains(text, tt.want) {
			t.Errorf("%s: status has %q, want %q", name, text, tt.want)
		}
	}
}

// Every command of status runs where it is read, also those of what two looks show.
func TestCommandsOfStatus(t *testing.T) {
	t.Parallel()
	const run = "kubectl exec p -- podweir"
	for _, n := range []*view.Status{looks(func(int, *view.Limit) {}, []uint64{0, 9e6}, []uint64{0, 0}), looks(func(int, *view.Limit) {}, []uint64{0}, []uint64{0})} {
		text := strings.Join(strings.Fields(n.Runnable(run).Summary("this node", false)), " ")
		if !strings.Contains(text, run) || terms.Runnable(text, run) != text {
			t.Errorf("status has a command that does not run where it is read: %s", text)
		}
	}
}

func losing(n *view.Status) *view.Status {
	n.Losing = view.Losing([]terms.Loss{{Where: "nftables rule 3", Packets: 2}, {Where: "eth0", Packets: 1}}, []terms.Loss{{Where: "nftables rule 3", Packets: 7}, {Where: "eth0", Packets: 1}})
	return n
}

// A pod with several interfaces has a limit on each, and the table says so in its column.
func TestLimitsOfSeveralInterfaces(t *testing.T) {
	for want, rates := range map[string][]units.BitRate{
		"-": nil, "10 Mbit/s": {10e6}, "2 × 10 Mbit/s": {10e6, 10e6}, "2 × 9.87M": {9.87e6, 9.87e6}, "10M, 20M": {10e6, 20e6}, "2 × 10M, 1G": {10e6, 1e9, 10e6},
	} {
		p := view.Pod{Pod: "ns/web", State: view.Limited}
		for i, rate := range rates {
			p.Limits = append(p.Limits, view.Limit{Interface: []string{"eth0", "net1", "net2"}[i], Limit: limitOf(terms.Egress, rate)})
		}
		must.Be(t, fmt.Sprintf("Limit of %v", rates), want, p.Limit(terms.Egress))
		must.Have(t, "the table", view.Table([]view.Pod{p}), want)
	}
}

func TestRateHasThreeDigits(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0 bit/s", 1: "1 bit/s", 999.4: "999 bit/s", 999.6: "1 kbit/s", 9_870_000: "9.87 Mbit/s", 98_765_432: "98.8 Mbit/s",
		99.96e6: "100 Mbit/s", 123.4e6: "123 Mbit/s", 1.5e9: "1.5 Gbit/s", 400e9: "400 Gbit/s", -5: "0 bit/s", math.NaN(): "0 bit/s",
		9.996e6: "10 Mbit/s", 1.844e19: "18.4 Ebit/s", 1e22: "10000 Ebit/s",
	} {
		must.Be(t, fmt.Sprintf("Rate(%v)", v), want, view.Rate(v))
	}
	must.Be(t, "Short", "9.87M", view.Short(9_870_000))
}

func TestText(t *testing.T) {
	must.Match(t, "Wrap", []string{"a bb", "ccccc", "dd"}, terms.Wrap("a \x1b bb\nccccc dd", 4))
	for width, want := range map[int]string{10: "abcdefgh", 8: "abcdefgh", 7: "abc…fgh", 4: "a…gh", 1: "a", 0: ""} {
		must.Be(t, fmt.Sprintf("Cut to %d", width), want, view.Cut("abcdefgh", width))
	}
	// Two pods of one name, in namespaces whose names differ in the middle.
	twins := []view.Pod{limited("customers-of-the-north-0001-in-production/postgresql-main-0"), limited("customers-of-the-north-0002-in-production/postgresql-main-0"), limited("default/web")}
	want := "\ncustomers-of-the-north-0001-in-production/postgresql-main-0\n" + strings.Repeat(" ", 42) + "10 Mbit/s"
	must.Have(t, "the table", view.Table(twins), want, "\ncustomers-of-the-north-0002-in-production/postgresql-main-0\n", "\ndefault/web      ")
	top := view.Top{}
	top.Observe([]view.PodRate{carried(twins[0].Pod, 10e6, 1e6, 0), carried(twins[1].Pod, 10e6, 1e6, 0)}, now)
	must.Have(t, "top", top.Plain(), "\ncustomers-of-the-north-0002-in-production/postgresql-main-0\n"+strings.Repeat(" ", 27)+"egress")
	must.Be(t, "Pad", "ab  ", view.Pad("ab", 4))
	must.Be(t, "Printable", "a [31m ü", terms.Printable("a\x1b[31m\u009bü"))
}

func counted(at time.Duration, c view.Counters, flow uint64) *view.Status {
	c.HeavyFlows = []terms.Flow{{
		Protocol: 6, Source: netip.MustParseAddrPort("10.0.0.1:1"), Dest: netip.MustParseAddrPort("10.0.0.2:2"), Bytes: flow,
	}}
	return &view.Status{Time: now.Add(at), Pods: []view.Pod{{Pod: "ns/web", State: view.Limited, Limits: []view.Limit{{
		Interface: "eth0", Limit: limitOf(terms.Egress, 1000), Counters: c,
	}}}}}
}

func TestRates(t *testing.T) {
	tests := []struct {
		name        string
		before, now *view.Status
		want        view.PodRate
	}{
		{
			"two looks", counted(0, view.Counters{SentBytes: 100, LightBytes: 1000, HeavyBytes: 2000, DroppedBytes: 100, Drops: 1}, 500),
			counted(2*time.Second, view.Counters{SentBytes: 1100, LightBytes: 2000, HeavyBytes: 6000, DroppedBytes: 350, Drops: 5, WaitingBytes: 77}, 1500),
			view.PodRate{
				SentBitsPerSecond: 4000, LightBitsPerSecond: 4000, HeavyBitsPerSecond: 16_000, DroppedBitsPerSecond: 1000, DropsPerSecond: 2, Drops: 5, WaitingBytes: 77,
				FlowBitsPerSecond: []float64{4000},
			},
		},
		{
			"new since then", &view.Status{Time: now}, counted(2*time.Second, view.Counters{SentBytes: 500}, 1000),
			view.PodRate{SentBitsPerSecond: 2000, FlowBitsPerSecond: []float64{4000}},
		},
		{
			"attached again, its counters start from zero", counted(0, view.Counters{SentBytes: 9000, Drops: 90}, 900),
			counted(2*time.Second, view.Counters{SentBytes: 1000}, 100),
			view.PodRate{SentBitsPerSecond: 4000, FlowBitsPerSecond: []float64{400}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := view.Rates(tt.before, tt.now)
			must.Len(t, "rates", 1, got)
			tt.want.Pod, tt.want.Interface, tt.want.Limit = "ns/web", "eth0", limitOf(terms.Egress, 1000)
			got[0].HeavyFlows = nil
			must.Match(t, "Rates", tt.want, got[0])
		})
	}
	if got := view.Rates(counted(0, view.Counters{}, 0), &view.Status{}); got == nil || len(got) != 0 {
		t.Errorf("Rates of a pod that went = %v, want an empty list, not null", got)
	}
}

// A look that took long between its counters and its end makes no rate higher.
func TestRatesGoByTheTimeOfTheCounters(t *testing.T) {
	at := func(read, end time.Duration, bytes uint64) *view.Status {
		p := limited("ns/web")
		p.Limits[0].SentBytes, p.Limits[0].Read = bytes, now.Add(read)
		n := node(p)
		n.Time = now.Add(end)
		return n
	}
	before, is := at(0, time.Second, 0), at(2*time.Second, 2*time.Second, 2_500_000)
	// Devices of two pods may have one name.
	for i, path := range []string{"/run/netns/one", "/run/netns/other"} {
		device := terms.Device{Name: "net1", NetNSPath: path, EgressBytes: uint64(i) * 1e9}
		before.Others, is.Others = append(before.Others, view.Other{Device: device}), append(is.Others, view.Other{Device: device})
	}
	is.Looked(before)
	must.Be(t, "bit/s of a device that carried nothing", 0, is.Others[1].EgressBitsPerSecond)
	rates := view.Rates(before, is)
	must.Be(t, "bit/s in 2 s of a look that ended after 1 s", 10e6, rates[0].SentBitsPerSecond)
}

func TestVerdict(t *testing.T) {
	for name, tc := range map[string]struct {
		sent  float64
		flows []float64
		want  string
	}{
		"below":    {5e6, []float64{5e6}, ""},
		"one flow": {9.9e6, []float64{9.6e6, 0.1e6}, "one flow offers most of the traffic"},
		"many":     {9.9e6, []float64{2e6, 2e6, 2e6, 2e6}, "the limit is too low"},
		"none":     {9.9e6, nil, "the limit is too low"},
	} {
		r := view.PodRate{Limit: limitOf(terms.Egress, 10e6), SentBitsPerSecond: tc.sent, FlowBitsPerSecond: tc.flows}
		must.Part(t, name, tc.want, r.Verdict())
	}
}

func carried(pod string, limit units.BitRate, sent, drops float64) view.PodRate {
	return view.PodRate{
		Pod: pod, Interface: "eth0", Limit: limitOf(terms.Egress, limit), SentBitsPerSecond: sent, DropsPerSecond: drops,
		HeavyFlows: []terms.Flow{{
			Protocol: 6, Source: netip.MustParseAddrPort("10.0.0.1:4242"), Dest: netip.MustParseAddrPort("10.0.0.9:443"),
		}},
		FlowBitsPerSecond: []float64{sent * 0.97},
	}
}

// What the limit does not count does not use it up: exempt networks, and light flows under elephants.
func TestShareOfWhatIsNotCounted(t *testing.T) {
	t.Parallel()
	exempt, elephants := carried("default/web", 10e6, 41e6, 0), carried("default/web", 10e6, 41e6, 0)
	exempt.ExemptBitsPerSecond = 41e6
	elephants.Policy, elephants.LightBitsPerSecond = terms.Name(terms.PolicyElephants), 36e6
	if exempt.Share() != 0 || exempt.Verdict() != "" || exempt.OfferedBitsPerSecond() != 41e6 || elephants.Share() != 0.5 {
		t.Errorf("shares of the limit: %v of exempt networks, offered %v, %q; %v under elephants, want 0 and 0.5",
			exempt.Share(), exempt.OfferedBitsPerSecond(), exempt.Verdict(), elephants.Share())
	}
	text := looks(func(_ int, l *view.Limit) { l.ExemptBytes = l.SentBytes }, []uint64{300_000}, []uint64{300_000}).Summary("this node", false)
	must.Have(t, "status", text, "10M    10M   4.8M      0      0  exempt\n")
}

func TestTopTable(t *testing.T) {
	top := view.Top{Interval: 2 * time.Second}
	broken, half := carried("default/differs", 10e6, 0, 0), carried("default/half", 100e6, 49.96e6, 0)
	broken.State = view.Differs
	half.HeavyFlows[0].SourcePod, half.HeavyFlows[0].DestPod = "default/half", "default/db"
	top.Observe([]view.PodRate{
		carried("default/idle", 10e6, 12, 0), half,
		carried("team-a/a-name-that-is-longer-than-its-column-x2x4q", 10e6, 9_870_400, 20),
		{Pod: "net/c4", Error: "its record cannot be read"},
		broken,
	}, now)
	got := top.Plain()
	must.Have(t, "the text", got,
		"podweir top  03:00:00  every 2s  problems: 2  1 idle not shown\n",
		"  10M  9.87M [██████████]  99 %    20\n", " 100M    50M [█████░░░░░]  50 %\n",
		"no rates of net/c4: its record cannot be read\n",
		"default/differs            egress     10M      0 DIFFERS        0 %\n",
	)
	must.Have(t, "the text", got, "!default/idle", "!\x1b")
	if strings.Index(got, "x2x4q") > strings.Index(got, "default/half") {
		t.Errorf("the order is wrong:\n%s", got)
	}
	top.Flows = true
	// The pod at the other end of a flow is named, and no pod is told its own name.
	must.Have(t, "with flows", top.Plain(), "  tcp 10.0.0.1:4242 > 10.0.0.9:443 ", " offers  9.57M  97 %\n", "\n    10.0.0.9 is default/db\n", "!10.0.0.1 is")
	top.Filter = "t/half"
	must.Have(t, "with a filter of one pod", top.Plain(), "default/half", "!differs", "!net/c4", "!x2x4q")
}

// A narrow screen has shorter names and no bars, and still who drops, who is not limited, and how much each carries.
func TestTopOnANarrowScreen(t *testing.T) {
	top := view.Top{Interval: 2 * time.Second, Flows: true}
	broken := carried("default/differs", 10e6, 0, 40)
	broken.State = view.NotLimited
	top.Observe([]view.PodRate{broken, carried("default/half", 100e6, 49.96e6, 20)}, now)
	for width, parts := range map[int][]string{
		72: {"every 2s", "[█████░░░░░]", "NOT LIMITED"}, 64: {"defaul…differs", "[█████░░░░░]", "NOT LIMITED", "DROPS/s"},
		63: {"   0 %    40\n  NOT LIMITED\n", "top, bit/s"}, 40: {"   0 %    40\n  NOT LIMITED\n", "top, bit/s", "problems: 1", "  50M  50 %    20\n", "  % DROPS/s\n", "  tcp 10.0.0.1:4242\n  > 10.0.0.9:443    offers  48.5M  97 %", "defa…ffers"},
	} {
		screen := strings.Join(top.Screen(width, 24), "\n")
		must.Have(t, "the screen", screen, parts...)
		fits(t, strings.Split(screen, "\n"), width)
	}
}

// Both ends of a flow of IPv6 can be read.
func TestTopFlowsOfIPv6(t *testing.T) {
	top := view.Top{Interval: time.Second, Flows: true}
	r := carried("default/half", 100e6, 50e6, 0)
	const from, to = "[2600:1f14:aaaa:bbbb:cccc:dddd:eeee:2]:54321", "[2600:1f14:aaaa:bbbb:cccc::1]:9999"
	r.HeavyFlows[0].Source, r.HeavyFlows[0].Dest = netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)
	top.Observe([]view.PodRate{r}, now)
	must.Have(t, "the table", strings.Join(top.Screen(80, 24), "\n"), "  tcp "+from+"\n  > "+to)
}

// Pods that are broken, each in its own way, come before busy ones that fill the screen.
func TestTopShowsWhatIsBrokenFirst(t *testing.T) {
	top := view.Top{Interval: time.Second}
	rates := []view.PodRate{{Pod: "default/pod-017", Error: "its record cannot be read"}}
	states := map[int]view.State{31: view.NotLimited, 44: view.Differs, 90: view.Tampered, 108: view.Exceeded}
	for i := range 110 {
		r := carried(fmt.Sprintf("default/pod-%03d", i), 400e9, 396e9, 1e6)
		if r.State = states[i]; r.State != "" {
			r.SentBitsPerSecond = 1e6
		}
		if i != 17 {
			rates = append(rates, r)
		}
	}
	top.Observe(rates, now)
	lines := top.Screen(80, 24)
	must.Len(t, "lines", 24, lines)
	must.Have(t, "the screen", strings.Join(lines, "\n"), "problems: 5", "pod-017", "pod-031", "pod-044", "pod-090", "pod-108")
	for _, l := range lines {
		must.AtMost(t, "columns of "+l, 80, utf8.RuneCountInString(l))
	}
}

// Pods and nodes of which nothing is known share the lines of a cause: a hundred of them
// leave room for the rest.
func TestTopGroupsWhatIsUnknown(t *testing.T) {
	top := view.Top{Interval: time.Second}
	rates := []view.PodRate{carried("default/busy", 10e6, 9.9e6, 0)}
	for i := range 100 {
		rates = append(rates, view.PodRate{Node: fmt.Sprint(i), Pod: fmt.Sprintf("node n%d", i), Error: "no answer"})
	}
	top.Observe(rates, now)
	screen := strings.Join(top.Screen(80, 24), "\n")
	must.Have(t, "the screen", screen, "problems: 100", "no rates of 100: node n0, node n1, ", "  cause  no answer\n", "default/busy")
}

// A limit that pods have together is told with who has most of it, and where nobody divides it.
func TestGroups(t *testing.T) {
	limit := limitOf(terms.Egress, 10e6)
	limit.Group = 200e6
	n := &view.Status{Time: now}
	for _, pod := range []string{"batch/etl-3", "batch/etl-4", "team/web", "own/web"} {
		if pod == "own/web" {
			limit.NoShare = "it has no queue"
		}
		n.Add(&view.Pod{Pod: pod, State: view.Limited, Limits: []view.Limit{{Interface: "eth0", Limit: limit}}})
	}
	n.Groups = []terms.Group{{
		Namespace: "batch", Direction: terms.Name(terms.Egress), Limit: 200e6, Sent: 199e6, Pods: 2, Outside: []string{"batch/fq"},
		Largest: "batch/etl-3", LargestPart: 0.706, AtLimitSince: now,
	}}
	got := strings.Join(strings.Fields(n.Summary("this node", false)), " ")
	must.Have(t, "the text", got,
		"egress of namespace batch is at its limit of 200 Mbit/s on this node since "+now.UTC().Format(time.RFC3339)+", among 2 pods; batch/etl-3 has 71 % of it; outside of it, with their own limits alone: batch/fq.",
		"egress of namespace team has a limit, and no agent divides it: each pod keeps the share that it had.",
		"egress of namespace own has a limit that pods have no share of, only their own limits: status -o wide says why.", "!own has a limit, and",
	)
	must.Have(t, "the summary", got, "!batch has a limit, and no agent")
	top := view.Top{Interval: time.Second}
	one, other := carried("batch/etl-3", 200e6, 140e6, 0), carried("batch/etl-4", 200e6, 58e6, 3)
	one.Group, other.Group = 200e6, 200e6
	one.ExemptBitsPerSecond, one.SentBitsPerSecond = 300e6, 440e6 // which the limit does not count
	top.Observe([]view.PodRate{one, other, carried("team/web", 10e6, 5e6, 0)}, now)
	must.Have(t, "the table", top.Plain(), "batch/*                    egress    200M   198M [██████████]  99 %     3", "!team/*")
	many := terms.Group{Namespace: "batch", Direction: terms.Name(terms.Egress), Limit: 200e6, Pods: 20}
	must.Have(t, "many pods at a small limit", view.GroupText(&many), "; 10 Mbit/s for each of 20 pods: one packet of each is up to 7 % of the limit in 100 ms.")
	many.Limit = 1e9
	must.Have(t, "many pods at a large limit", view.GroupText(&many), "!each")
	n.Groups[0].AtLimitSince, n.Groups[0].Node = time.Time{}, "n7"
	must.Have(t, "below the limit", view.GroupText(&n.Groups[0]), "egress of namespace batch has 199 Mbit/s of its 200 Mbit/s on n7, among 2 pods;")
}

// On a busy node the list of all queues is read long before the device of the last pod. What the device carried in between
// went through the queue, and the list that is read after it has it.
func TestNothingGoesPastBetweenTwoReadings(t *testing.T) {
	t.Parallel()
	was := view.Passing{Device: [2]uint64{1_000_000, 1_000_000}, Seen: &[2]uint64{1_000_000, 1_050_000}}
	is := view.Passing{Device: [2]uint64{2_000_000, 2_000_000}, Seen: &[2]uint64{1_700_000, 2_100_000}}
	must.Be(t, "bytes past a queue that had let out all of them when it was read again", 0, is.Past(&was))
	is.Seen[1] = 1_700_000
	must.Be(t, "bytes past a queue that let out 700,000 of 1,000,000", 300_000, is.Past(&was))
}

// A queue that is made again in between counts from zero. Its program goes on, and is believed.
func TestNothingGoesPastAQueueThatIsMadeAgain(t *testing.T) {
	t.Parallel()
	look := func(device, queue, program uint64) *view.Status {
		d := [2]uint64{device, device}
		return &view.Status{Time: now, Pods: []view.Pod{{Pod: "ns/web", State: view.Limited, Limits: []view.Limit{{
			Interface: "eth0", Passing: []view.Passing{{Device: d, Seen: &[2]uint64{queue, queue}}, {Device: d, Seen: &[2]uint64{program, program}}},
		}}}}}
	}
	before := look(1_000_000, 1_000_000, 1_000_000)
	for name, tt := range map[string]struct {
		now  *view.Status
		past bool
	}{
		"made again": {look(5_000_000, 3_900_000, 5_000_000), false},
		"past both":  {look(5_000_000, 1_100_000, 1_100_000), true},
	} {
		got := view.Rates(before, tt.now)[0]
		must.Be(t, name+": something went past", tt.past, got.PastBitsPerSecond > 0)
		must.Be(t, name+": as top and explain tell it", tt.past, got.State == view.NotLimited)
	}
}

// A pod with hostNetwork that asks for a limit is named, and is no failure.
func TestSummaryOfHostNetwork(t *testing.T) {
	host := view.Pod{Pod: "a/host", State: view.HostNetwork, Cause: "it shares the node's interfaces"}
	n := node(limited("a/web"), host)
	const want = "The only pod with a limit is limited as it should be.\n" +
		"Asks for a limit and has none, as every pod with hostNetwork: a/host. The\nannotation does nothing there.\n"
	must.Match(t, "the summary", want, n.Summary("this node", true))
	must.Len(t, "broken", 0, n.Broken())
	must.Be(t, "how often a/host is named", 1, strings.Count(n.Summary("this node", false), "a/host"))
	must.Have(t, "alone on its node", node(host).Head("this node"), "No pod of this node has a bandwidth limit", "a/host")
}

// What an agent that was killed knew is told with its age.
func TestSummaryOfAnAgentThatEnded(t *testing.T) {
	for looked, want := range map[time.Time]string{{}: "!The agent", now: "!The agent", now.Add(-3 * time.Second): "!The agent", now.Add(-9 * time.Second): "The agent looked 9 s ago"} {
		n := node(limited("a/web"))
		n.AgentLooked = looked
		must.Have(t, "an agent that looked at "+looked.String(), n.Summary("this node", false), want)
	}
}
