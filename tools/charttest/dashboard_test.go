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
	Panels []struct {
		Title   string
		Targets []struct{ Expr, LegendFormat string }
	}
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	data, err := os.ReadFile(chartDir + "/dashboards/podweir.json")
	mustOK(t, err)
	var d dashboard
	mustOK(t, json.Unmarshal(data, &d))
	return d
}

var legendLabel = regexp.MustCompile(`\{\{(\w+)\}\}`)

// Every query reads metrics that the agent has, by labels that they have, and gives
// something on a node where each of them has a value.
func TestDashboardQueries(t *testing.T) {
	known := readMetrics(t)
	all := known.example()
	d := readDashboard(t)
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
