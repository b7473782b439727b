// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netconf_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
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

// manyAnnotations is what a pod's author may write: all of podweir's domain.
func manyAnnotations(n int) map[string]string {
	all := map[string]string{"kubernetes.io/egress-bandwidth": "10M", "podweir.io/policy": "flat"}
	for i := range n {
		all[fmt.Sprintf("podweir.io/flood-%04d", i)] = strings.Repeat("x", 50)
	}
	return all
}

func TestUnknownAnnotationsAreCounted(t *testing.T) {
	t.Parallel()
	const n = 3000
	names := []string{
		"podweir.io/flood-0000", "podweir.io/flood-0001", "podweir.io/flood-0002", "podweir.io/flood-0003", "podweir.io/flood-0004",
	}
	raw := must.Get(json.Marshal(manyAnnotations(n)))(t)
	var fromJSON netconf.PodAnnotations
	must.OK(t, json.Unmarshal(raw, &fromJSON))
	for way, a := range map[string]netconf.PodAnnotations{"map": netconf.KeepAnnotations(manyAnnotations(n)), "JSON": fromJSON} {
		if got := a.UnknownNames(); a.Unknown != n || !slices.Equal(got, names) || len(a.Values) != 2+len(names) || a.Values[names[0]] != "" {
			t.Errorf("from %s: %d unknown, values %v, want %d and the first names alone", way, a.Unknown, a.Values, n)
		}
	}
	got, err := netconf.Parse(netconf.Add, input(annotations(strings.Trim(string(raw), "{}")), ""))
	if err != nil || got.Shaping.Egress == nil {
		t.Fatalf("Parse() = %+v, %v, want the limit", got, err)
	}
	want := []string{fmt.Sprintf("unknown annotations are ignored: %q and %d more", names, n-len(names))}
	want[0] = strings.NewReplacer("[", "", "]", "", `" "`, `", "`).Replace(want[0])
	must.Match(t, "warnings", want, got.Warnings)
}

// A value that is longer than any that podweir reads is no value, whichever way it comes:
// the agent must not read another limit than the plugin.
func TestLongAnnotationIsRefused(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0", netconf.MaxAnnotationBytes-2) + "10M"
	for _, tc := range []struct {
		value    string
		accepted bool
	}{{long[1:], true}, {long, false}, {strings.Repeat("0", 1<<16) + "10M", false}} {
		all := map[string]string{"kubernetes.io/egress-bandwidth": tc.value}
		raw := must.Get(json.Marshal(all))(t)
		_, plugin := netconf.Parse(netconf.Add, input(annotations(strings.Trim(string(raw), "{}")), ""))
		_, agent := netconf.ParseEntry([]byte(`{"cniVersion":"1.0.0","name":"n","type":"podweir-cni"}`), netconf.KeepAnnotations(all), nil)
		for who, err := range map[string]error{"plugin": plugin, "agent": agent} {
			if (err == nil) != tc.accepted || err != nil && (!strings.Contains(err.Error(), "at most 128 bytes") || len(err.Error()) > 300) {
				t.Errorf("%s: value of %d bytes: %v, want accepted = %v", who, len(tc.value), err, tc.accepted)
			}
		}
	}
}

func TestEqualIgnoresUnknownAnnotations(t *testing.T) {
	t.Parallel()
	few, many := netconf.KeepAnnotations(manyAnnotations(0)), netconf.KeepAnnotations(manyAnnotations(9))
	if !few.Equal(&many) {
		t.Error("unknown annotations make a pod another one")
	}
	other := manyAnnotations(9)
	other["podweir.io/policy"] = "strict"
	if o := netconf.KeepAnnotations(other); many.Equal(&o) {
		t.Error("another policy makes no difference")
	}
}

// What looks like an annotation that asks for a limit is kept, whoever wrote it where, unless
// another one asks for the limit of that direction.
func TestMisspelt(t *testing.T) {
	t.Parallel()
	const near = "kubernetes.io/egress-bandwidth"
	for text, want := range map[string][]string{
		`{"kubernetes.io/egress-bandwdth":"10M"}`:                                              {"kubernetes.io/egress-bandwdth, did you mean kubernetes.io/egress-bandwidth?"},
		`{"kuberntes.io/ingress-bandwidth":"10M"}`:                                             {"kuberntes.io/ingress-bandwidth, did you mean kubernetes.io/ingress-bandwidth?"},
		`{"podweir.io/egres-rate":"1M","podwier.io/ingress-rate":"1M"}`:                        {"podweir.io/egres-rate, did you mean podweir.io/egress-rate?", "podwier.io/ingress-rate, did you mean podweir.io/ingress-rate?"},
		`{"kubernetes.io/egress-bandwdth":"10M","` + near + `":"5M"}`:                          nil,
		`{"kubernetes.io/egress-bandwdth":"10M","podweir.io/egress-rate":"fast"}`:              nil,
		`{"` + near + `":"5M","kubernetes.io/config.source":"api","podweir.io/policy":"flat"}`: nil,
		`{"podweir.io/egress-mode":"edt","podweir.io/ingress-place":"ifb"}`:                    nil,
	} {
		var a netconf.PodAnnotations
		must.OK(t, json.Unmarshal([]byte(text), &a))
		var got []string
		for _, m := range a.Misspelt() {
			got = append(got, m.String())
		}
		must.Match(t, text, want, got)
	}
}

// FuzzPodAnnotations: what is kept of a JSON object is what is kept of the map that
// encoding/json makes of it, and both refuse the same.
func FuzzPodAnnotations(f *testing.F) {
	for _, seed := range []string{
		`{"kubernetes.io/egress-bandwidth":"10M","podweir.io/policy":"flat","podweir.io/x":"y","other":"\\\""}`,
		` { "podweir.io\/policy" : "\u0066lat" , "a" : null } `, `null`, `{}`, `[]`, `"x"`, `{"podweir.io/policy":5}`,
		`{"a":{"podweir.io/policy":"flat"}}`, "{\"podweir.io/\xff\":\"\"}", `{"\u0070odweir.io/policy":"strict"}`,
		`{"podweir.io/1":"","podweir.io/2":"","podweir.io/3":"","podweir.io/4":"","podweir.io/5":"","podweir.io/6":""}`,
		`{"podweir.io/policy":"` + strings.Repeat("a", 200) + `"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		before := bytes.Clone(raw)
		var got netconf.PodAnnotations
		err := json.Unmarshal(raw, &got)
		if !bytes.Equal(before, raw) {
			t.Fatal("the input is changed")
		}
		must.AtMost(t, "values that are kept", 20, len(got.Values))
		for name, value := range got.Values {
			if len(name) > netconf.MaxAnnotationBytes+1 || len(value) > netconf.MaxAnnotationBytes+1 {
				t.Errorf("%d bytes of a name and %d of a value are kept", len(name), len(value))
			}
		}
		var all map[string]string
		wantErr := json.Unmarshal(raw, &all)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("error = %v, want as encoding/json: %v", err, wantErr)
		}
		if err != nil {
			return
		}
		// Comparing by hand, and asking about repeated names only after a difference,
		// makes the target three times as fast.
		want := netconf.KeepAnnotations(all)
		if maps.Equal(want.Values, got.Values) && want.Unknown == got.Unknown && slices.Equal(want.Near, got.Near) || repeats(raw, len(all)) {
			return
		}
		t.Errorf("from a map and from JSON (-map +JSON):\n%s", cmp.Diff(want, got, cmpopts.EquateEmpty()))
	})
}

// repeats says whether an object of strings has a name more than once.
func repeats(raw []byte, names int) bool {
	dec, texts := json.NewDecoder(bytes.NewReader(raw)), 0
	for {
		token, err := dec.Token()
		if err != nil {
			return texts != names*2
		}
		if _, ok := token.(string); ok || token == nil && names > 0 {
			texts++
		}
	}
}

func TestParseEntry(t *testing.T) {
	t.Parallel()
	const entry = `{"cniVersion":"1.0.0","name":"net","type":"podweir-cni","onError":"closed","runtimeConfig":{"bandwidth":{"egressRate":1}}%s}`
	for name, tc := range map[string]struct {
		entry       string
		annotations map[string]string
		egress      int
		closed      bool
		err         string
	}{
		"annotations": {
			entry: strings.Replace(entry, "%s", "", 1), annotations: map[string]string{"kubernetes.io/egress-bandwidth": "7M", "x": "y"},
			egress: 7e6, closed: true,
		},
		"none":           {entry: strings.Replace(entry, "%s", "", 1), closed: true},
		"a default":      {entry: strings.Replace(entry, "%s", `,"egressRate":"2M"`, 1), egress: 2e6, closed: true},
		"bad annotation": {entry: strings.Replace(entry, "%s", "", 1), annotations: map[string]string{"kubernetes.io/egress-bandwidth": "fast"}, closed: true, err: "annotation kubernetes.io/egress-bandwidth"},
		"null":           {entry: "null", err: "read the node's configuration: not a JSON object"},
		"no JSON":        {entry: "{", err: "read the node's configuration"},
	} {
		got, err := netconf.ParseEntry([]byte(tc.entry), netconf.KeepAnnotations(tc.annotations), nil)
		must.Part(t, name+": ParseEntry()", tc.err, must.Text(err))
		egress := 0
		if l := got.Shaping.Egress; l != nil {
			egress = int(l.Rate)
		}
		if closed := got.OnError == netconf.FailClosed; egress != tc.egress || closed != tc.closed {
			t.Errorf("%s: egress %d, closed %v, want %d, %v", name, egress, closed, tc.egress, tc.closed)
		}
	}
}

// TestPodsCannotLiftTheirLimit: by default a pod's annotations tune its limit and do
// not lift it; what would is ignored, and told.
func TestPodsCannotLiftTheirLimit(t *testing.T) {
	t.Parallel()
	burst := func(b units.Bytes) func(*shaping.Limit) { return func(l *shaping.Limit) { l.Burst = b } }
	elephants := func(l *shaping.Limit) { l.Policy = terms.PolicyElephants }
	for name, tc := range map[string]struct {
		annotations, keys string
		// ignored is the annotation that is not accepted, "" if all are; accepted is
		// part of what is said to be.
		ignored, accepted string
		change            func(*shaping.Limit)
	}{
		"a burst of 50 s":                              {`"podweir.io/egress-burst":"500M"`, "", "egress-burst", "100ms", nil},
		"a burst of 101 ms":                            {`"podweir.io/egress-burst":"101ms"`, "", "egress-burst", "100ms", nil},
		"a burst of 100 ms":                            {`"podweir.io/egress-burst":"100ms"`, "", "", "", burst(125_000)},
		"the burst of 100 ms in bits":                  {`"podweir.io/egress-burst":"1M"`, "", "", "", burst(125_000)},
		"up to the node's own burst":                   {`"podweir.io/egress-burst":"900ms"`, `"egressBurst":"1s"`, "", "", burst(1_125_000)},
		"a burst that the operator lets pods have":     {`"podweir.io/egress-burst":"1s"`, `"podAnnotations":["egress-burst=1s"]`, "", "", burst(1_250_000)},
		"more than that":                               {`"podweir.io/egress-burst":"2s"`, `"podAnnotations":["egress-burst=1s"]`, "egress-burst", "1s", nil},
		"elephants":                                    {`"podweir.io/policy":"elephants"`, "", "policy", "one of strict, flat", nil},
		"elephants, as the node":                       {`"podweir.io/policy":"elephants"`, `"policy":"elephants"`, "", "", elephants},
		"elephants, which the operator lets pods have": {`"podweir.io/policy":"elephants"`, `"podAnnotations":["policy=elephants"]`, "", "", elephants},
		"a threshold for strict, and then elephants": {
			`"podweir.io/policy":"elephants"`, `"heavyThreshold":"100%","podAnnotations":["policy=elephants"]`, "", "",
			func(l *shaping.Limit) { l.Policy, l.HeavyThreshold = terms.PolicyElephants, 500 },
		},
		"what the operator does not list": {`"podweir.io/policy":"flat"`, `"podAnnotations":["egress-burst"]`, "policy", "podAnnotations", nil},
		"nothing is listed":               {`"podweir.io/egress-burst":"50ms"`, `"podAnnotations":[]`, "egress-burst", "podAnnotations", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys := `"egressRate":"10M"`
			if tc.keys != "" {
				keys += "," + tc.keys
			}
			got := must.Get(netconf.Parse(netconf.Add, input(annotations(tc.annotations), keys)))(t)
			must.Match(t, "limit", limit(10e6, tc.change), got.Shaping.Egress)
			switch {
			case tc.ignored == "" && len(got.Ignored) != 0:
				t.Errorf("ignored %v, want nothing", got.Ignored)
			case tc.ignored == "":
			case len(got.Ignored) != 1 || got.Ignored[0].Field != "annotation podweir.io/"+tc.ignored ||
				!strings.Contains(got.Ignored[0].Accepted, tc.accepted):
				t.Errorf("ignored %v, want %s with %q", got.Ignored, tc.ignored, tc.accepted)
			}
		})
	}
}

// TestOwnElephantsNeedHeavyFlows: the operator's own threshold is bounded where it
// decides what the limit applies to.
func TestOwnElephantsNeedHeavyFlows(t *testing.T) {
	t.Parallel()
	in := input("", `"egressRate":"10M","policy":"elephants","heavyThreshold":"51%"`)
	got := must.Get(netconf.Parse(netconf.Add, in))(t)
	must.Be(t, "the threshold", shaping.DefaultHeavyThreshold, got.Shaping.Egress.HeavyThreshold)
	must.Fail(t, "ParseStrict()", must.Err(netconf.ParseStrict(netconf.Add, in)), "0.5% to 50%")
}

// TestPodAnnotationsOfTheOperator: a bad list or item opens nothing.
func TestPodAnnotationsOfTheOperator(t *testing.T) {
	t.Parallel()
	const pod = `"podweir.io/policy":"elephants","podweir.io/egress-burst":"1s"`
	for name, tc := range map[string]struct{ list, value string }{
		"no list":                  {`"policy"`, `"policy"`},
		"unknown":                  {`["polcy=elephants"]`, "polcy=elephants"},
		"value that is none":       {`["policy=elefants"]`, "policy=elefants"},
		"value that needs no word": {`["policy=flat"]`, "policy=flat"},
		"burst beyond the range":   {`["egress-burst=11s"]`, "egress-burst=11s"},
		"burst in bytes":           {`["egress-burst=500M"]`, "egress-burst=500M"},
		"no bound of its own":      {`["enforce=limit"]`, "enforce=limit"},
	} {
		in := input(annotations(pod), `"egressRate":"10M","podAnnotations":`+tc.list)
		got := must.Get(netconf.Parse(netconf.Add, in))(t)
		must.Match(t, name+": limit", limit(10e6, nil), got.Shaping.Egress)
		if !slices.ContainsFunc(got.Ignored, func(e *netconf.FieldError) bool {
			return e.Field == "podAnnotations" && e.Value == tc.value && e.Accepted != ""
		}) {
			t.Errorf("%s: ignored %v, want podAnnotations with %s", name, got.Ignored, tc.value)
		}
	}
	got := must.Get(netconf.ParseStrict(netconf.Add, input("", `"egressRate":"10M",
		"podAnnotations":["policy","podweir.io/policy=elephants","egress-burst=10s","enforce"]`)))(t)
	must.Len(t, "warnings about a good list", 0, got.Warnings)
}

// refused is what is said of a value that is not accepted.
func refused(field, value, accepted string) *netconf.FieldError {
	return &netconf.FieldError{Field: field, Value: value, Accepted: accepted}
}

const acceptedRates = "a rate in bits per second from 1k to 400G, written as a Kubernetes quantity such as 10M"

// TestParseKeepsTheRateOfABadSetting: whoever wrote a bad value that says how a
// limit is kept, the runtime or the operator, it does not cost a pod its rate.
func TestParseKeepsTheRateOfABadSetting(t *testing.T) {
	t.Parallel()
	const subnets = "a list of at most 256 subnets in CIDR form such as 10.0.0.0/8 or fd00::/8"
	const bits = "a burst of 1 to 4G bits, written as a Kubernetes quantity in bits, or a time from 1µs to 10s " +
		"that is not more at the rate"
	const queueRow = "with this mode the queue auto, tbf"
	for name, tc := range map[string]struct {
		runtime, keys string
		want          *netconf.FieldError
		change        func(*shaping.Limit)
	}{
		"the runtime's burst of zero": {
			runtime: `"bandwidth":{"egressRate":10000000,"egressBurst":0}`,
			want:    refused("runtimeConfig.bandwidth.egressBurst", "0", bits),
		},
		"burst of zero":                       {keys: `"egressBurst":0`, want: refused("egressBurst", "0", bits)},
		"burst of milli":                      {keys: `"egressBurst":"10m"`, want: refused("egressBurst", "10m", bits)},
		"burst of no kind":                    {keys: `"egressBurst":true`, want: refused("egressBurst", "true", "a string or a number")},
		"burst of a direction without a rate": {keys: `"ingressBurst":"much"`, want: refused("ingressBurst", "much", bits)},
		"policy":                              {keys: `"policy":"fair"`, want: refused("policy", "fair", "one of strict, elephants, flat")},
		"queue":                               {keys: `"egressQueue":"cake"`, want: refused("egressQueue", "cake", "one of auto, tbf, none")},
		"mode": {keys: `"mode":"xdp"`, want: refused("mode", "xdp",
			"one of auto, qdisc, tcx-podside, tcx-hostside, clsact-podside, clsact-hostside")},
		"shaper":                    {keys: `"ingressShaper":"nobody"`, want: refused("ingressShaper", "nobody", "one of podweir, cilium, calico, ovn")},
		"place":                     {keys: `"ingressPlace":"pod"`, want: refused("ingressPlace", "pod", "one of auto, host, ifb, prefer-ifb")},
		"horizon":                   {keys: `"horizon":"2s"`, want: refused("horizon", "2s", "a time from 1ms to 1s such as 50ms")},
		"light share":               {keys: `"lightShare":"100%"`, want: refused("lightShare", "100%", "a share from 1% to 99% in steps of 0.1%, written as 90% or 0.9")},
		"heavy threshold":           {keys: `"heavyThreshold":"0.1%"`, want: refused("heavyThreshold", "0.1%", "a share from 0.5% to 100% in steps of 0.1%, written as 90% or 0.9")},
		"error policy":              {keys: `"onError":"maybe"`, want: refused("onError", "maybe", "one of open, closed")},
		"log level":                 {keys: `"logLevel":"loud"`, want: refused("logLevel", "loud", "one of debug, info, warn, error")},
		"replaceQdisc":              {keys: `"replaceQdisc":"yes"`, want: refused("replaceQdisc", `"yes"`, "true or false")},
		"subnet":                    {keys: `"unshapedSubnets":["10.0.0.1"]`, want: refused("unshapedSubnets", "10.0.0.1", subnets)},
		"one of the shaped subnets": {keys: `"shapedSubnets":["10.0.0.0/8","x"]`, want: refused("shapedSubnets", "x", subnets)},
		"list of subnets":           {keys: `"shapedSubnets":"10.0.0.0/8"`, want: refused("shapedSubnets", `"10.0.0.0/8"`, subnets)},
		"both lists of subnets": {
			keys: `"shapedSubnets":["10.0.0.0/8"],"unshapedSubnets":["10.0.0.0/8"]`,
			want: refused("unshapedSubnets, shapedSubnets", "1 subnets, 1 subnets", "one of them"),
		},
		"mode and queue that do not go together": {
			keys:   `"egressMode":"qdisc","queue":"none"`,
			want:   refused("egressMode, egressQueue", "qdisc, none", queueRow),
			change: func(l *shaping.Limit) { l.Mode = terms.ModeQdisc },
		},
		"a default rate that another hides": {
			runtime: `"bandwidth":{"egressRate":10000000,"egressBurst":4294967295}`, keys: `"egressRate":"10X"`,
			want: refused("egressRate", "10X", acceptedRates),
		},
		"annotation with a burst of zero": {
			runtime: annotations(`"podweir.io/egress-burst":"0"`), keys: `"egressRate":"10M","egressBurst":"80k"`,
			want:   refused("annotation podweir.io/egress-burst", "0", bits),
			change: func(l *shaping.Limit) { l.Burst = 10_000 },
		},
		"annotation with a burst above the range": {
			runtime: annotations(`"podweir.io/egress-burst":"4000000001"`), keys: `"egressRate":"10M"`,
			want: refused("annotation podweir.io/egress-burst", "4000000001", bits),
		},
		"annotation with a burst of no time": {
			runtime: annotations(`"podweir.io/egress-burst":"0s"`), keys: `"egressRate":"10M"`,
			want: refused("annotation podweir.io/egress-burst", "0s", bits),
		},
		"annotation with a policy": {
			runtime: annotations(`"podweir.io/policy":"bogus"`), keys: `"egressRate":"10M","policy":"flat"`,
			want:   refused("annotation podweir.io/policy", "bogus", "one of strict, elephants, flat"),
			change: func(l *shaping.Limit) { l.Policy = terms.PolicyFlat },
		},
		"long value": {
			keys: `"policy":"` + strings.Repeat("x", 100) + `"`,
			want: refused("policy", strings.Repeat("x", 80)+"...", "one of strict, elephants, flat"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys := tc.keys
			if tc.runtime == "" {
				keys += `,"egressRate":"10M"`
			}
			got := must.Get(netconf.Parse(netconf.Add, input(tc.runtime, keys)))(t)
			must.Match(t, "limits", shaping.Config{Egress: limit(10e6, tc.change), Notes: got.Shaping.Notes, Decisions: got.Shaping.Decisions}, got.Shaping, anyOrigin)
			toldAs(t, input(tc.runtime, keys), got, tc.want)
			if own := strings.HasPrefix(tc.want.Field, "annotation "); own && !strings.Contains(strings.Join(got.Warnings, "\n"), "; the node's own setting is used") {
				t.Errorf("warnings %q, want the node's own setting", got.Warnings)
			}
		})
	}
}

// toldAs checks that what was ignored is in the log, in what status shows, and an
// error for whoever asked by hand.
func toldAs(t *testing.T, in []byte, got *netconf.Config, want *netconf.FieldError) {
	t.Helper()
	must.Match(t, "ignored", []*netconf.FieldError{want}, got.Ignored)
	for where, texts := range map[string][]string{"warnings": got.Warnings, "notes": got.Shaping.Notes} {
		if !slices.ContainsFunc(texts, func(s string) bool { return strings.HasPrefix(s, want.Error()+"; ") }) {
			t.Errorf("%s %q, want %q and what is done instead", where, texts, want)
		}
	}
	_, err := netconf.ParseStrict(netconf.Add, in)
	bad, ok := errors.AsType[*netconf.LimitError](err)
	if !ok {
		t.Fatalf("ParseStrict() = %v, want a LimitError", err)
	}
	must.Match(t, "ParseStrict()", []*netconf.FieldError{want}, bad.Fields)
}

// TestParseFallsBackToTheDefaultRate: a rate that cannot be read gives way to the
// node's own, and only without one is the direction left without a limit.
func TestParseFallsBackToTheDefaultRate(t *testing.T) {
	t.Parallel()
	const rate = "annotation kubernetes.io/egress-bandwidth"
	annotation := func(s string) string { return annotations(`"kubernetes.io/egress-bandwidth":"` + s + `"`) }
	for name, tc := range map[string]struct {
		runtime, keys string
		want          *netconf.FieldError
	}{
		"annotation without sense":        {annotation("bogus"), "", refused(rate, "bogus", acceptedRates)},
		"annotation of zero":              {annotation("0"), "", refused(rate, "0", acceptedRates)},
		"below the range, by the runtime": {`"bandwidth":{"egressRate":999,"egressBurst":4294967295}`, "", refused(rate, "999", acceptedRates)},
		"of no kind, by the runtime":      {`"bandwidth":{"egressRate":[]}`, "", refused(rate, "[]", "a string or a number")},
		"no bandwidth that can be read":   {`"bandwidth":[]`, "", refused("runtimeConfig.bandwidth", "[]", "a JSON object")},
		"left to another shaper":          {annotation("bogus"), `"shaper":"cilium"`, refused(rate, "bogus", acceptedRates)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys := `"egressRate":"10M","ingressRate":"10M"`
			if tc.keys != "" {
				keys += "," + tc.keys
			}
			got, err := netconf.Parse(netconf.Add, input(tc.runtime, keys))
			must.OK(t, err)
			must.Match(t, "egress", limit(10e6, nil), got.Shaping.Egress, anyOrigin)
			toldAs(t, input(tc.runtime, keys), got, tc.want)

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
	got := must.Get(netconf.Parse(netconf.Add, input("", `"egressRate":"10M","unshapedSubnets":[`+strings.Join(bad, ",")+`]`)))(t)
	notes := got.Shaping.Notes
	if len(got.Warnings) != 20 || len(notes) != 16 || notes[15] != "5 more mistakes, which are in the log" {
		t.Errorf("%d warnings, notes %q, want 20, and 16 notes", len(got.Warnings), notes)
	}
}
