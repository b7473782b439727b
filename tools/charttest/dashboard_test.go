// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package charttest

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

type dashboard struct {
	Title      string
	Templating struct{ List []struct{ Name string } }
	Panels     []struct {
		ID          int
		Title       string
		Description string
		GridPos     struct{ X, Y, W, H int }
		Targets     []struct{ Expr string }
	}
}

func readDashboard(t *testing.T) (dashboard, string) {
	t.Helper()
	data, err := os.ReadFile(chartDir + "/dashboards/podweir.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	return d, string(data)
}

var (
	metricName = regexp.MustCompile(`\bpodweir_[a-z_]+\b`)
	variable   = regexp.MustCompile(`\$(\w+)`)
)

// grafanaOwn are variables that Grafana fills in.
var grafanaOwn = []string{"__rate_interval", "__all"}

// The dashboard asks for metrics that the agent has, by the page that lists
// them.
func TestDashboardShowsMetricsThatExist(t *testing.T) {
	page, err := os.ReadFile(docsDir + "/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := metricName.FindAllString(string(page), -1)
	d, text := readDashboard(t)
	if len(d.Panels) == 0 {
		t.Fatal("no panels")
	}
	used := metricName.FindAllString(text, -1)
	if len(used) == 0 {
		t.Fatal("no metrics")
	}
	for _, name := range used {
		if name = strings.TrimSuffix(name, "_bucket"); !slices.Contains(listed, name) {
			t.Errorf("%s is not in docs/reference/metrics.md", name)
		}
	}
}

func TestDashboardIsWhole(t *testing.T) {
	d, text := readDashboard(t)
	names := slices.Clone(grafanaOwn)
	for _, v := range d.Templating.List {
		names = append(names, v.Name)
	}
	for _, m := range variable.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(names, m[1]) {
			t.Errorf("the variable $%s is not defined", m[1])
		}
	}
	ids := map[int]bool{}
	for i, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("panel %d (%q): its id is used twice, or it has no title, description or query", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, q := range d.Panels[:i] {
			if a, b := p.GridPos, q.GridPos; a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("the panels %q and %q overlap", p.Title, q.Title)
			}
		}
		if p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %q: wider than Grafana's 24 columns", p.Title)
		}
	}
}
