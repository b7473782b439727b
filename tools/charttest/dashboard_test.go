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
	mustOK(t, err)
	var d dashboard
	mustOK(t, json.Unmarshal(data, &d))
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

// How long the packets of one pod wait, small flows beside large ones: 98 of 100 light
// packets below 0.13 ms and the others below 0.26 ms, heavy ones from 67 to 134 ms.
func TestDashboardShowsWhichBandWaits(t *testing.T) {
	of := func(pod, band, le, samples string) string {
		return `podweir_pod_wait_seconds_bucket{namespace="shop",pod="` + pod + `",direction="egress",interface="eth0",band="` + band +
			`",le="` + le + `",node="n1"} ` + samples
	}
	all := series{
		of("web", "light", "0.000131072", "0+98x60"), of("web", "light", "0.000262144", "0+100x60"), of("web", "light", "+Inf", "0+100x60"),
		of("web", "heavy", "0.067108864", "0x60"), of("web", "heavy", "0.134217728", "0+100x60"), of("web", "heavy", "+Inf", "0+100x60"),
		of("api", "light", "+Inf", "0+100x60"),
	}
	d, _ := readDashboard(t)
	// The greatest and least seconds of light and heavy packets by the panel's name.
	want := map[string]map[string][2]float64{
		"Wait in the queue: 99th percentile": {"light": {131e-6, 263e-6}, "heavy": {0.13, 0.135}},
		"Wait in the queue: median":          {"light": {0, 131e-6}, "heavy": {0.1, 0.101}},
	}
	found := 0
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			if want[p.Title] == nil {
				continue
			}
			found++
			expr := strings.NewReplacer("$__rate_interval", "5m", "$namespace", "shop", "$pod", "web", "$direction", ".*").Replace(target.Expr)
			got := evaluate(t, expr, all)
			if len(got) != 2 {
				t.Errorf("%s gives %v, want two bands of one pod", p.Title, got)
			}
			for _, s := range got {
				limits := want[p.Title][s.Metric.Get("band")]
				if s.F <= limits[0] || s.F > limits[1] {
					t.Errorf("%s of %s is %v s, want %v", p.Title, s.Metric, s.F, limits)
				}
			}
		}
	}
	if found != len(want) {
		t.Errorf("%d panels say how long packets wait, want %d", found, len(want))
	}
}
