// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package view_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

func carried(pod string, limit units.BitRate, sent, drops float64) view.PodRate {
	return view.PodRate{
		Pod: pod, Interface: "eth0", Limit: limitOf(terms.Egress, limit), SentBitsPerSecond: sent, DropsPerSecond: drops,
		HeavyFlows: []view.Flow{{
			Protocol: 6, Source: netip.MustParseAddrPort("10.0.0.1:4242"), Dest: netip.MustParseAddrPort("10.0.0.9:443"),
		}},
		FlowBitsPerSecond: []float64{sent * 0.97},
	}
}

func TestTopTable(t *testing.T) {
	top := view.Top{Sort: "share", Interval: 2 * time.Second}
	broken := carried("default/differs", 10e6, 0, 0)
	broken.State = view.Differs
	for _, drops := range []float64{0, 40, 20} {
		top.Observe([]view.PodRate{
			carried("default/idle", 10e6, 12, 0), carried("default/half", 100e6, 49.96e6, 0),
			carried("team-a/a-name-that-is-longer-than-its-column-x2x4q", 10e6, 9_870_400, drops),
			{Pod: "net/c4", Error: "its record cannot be read"},
			broken,
		}, now)
	}
	got := top.Plain()
	for _, part := range []string{
		"podweir top  03:00:00  every 2s  by share  problems: 2  1 idle not shown\n",
		"  10M  9.87M [██████████]  99 %    20 ▁█▅\n", " 100M    50M [█████░░░░░]  50 %\n",
		"no rates of net/c4: its record cannot be read\n",
		"default/differs            egress     10M      0 DIFFERS        0 %\n",
	} {
		if !strings.Contains(got, part) {
			t.Errorf("the table has no %q:\n%s", part, got)
		}
	}
	if strings.Index(got, "x2x4q") > strings.Index(got, "default/half") || strings.Contains(got, "default/idle") || strings.ContainsRune(got, '\x1b') {
		t.Errorf("order, idle pods or control codes are wrong:\n%s", got)
	}
	top.Flows = true
	if got = top.Plain(); !strings.Contains(got, "  tcp 10.0.0.1:4242 > 10.0.0.9:443 ") || !strings.Contains(got, " offers  9.57M  97 %\n") {
		t.Errorf("no heavy flow:\n%s", got)
	}
	top.Pods = map[netip.Addr]string{netip.MustParseAddr("10.0.0.9"): "default/db", netip.MustParseAddr("10.0.0.1"): "default/half"}
	if got = top.Plain(); !strings.Contains(got, "\n    10.0.0.9 is default/db\n") || strings.Contains(got[strings.Index(got, "default/half "):], "10.0.0.1 is") {
		t.Errorf("the pods at the other ends of flows are not named, or a pod is told its own name:\n%s", got)
	}
}

// 110 pods fit a screen of 80 columns and 24 lines, the busiest first; the others are
// reached by scrolling.
func TestTopFitsAScreen(t *testing.T) {
	top := view.Top{Sort: "share", Interval: time.Second, Idle: true}
	var rates []view.PodRate
	for i := range 110 {
		rates = append(rates, carried(fmt.Sprintf("default/pod-%03d", i), 400e9, float64(i)*4e9, float64(i)*1e6))
	}
	top.Observe(rates, now)
	check := func(first string) {
		t.Helper()
		lines := top.Screen(80, 24)
		if len(lines) != 24 || !strings.HasPrefix(lines[2], first) {
			t.Errorf("%d lines, the first row is %q, want 24 and %s", len(lines), lines[2], first)
		}
		for _, l := range lines {
			if utf8.RuneCountInString(l) > 80 {
				t.Errorf("a line of %d columns: %q", utf8.RuneCountInString(l), l)
			}
		}
	}
	check("default/pod-109")
	for range 3 {
		top.Key(view.KeyDown)
	}
	check("default/pod-106")
	for range 500 {
		top.Key('j')
	}
	check("default/pod-020") // the end: 21 rows
	for range 500 {
		top.Key('k')
	}
	check("default/pod-109")
}

// Five pods that are broken, each in its own way, come before 105 busy ones in every
// order, on a screen of 80 columns and 24 lines.
func TestTopShowsWhatIsBrokenFirst(t *testing.T) {
	top := view.Top{Sort: "share", Interval: time.Second}
	var rates []view.PodRate
	for i := range 110 {
		pod := fmt.Sprintf("default/pod-%03d", i)
		if i == 17 {
			rates = append(rates, view.PodRate{Pod: pod, Error: "its record cannot be read"})
			continue
		}
		r := carried(pod, 10e6, 9.9e6, 100)
		switch i {
		case 31:
			r.State, r.SentBitsPerSecond = view.NotLimited, 0
		case 44:
			r.State, r.SentBitsPerSecond = view.Differs, 1e6
		case 90:
			r.State, r.DropsPerSecond = view.Tampered, 0
		case 108:
			r.State = view.Exceeded
		}
		in := r
		in.Direction = terms.Name(terms.Ingress)
		rates = append(rates, r, in)
	}
	top.Observe(rates, now)
	for range view.Sorts {
		lines := top.Screen(80, 24)
		if len(lines) != 24 || !strings.Contains(lines[0], "problems: 5") {
			t.Errorf("by %s: %d lines, the first is %q", top.Sort, len(lines), lines[0])
		}
		for _, pod := range []string{"017", "031", "044", "090", "108"} {
			if !strings.Contains(strings.Join(lines, "\n"), "default/pod-"+pod) {
				t.Errorf("by %s: pod-%s is not on the screen:\n%s", top.Sort, pod, strings.Join(lines, "\n"))
			}
		}
		top.Key('s')
	}
}

// Pods and nodes of which nothing is known share the lines of a cause: a hundred of them
// leave room for the rest.
func TestTopGroupsWhatIsUnknown(t *testing.T) {
	top := view.Top{Sort: "share", Interval: time.Second}
	rates := []view.PodRate{carried("default/busy", 10e6, 9.9e6, 0)}
	for i := range 100 {
		rates = append(rates, view.PodRate{Node: fmt.Sprint(i), Pod: fmt.Sprintf("node n%d", i), Error: "no answer"})
	}
	top.Observe(rates, now)
	screen := strings.Join(top.Screen(80, 24), "\n")
	for _, part := range []string{"problems: 100", "no rates of 100: node n0, node n1, ", "  cause  no answer\n", "default/busy"} {
		if !strings.Contains(screen, part) {
			t.Errorf("the screen has no %q:\n%s", part, screen)
		}
	}
}

func TestTopKeys(t *testing.T) {
	top := view.Top{Sort: "share", Interval: time.Second}
	a, b := carried("ns/a", 10e6, 1e6, 5), carried("ns/b", 100e6, 2e6, 1)
	top.Observe([]view.PodRate{a, b}, now)
	rows := func() []string {
		var names []string
		for l := range strings.SplitSeq(top.Plain(), "\n") {
			if strings.HasPrefix(l, "ns/") {
				names = append(names, strings.Fields(l)[0])
			}
		}
		return names
	}
	want := func(names ...string) {
		t.Helper()
		if diff := cmp.Diff(names, rows()); diff != "" {
			t.Errorf("rows (-want +got):\n%s", diff)
		}
	}
	press := func(keys string) {
		for _, k := range keys {
			if top.Key(k) {
				t.Errorf("key %q of %q ends it", k, keys)
			}
		}
	}
	want("ns/a", "ns/b")
	press("s") // rate
	want("ns/b", "ns/a")
	press("s") // drops
	want("ns/a", "ns/b")
	press("/ns/bq") // q is part of the filter while that is typed
	want()
	press("\x7f\r")
	want("ns/b")
	press("/\x1b")
	want("ns/a", "ns/b")
	press("p")
	top.Observe(nil, now)
	want("ns/a", "ns/b") // paused
	press("p")
	top.Observe(nil, now)
	want()
	if !top.Key('q') || !top.Key('\x03') {
		t.Error("q and Ctrl-C do not end it")
	}
}
