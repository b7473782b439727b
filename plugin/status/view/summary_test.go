// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package view_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
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

func node(pods ...view.Pod) *view.Node {
	n := &view.Node{Schema: view.Schema, Time: now}
	for i := range pods {
		n.Add(&pods[i])
	}
	n.Sort()
	return n
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
	for _, l := range lines {
		if utf8.RuneCountInString(l) > view.Width {
			t.Errorf("a line has more than %d columns: %q", view.Width, l)
		}
	}
	for _, p := range five() {
		if !strings.Contains(text, p.Pod) {
			t.Errorf("%s is not named:\n%s", p.Pod, text)
		}
	}
	for _, want := range []string{
		"105 of 110 pods are limited as they should be; 5 are not:\nNOT LIMITED team-a/web-5d8f7c9b6d-x2x4q since 2026-11-24T02:47:00Z (13 min)\n  cause  cannot make",
		"EXCEEDED    team-a/cache-0 since", "  cure   podweir repair\n",
		"105 pods as they should be: limits 105 egress, 105 ingress (210 by tbf). List\nthem with -o wide.\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the summary has no %q:\n%s", want, text)
		}
	}
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
	if text := node(pods...).Summary("this node", false); !strings.HasSuffix(text, want) {
		t.Errorf("five policed pods:\n%s", text)
	}
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
	if diff := cmp.Diff(want, n.Summary("this node", false)); diff != "" || len(n.Broken()) != 0 {
		t.Errorf("%d broken, two pods observed and one limited (-want +got):\n%s", len(n.Broken()), diff)
	}
	if text := node(pods[0]).Summary("this node", false); !strings.HasPrefix(text, "1 pod is observed only: what exceeds its limits") || strings.Contains(text, "limited as") {
		t.Errorf("one pod observed:\n%s", text)
	}
	for range 12 {
		pods = append(pods, pods[0])
		pods[len(pods)-1].Pod = fmt.Sprintf("ns/p%d", len(pods))
	}
	if text := node(pods...).Summary("this node", false); !strings.Contains(text, "(2 by tbf, 28 observed") {
		t.Errorf("fourteen pods observed, and one limited:\n%s", text)
	}
	n.Add(&view.Pod{Pod: "default/web", State: view.NotLimited, Cause: "no bpf file system"})
	if n.Sort(); n.Pods[0].State != view.NotLimited || n.Pods[0].Cause != "no bpf file system" {
		t.Errorf("an observed pod that is broken is %+v", n.Pods[0])
	}
}

// Pods that are broken for one reason share one paragraph.
func TestProblemsAreGrouped(t *testing.T) {
	var pods []view.Pod
	for i := range 40 {
		pods = append(pods, view.Pod{Pod: fmt.Sprintf("ns/p%02d", i), State: view.NotLimited, Cause: "no bpf file system", Cure: "podweir doctor"})
	}
	text := node(pods...).Summary("this node", false)
	if strings.Count(text, "no bpf file system") != 1 || !strings.Contains(text, "NOT LIMITED 40 pods: ns/p00, ns/p01") || !strings.Contains(text, "ns/p39") {
		t.Errorf("40 pods with one cause:\n%s", text)
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
	if diff := cmp.Diff(want, n.Pods); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}
