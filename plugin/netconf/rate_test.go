// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netconf_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/plugin/units"
)

// choice is what one party says: nothing, a rate in Mbit/s, that there is none, or
// something that cannot be read.
type choice int

const (
	silent choice = -iota - 1
	none
	bogus
)

func (c choice) readable() bool { return c >= 0 || c == none }

// words are how a party writes a rate, none and nonsense.
func (c choice) words(none string) string {
	switch {
	case c >= 0:
		return strconv.Itoa(int(c)) + "M"
	case c == bogus:
		return "10X"
	default:
		return none
	}
}

// parties are all that have a say in one direction of a pod.
type parties struct{ own, standard, namespace, node, namespaceMax, nodeMax choice }

// want is ruling 21, written down once more: the first that can be read, and at most
// the lower maximum.
func (p *parties) want() (rate int, capped, missing bool) {
	chosen := silent
	for _, c := range []choice{p.own, p.standard, p.namespace, p.node} {
		if c.readable() && chosen == silent {
			chosen = c
		}
	}
	most := 0
	for _, c := range []choice{p.namespaceMax, p.nodeMax} {
		if c > 0 && (most == 0 || int(c) < most) {
			most = int(c)
		}
	}
	byNode := !p.own.readable() && !p.standard.readable() && !p.namespace.readable()
	switch {
	case chosen <= 0 && most == 0:
		return 0, false, slices.Contains([]choice{p.own, p.standard, p.namespace, p.node}, bogus)
	case chosen <= 0:
		return most, false, false
	case most > 0 && int(chosen) > most:
		return most, !byNode, false
	default:
		return int(chosen), false, false
	}
}

func (p *parties) input(d terms.Direction) (stdin []byte, namespace netconf.Namespace) {
	var pod, keys []string
	if p.own != silent {
		pod = append(pod, fmt.Sprintf(`"podweir.io/%v-rate":%q`, d, p.own.words("")))
	}
	if p.standard != silent {
		pod = append(pod, fmt.Sprintf(`"kubernetes.io/%v-bandwidth":%q`, d, p.standard.words("")))
	}
	if p.node != silent {
		keys = append(keys, fmt.Sprintf(`"%vRate":%q`, d, p.node.words("0")))
	}
	if p.nodeMax != silent {
		keys = append(keys, fmt.Sprintf(`"%vMaxRate":%q`, d, p.nodeMax.words("0")))
	}
	namespace = netconf.Namespace{}
	if p.namespace != silent {
		namespace[fmt.Sprintf("podweir.io/default-%v-rate", d)] = p.namespace.words("none")
	}
	if p.namespaceMax != silent {
		namespace[fmt.Sprintf("podweir.io/max-%v-rate", d)] = p.namespaceMax.words("")
	}
	return input(annotations(strings.Join(pod, ",")), strings.Join(keys, ",")), namespace
}

// every calls f for each combination of what the parties can say.
func every(f func(*parties)) (n int) {
	for _, own := range []choice{silent, 40, bogus} {
		for _, standard := range []choice{silent, 30, bogus} {
			for _, namespace := range []choice{silent, 20, none, bogus} {
				for _, node := range []choice{silent, 10, none, bogus} {
					for _, namespaceMax := range []choice{silent, 5, 25, 50, bogus} {
						for _, nodeMax := range []choice{silent, 6, 26, 51, none, bogus} {
							n++
							f(&parties{own: own, standard: standard, namespace: namespace, node: node, namespaceMax: namespaceMax, nodeMax: nodeMax})
						}
					}
				}
			}
		}
	}
	return n
}

// TestRatePrecedence holds every combination of what pod, namespace and node say
// against the ruling.
func TestRatePrecedence(t *testing.T) {
	t.Parallel()
	for _, d := range terms.Directions {
		n := every(func(p *parties) {
			stdin, namespace := p.input(d)
			got, err := netconf.ParseIn(namespace, netconf.Add, stdin)
			rate := 0
			if l := got.Shaping.Limit(d); l != nil {
				rate = int(l.Rate) / 1e6
			}
			wantRate, wantCapped, wantMissing := p.want()
			if _, missing := errors.AsType[*netconf.LimitError](err); rate != wantRate || missing != wantMissing || (len(got.Capped) > 0) != wantCapped {
				t.Errorf("%v of %+v: %d Mbit/s, capped %v, error %v, want %d, %v, %v", d, *p, rate, got.Capped, err, wantRate, wantCapped, wantMissing)
			}
			for _, o := range terms.Directions {
				if l := got.Shaping.Limit(o); o != d && l != nil {
					t.Errorf("%v of %+v: %v has a limit of %v", d, *p, o, l.Rate)
				}
			}
			p.checkTold(t, got, err)
		})
		must.Be(t, "combinations", 4320, n)
	}
}

// checkTold: every value that cannot be read is named, in the log or in the error.
func (p *parties) checkTold(t *testing.T, got *netconf.Config, err error) {
	t.Helper()
	bad := 0
	for _, c := range []choice{p.own, p.standard, p.namespace, p.node, p.namespaceMax, p.nodeMax} {
		if c == bogus {
			bad++
		}
	}
	told := len(slices.DeleteFunc(slices.Clone(got.Ignored), func(e *netconf.FieldError) bool { return e.Value != "10X" }))
	if missing, ok := errors.AsType[*netconf.LimitError](err); ok {
		told += len(missing.Fields)
	}
	if told != bad {
		t.Errorf("%+v: %d values cannot be read, %d are named: %v, %v", *p, bad, told, got.Ignored, err)
	}
}

// TestMaxRateIsToldToTheOwner: whoever asks for more than the maximum learns whose it is.
func TestMaxRateIsToldToTheOwner(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		runtime, keys string
		namespace     netconf.Namespace
		want          *netconf.FieldError
	}{
		"the node's maximum for both directions": {
			runtime: `"bandwidth":{"egressRate":50000000,"egressBurst":4294967295}`, keys: `"maxRate":"10M"`,
			want: refused("annotation kubernetes.io/egress-bandwidth", "50000000", "at most 10 Mbit/s (maxRate)"),
		},
		"that of the direction before that of both": {
			runtime: annotations(`"podweir.io/egress-rate":"50M"`), keys: `"maxRate":"1G","egressMaxRate":"10M"`,
			want: refused("annotation podweir.io/egress-rate", "50M", "at most 10 Mbit/s (egressMaxRate)"),
		},
		"that of both where the direction's cannot be read": {
			runtime: annotations(`"podweir.io/egress-rate":"50M"`), keys: `"maxRate":"10M","egressMaxRate":"10X"`,
			want: refused("annotation podweir.io/egress-rate", "50M", "at most 10 Mbit/s (maxRate)"),
		},
		"the namespace's": {
			runtime: annotations(`"kubernetes.io/egress-bandwidth":"50M"`), keys: `"maxRate":"1G"`,
			namespace: netconf.Namespace{"podweir.io/max-egress-rate": "10M"},
			want:      refused("annotation kubernetes.io/egress-bandwidth", "50M", "at most 10 Mbit/s (namespace annotation podweir.io/max-egress-rate)"),
		},
		"the namespace's default": {
			keys: `"maxRate":"10M"`, namespace: netconf.Namespace{"podweir.io/default-egress-rate": "50M"},
			want: refused("namespace annotation podweir.io/default-egress-rate", "50M", "at most 10 Mbit/s (maxRate)"),
		},
	} {
		got, err := netconf.ParseIn(tc.namespace, netconf.Add, input(tc.runtime, tc.keys))
		if err != nil || got.Shaping.Egress == nil || got.Shaping.Egress.Rate != limit(10e6, nil).Rate {
			t.Errorf("%s: %+v, %v, want 10 Mbit/s", name, got.Shaping.Egress, err)
		}
		if diff := cmp.Diff([]*netconf.FieldError{tc.want}, got.Capped); diff != "" || len(got.Ignored) != strings.Count(tc.keys, "10X") {
			t.Errorf("%s: ignored %v, capped (-want +got):\n%s", name, got.Ignored, diff)
		}
		text := tc.want.Error() + "; the maximum is used"
		if !slices.Contains(got.Warnings, text) || !slices.Contains(got.Shaping.Notes, text) {
			t.Errorf("%s: warnings %q, notes %q, want %q", name, got.Warnings, got.Shaping.Notes, text)
		}
	}
}

// TestLongNamespaceRateIsRefused: a rate on a Namespace that is too long is refused, and
// its beginning is not another rate.
func TestLongNamespaceRateIsRefused(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0", 121) + "10000000M" // 128 bytes of it are 1 Mbit/s
	for _, name := range netconf.NamespaceAnnotations() {
		got, err := netconf.ParseIn(netconf.Namespace{name: netconf.Cut(long)}, netconf.Add, input(annotations(""), `"defaultRate":"50M"`))
		if err != nil {
			t.Errorf("%s: ParseIn() = %v, want the node's rate", name, err)
		}
		for _, d := range terms.Directions {
			if l := got.Shaping.Limit(d); l == nil || l.Rate != 50e6 {
				t.Errorf("%s: %v = %+v, want 50 Mbit/s", name, d, l)
			}
		}
		if len(got.Ignored) != 1 || got.Ignored[0].Field != "namespace annotation "+name || got.Ignored[0].Accepted != "at most 128 bytes" {
			t.Errorf("%s: ignored %v, want it named and what is accepted", name, got.Ignored)
		}
	}
	short := strings.Repeat("0", 125) + "10M"
	got := must.Get(netconf.ParseIn(netconf.Namespace{"podweir.io/max-egress-rate": netconf.Cut(short)}, netconf.Add, input(annotations(""), `"defaultRate":"50M"`)))(t)
	must.Be(t, "the rate of 128 bytes", 10e6, got.Shaping.Egress.Rate)
}

// outcome is what a pod's egress comes to.
type outcome struct {
	rate, group units.BitRate
	// standard says that other software may enforce the limit, too: the pod asks for it by an annotation of Kubernetes.
	standard bool
	// left are limits that are left to another shaper, ignored what is not accepted.
	left, ignored int
}

// What the pods of a namespace have together is that of the namespace, or else the node's, and at most the node's maximum
// of it. No pod has more alone. What other software enforces is left to it; podweir's own annotations, and a limit that is
// lower than what the pod asks for, are not. podAnnotations is about the rates, too; what it leaves out of a pod's settings
// does not take the rate along.
func TestRateOfAPod(t *testing.T) {
	t.Parallel()
	const pod, standard, own = `"bandwidth":{"egressRate":50000000,"egressBurst":4294967295}`, `"kubernetes.io/egress-bandwidth":"50M"`, `"podweir.io/egress-rate":"7M"`
	node := func(rate string) netconf.Namespace { return netconf.Namespace{"podweir.io/node-egress-rate": rate} }
	for name, tt := range map[string]struct {
		runtime, keys string
		namespace     netconf.Namespace
		want          outcome
	}{
		"no group":                        {pod, "", nil, outcome{rate: 50e6, standard: true}},
		"the namespace's":                 {pod, "", node("200M"), outcome{rate: 50e6, group: 200e6, standard: true}},
		"less than the pod asks for":      {pod, "", node("20M"), outcome{rate: 20e6, group: 20e6}},
		"of a pod that asks for nothing":  {"", "", node("20M"), outcome{rate: 20e6, group: 20e6}},
		"the node's":                      {pod, `"namespaceRate":"1G"`, nil, outcome{rate: 50e6, group: 1e9, standard: true}},
		"the namespace's before it":       {pod, `"namespaceRate":"1G"`, node("200M"), outcome{rate: 50e6, group: 200e6, standard: true}},
		"the namespace wants none":        {pod, `"namespaceRate":"1G"`, node("none"), outcome{rate: 50e6, standard: true}},
		"above the maximum":               {pod, `"namespaceMaxRate":"100M"`, node("200M"), outcome{rate: 50e6, group: 100e6, standard: true}},
		"none of the namespace, and most": {pod, `"namespaceMaxRate":"100M"`, node("none"), outcome{rate: 50e6, group: 100e6, standard: true}},
		"a bad one":                       {pod, `"namespaceRate":"1G"`, node("200Mbps"), outcome{rate: 50e6, group: 1e9, standard: true, ignored: 1}},
		"another shaper has the pod's":    {pod, `"shaper":"cilium"`, node("200M"), outcome{rate: 50e6, group: 200e6}},
		"a pod does not leave its group":  {annotations(`"podweir.io/node-egress-rate":"none","podweir.io/egress-rate":"50M"`), "", node("200M"), outcome{rate: 50e6, group: 200e6}},

		"left, but for an own annotation":             {annotations(own), `"shaper":"cilium"`, nil, outcome{rate: 7e6}},
		"left, an own one beside the standard one":    {annotations(standard + "," + own), `"shaper":"cilium"`, nil, outcome{rate: 7e6}},
		"left, above the maximum":                     {annotations(standard), `"shaper":"cilium","maxRate":"10M"`, nil, outcome{rate: 10e6}},
		"left, below the maximum":                     {annotations(standard), `"shaper":"cilium","maxRate":"60M"`, nil, outcome{left: 1}},
		"left, an own one that cannot be read beside": {annotations(standard + `,"podweir.io/egress-rate":"fast"`), `"shaper":"cilium"`, nil, outcome{left: 1, ignored: 1}},

		"listed":            {annotations(own), `"podAnnotations":["egress-rate"]`, nil, outcome{rate: 7e6}},
		"not listed":        {annotations(own), `"podAnnotations":["policy"],"egressRate":"1M"`, nil, outcome{rate: 1e6, ignored: 1}},
		"nothing is listed": {annotations(own + "," + standard), `"podAnnotations":[]`, nil, outcome{rate: 50e6, standard: true, ignored: 1}},
		"with a value":      {annotations(own), `"podAnnotations":["egress-rate=1G"],"egressRate":"1M"`, nil, outcome{rate: 1e6, ignored: 2}},
		"above the range":   {annotations(`"podweir.io/egress-rate":"1P"`), `"onError":"open"`, nil, outcome{rate: 400e9}},

		"by the annotation":             {annotations(standard), "", nil, outcome{rate: 50e6, standard: true}},
		"podweir's own annotation":      {annotations(own), "", nil, outcome{rate: 7e6}},
		"both":                          {annotations(standard + "," + own), "", nil, outcome{rate: 7e6}},
		"of the node":                   {"", `"egressRate":"1M"`, nil, outcome{rate: 1e6}},
		"below the most":                {annotations(standard), `"maxRate":"1G"`, nil, outcome{rate: 50e6, standard: true}},
		"held to the most":              {annotations(standard), `"maxRate":"1M"`, nil, outcome{rate: 1e6}},
		"podweir's own, left to others": {annotations(own), `"shaper":"calico"`, nil, outcome{rate: 7e6}},
	} {
		got, err := netconf.ParseIn(tt.namespace, netconf.Add, input(tt.runtime, tt.keys))
		is := outcome{left: len(got.Shaping.Deferred), ignored: len(got.Ignored)}
		if l := got.Shaping.Egress; l != nil {
			is.rate, is.group, is.standard = l.Rate, l.Group, l.Standard
		}
		if err != nil || is != tt.want {
			t.Errorf("%s: %+v, %v, want %+v", name, is, err, tt.want)
		}
	}
}

// TestMaxRateOfTheOperator: a default above the node's own maximum is a contradiction
// that install refuses; one above a namespace's is how namespaces get less.
func TestMaxRateOfTheOperator(t *testing.T) {
	t.Parallel()
	const runtime = `"bandwidth":{"egressRate":1000000,"egressBurst":4294967295}` // hides the default, not the contradiction
	for _, keys := range []string{`"egressRate":"50M","maxRate":"10M"`, `"egressRate":"50M","egressMaxRate":"10M"`} {
		_, err := netconf.ParseStrict(netconf.Add, input(runtime, keys))
		must.Fail(t, "ParseStrict() of "+keys, err, `egressRate: "50M"`, "axRate")
	}
	_, err := netconf.ParseStrict(netconf.Add, input("", `"namespaceRate":"2G","namespaceMaxRate":"1G"`))
	must.Fail(t, "ParseStrict() of a limit of all namespaces above its maximum", err, `namespaceRate: "2G"`)
	if _, err := netconf.ParseStrict(netconf.Add, input(`"bandwidth":{"egressRate":1000000000,"egressBurst":4294967295}`, `"maxRate":"10M"`)); err != nil {
		t.Errorf("ParseStrict() of a pod's rate above the maximum = %v, want no mistake of the operator's", err)
	}
	got, err := netconf.ParseIn(netconf.Namespace{"podweir.io/max-egress-rate": "10M"}, netconf.Add, input("", `"egressRate":"50M"`))
	if err != nil || got.Shaping.Egress.Rate != limit(10e6, nil).Rate || len(got.Capped)+len(got.Ignored)+len(got.Warnings) != 0 {
		t.Errorf("ParseIn() = %+v, %v, capped %v, warnings %q, want 10 Mbit/s and nothing to say", got.Shaping.Egress, err, got.Capped, got.Warnings)
	}
}

// Who decided a rate that is not the pod's own wish is told with what the pod asks for.
func TestDecisions(t *testing.T) {
	t.Parallel()
	const pod = `"bandwidth":{"egressRate":50000000,"egressBurst":4294967295}`
	for name, tt := range map[string]struct {
		runtime, keys string
		namespace     netconf.Namespace
		want          *shaping.Decision
	}{
		"the pod":                         {runtime: pod},
		"below the maximum":               {runtime: pod, keys: `"maxRate":"60M"`},
		"the maximum":                     {runtime: pod, keys: `"maxRate":"200k"`, want: decided(50e6, "maxRate")},
		"the maximum of the direction":    {runtime: pod, keys: `"maxRate":"1G","egressMaxRate":"200k"`, want: decided(50e6, "egressMaxRate")},
		"the namespace's maximum":         {runtime: pod, namespace: netconf.Namespace{"podweir.io/max-egress-rate": "1M"}, want: decided(50e6, "namespace annotation podweir.io/max-egress-rate")},
		"the default rate":                {keys: `"egressRate":"10M"`, want: decided(0, "egressRate")},
		"the maximum of who asks nothing": {keys: `"egressMaxRate":"10M"`, want: decided(0, "egressMaxRate")},
		"the default of the namespace":    {namespace: netconf.Namespace{"podweir.io/default-egress-rate": "1M"}, want: decided(0, "namespace annotation podweir.io/default-egress-rate")},
		"a rate that cannot be read":      {runtime: annotations(`"kubernetes.io/egress-bandwidth":"10Mbps"`), keys: `"egressRate":"10M"`, want: unreadable("10Mbps", "kubernetes.io/egress-bandwidth", "egressRate")},
		"a long one, cut between two characters": {
			runtime: annotations(`"kubernetes.io/egress-bandwidth":"x` + strings.Repeat("é", 60) + `"`), keys: `"egressRate":"10M"`,
			want: unreadable("x"+strings.Repeat("é", 39)+"...", "kubernetes.io/egress-bandwidth", "egressRate"),
		},
		"one that cannot be read before one that can": {
			runtime: `"bandwidth":{"egressRate":5000000,"egressBurst":4294967295},` + annotations(`"podweir.io/egress-rate":"bad"`),
			keys:    `"podAnnotations":["egress-rate"]`, want: unreadable("bad", "podweir.io/egress-rate", "annotation kubernetes.io/egress-bandwidth"),
		},
		"one that cannot be read behind one that can": {
			runtime: annotations(`"podweir.io/egress-rate":"5M","kubernetes.io/egress-bandwidth":"bad"`), keys: `"podAnnotations":["egress-rate"]`,
		},
		"the shaper of others, no decision": {runtime: pod, keys: `"shaper":"cilium"`},
	} {
		got, err := netconf.ParseIn(tt.namespace, netconf.Add, input(tt.runtime, tt.keys))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		must.Match(t, name, tt.want, got.Shaping.Decision(terms.Egress))
	}
}

func unreadable(text, in, by string) *shaping.Decision {
	return &shaping.Decision{Direction: terms.Egress, Unread: text, UnreadIn: "annotation " + in, By: by}
}

func decided(asked uint64, by string) *shaping.Decision {
	return &shaping.Decision{Direction: terms.Egress, Asked: units.BitRate(asked), By: by}
}

// TestParseEnforce: the operator lets a fleet or a namespace be observed only, and a pod
// only where podAnnotations lists it.
func TestParseEnforce(t *testing.T) {
	t.Parallel()
	const listed = `"podAnnotations":["enforce"]`
	for name, tc := range map[string]struct {
		pod, namespace, keys string
		observe              bool
		// ignored is the field that is not accepted, "" if all are; accepted is part of
		// what is said to be, instead of what is used.
		ignored, accepted, instead string
	}{
		"by default":             {},
		"the node observes":      {keys: `"enforce":"observe"`, observe: true},
		"the node limits":        {keys: `"enforce":"limit"`},
		"the namespace observes": {namespace: "observe", observe: true},
		"the namespace limits on a node that observes": {namespace: "limit", keys: `"enforce":"observe"`},
		"the namespace observes on a node that limits": {namespace: "observe", keys: `"enforce":"limit"`, observe: true},
		"a pod may not": {pod: "observe", ignored: "annotation podweir.io/enforce", accepted: "podAnnotations does not list it", instead: "the node's own setting"},
		"nor limit where the node observes": {
			pod: "limit", keys: `"enforce":"observe"`, observe: true,
			ignored: "annotation podweir.io/enforce", accepted: "podAnnotations does not list it", instead: "the node's own setting",
		},
		"a pod that may":             {pod: "observe", keys: listed, observe: true},
		"a pod before its namespace": {pod: "limit", namespace: "observe", keys: listed},
		"a bad key":                  {keys: `"enforce":"off"`, ignored: "enforce", accepted: "one of limit, observe", instead: "podweir's default"},
		"a bad annotation of a namespace": {
			namespace: "monitor", keys: `"enforce":"observe"`, observe: true,
			ignored: "namespace annotation podweir.io/enforce", accepted: "one of limit, observe", instead: "the node's own setting",
		},
		"a bad annotation of a pod that may": {
			pod: "no", keys: listed, ignored: "annotation podweir.io/enforce", accepted: "one of limit, observe", instead: "the node's own setting",
		},
		"a value in podAnnotations": {
			keys: `"podAnnotations":["egress-rate","enforce=observe"]`, ignored: "podAnnotations", accepted: "enforce without a value", instead: "podweir's default",
		},
	} {
		pod, namespace := `"podweir.io/egress-rate":"10M"`, netconf.Namespace(nil)
		if tc.pod != "" {
			pod = `"podweir.io/enforce":"` + tc.pod + `"`
		}
		if tc.namespace != "" {
			namespace = netconf.Namespace{"podweir.io/enforce": tc.namespace}
		}
		keys := `"egressRate":"10M"`
		if tc.keys != "" {
			keys += "," + tc.keys
		}
		got, err := netconf.ParseIn(namespace, netconf.Add, input(annotations(pod), keys))
		if err != nil || got.Shaping.Egress == nil || got.Shaping.Observe != tc.observe {
			t.Errorf("%s: %+v, %v, want a limit and observe = %v", name, got.Shaping, err, tc.observe)
		}
		if tc.ignored == "" && len(got.Ignored) > 0 {
			t.Errorf("%s: ignored %v, want nothing", name, got.Ignored)
		}
		if tc.ignored != "" && (len(got.Ignored) != 1 || got.Ignored[0].Field != tc.ignored || !strings.Contains(got.Ignored[0].Accepted, tc.accepted)) {
			t.Errorf("%s: ignored %v, want %s, accepted %s", name, got.Ignored, tc.ignored, tc.accepted)
		}
		said := func(w string) bool { return strings.Contains(w, tc.ignored) && strings.Contains(w, tc.instead) }
		if tc.ignored != "" && !slices.ContainsFunc(got.Warnings, said) {
			t.Errorf("%s: warnings %q, want %s, and that %s is used", name, got.Warnings, tc.ignored, tc.instead)
		}
	}
}

// TestParseDeferred: what a pod asks for can be left to another shaper, and what
// the network's configuration asks for cannot.
func TestParseDeferred(t *testing.T) {
	t.Parallel()
	left := func(d terms.Direction, rate int) shaping.Deferred {
		out := shaping.Deferred{Direction: d, To: terms.ShaperCilium}
		l := limit(rate, nil)
		out.Rate = l.Rate
		return out
	}
	const runtime = `"bandwidth":{"ingressRate":1000000,"ingressBurst":4294967295,"egressRate":2000000,"egressBurst":4294967295}`
	for name, tc := range map[string]struct {
		runtime, keys   string
		egress, ingress *shaping.Limit
		left            []shaping.Deferred
	}{
		"the runtime's rates": {
			runtime: runtime, keys: `"shaper":"cilium","egressRate":"10M"`,
			left: []shaping.Deferred{left(terms.Egress, 2e6), left(terms.Ingress, 1e6)},
		},
		"annotations, in one direction": {
			runtime: annotations(`"kubernetes.io/egress-bandwidth":"7M","kubernetes.io/ingress-bandwidth":"3M"`),
			keys:    `"shaper":"cilium","ingressShaper":"podweir"`,
			ingress: limit(3e6, nil), left: []shaping.Deferred{left(terms.Egress, 7e6)},
		},
		"not the network's own rates": {
			runtime: annotations(`"kubernetes.io/egress-bandwidth":"7M"`), keys: `"shaper":"cilium","egressRate":"10M","ingressRate":"1M"`,
			ingress: limit(1e6, nil), left: []shaping.Deferred{left(terms.Egress, 7e6)},
		},
		"not without a word": {runtime: runtime, egress: limit(2e6, nil), ingress: limit(1e6, nil)},
		"no rate":            {keys: `"shaper":"cilium"`},
	} {
		got := must.Get(netconf.Parse(netconf.Add, input(tc.runtime, tc.keys)))(t)
		must.Len(t, name+": warnings", 0, got.Warnings)
		want := shaping.Config{Egress: tc.egress, Ingress: tc.ingress, Deferred: tc.left, Decisions: got.Shaping.Decisions}
		must.Match(t, name, want, got.Shaping, anyOrigin)
	}
}

// anyOrigin compares limits wherever their rates come from.
var anyOrigin = cmpopts.IgnoreFields(shaping.Limit{}, "Standard")
