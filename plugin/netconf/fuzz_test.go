// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netconf_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/plugin/units"
)

func setRate(l *shaping.Limit, rate int)  { l.Rate = units.BitRate(rate) }
func setBurst(l *shaping.Limit, size int) { l.Burst = units.Bytes(size) }

// FuzzParse: no input breaks the parser, every error is one of ours, the
// answer is always the same, limits are in range, and prevResult is untouched.
func FuzzParse(f *testing.F) {
	f.Add(uint8(1), input(`"bandwidth":{"egressRate":1000000,"egressBurst":4294967295}`, `"policy":"flat"`))
	f.Add(uint8(1), input(annotations(`"podweir.io/egress-burst":"20ms","kubernetes.io/ingress-bandwidth":"1e7"`),
		`"egressRate":"10M","EGRESSBURST":1e3,"shapedSubnets":["::/0"]`))
	f.Add(uint8(2), input("", `"mode":"tcx-hostside","ingressRate":"1G","egressRate":-1,"lightShare":0.5`))
	f.Add(uint8(4), []byte(`{"cniVersion":"1.1.0","name":"n","cni.dev/valid-attachments":[{"containerID":"a"}]}`))
	f.Fuzz(func(t *testing.T, command uint8, in []byte) {
		c := netconf.Command(command%5 + 1)
		before := bytes.Clone(in)
		got, err := netconf.Parse(c, in)
		if got == nil || got.OnError == 0 {
			t.Fatalf("Parse() = %v, want a configuration always", got)
		}
		if !bytes.Equal(before, in) {
			t.Error("Parse() changed its input")
		}
		if got.PrevResult != nil && (!bytes.Contains(in, got.PrevResult) || !json.Valid(got.PrevResult)) {
			t.Errorf("PrevResult = %q, want bytes of the input", got.PrevResult)
		}
		again, errAgain := netconf.Parse(c, in)
		// go-cmp is slow: it is for what differs.
		if !reflect.DeepEqual(got, again) || (err == nil) != (errAgain == nil) {
			t.Errorf("Parse() twice, errors %v and %v (-first +second):\n%s", err, errAgain, cmp.Diff(got, again, cmpopts.EquateComparable(netip.Prefix{})))
		}
		for _, d := range terms.Directions {
			checkLimit(t, got.Shaping.Limit(d))
		}
		if err == nil {
			return
		}
		must.Be(t, "the error of a second Parse()", err.Error(), errAgain.Error())
		if _, ok := errors.AsType[*netconf.ContractError](err); ok {
			return
		}
		bad, ok := errors.AsType[*netconf.LimitError](err)
		if !ok || len(bad.Fields) == 0 {
			t.Fatalf("Parse() error = %#v, want one of ours", err)
		}
		for _, e := range bad.Fields {
			if e.Field == "" || e.Accepted == "" {
				t.Errorf("field error %+v, want field and range", e)
			}
		}
	})
}

// FuzzValues puts any text where a value is expected: an error then names the
// value, and what is accepted is in range.
func FuzzValues(f *testing.F) {
	f.Add("10M", "20ms", "90%", "50ms")
	f.Add("1e6", "64Ki", "0.5", "1s")
	f.Add("-1", "0", "", "1h")
	f.Fuzz(func(t *testing.T, rate, burst, share, horizon string) {
		in, err := json.Marshal(map[string]any{
			"cniVersion": "1.0.0", "name": "n", "prevResult": map[string]any{},
			"egressRate": rate, "ingressBurst": burst, "lightShare": share, "ingressHorizon": horizon,
			"runtimeConfig": map[string]any{netconf.PodAnnotationsCapability: map[string]string{
				"kubernetes.io/ingress-bandwidth": rate, "podweir.io/egress-burst": burst,
				"podweir.io/policy": share, "podweir.io/ingress-burst": horizon, "podweir.io/ingress-rate": rate,
			}},
		})
		must.OK(t, err)
		got, err := netconf.ParseIn(netconf.Namespace{
			"podweir.io/default-egress-rate": rate, "podweir.io/max-egress-rate": burst, "podweir.io/max-ingress-rate": rate,
		}, netconf.Add, in)
		for _, d := range terms.Directions {
			checkLimit(t, got.Shaping.Limit(d))
		}
		if _, ok := errors.AsType[*netconf.LimitError](err); err != nil && !ok {
			t.Errorf("Parse() error = %v, want a LimitError", err)
		}
	})
}

func checkLimit(t *testing.T, l *shaping.Limit) {
	t.Helper()
	if l == nil {
		return
	}
	if l.Rate < units.MinRate || l.Rate > units.MaxRate || l.Burst > units.MaxBurst ||
		l.Horizon < netconf.MinHorizon || l.Horizon > netconf.MaxHorizon ||
		l.LightShare < netconf.MinLightShare || l.LightShare > netconf.MaxLightShare ||
		l.HeavyThreshold < netconf.MinHeavyThreshold || l.HeavyThreshold > netconf.MaxHeavyThreshold {
		t.Errorf("limit %+v is out of range", l)
	}
	if l.Policy == 0 || l.Queue == 0 || l.Mode == 0 || l.Place == 0 {
		t.Errorf("limit %+v is not complete", l)
	}
}
