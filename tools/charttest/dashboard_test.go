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
		Type        string
		Title       string
		Description string
		GridPos     struct{ X, Y, W, H int }
		Targets     []struct{ Expr, LegendFormat string }
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
	variable    = regexp.MustCompile(`\$(\w+)`)
	legendLabel = regexp.MustCompile(`\{\{(\w+)\}\}`)
)

// grafanaOwn are variables that Grafana fills in.
var grafanaOwn = []string{"__rate_interval", "__all"}

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
		if bare := p.Description == "" || len(p.Targets) == 0; ids[p.ID] || p.Title == "" || bare && p.Type != "row" {
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

// Every query reads metrics that the agent has, by labels that they have, and gives
// something on a node where each of them has a value.
func TestDashboardQueries(t *testing.T) {
	known := readMetrics(t)
	all := known.example()
	d, _ := readDashboard(t)
	queries := 0
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			queries++
			expr := strings.NewReplacer("$__rate_interval", "5m", "$namespace", ".*", "$pod", ".*", "$direction", ".*").Replace(target.Expr)
			known.check(t, p.Title, expr)
			if v := evaluate(t, expr, all); len(v) == 0 {
				t.Errorf("%s: %s gives nothing", p.Title, target.Expr)
			}
			for _, label := range legendLabel.FindAllStringSubmatch(target.LegendFormat, -1) {
				for _, s := range evaluate(t, expr, all) {
					if s.Metric.Get(label[1]) == "" && !slices.Contains([]string{"reason", "version"}, label[1]) {
						t.Errorf("%s: the legend %s has no value in %s", p.Title, target.LegendFormat, s.Metric)
					}
				}
			}
		}
	}
	if queries < 25 {
		t.Errorf("found %d queries", queries)
	}
	if len(evaluate(t, `podweir_pod_held_seconds_total{pod="another"}`, all)) != 0 {
		t.Error("the example answers everything")
	}
}

// The rules read metrics that the agent has, too.
func TestAlertsReadMetricsThatExist(t *testing.T) {
	known := readMetrics(t)
	for name, r := range alerts(t, withRules(nil)) {
		known.check(t, name, r.Expr.String())
	}
}
