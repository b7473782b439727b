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

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/tools/perfrig/spec"
	"github.com/podweir/podweir/tools/perfrig/stats"
)

func campaign() Campaign {
	return Campaign{Profile: "p", Digest: "d", Seed: 1, Machine: Machine{Kernel: "6.18", CPUs: 2}}
}

func sample(phase string, round int) *Sample {
	return &Sample{
		Cell:  spec.Cell{Phase: spec.Phase{Name: phase, Kind: spec.Podweir}, Rate: 10_000_000, Workload: spec.Workload{Name: "w"}},
		Round: round, Metrics: map[string]float64{"egress_used_share": 0.9 + float64(round)/100},
		Latencies: map[string]*stats.Histogram{"kept": stats.NewHistogram([]time.Duration{time.Millisecond})},
	}
}

func mustOpen(t *testing.T, name string) *File {
	t.Helper()
	f, err := Open(name, campaign())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func mustAppend(t *testing.T, f *File, s *Sample) {
	t.Helper()
	if err := f.Append(s); err != nil {
		t.Fatal(err)
	}
}

// TestResume: a campaign that stopped in the middle of a line goes on behind
// the last whole one, and failed runs are taken again.
func TestResume(t *testing.T) {
	name := filepath.Join(t.TempDir(), "samples.jsonl")
	f := mustOpen(t, name)
	mustAppend(t, f, sample("a", 0))
	failed := sample("b", 0)
	failed.Failed, failed.Metrics = "no reason", nil
	mustAppend(t, f, failed)
	if _, err := f.f.WriteString(`{"sample":{"cell":"` + strings.Repeat("x", 4096)); err != nil {
		t.Fatal(err)
	}

	f = mustOpen(t, name)
	if diff := cmp.Diff(map[string]bool{"w/10M/a#00": true}, f.Results.Done()); diff != "" {
		t.Fatalf("Done() (-want +got):\n%s", diff)
	}
	mustAppend(t, f, sample("b", 0))
	mustAppend(t, f, sample("a", 1))

	if raw, err := os.ReadFile(name); err != nil || !strings.HasSuffix(string(raw), "}\n") {
		t.Errorf("the file ends with what was cut off (%v)", err)
	}
	r, err := Read(name)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{"w/10M/a#00": true, "w/10M/b#00": true, "w/10M/a#01": true}
	if diff := cmp.Diff(want, r.Done()); diff != "" {
		t.Errorf("Done() (-want +got):\n%s", diff)
	}
	if len(r.Samples) != 3 {
		t.Errorf("%d samples, want 3: the second try replaces the first", len(r.Samples))
	}
	if diff := cmp.Diff(map[int]float64{0: 0.9, 1: 0.91}, r.Values("w/10M/a", "egress_used_share")); diff != "" {
		t.Errorf("Values (-want +got):\n%s", diff)
	}
	if got := r.Samples[0].Latencies["kept"].Count(); got != 1 {
		t.Errorf("%d latencies after reading, want 1", got)
	}
}

func TestAnotherCampaignIsNotMixedIn(t *testing.T) {
	name := filepath.Join(t.TempDir(), "samples.jsonl")
	mustOpen(t, name)
	for what, change := range map[string]func(*Campaign){
		"spec":   func(c *Campaign) { c.Digest = "other" },
		"seed":   func(c *Campaign) { c.Seed = 2 },
		"6.18":   func(c *Campaign) { c.Machine.Kernel = "6.1" },
		"CPUs:2": func(c *Campaign) { c.Machine.CPUs = 4 },
	} {
		c := campaign()
		change(&c)
		if _, err := Open(name, c); !errors.Is(err, errOtherCampaign) || !strings.Contains(err.Error(), what) {
			t.Errorf("Open of a campaign with another %s = %v, want %v", what, err, errOtherCampaign)
		}
	}
}

func TestReadSaysWhatIsWrong(t *testing.T) {
	for want, text := range map[string]string{
		"no campaign in it": "",
		"line 2":            `{"campaign":{"format":1}}` + "\n{\n",
		"format 99":         `{"campaign":{"format":99}}` + "\n",
		"line 1":            `{"sample":{}}` + "\n",
	} {
		name := filepath.Join(t.TempDir(), "bad")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Read(%q) = %v, want %q in it", text, err, want)
		}
	}
}

func TestMetricsNameTheirUnitAndQuantity(t *testing.T) {
	for name, want := range map[string]Metric{
		"egress_used_share":             {Unit: "", Better: Higher, Ratio: true},
		"kept_p99_ms":                   {Unit: "ms", Better: Lower},
		"kept_p99_over_bystander_ratio": {Unit: "", Better: Lower, Ratio: true},
		"egress_wire_bits_per_second":   {Unit: "bit/s"},
		"agent_anonymous_rss_bytes":     {Unit: "B", Better: Lower},
	} {
		want.Name = name
		got, ok := Describe(name)
		got.Text = ""
		if diff := cmp.Diff(want, got); diff != "" || !ok {
			t.Errorf("Describe(%s) (-want +got):\n%s", name, diff)
		}
	}
	name := filepath.Join(t.TempDir(), "samples.jsonl")
	f := mustOpen(t, name)
	for _, bad := range []string{"kept_p99", "egress_something_ms"} {
		s := sample("a", 0)
		s.Metrics = map[string]float64{bad: 1}
		if err := f.Append(s); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("Append of metric %s = %v, want an error that names it", bad, err)
		}
	}
}

// TestAside: what can go on stays; what is complete, or of another campaign,
// makes room and is kept.
func TestAside(t *testing.T) {
	both := []string{"w/10M/a#00", "w/10M/a#01"}
	for name, tc := range map[string]struct {
		change func(*Campaign)
		runs   []string
		moved  bool
	}{
		"interrupted":       {func(*Campaign) {}, both, false},
		"complete":          {func(*Campaign) {}, both[:1], true},
		"of another commit": {func(c *Campaign) { c.Machine.Commit = "other" }, both, true},
		"of another spec":   {func(c *Campaign) { c.Digest = "other" }, both, true},
		"nothing is there":  {nil, both, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "samples.jsonl")
			c := campaign()
			c.Started = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			if tc.change != nil {
				f, err := Open(file, c)
				if err != nil {
					t.Fatal(err)
				}
				mustAppend(t, f, sample("a", 0))
				if err := f.Close(); err != nil {
					t.Fatal(err)
				}
				tc.change(&c)
			}
			if err := Aside(file, c, tc.runs); err != nil {
				t.Fatal(err)
			}
			_, err := os.Stat(filepath.Join(dir, "samples-20260102T030405.jsonl"))
			if moved := err == nil; moved != tc.moved {
				t.Errorf("moved = %v, want %v", moved, tc.moved)
			}
			if _, err := Open(file, c); err != nil {
				t.Errorf("Open after Aside = %v, want nil", err)
			}
		})
	}
}
