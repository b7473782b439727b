// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netconf_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
)

const acceptedRates = "a rate in bits per second from 1k to 400G, written as a Kubernetes quantity such as 10M"

// TestParseKeepsTheRateOfABadSetting: whoever wrote a bad value that says how a
// limit is kept, the runtime or the operator, it does not cost a pod its rate.
func TestParseKeepsTheRateOfABadSetting(t *testing.T) {
	t.Parallel()
	const subnets = "a list of at most 256 subnets in CIDR form such as 10.0.0.0/8 or fd00::/8"
	const bits = "a burst of 1 to 4G bits, written as a Kubernetes quantity in bits, or a time from 1µs to 10s " +
		"that is not more at the rate"
	const queueRow = "with this mode the queue auto, tbf"
	one := func(field, value, accepted string) []*netconf.FieldError {
		return []*netconf.FieldError{{Field: field, Value: value, Accepted: accepted}}
	}
	for name, tc := range map[string]struct {
		runtime, keys string
		want          []*netconf.FieldError
		change        func(*shaping.Limit)
	}{
		"the runtime's burst of zero": {
			runtime: `"bandwidth":{"egressRate":10000000,"egressBurst":0}`,
			want:    one("runtimeConfig.bandwidth.egressBurst", "0", bits),
		},
		"burst of zero":    {keys: `"egressBurst":0`, want: one("egressBurst", "0", bits)},
		"burst of milli":   {keys: `"egressBurst":"10m"`, want: one("egressBurst", "10m", bits)},
		"burst of no kind": {keys: `"egressBurst":true`, want: one("egressBurst", "true", "a string or a number")},
		"burst of a direction without a rate": {
			keys: `"ingressBurst":"much"`, want: one("ingressBurst", "much", bits),
		},
		"policy": {keys: `"policy":"fair"`, want: one("policy", "fair", "one of strict, elephants, flat")},
		"queue":  {keys: `"egressQueue":"cake"`, want: one("egressQueue", "cake", "one of auto, tbf, none")},
		"mode": {keys: `"mode":"xdp"`, want: one("mode", "xdp",
			"one of auto, qdisc, tcx-podside, tcx-hostside, clsact-podside, clsact-hostside")},
		"shaper":  {keys: `"ingressShaper":"nobody"`, want: one("ingressShaper", "nobody", "one of podweir, cilium, calico, ovn, terway")},
		"place":   {keys: `"ingressPlace":"pod"`, want: one("ingressPlace", "pod", "one of auto, host, ifb, prefer-ifb")},
		"horizon": {keys: `"horizon":"2s"`, want: one("horizon", "2s", "a time from 1ms to 1s such as 50ms")},
		"light share": {
			keys: `"lightShare":"100%"`,
			want: one("lightShare", "100%", "a share from 1% to 99% in steps of 0.1%, written as 90% or 0.9"),
		},
		"heavy threshold": {
			keys: `"heavyThreshold":"0.1%"`,
			want: one("heavyThreshold", "0.1%", "a share from 0.5% to 100% in steps of 0.1%, written as 90% or 0.9"),
		},
		"error policy":      {keys: `"onError":"maybe"`, want: one("onError", "maybe", "one of open, closed")},
		"relative log file": {keys: `"logFile":"a.log"`, want: one("logFile", "a.log", "an absolute path")},
		"log level":         {keys: `"logLevel":"loud"`, want: one("logLevel", "loud", "one of debug, info, warn, error")},
		"replaceQdisc":      {keys: `"replaceQdisc":"yes"`, want: one("replaceQdisc", `"yes"`, "true or false")},
		"subnet":            {keys: `"unshapedSubnets":["10.0.0.1"]`, want: one("unshapedSubnets", "10.0.0.1", subnets)},
		"one of the shaped subnets": {
			keys: `"shapedSubnets":["10.0.0.0/8","x"]`, want: one("shapedSubnets", "x", subnets),
		},
		"list of subnets": {keys: `"shapedSubnets":"10.0.0.0/8"`, want: one("shapedSubnets", `"10.0.0.0/8"`, subnets)},
		"both lists of subnets": {
			keys: `"shapedSubnets":["10.0.0.0/8"],"unshapedSubnets":["10.0.0.0/8"]`,
			want: one("unshapedSubnets, shapedSubnets", "1 subnets, 1 subnets", "one of them"),
		},
		"mode and queue that do not go together": {
			keys:   `"egressMode":"qdisc","queue":"none"`,
			want:   one("egressMode, egressQueue", "qdisc, none", queueRow),
			change: func(l *shaping.Limit) { l.Mode = terms.ModeQdisc },
		},
		"a default rate that another hides": {
			runtime: `"bandwidth":{"egressRate":10000000,"egressBurst":4294967295}`, keys: `"egressRate":"10X"`,
			want: one("egressRate", "10X", acceptedRates),
		},
		"long value": {
			keys: `"policy":"` + strings.Repeat("x", 100) + `"`,
			want: one("policy", strings.Repeat("x", 80)+"...", "one of strict, elephants, flat"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys := tc.keys
			if tc.runtime == "" {
				keys += `,"egressRate":"10M"`
			}
			got, err := netconf.Parse(netconf.Add, input(tc.runtime, keys))
			must.OK(t, err)
			if diff := cmp.Diff(shaping.Config{Egress: limit(10e6, tc.change), Notes: got.Shaping.Notes, Decisions: got.Shaping.Decisions}, got.Shaping, anyOrigin); diff != "" {
				t.Errorf("limits (-want +got):\n%s", diff)
			}
			toldAs(t, input(tc.runtime, keys), got, tc.want)
		})
	}
}

// toldAs checks that what was ignored is in the log, in what status shows, and an
// error for whoever asked by hand.
func toldAs(t *testing.T, in []byte, got *netconf.Config, want []*netconf.FieldError) {
	t.Helper()
	if diff := cmp.Diff(want, got.Ignored); diff != "" {
		t.Errorf("ignored (-want +got):\n%s", diff)
	}
	for _, e := range want {
		for where, texts := range map[string][]string{"warnings": got.Warnings, "notes": got.Shaping.Notes} {
			if !slices.ContainsFunc(texts, func(s string) bool { return strings.HasPrefix(s, e.Error()+"; ") }) {
				t.Errorf("%s %q, want %q and what is done instead", where, texts, e)
			}
		}
	}
	_, err := netconf.ParseStrict(netconf.Add, in)
	bad, ok := errors.AsType[*netconf.LimitError](err)
	if !ok {
		t.Fatalf("ParseStrict() = %v, want a LimitError", err)
	}
	if diff := cmp.Diff(want, bad.Fields); diff != "" {
		t.Errorf("ParseStrict() (-want +got):\n%s", diff)
	}
}

// TestParseFallsBackToTheDefaultRate: a rate that cannot be read gives way to the
// node's own, and only without one is the direction left without a limit.
func TestParseFallsBackToTheDefaultRate(t *testing.T) {
	t.Parallel()
	const runtime = "runtimeConfig.bandwidth.egressRate"
	annotation := func(s string) string { return annotations(`"kubernetes.io/egress-bandwidth":"` + s + `"`) }
	for name, tc := range map[string]struct {
		runtime, keys string
		want          *netconf.FieldError
	}{
		"annotation without sense": {
			annotation("bogus"), "",
			&netconf.FieldError{Field: "annotation kubernetes.io/egress-bandwidth", Value: "bogus", Accepted: acceptedRates},
		},
		"annotation of zero": {
			annotation("0"), "",
			&netconf.FieldError{Field: "annotation kubernetes.io/egress-bandwidth", Value: "0", Accepted: acceptedRates},
		},
		"below the range, by the runtime": {
			`"bandwidth":{"egressRate":8,"egressBurst":4294967295}`, "",
			&netconf.FieldError{Field: runtime, Value: "8", Accepted: acceptedRates},
		},
		"of no kind, by the runtime": {
			`"bandwidth":{"egressRate":[]}`, "", &netconf.FieldError{Field: runtime, Value: "[]", Accepted: "a string or a number"},
		},
		"no bandwidth that can be read": {
			`"bandwidth":[]`, "", &netconf.FieldError{Field: "runtimeConfig.bandwidth", Value: "[]", Accepted: "a JSON object"},
		},
		"left to another shaper": {
			annotation("bogus"), `"shaper":"cilium"`,
			&netconf.FieldError{Field: "annotation kubernetes.io/egress-bandwidth", Value: "bogus", Accepted: acceptedRates},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys := `"egressRate":"10M","ingressRate":"10M"`
			if tc.keys != "" {
				keys += "," + tc.keys
			}
			got, err := netconf.Parse(netconf.Add, input(tc.runtime, keys))
			must.OK(t, err)
			if diff := cmp.Diff(limit(10e6, nil), got.Shaping.Egress, anyOrigin); diff != "" {
				t.Errorf("egress (-want +got):\n%s", diff)
			}
			toldAs(t, input(tc.runtime, keys), got, []*netconf.FieldError{tc.want})

			// Without a default rate the other direction keeps its own.
			keys = strings.Replace(keys, `"egressRate":"10M",`, "", 1)
			got, err = netconf.Parse(netconf.Add, input(tc.runtime, keys))
			bad, ok := errors.AsType[*netconf.LimitError](err)
			if !ok || len(bad.Fields) != 1 || *bad.Fields[0] != *tc.want {
				t.Errorf("without a default rate: %v, want %v", err, tc.want)
			}
			if got.Shaping.Egress != nil || !cmp.Equal(limit(10e6, nil), got.Shaping.Ingress) {
				t.Errorf("without a default rate: egress %v, ingress %v, want ingress alone", got.Shaping.Egress, got.Shaping.Ingress)
			}
			if want := "egress has no limit: " + tc.want.Error(); !slices.Contains(got.Shaping.Notes, want) {
				t.Errorf("notes %q, want %q", got.Shaping.Notes, want)
			}
		})
	}
}

// TestParseBoundsNotes: what is kept with each pod is bounded; the log has it all.
func TestParseBoundsNotes(t *testing.T) {
	t.Parallel()
	var bad []string
	for i := range 20 {
		bad = append(bad, fmt.Sprintf(`"x%d"`, i))
	}
	got, err := netconf.Parse(netconf.Add, input("", `"egressRate":"10M","unshapedSubnets":[`+strings.Join(bad, ",")+`]`))
	must.OK(t, err)
	notes := got.Shaping.Notes
	if len(got.Warnings) != 20 || len(notes) != 16 || notes[15] != "5 more mistakes, which are in the log" {
		t.Errorf("%d warnings, notes %q, want 20, and 16 notes", len(got.Warnings), notes)
	}
}
