// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

// samples writes three rounds in which podweir uses so much of its cap.
func samples(t *testing.T, used float64) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "samples.jsonl")
	costs := must.Get(spec.Profile("costs"))(t)
	f := must.Get(record.Open(name, record.Campaign{Profile: "costs", Digest: costs.Digest(), Planned: 99}, nil))(t)
	for round, noise := range []float64{-0.01, 0, 0.01} {
		s := &record.Sample{Round: round, Metrics: map[string]float64{"egress_used_share": used + noise, "carried_bits_per_second": 1e12}}
		s.Cell.Phase = spec.Phase{Name: "podweir-strict", Kind: spec.Podweir, Keys: map[string]string{"policy": "strict"}}
		s.Cell.Rate = 1_000_000
		s.Cell.Workload = spec.Workload{Name: "w", Kind: spec.Sweep, Direction: "egress", Streams: 1}
		must.OK(t, f.Append(s))
	}
	must.OK(t, f.Close())
	return name
}

func TestReport(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		fail string
		want []string
	}{
		"held":                  {[]string{"-check", samples(t, 0.99)}, "", []string{"0.9900 of the cap ±1.0%", "96 of 99 samples are missing", "ok   w/1M/podweir-strict: use"}},
		"missed, not checked":   {[]string{samples(t, 0.5)}, "", []string{"MISS w/1M/podweir-strict: use"}},
		"missed and checked":    {[]string{"-check", samples(t, 0.5)}, "1 bars are missed", nil},
		"a file that is not so": {[]string{"nothing"}, "no such file", nil},
	} {
		var out bytes.Buffer
		err := command(t.Context(), append([]string{"report"}, tc.args...), &out)
		if tc.fail == "" && err != nil || tc.fail != "" && (err == nil || !strings.Contains(err.Error(), tc.fail)) {
			t.Errorf("%s: report = %v, want %q", name, err, tc.fail)
		}
		must.Have(t, name+": the report", out.String(), tc.want...)
	}
}
