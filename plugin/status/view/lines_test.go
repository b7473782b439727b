// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package view_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// looks are two looks at pods with a limit of 10 Mbit/s, half a second apart, in which the
// device of each carries so many bytes, of which podweir sees so many.
func looks(change func(pod int, l *view.Limit), carried, seen []uint64) *view.Node {
	look := func(second time.Duration, part uint64) *view.Node {
		n := &view.Node{Time: now.Add(second)}
		for i := range carried {
			sum := seen[i] * part
			l := view.Limit{
				Interface: "eth0", Limit: limitOf(terms.Egress, 10e6),
				Passing: view.Passing{Seen: &sum, Device: [2]uint64{1e9 + carried[i]*part, 1e9 + carried[i]*part}}, Counters: view.Counters{SentBytes: sum},
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
  cure   podweir doctor --probe names who takes them there
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
	if diff := cmp.Diff(want, n.Summary("this node", false)); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

// Among many pods only those that somebody may ask about have a line.
func TestStatusLinesOfManyPods(t *testing.T) {
	t.Parallel()
	carried := make([]uint64, 30)
	carried[7], carried[9] = 625_000, 200_000
	text := looks(func(int, *view.Limit) {}, carried, carried).Summary("this node", false)
	if !strings.Contains(text, "ns/pod-07                egress     10M    10M    10M      0      0  at limit\n") ||
		strings.Count(text, "ns/pod-") != 1 || !strings.Contains(text, "30 pods as they should be: limits 30 egress (30 by tbf).") {
		t.Errorf("status of 30 pods, one of them at its limit:\n%s", text)
	}
}

// Where no limit is at work it is said since when, and where to look next.
func TestStatusWhenPodweirIsNotTheCause(t *testing.T) {
	t.Parallel()
	attached := now.Add(-time.Hour)
	idle := func(_ int, l *view.Limit) { l.Attached = attached }
	one := []uint64{300_000}
	for name, tt := range map[string]struct {
		n    *view.Node
		want string
	}{
		"idle":           {looks(idle, []uint64{0}, []uint64{0}), "Limits idle since " + attached.Format(time.RFC3339) + ": what is slow or lost is not podweir. Next: podweir explain"},
		"dropped before": {looks(func(_ int, l *view.Limit) { l.Drops = 3 }, one, one), "No limit is at work now: what is slow or lost is not podweir. Next:"},
		"at its limit":   {looks(idle, []uint64{625_000}, []uint64{625_000}), ""},
		"past its limit": {looks(idle, []uint64{9e6}, []uint64{0}), ""},
		"lost by a rule": {losing(looks(idle, one, one)), "is not podweir. Packets are lost elsewhere on this node: nftables rule 3: 5 packets just now, 7 in all."},
		"lost in many places": {func() *view.Node {
			n := looks(idle, one, one)
			n.Losing = view.Losing(nil, []view.Loss{{Where: "a", Packets: 1}, {Where: "b", Packets: 2}, {Where: "c", Packets: 2}, {Where: "nftables rule 3", Packets: 9}, {Where: "d", Packets: 0}})
			return n
		}(), "on this node: nftables rule 3: 9 packets just now, 9 in all; b: 2 packets just now, 2 in all; c: 2 packets just now, 2 in all and 1 more."},
		"nobody is there": {&view.Node{Rates: []view.PodRate{}}, ""},
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
	for _, n := range []*view.Node{looks(func(int, *view.Limit) {}, []uint64{0, 9e6}, []uint64{0, 0}), looks(func(int, *view.Limit) {}, []uint64{0}, []uint64{0})} {
		text := strings.Join(strings.Fields(n.Runnable(run).Summary("this node", false)), " ")
		if !strings.Contains(text, run) || terms.Runnable(text, run) != text {
			t.Errorf("status has a command that does not run where it is read: %s", text)
		}
	}
}

func losing(n *view.Node) *view.Node {
	n.Losing = view.Losing([]view.Loss{{Where: "nftables rule 3", Packets: 2}, {Where: "eth0", Packets: 1}}, []view.Loss{{Where: "nftables rule 3", Packets: 7}, {Where: "eth0", Packets: 1}})
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
		if got := p.Limit(terms.Egress); got != want {
			t.Errorf("Limit of %v = %q, want %q", rates, got, want)
		}
		if table := view.Table([]view.Pod{p}); !strings.Contains(table, want) {
			t.Errorf("the table has no %q:\n%s", want, table)
		}
	}
}

func TestRateHasThreeDigits(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0 bit/s", 1: "1 bit/s", 999.4: "999 bit/s", 999.6: "1 kbit/s", 9_870_000: "9.87 Mbit/s", 98_765_432: "98.8 Mbit/s",
		99.96e6: "100 Mbit/s", 123.4e6: "123 Mbit/s", 1.5e9: "1.5 Gbit/s", 400e9: "400 Gbit/s", -5: "0 bit/s", math.NaN(): "0 bit/s",
		9.996e6: "10 Mbit/s", 1.844e19: "18.4 Ebit/s", 1e22: "10000 Ebit/s",
	} {
		if got := view.Rate(v); got != want {
			t.Errorf("Rate(%v) = %q, want %q", v, got, want)
		}
	}
	if got := view.Short(9_870_000); got != "9.87M" {
		t.Errorf("Short = %q", got)
	}
}

func TestText(t *testing.T) {
	if diff := cmp.Diff([]string{"a bb", "cccc", "c dd"}, view.Wrap("a \x1b bb\nccccc dd", 4)); diff != "" {
		t.Errorf("Wrap (-want +got):\n%s", diff)
	}
	for width, want := range map[int]string{10: "abcdefgh", 8: "abcdefgh", 7: "abc…fgh", 4: "a…gh", 1: "a", 0: ""} {
		if got := view.Cut("abcdefgh", width); got != want {
			t.Errorf("Cut to %d = %q, want %q", width, got, want)
		}
	}
	if got := view.Pad("ab", 4); got != "ab  " {
		t.Errorf("Pad = %q", got)
	}
	if got := view.Printable("a\x1b[31m\u009bü"); got != "a [31m ü" {
		t.Errorf("Printable = %q", got)
	}
}
