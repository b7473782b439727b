// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package spec

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// TestInModesStandsBeside: what says how it attaches, or is not podweir's, stays
// as it is.
func TestInModesStandsBeside(t *testing.T) {
	s := &Spec{Profile: "p", Samples: 1, Blocks: []Block{{
		Phases:    []Phase{unshaped, strict, strictIFB, flat, elephants, unused, podweir("strict", "fq")},
		Rates:     []uint64{mbit},
		Workloads: []Workload{mixed()},
	}}}
	got, err := s.InModes("ifb", "tcx-podside")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range got.Blocks[0].Phases {
		names = append(names, p.Name)
	}
	want := []string{
		"unshaped", "podweir-strict", "podweir-strict-tcx-podside", "podweir-strict-ifb",
		"podweir-flat", "podweir-flat-ifb", "podweir-flat-tcx-podside",
		"podweir-elephants", "podweir-elephants-ifb", "podweir-elephants-tcx-podside", "podweir-unused", "podweir-strict-fq",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
	if len(s.Blocks[0].Phases) != 7 || got.Digest() == s.Digest() {
		t.Error("the spec itself changed, or its digest did not")
	}
	if _, err := s.InModes("xdp"); err == nil || !strings.Contains(err.Error(), `"xdp"`) || !strings.Contains(err.Error(), "clsact-podside") {
		t.Errorf("InModes(xdp) = %v, want an error that names it and the modes", err)
	}
}

// TestModesAreThoseOfPodweir: podweir computes a tree or a policer for each mode,
// policy and direction, and it polices where the bars are told so.
func TestModesAreThoseOfPodweir(t *testing.T) {
	facts := shaping.Facts{TBF: true, HTB: true, IFB: true, MTU: 1500}
	for _, by := range []Phase{strict, elephants, flat} {
		for _, name := range AttachModes() {
			p := by.with(name, attachModes[name].key, attachModes[name].value)
			limit := limitOf(t, &p)
			for _, d := range []terms.Direction{terms.Egress, terms.Ingress} {
				got, err := shaping.Compute(&shaping.Config{Egress: limit, Ingress: limit}, d, facts, shaping.RandomMajor)
				if err != nil {
					t.Errorf("%s, %s: %v", p.Name, d, err)
				} else if policed := got.Queue == terms.QueueNone; policed != p.Policed(d.String()) {
					t.Errorf("%s, %s: podweir polices: %t, the phase: %t", p.Name, d, policed, !policed)
				}
			}
		}
	}
	for m := terms.ModeQdisc; !strings.HasPrefix(m.String(), "invalid"); m++ {
		if !slices.Contains(AttachModes(), m.String()) {
			t.Errorf("podweir's mode %s is none of the rig's", m)
		}
	}
}

// limitOf is 10M with the keys of a phase.
func limitOf(t *testing.T, p *Phase) *shaping.Limit {
	t.Helper()
	limit := &shaping.Limit{
		Rate: 10 * mbit, Horizon: shaping.DefaultHorizon, LightShare: shaping.DefaultLightShare,
		HeavyThreshold: shaping.DefaultHeavyThreshold,
		Queue:          terms.QueueAuto, Mode: terms.ModeAuto, Place: terms.PlaceAuto,
	}
	for key, value := range p.Keys {
		var err error
		switch key {
		case "policy":
			limit.Policy, err = terms.ParsePolicy(value)
		case "mode":
			limit.Mode, err = terms.ParseMode(value)
		case "ingressPlace":
			limit.Place, err = terms.ParsePlace(value)
		default:
			t.Fatalf("a mode has the key %s", key)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return limit
}
