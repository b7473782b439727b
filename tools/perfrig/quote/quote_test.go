// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package quote

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

// checkout writes files below a new root.
func checkout(t *testing.T, files map[string]string) string {
	t.Helper()
	return must.Files(t, t.TempDir(), files)
}

// campaign adds results to a checkout, in which connections took so long.
func campaign(t *testing.T, root, name string, p99 float64) {
	t.Helper()
	dir := filepath.Join(root, "docs/results", name)
	must.OK(t, os.MkdirAll(dir, 0o755))
	f, err := record.Open(filepath.Join(dir, "samples.jsonl"), record.Campaign{
		Profile: "ci", Started: time.Date(2026, 11, 22, 1, 2, 3, 0, time.UTC),
		Machine: record.Machine{Kernel: "6.18.1", CPU: "Abacus", CPUs: 2, Commit: "c0ffee", Substrate: "netns"},
	}, nil)
	must.OK(t, err)
	for round, noise := range []float64{-0.25, 0.25} {
		for phase, times := range map[string]float64{"podweir-strict": 1, "bandwidth-1.9": 30} {
			s := &record.Sample{Round: round, Foreign: 0.5, Metrics: map[string]float64{
				"kept_p99_ms": (p99 + noise) * times, "kept_bystander_p99_ms": 1,
			}}
			s.Cell.Phase = spec.Phase{Name: phase, Kind: spec.Podweir, Keys: map[string]string{"policy": "strict"}}
			s.Cell.Rate = 100_000_000
			s.Cell.Workload = spec.Workload{Name: "latency-egress", Kind: spec.Latency, Direction: "egress"}
			must.OK(t, f.Append(s))
		}
	}
	must.OK(t, f.Close())
}

func read(t *testing.T, root, name string) string {
	t.Helper()
	raw := must.Get(os.ReadFile(filepath.Join(root, name)))(t)
	return string(raw)
}

const (
	block  = "a\n\n<!-- figures: begin bars from netns netns-costs -->\nold\n<!-- figures: end -->\nz\n"
	number = "took <!-- figure: kept_p99_ms of latency-egress/100M/bandwidth-1.9 from netns -->1<!-- figure end --> or so\n"
)

// TestUpdate: the newest campaign is quoted, the check says so before it is,
// and afterwards there is nothing left to change.
func TestUpdate(t *testing.T) {
	root := checkout(t, map[string]string{"README.md": block, "docs/howto/a.md": number, "docs/b.md": "no figure\n"})
	campaign(t, root, "2026-11-21-netns", 1.5)
	oneRound := strings.Replace(number, " from", "#01 from", 1)
	must.OK(t, os.WriteFile(filepath.Join(root, "docs/howto/a.md"), []byte(number+oneRound), 0o644))
	want := []string{"README.md", "docs/howto/a.md"}
	for _, write := range []bool{false, true} {
		must.Match(t, fmt.Sprintf("Update(write %v)", write), want, must.Get(Update(root, write))(t))
	}
	must.Len(t, "changed by Update after Update", 0, must.Get(Update(root, false))(t))
	top := read(t, root, "README.md")
	must.Have(
		t, "README.md", top,
		"- `netns-costs`: no campaign of it is committed, and what only it measures is missing below.\nFrom [`netns`](docs/results/2026-11-21-netns/samples.jsonl) of podweir c0ffee.\n",
		"| kept connection beside bulk, p99 | 1 | 1.500 ms | at most",
		"| 0.0333 of 45.0 ms |", "| ADD, median |  | not measured |", "\n\n<!-- figures: end -->\nz\n",
	)
	page := strings.Replace(number, "-->1<", "-->45.00 ms<", 1) + strings.Replace(oneRound, "-->1<", "-->52.50 ms<", 1)
	must.Be(t, "a.md", page, read(t, root, "docs/howto/a.md"))
	campaign(t, root, "2026-11-22-netns", 2.5)
	must.Match(t, "Update with a newer campaign", want, must.Get(Update(root, true))(t))
	must.Have(t, "README.md of the newer campaign", read(t, root, "README.md"), "| 2.500 ms; **2.500 ms** of latency-egress/100M/podweir-strict |", "| **missed** |")
}

// TestMistakes: what is no figure is not passed over in silence.
func TestMistakes(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"in a code block":    {"```text\n" + block + number + "```\n", ""},
		"no end":             {"x\n<!-- figures: begin bars from netns -->\n", "does not end"},
		"two begin":          {"<!-- figures: begin bars from netns -->\n<!-- figures: begin bars from netns -->\n", "does not end"},
		"end alone":          {"<!-- figures: end -->\n", "a.md: this is no figure"},
		"unknown view":       {"<!-- figures: begin charts from netns -->\n<!-- figures: end -->\n", `no view "charts"`},
		"misspelt":           {"<!-- figures: beginn bars from netns -->\n", "no figure"},
		"number without end": {"x <!-- figure: kept_p99_ms of a/b/c from netns -->1\n", "no figure"},
		"first in the line":  {"  <!-- figure: kept_p99_ms of a/b/c from netns -->(not measured)<!-- figure end -->\n", "move a word"},
		"no such metric":     {"x <!-- figure: haste of a/b/c from netns -->1<!-- figure end -->\n", `the metric "haste"`},
		"no such cell":       {"x <!-- figure: kept_p99_ms of a/b/c from netns -->(not measured)<!-- figure end -->\n", ""},
		"no such file":       {"<!-- figures: begin bars from docs/none.jsonl -->\n<!-- figures: end -->\n", "no such file"},
		"two rivals":         {"<!-- figures: begin rivals from netns vm -->\n<!-- figures: end -->\n", "one source"},
	} {
		root := checkout(t, map[string]string{
			"README.md": "", "docs/a.md": tc.text,
		})
		campaign(t, root, "2026-11-21-netns", 1.5)
		changed, err := Update(root, false)
		switch {
		case tc.want == "" && (err != nil || len(changed) > 0):
			t.Errorf("%s: Update = %v, %v, want nothing to change", name, changed, err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: Update = %v, %v, want an error with %q", name, changed, err, tc.want)
		}
	}
}
