// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package charttest

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// metric is one of docs/reference/metrics.md, or one of Prometheus.
type metric struct {
	kind   string
	labels []string
}

// metrics are those that queries may read, by name.
type metrics map[string]metric

// ofTarget are the labels that the chart's monitors and Prometheus add.
var ofTarget = []string{"job", "instance", "node"}

var (
	metricRow = regexp.MustCompile("(?m)^\\| `(podweir_[a-z_]+)` \\| (\\w+) \\| (.*?) ?\\| ")
	labelName = regexp.MustCompile("`([a-z]+)`")
)

// readMetrics reads the page of metrics, which a test of the agent holds against what
// it exports.
func readMetrics(t *testing.T) metrics {
	t.Helper()
	page, err := os.ReadFile(docsDir + "/reference/metrics.md")
	mustOK(t, err)
	out := metrics{
		"up":                            {kind: "gauge"},
		"ALERTS":                        {kind: "gauge", labels: []string{"alertname", "alertstate", "severity"}},
		"process_start_time_seconds":    {kind: "gauge"},
		"process_resident_memory_bytes": {kind: "gauge"},
	}
	for _, row := range metricRow.FindAllStringSubmatch(string(page), -1) {
		m := metric{kind: row[2]}
		for _, l := range labelName.FindAllStringSubmatch(row[3], -1) {
			m.labels = append(m.labels, l[1])
		}
		if strings.HasPrefix(row[1], "podweir_pod_") && row[1] != "podweir_pod_enforced" { // which names its own
			m.labels = append(m.labels, "namespace", "pod", "interface", "direction")
		}
		out[row[1]] = m
	}
	if len(out) < 25 {
		t.Fatalf("the page has %d metrics", len(out))
	}
	return out
}

// check holds that a query reads metrics that are there, by labels that they have.
func (m metrics) check(t *testing.T, where, query string) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %s: %v", where, query, err)
		return
	}
	anyLabel := append([]string{"le"}, ofTarget...)
	var grouped []string
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			name, bucket := strings.CutSuffix(n.Name, "_bucket")
			of, there := m[name]
			if !there || bucket != (of.kind == "histogram") {
				t.Errorf("%s: %s is not in docs/reference/metrics.md", where, n.Name)
			}
			anyLabel = append(anyLabel, of.labels...)
			for _, l := range n.LabelMatchers {
				if l.Name != "__name__" && !slices.Contains(slices.Concat(of.labels, ofTarget), l.Name) {
					t.Errorf("%s: %s has no label %s", where, n.Name, l.Name)
				}
			}
		case *parser.MatrixSelector: // its selector comes next
		case *parser.Call:
			if n.Func.Name == "rate" {
				inner := n.Args[0].(*parser.MatrixSelector).VectorSelector.(*parser.VectorSelector).Name
				if of := m[strings.TrimSuffix(inner, "_bucket")]; of.kind == "gauge" {
					t.Errorf("%s: rate of the gauge %s", where, inner)
				}
			}
		case *parser.AggregateExpr:
			grouped = append(grouped, n.Grouping...)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				grouped = append(grouped, n.VectorMatching.MatchingLabels...)
			}
		}
		return nil
	})
	for _, l := range grouped {
		if !slices.Contains(anyLabel, l) {
			t.Errorf("%s: nothing in %s has a label %s", where, query, l)
		}
	}
}

// values are those of labels for which one value is not enough.
var values = map[string][]string{
	"disposition": {"light", "paced", "dropped-early", "exempt"},
	"reason":      {"", "failed"},
	"result":      {"ok", "fail"},
	"le":          {"0.1", "+Inf"},
	"alertname":   {"PodweirAgentDown"},
	"alertstate":  {"firing"},
}

// example has samples of every metric, with each of the labels' values.
func (m metrics) example() series {
	var out series
	for _, name := range slices.Sorted(maps.Keys(m)) {
		of := m[name]
		labels, samples := of.labels, "1x60"
		switch of.kind {
		case "histogram":
			name, labels, samples = name+"_bucket", append([]string{"le"}, labels...), "0+5x60"
		case "counter":
			samples = "0+5x60"
		}
		sets := []string{`job="kube-system/podweir",instance="n1:9479",node="n1"`}
		for _, l := range labels {
			of := values[l]
			if of == nil {
				of = []string{"some"}
			}
			var longer []string
			for _, set := range sets {
				for _, v := range of {
					longer = append(longer, set+","+l+`="`+v+`"`)
				}
			}
			sets = longer
		}
		for _, set := range sets {
			value := samples
			if name == "podweir_ready" || strings.Contains(set, `reason="failed"`) && name == "podweir_pod_enforced" {
				value = "0x60"
			}
			out = append(out, name+"{"+set+"} "+value)
		}
	}
	return out
}

// evaluate answers a query when the test looks.
func evaluate(t *testing.T, query string, all series) promql.Vector {
	t.Helper()
	q, err := newEngine().NewInstantQuery(t.Context(), store(t, all), nil, query, time.Unix(0, 0).Add(looksAt))
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer q.Close()
	v, err := q.Exec(t.Context()).Vector()
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return slices.Clone(v)
}
