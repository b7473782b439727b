// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netconf_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
)

const prevResult = `{"cniVersion": "1.0.0",  "vendor": {"b":1, "a":1e3},
 "interfaces":[{"name":"veth0","mac":"02:00:00:00:00:01"},
  {"name":"eth0","mac":"02:00:00:00:00:02","sandbox":"/run/netns/x","mtu":1500}]}`

// input makes an ADD's stdin of a runtimeConfig and further keys.
func input(runtime, keys string) []byte {
	if keys != "" {
		keys += ","
	}
	return fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"net","type":"podweir-cni",%s
		"runtimeConfig":{%s},"prevResult":%s}`, keys, runtime, prevResult)
}

func annotations(pairs string) string {
	return `"io.kubernetes.cri.pod-annotations":{` + pairs + `}`
}

func limit(rate int, change func(*shaping.Limit)) *shaping.Limit {
	l := &shaping.Limit{
		Horizon: 50 * time.Millisecond, LightShare: 900, HeavyThreshold: 50,
		Policy: terms.PolicyStrict, Queue: terms.QueueAuto, Mode: terms.ModeAuto, Place: terms.PlaceAuto,
	}
	setRate(l, rate)
	if change != nil {
		change(l)
	}
	return l
}

func TestParseLimits(t *testing.T) {
	t.Parallel()
	type want struct {
		egress, ingress *shaping.Limit
		warnings        []string
	}
	plain := func(rate int) *shaping.Limit { return limit(rate, nil) }
	burst := func(rate, size int) *shaping.Limit {
		return limit(rate, func(l *shaping.Limit) { setBurst(l, size) })
	}
	for name, tc := range map[string]struct {
		runtime, keys string
		want          want
	}{
		"nothing is requested": {"", "", want{}},
		"rates of the runtime, containerd's filler for the burst": {
			`"bandwidth":{"ingressRate":1000000,"ingressBurst":4294967295,"egressRate":2000000,"egressBurst":4294967295}`, "",
			want{egress: plain(2e6), ingress: plain(1e6)},
		},
		"lowest and highest rate": {
			`"bandwidth":{"ingressRate":1000,"ingressBurst":4294967295,"egressRate":400000000000,"egressBurst":4294967295}`, "",
			want{egress: plain(400e9), ingress: plain(1e3)},
		},
		"capitalised keys": {
			`"Bandwidth":{"IngressRate":1000000,"IngressBurst":4294967295,"EgressRate":2000000,"EgressBurst":80001}`, "",
			want{egress: burst(2e6, 10001), ingress: plain(1e6)},
		},
		"cri-dockerd's filler for the burst": {
			`"bandwidth":{"ingressRate":1000000,"ingressBurst":2147483646,"egressRate":2000000,"egressBurst":2147483647}`, "",
			want{egress: plain(2e6), ingress: burst(1e6, 268_435_456)},
		},
		"its number by the operator":   {"", `"egressRate":"2M","egressBurst":2147483647`, want{egress: burst(2e6, 268_435_456)}},
		"CRI-O's filler for the burst": {`"bandwidth":{"egressRate":2000000,"egressBurst":34359738360}`, "", want{egress: plain(2e6)}},
		"one direction, the other as zeros": {
			`"bandwidth":{"egressRate":2000000,"egressBurst":4294967295,"ingressRate":0,"ingressBurst":0}`, "",
			want{egress: plain(2e6)},
		},
		"null is absent": {`"bandwidth":null`, `"egressRate":null,"policy":null`, want{}},
		"the runtime's rate above the range is clamped": {
			`"bandwidth":{"egressRate":1000000000000000,"egressBurst":4294967295}`, "",
			want{egress: plain(400e9), warnings: []string{
				`annotation kubernetes.io/egress-bandwidth: "1000000000000000" is above the highest rate, clamped to 400 Gbit/s`,
			}},
		},
		"annotation where the runtime says nothing of the direction": {
			`"bandwidth":{"egressRate":2000000,"egressBurst":4294967295},` + annotations(
				`"kubernetes.io/egress-bandwidth":"7M","kubernetes.io/ingress-bandwidth":"3M"`), "",
			want{egress: plain(2e6), ingress: plain(3e6)},
		},
		"the highest rate is not clamped": {
			`"bandwidth":{"egressRate":400000000000,"egressBurst":4294967295}`, `"":1`,
			want{egress: plain(400e9), warnings: []string{`unknown key "" is ignored`}},
		},
		"annotation above the range is clamped": {
			annotations(`"kubernetes.io/egress-bandwidth":"1P"`), "",
			want{egress: plain(400e9), warnings: []string{
				`annotation kubernetes.io/egress-bandwidth: "1P" is above the highest rate, clamped to 400 Gbit/s`,
			}},
		},
		"defaults of the network, in numbers and quantities": {
			"", `"ingressRate":1000000,"ingressBurst":160000,"egressRate":"10M","egressBurst":"100k"`,
			want{egress: burst(10e6, 12500), ingress: burst(1e6, 20000)},
		},
		"the runtime before the network": {
			`"bandwidth":{"egressRate":2000000,"egressBurst":80000}`, `"egressRate":"10M","egressBurst":"100k"`,
			want{egress: burst(2e6, 10000)},
		},
		"the network's burst where the runtime sends its filler": {
			`"bandwidth":{"egressRate":2000000,"egressBurst":4294967295}`, `"egressBurst":"100k"`,
			want{egress: burst(2e6, 12500)},
		},
		"the pod's burst before all, in bits as everywhere": {
			`"bandwidth":{"egressRate":2000000,"egressBurst":80000},` + annotations(`"podweir.io/egress-burst":"128Ki"`),
			`"egressBurst":"100k"`,
			want{egress: burst(2e6, 16384)},
		},
		"a burst in time": {
			`"bandwidth":{"egressRate":8000000,"egressBurst":4294967295},` + annotations(`"podweir.io/egress-burst":"20ms"`), "",
			want{egress: burst(8e6, 20000)},
		},
		"every setting, for both directions": {
			"", `"egressRate":"1G","ingressRate":"1G","policy":"flat","mode":"qdisc","queue":"tbf","horizon":"20ms",
				"lightShare":"80%","heavyThreshold":0.1`,
			want{egress: limit(1e9, func(l *shaping.Limit) { everySetting(l) }), ingress: limit(1e9, func(l *shaping.Limit) { everySetting(l) })},
		},
		"a direction's setting before the common one": {
			"", `"egressRate":"1G","ingressRate":"1G","mode":"tcx-podside","ingressMode":"qdisc","queue":"none",
				"ingressQueue":"tbf","horizon":"20ms","ingressHorizon":"30ms","ingressPlace":"ifb"`,
			want{
				egress: limit(1e9, func(l *shaping.Limit) {
					l.Mode, l.Queue, l.Horizon = terms.ModeTCXPodSide, terms.QueueNone, 20*time.Millisecond
				}),
				ingress: limit(1e9, func(l *shaping.Limit) {
					l.Mode, l.Queue, l.Horizon = terms.ModeQdisc, terms.QueueTBF, 30*time.Millisecond
					l.Place = terms.PlaceIFB
				}),
			},
		},
		"the pod's settings before the network's": {
			annotations(`"podweir.io/policy":"elephants","podweir.io/egress-burst":"5ms"`),
			`"egressRate":"1G","policy":"flat","egressBurst":"20ms","podAnnotations":["policy=elephants","egress-burst"]`,
			want{egress: limit(1e9, func(l *shaping.Limit) { l.Policy, l.Burst = terms.PolicyElephants, 625_000 })},
		},
		"unknown keys and annotations are tolerated": {
			annotations(`"podweir.io/egres-burst":"1k","podweir.io/egress-bandwidth":"1M","podweir.io/egress-queue":"none",
				"podweir.io/x":"","podweir.io/egress-shaper":"podweir","example.com/policy":"x"`),
			`"egressrate":"1M","polcy":"flat","isGateway":true,"args":{},"dns":{},"cni.dev/x":1`,
			want{egress: plain(1e6), warnings: []string{
				`unknown key "isGateway" is ignored`,
				`unknown key "polcy" is ignored, did you mean "policy"?`,
				`unknown annotations are ignored: "podweir.io/egres-burst" (did you mean "egress-burst"?), ` +
					`"podweir.io/egress-bandwidth" (the rate is podweir.io/ingress-rate or podweir.io/egress-rate), ` +
					`"podweir.io/egress-queue" (it is for the network configuration alone), ` +
					`"podweir.io/egress-shaper" (it is for the network configuration alone), "podweir.io/x"`,
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := must.Get(netconf.Parse(netconf.Add, input(tc.runtime, tc.keys)))(t)
			must.Match(t, "egress", tc.want.egress, got.Shaping.Egress, anyOrigin)
			must.Match(t, "ingress", tc.want.ingress, got.Shaping.Ingress, anyOrigin)
			must.Match(t, "warnings", tc.want.warnings, got.Warnings)
			for _, text := range got.Warnings { // no limit is other than asked without status saying so
				must.Be(t, "a note: "+text, strings.Contains(text, "clamped"), slices.Contains(got.Shaping.Notes, text))
			}
		})
	}
}

func everySetting(l *shaping.Limit) {
	l.Policy, l.Mode, l.Queue = terms.PolicyFlat, terms.ModeQdisc, terms.QueueTBF
	l.Horizon, l.LightShare, l.HeavyThreshold = 20*time.Millisecond, 800, 100
}

// TestParseBadLimits: without a rate that can be read a direction stays without a
// limit, and that is an error.
func TestParseBadLimits(t *testing.T) {
	t.Parallel()
	type fields = []*netconf.FieldError
	one := func(field, value, accepted string) fields {
		return fields{{Field: field, Value: value, Accepted: accepted}}
	}
	for name, tc := range map[string]struct {
		runtime, keys string
		want          fields
	}{
		"suffix that is none":              {"", `"egressRate":"10X"`, one("egressRate", "10X", acceptedRates)},
		"milli":                            {"", `"egressRate":"10m"`, one("egressRate", "10m", acceptedRates)},
		"negative number":                  {"", `"ingressRate":-1`, one("ingressRate", "-1", acceptedRates)},
		"above the range, by the operator": {"", `"ingressRate":"400000000001"`, one("ingressRate", "400000000001", acceptedRates)},
		"negative, by the runtime": {
			`"bandwidth":{"egressRate":-8,"egressBurst":4294967295}`, "",
			one("annotation kubernetes.io/egress-bandwidth", "-8", acceptedRates),
		},
		"rate that is neither number nor string": {"", `"egressRate":true`, one("egressRate", "true", "a string or a number")},
		"annotations": {
			`"io.kubernetes.cri.pod-annotations":{"a":1}`, "",
			one("runtimeConfig[io.kubernetes.cri.pod-annotations]", `{"a":1}`, "an object of strings"),
		},
		"all of them": {
			`"bandwidth":{"egressRate":8,"ingressRate":-8},` + annotations(`"kubernetes.io/egress-bandwidth":"8"`), `"egressRate":"x"`,
			fields{
				{Field: "annotation kubernetes.io/egress-bandwidth", Value: "8", Accepted: acceptedRates},
				{Field: "egressRate", Value: "x", Accepted: acceptedRates},
				{Field: "annotation kubernetes.io/ingress-bandwidth", Value: "-8", Accepted: acceptedRates},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := netconf.Parse(netconf.Add, input(tc.runtime, tc.keys))
			bad, ok := errors.AsType[*netconf.LimitError](err)
			if !ok {
				t.Fatalf("Parse() error = %v, want a LimitError", err)
			}
			must.Match(t, "fields", tc.want, bad.Fields)
			for _, f := range tc.want {
				must.Fail(t, "Parse()", err, f.Field, f.Accepted)
			}
			if got.Shaping.Egress != nil || got.Shaping.Ingress != nil {
				t.Errorf("Shaping = %+v, want no limit beside an error", got.Shaping)
			}
			if string(got.PrevResult) != prevResult || len(got.Interfaces) != 2 {
				t.Errorf("PrevResult = %s, Interfaces = %v, want what came in", got.PrevResult, got.Interfaces)
			}
		})
	}
}

func TestParseOperator(t *testing.T) {
	t.Parallel()
	got, err := netconf.Parse(netconf.Add, input("", `"onError":"closed","replaceQdisc":true,
		"logLevel":"debug","egressRate":"bad",
		"unshapedSubnets":["10.1.2.3/8","::ffff:192.168.0.0/112","fd00::1/64","::/0"]`))
	must.Fail(t, "Parse()", err)
	want := &netconf.Config{
		CNIVersion: "1.0.0", Name: "net", Type: "podweir-cni", PrevResult: json.RawMessage(prevResult),
		Interfaces: []netconf.Interface{
			{Name: "veth0", MAC: "02:00:00:00:00:01"},
			{Name: "eth0", MAC: "02:00:00:00:00:02", Sandbox: "/run/netns/x"},
		},
		Unread: []terms.Direction{terms.Egress}, OnError: netconf.FailClosed, ReplaceQdisc: true, LogLevel: slog.LevelDebug,
	}
	want.Shaping = got.Shaping
	must.Match(t, "Parse() beside an error", want, got, cmpopts.EquateComparable(netip.Prefix{}))
	got, err = netconf.Parse(netconf.Add, input("", `"shapedSubnets":["10.1.2.3/8","::ffff:192.168.0.0/112",
		"fd00::1/64","fd00::1/128","::ffff:0:0/96","::ffff:0:0/90","::/0"]`))
	must.OK(t, err)
	subnets := []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.168.0.0/16"),
		netip.MustParsePrefix("fd00::/64"), netip.MustParsePrefix("fd00::1/128"),
		netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::ffc0:0:0/90"), netip.MustParsePrefix("::/0"),
	}
	must.Match(t, "Shaped", subnets, got.Shaping.Shaped, cmpopts.EquateComparable(netip.Prefix{}))
}

func TestParseContract(t *testing.T) {
	t.Parallel()
	const head = `"cniVersion":"1.1.0","name":"net","type":"podweir-cni"`
	for name, tc := range map[string]struct {
		command netconf.Command
		in      string
		code    uint // 0: accepted
		text    string
	}{
		"no input":               {netconf.Add, ``, 6, "parse the network configuration on stdin"},
		"not JSON":               {netconf.Del, `{`, 6, "parse the network configuration on stdin"},
		"null":                   {netconf.Del, `null`, 6, "not a JSON object"},
		"a list":                 {netconf.Add, `[]`, 6, "parse the network configuration on stdin"},
		"no version":             {netconf.Del, `{"name":"net"}`, 0, ""},
		"empty version":          {netconf.Del, `{"cniVersion":"","name":"net"}`, 0, ""},
		"no such version":        {netconf.Add, `{"cniVersion":"0.3.2","name":"net"}`, 1, `"0.3.2"`},
		"version too new":        {netconf.Add, `{"cniVersion":"1.2.0","name":"net"}`, 1, `cniVersion "1.2.0" is not one of 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0`},
		"version as a number":    {netconf.Add, `{"cniVersion":1,"name":"net"}`, 7, "read cniVersion"},
		"no name":                {netconf.Del, `{"cniVersion":"1.0.0"}`, 7, "name is missing"},
		"ADD, no prevResult":     {netconf.Add, `{` + head + `}`, 7, "prevResult is missing"},
		"CHECK, null prevResult": {netconf.Check, `{` + head + `,"prevResult":null}`, 7, "prevResult is missing"},
		"ADD, odd prevResult":    {netconf.Add, `{` + head + `,"prevResult":[1]}`, 6, "read prevResult"},
		"ADD, odd interfaces":    {netconf.Add, `{` + head + `,"prevResult":{"interfaces":{}}}`, 6, "read prevResult"},
		"ADD, no interfaces":     {netconf.Add, `{` + head + `,"prevResult":{}}`, 0, ""},
		"DEL, no prevResult":     {netconf.Del, `{` + head + `}`, 0, ""},
		"DEL, odd prevResult":    {netconf.Del, `{` + head + `,"prevResult":[1]}`, 0, ""},
		"DEL, bad limits":        {netconf.Del, `{` + head + `,"egressRate":"10X","runtimeConfig":7,"onError":"x"}`, 0, ""},
		"STATUS, no prevResult":  {netconf.Status, `{` + head + `}`, 0, ""},
		"GC, bad limits":         {netconf.GC, `{` + head + `,"policy":"x","cni.dev/valid-attachments":[]}`, 0, ""},
		"GC, no list":            {netconf.GC, `{` + head + `}`, 7, "cni.dev/valid-attachments is missing"},
		"GC, odd list":           {netconf.GC, `{` + head + `,"cni.dev/valid-attachments":{}}`, 7, "read cni.dev/valid-attachments"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := netconf.Parse(tc.command, []byte(tc.in))
			if got == nil {
				t.Fatal("Parse() = nil, want a configuration always")
			}
			if tc.code == 0 {
				must.OK(t, err)
				return
			}
			bad, ok := errors.AsType[*netconf.ContractError](err)
			if !ok || bad.Code != tc.code || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("Parse() error = %v, want code %d and %q", err, tc.code, tc.text)
			}
		})
	}
}

func TestParseGC(t *testing.T) {
	t.Parallel()
	want := []netconf.Attachment{{ContainerID: "a", IfName: "eth0"}, {ContainerID: "b", IfName: "net1"}}
	const list = `[{"containerID":"a","ifname":"eth0"},{"containerID":"b","ifname":"net1","x":1}]`
	for in, want := range map[string][]netconf.Attachment{
		`"cni.dev/valid-attachments":` + list:                          want,
		`"cni.dev/attachments":` + list:                                want,
		`"cni.dev/valid-attachments":[],"cni.dev/attachments":` + list: {},
		`"cni.dev/valid-attachments":null`:                             nil,
	} {
		got := must.Get(netconf.Parse(netconf.GC, []byte(`{"cniVersion":"1.1.0","name":"net",`+in+`}`)))(t)
		must.Match(t, fmt.Sprintf("Parse(%s) attachments", in), want, got.Attachments)
	}
}
