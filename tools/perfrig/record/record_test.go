// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package record

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

func campaign() Campaign {
	return Campaign{Profile: "p", Digest: "d", Machine: Machine{Kernel: "6.18", CPUs: 2}}
}

func sample(phase string, round int) *Sample {
	return &Sample{
		Cell:  spec.Cell{Phase: spec.Phase{Name: phase, Kind: spec.Podweir}, Rate: 10_000_000, Workload: spec.Workload{Name: "w"}},
		Round: round, Metrics: map[string]float64{"egress_used_share": 0.9 + float64(round)/100},
	}
}

// both are runs of two rounds.
func both() []spec.Run {
	return []spec.Run{{Cell: sample("a", 0).Cell}, {Cell: sample("a", 0).Cell, Round: 1}}
}

func mustOpen(t *testing.T, name string) *File {
	t.Helper()
	f := must.Get(Open(name, campaign(), both()))(t)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestResume: a campaign that stopped in the middle of a line goes on behind
// the last whole one, and failed runs are taken again.
func TestResume(t *testing.T) {
	name := filepath.Join(t.TempDir(), "samples.jsonl")
	f := mustOpen(t, name)
	must.OK(t, f.Append(sample("a", 0)))
	failed := sample("b", 0)
	failed.Failed, failed.Metrics = "no reason", nil
	must.OK(t, f.Append(failed))
	must.OK(t, must.Err(f.f.WriteString(`{"sample":{"cell":"`+strings.Repeat("x", 4096))))

	f = mustOpen(t, name)
	must.Match(t, "Done()", map[string]bool{"w/10M/a#00": true}, f.Results.Done())
	must.OK(t, f.Append(sample("b", 0)))
	must.OK(t, f.Append(sample("a", 1)))

	if raw, err := os.ReadFile(name); err != nil || !strings.HasSuffix(string(raw), "}\n") {
		t.Errorf("the file ends with what was cut off (%v)", err)
	}
	r := must.Get(Read(name))(t)
	want := map[string]bool{"w/10M/a#00": true, "w/10M/b#00": true, "w/10M/a#01": true}
	must.Match(t, "Done()", want, r.Done())
	must.Len(t, "samples: the second try replaces the first", 3, r.Samples)
	must.Match(t, "Values", map[int]float64{0: 0.9, 1: 0.91}, r.Values("w/10M/a", "egress_used_share"))
}

func TestReadSaysWhatIsWrong(t *testing.T) {
	for want, text := range map[string]string{
		"no campaign in it": "",
		"line 2":            `{"campaign":{"profile":"p"}}` + "\n{\n",
		"line 1":            `{"sample":{}}` + "\n",
	} {
		name := filepath.Join(t.TempDir(), "bad")
		must.OK(t, os.WriteFile(name, []byte(text), 0o600))
		must.Fail(t, "Read() of "+text, must.Err(Read(name)), want)
	}
}

func TestMetricsNameTheirUnit(t *testing.T) {
	for name, want := range map[string]string{
		"egress_used_share": "", "kept_p99_ms": "ms", "egress_wire_bits_per_second": "bit/s", "pages_requests_per_second": "/s", "x_bytes": "B",
	} {
		if got, ok := Unit(name); got != want || !ok {
			t.Errorf("Unit(%s) = %q, %v, want %q", name, got, ok, want)
		}
	}
	f := mustOpen(t, filepath.Join(t.TempDir(), "samples.jsonl"))
	s := sample("a", 0)
	s.Metrics = map[string]float64{"kept_p99": 1}
	must.Fail(t, "Append of a metric without a unit", f.Append(s), "kept_p99")
}

// TestOpenPutsAside: what can go on stays; what is complete, or of another campaign,
// makes room and is kept.
func TestOpenPutsAside(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Campaign)
		runs   []spec.Run
		moved  bool
	}{
		"interrupted":       {func(*Campaign) {}, both(), false},
		"complete":          {func(*Campaign) {}, both()[:1], true},
		"of another commit": {func(c *Campaign) { c.Machine.Commit = "other" }, both(), true},
		"of another kernel": {func(c *Campaign) { c.Machine.Kernel = "6.1" }, both(), true},
		"of another spec":   {func(c *Campaign) { c.Digest = "other" }, both(), true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "samples.jsonl")
			c := campaign()
			c.Started = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			f := must.Get(Open(file, c, both()))(t)
			must.OK(t, f.Append(sample("a", 0)))
			tc.change(&c)
			again, err := Open(file, c, tc.runs)
			must.OK(t, errors.Join(err, f.Close()))
			must.Be(t, "no sample is in the file that was opened", tc.moved, len(again.Results.Samples) == 0)
			must.OK(t, again.Close())
			_, err = os.Stat(filepath.Join(dir, "samples-20260102T030405.jsonl"))
			must.Be(t, "moved", tc.moved, err == nil)
		})
	}
}
