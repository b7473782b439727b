// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package charttest

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/template"
)

const (
	// scrapeEvery is the time between two samples of a series, and between two
	// evaluations of a rule.
	scrapeEvery = 30 * time.Second
	// looksAt is when a test looks which alerts fire.
	looksAt = 30 * time.Minute
)

func withRules(more map[string]any) map[string]any {
	values := map[string]any{"metrics": map[string]any{
		"address": "0.0.0.0", "podMonitor": map[string]any{"enabled": true}, "prometheusRule": map[string]any{"enabled": true},
	}}
	maps.Copy(values, more)
	return values
}

// alerts are the rules that the chart renders, by name.
func alerts(t *testing.T, values map[string]any) map[string]monitoring.Rule {
	t.Helper()
	out := map[string]monitoring.Rule{}
	for _, g := range only[*monitoring.PrometheusRule](t, objects(t, "1.34", values)).Spec.Groups {
		for _, r := range g.Rules {
			if _, twice := out[r.Alert]; twice || r.Alert == "" {
				t.Fatalf("the alert %q is there twice, or has no name", r.Alert)
			}
			out[r.Alert] = r
		}
	}
	return out
}

// series are samples in promtool's notation, with [scrapeEvery] between them.
type series []string

// store answers an engine from series.
func store(t *testing.T, all series) storage.Queryable {
	t.Helper()
	entries := make([]promql.Series, len(all))
	for i, text := range all {
		name, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		entries[i].Metric = name
		for j, v := range values {
			if !v.Omitted {
				entries[i].Floats = append(entries[i].Floats, promql.FPoint{T: int64(j) * scrapeEvery.Milliseconds(), F: v.Value})
			}
		}
	}
	slices.SortFunc(entries, func(a, b promql.Series) int { return labels.Compare(a.Metric, b.Metric) })
	return &storage.MockQueryable{MockQuerier: &storage.MockQuerier{
		SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			out := seriesSet{SeriesSet: storage.EmptySeriesSet(), at: -1}
			for _, e := range entries {
				if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(e.Metric.Get(m.Name)) }) {
					out.all = append(out.all, promql.NewStorageSeries(e))
				}
			}
			return &out
		},
	}}
}

// seriesSet goes through series.
type seriesSet struct {
	storage.SeriesSet
	all []*promql.StorageSeries
	at  int
}

func (s *seriesSet) Next() bool {
	s.at++
	return s.at < len(s.all)
}
func (s *seriesSet) At() storage.Series { return s.all[s.at] }

func newEngine() *promql.Engine {
	return promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, Parser: parser.NewParser(parser.Options{})})
}

// alert is one that fires.
type alert struct {
	labels map[string]string
	value  float64
}

// firing evaluates an expression every [scrapeEvery] and returns what has been true for
// as long as the rule demands when the test looks.
func firing(t *testing.T, r *monitoring.Rule, all series) []alert {
	t.Helper()
	var least time.Duration
	if r.For != nil {
		d, err := model.ParseDuration(string(*r.For))
		mustOK(t, err)
		least = time.Duration(d)
	}
	q, err := newEngine().NewRangeQuery(t.Context(), store(t, all), nil, r.Expr.String(), time.Unix(0, 0), time.Unix(0, 0).Add(looksAt), scrapeEvery)
	mustOK(t, err)
	defer q.Close()
	result := q.Exec(t.Context())
	matrix, err := result.Matrix()
	mustOK(t, err)
	var out []alert
	for _, s := range matrix {
		want := looksAt
		for i := len(s.Floats) - 1; i >= 0 && s.Floats[i].T == want.Milliseconds(); i-- {
			if want == looksAt-least {
				out = append(out, alert{s.Metric.Map(), s.Floats[len(s.Floats)-1].F})
				break
			}
			want -= scrapeEvery
		}
	}
	return out
}

// text fills in an annotation as Prometheus does, but fails where a label is missing.
func text(t *testing.T, annotation string, a alert) string {
	t.Helper()
	data := template.AlertTemplateData(a.labels, nil, "", promql.Sample{F: a.value})
	const names = `{{$labels := .Labels}}{{$value := .Value}}`
	out, err := template.NewTemplateExpander(context.Background(), names+annotation, "annotation", data, model.Time(looksAt.Milliseconds()), nil, nil,
		[]string{"missingkey=error"}).Expand()
	if err != nil {
		t.Errorf("%s with %v: %v", annotation, a.labels, err)
	}
	return out
}

const (
	podLabels   = `namespace="shop",pod="web",direction="egress",node="n1"`
	agentLabels = `job="kube-system/podweir",instance="n1:9479",node="n1"`
)

func ofPod(metric, more, values string) string {
	return metric + "{" + podLabels + more + "} " + values
}

func ofAgent(metric, more, values string) string {
	return metric + "{" + agentLabels + more + "} " + values
}

// Each alert fires in the first states, with this summary, and in none of the others.
func TestAlertsFire(t *testing.T) {
	healthy := series{
		ofPod("podweir_pod_enforced", `,reason=""`, "1x60"), ofPod("podweir_pod_held_seconds_total", `,interface="eth0"`, "0+3x60"),
		ofAgent("podweir_ready", `,part="node"`, "1x60"), ofAgent("up", "", "1x60"), ofAgent("podweir_cni_failures", "", "0x60"),
		ofAgent("podweir_doctor_check", `,code="PW602",category="datapath",result="ok"`, "1x60"),
		ofAgent("podweir_doctor_last_run_timestamp_seconds", "", "0x10 300x10 600x10 900x10 1200x10 1500x10"),
		ofAgent("process_start_time_seconds", "", "-1000x60"), ofAgent("podweir_build_info", `,version="1"`, "1x60"),
		`process_start_time_seconds{job="other",instance="n1:80"} -100000x60`,
	}
	rules := alerts(t, withRules(nil))
	for name, r := range rules {
		if got := firing(t, &r, healthy); len(got) != 0 {
			t.Errorf("%s fires on a healthy node: %v", name, got)
		}
	}
	cases := map[string]struct {
		fires, not []series
		summary    string
	}{
		"PodweirPodOverLimit": {
			fires: []series{{ofPod("podweir_pod_enforced", `,reason="exceeded"`, "_x55 0x5")}},
			not: []series{
				{ofPod("podweir_pod_enforced", `,reason="exceeded"`, "_x57 0x3")},
				{ofPod("podweir_pod_enforced", `,reason="failed"`, "0x60")},
			},
			summary: "Pod shop/web exceeds its egress limit",
		},
		"PodweirPodUnlimited": {
			fires: []series{{ofPod("podweir_pod_enforced", `,reason="failed"`, "_x55 0x5")}, {ofPod("podweir_pod_enforced", `,reason="invalid"`, "0x60")}},
			not: []series{
				{ofPod("podweir_pod_enforced", `,reason="overdue"`, "_x57 0x3")},
				{ofPod("podweir_pod_enforced", `,reason="observe"`, "0x60")},
				{ofPod("podweir_pod_enforced", `,reason="tampered"`, "0x60")},
				{ofPod("podweir_pod_enforced", `,reason="exceeded"`, "0x60")},
			},
			summary: "Pod shop/web runs without its egress limit",
		},
		"PodweirPodTampered": {
			fires: []series{
				{ofPod("podweir_pod_enforced", `,reason="tampered"`, "_x60 0")}, {ofPod("podweir_pod_enforced", `,reason="tampered"`, "1x60")},
			},
			not:     []series{{ofPod("podweir_pod_enforced", `,reason="exceeded"`, "0x60")}},
			summary: "Something removes the egress limit of pod shop/web again and again",
		},
		"PodweirPodHeldAtLimit": {
			fires: []series{{ofPod("podweir_pod_held_seconds_total", `,interface="eth0"`, "0+0x39 0+30x20")}},
			not: []series{
				{ofPod("podweir_pod_held_seconds_total", `,interface="eth0"`, "0+0x43 0+30x16")},
				{ofPod("podweir_pod_held_seconds_total", `,interface="eth0"`, "0+20x60")},
			},
			summary: "Pod shop/web has been at its egress limit for 10 minutes",
		},
		"PodweirAgentNotReady": {
			fires:   []series{{ofAgent("podweir_ready", `,part="delivery"`, "1x49 0x10")}},
			not:     []series{{ofAgent("podweir_ready", `,part="delivery"`, "1x51 0x8")}},
			summary: "The podweir agent on node n1 is not ready: delivery",
		},
		"PodweirAgentDown": {
			fires: []series{
				{ofAgent("up", "", "1x39 0x20")}, {`up{job="podweir-metrics",instance="n1:9479",node="n1"} 0x60`},
			},
			not:     []series{{ofAgent("up", "", "1x41 0x18")}, {`up{job="other",instance="n1:80",node="n1"} 0x60`}},
			summary: "The podweir agent on node n1 cannot be scraped",
		},
		"PodweirNoAgents": {
			fires:   []series{{ofAgent("up", "", "1x19 _x40")}, {ofAgent("up", "", "0x60")}, {`up{job="other"} 1x60`}},
			not:     []series{{ofAgent("up", "", "0x60"), `up{job="podweir-metrics",instance="n2:9479",node="n2"} 1x60`}},
			summary: "Prometheus scrapes no podweir agent",
		},
		"PodweirCNIFailures": {
			fires:   []series{{ofAgent("podweir_cni_failures", "", "0x49 2x10")}},
			not:     []series{{ofAgent("podweir_cni_failures", "", "0x51 2x8")}},
			summary: "2 attachments failed on node n1",
		},
		"PodweirDoctorFailing": {
			fires: []series{{ofAgent("podweir_doctor_check", `,code="PW602",category="datapath",result="fail"`, "_x47 1x13")}},
			not: []series{
				{ofAgent("podweir_doctor_check", `,code="PW602",category="datapath",result="fail"`, "_x50 1x10")},
				{ofAgent("podweir_doctor_check", `,code="PW602",category="datapath",result="warn"`, "1x60")},
			},
			summary: "podweir doctor PW602 fails on node n1",
		},
		"PodweirDoctorStale": {
			fires: []series{
				{ofAgent("podweir_doctor_last_run_timestamp_seconds", "", "800x60"), ofAgent("process_start_time_seconds", "", "0x60"), ofAgent("podweir_build_info", "", "1x60")},
				{ofAgent("process_start_time_seconds", "", "800x60"), ofAgent("podweir_build_info", "", "1x60")},
			},
			not: []series{
				{ofAgent("podweir_doctor_last_run_timestamp_seconds", "", "1000x60"), ofAgent("process_start_time_seconds", "", "0x60"), ofAgent("podweir_build_info", "", "1x60")},
				{ofAgent("process_start_time_seconds", "", "1000x60"), ofAgent("podweir_build_info", "", "1x60")},
			},
			summary: "podweir doctor has not run on node n1 for 16m 40s",
		},
	}
	if got, want := slices.Sorted(maps.Keys(rules)), slices.Sorted(maps.Keys(cases)); !slices.Equal(got, want) {
		t.Fatalf("the chart has the alerts %v, the test knows %v", got, want)
	}
	for name, c := range cases {
		r := rules[name]
		for _, s := range c.fires {
			got := firing(t, &r, s)
			if len(got) != 1 {
				t.Errorf("%s fires %d times, want once, on %q", name, len(got), s)
				continue
			}
			if summary := text(t, r.Annotations["summary"], got[0]); summary != c.summary {
				t.Errorf("%s: summary %q, want %q", name, summary, c.summary)
			}
			checkAnnotations(t, name, &r, got[0])
		}
		for _, s := range c.not {
			if got := firing(t, &r, s); len(got) != 0 {
				t.Errorf("%s fires on %q: %v", name, s, got)
			}
		}
	}
}

const docsURL = "https://github.com/podweir/podweir/blob/main/docs"

// checkAnnotations holds that an alert says what to do, and that its runbook is a page
// of docs, and a heading of it.
func checkAnnotations(t *testing.T, name string, r *monitoring.Rule, a alert) {
	t.Helper()
	if severity := r.Labels["severity"]; !slices.Contains([]string{"critical", "warning", "info"}, severity) {
		t.Errorf("%s: severity %q", name, severity)
	}
	if description := text(t, r.Annotations["description"], a); len(description) < 60 || strings.Contains(description, "\n\n") {
		t.Errorf("%s: description %q", name, description)
	}
	url := text(t, r.Annotations["runbook_url"], a)
	page, anchor, _ := strings.Cut(strings.TrimPrefix(url, docsURL+"/"), "#")
	content, err := os.ReadFile(filepath.Join(docsDir, page))
	if err != nil {
		t.Errorf("%s: runbook %s: %v", name, url, err)
	}
	if anchor != "" && !strings.Contains(strings.ToLower(string(content)), "\n## "+anchor+"\n") {
		t.Errorf("%s: runbook %s: the page has no such heading", name, url)
	}
}

// Without a doctor, or a monitor of the chart's, there is nothing that the alerts about
// them could read.
func TestAlertsFitTheValues(t *testing.T) {
	doctor := []string{"PodweirDoctorFailing", "PodweirDoctorStale"}
	for name, c := range map[string]struct {
		values map[string]any
		lacks  []string
	}{
		"no doctor":         {withRules(map[string]any{"doctorInterval": "0"}), doctor},
		"no monitor":        {map[string]any{"metrics": map[string]any{"prometheusRule": map[string]any{"enabled": true}}}, []string{"PodweirAgentDown", "PodweirNoAgents"}},
		"a doctor of hours": {withRules(map[string]any{"doctorInterval": "2h"}), nil},
	} {
		got := alerts(t, c.values)
		for _, missing := range c.lacks {
			if _, there := got[missing]; there {
				t.Errorf("%s: has %s", name, missing)
			}
		}
		if want := 10 - len(c.lacks); len(got) != want {
			t.Errorf("%s: %d alerts, want %d", name, len(got), want)
		}
		if stale := got["PodweirDoctorStale"]; c.lacks == nil && (!strings.HasSuffix(stale.Expr.String(), "> 21600") || *got["PodweirDoctorFailing"].For != "7260s") {
			t.Errorf("%s: %s for %s", name, stale.Expr.String(), *got["PodweirDoctorFailing"].For)
		}
	}
}

// The file for servers without the operator is the spec of what the chart renders.
func TestPrometheusRulesExample(t *testing.T) {
	out := licence + "# Alerts of podweir for Prometheus without the operator: docs/howto/alerts.md.\n" +
		"# Written by UPDATE=1 in tools/charttest from what the chart renders.\n"
	for _, m := range mustRender(t, kubeVersions[len(kubeVersions)-1], withRules(nil)) {
		if strings.HasSuffix(m.template, "/prometheusrule.yaml") {
			_, spec, _ := strings.Cut(m.text, "\nspec:\n")
			for line := range strings.Lines(strings.TrimRight(spec, " \n") + "\n") {
				out += strings.TrimPrefix(line, "  ")
			}
		}
	}
	golden(t, filepath.Join(docsDir, "examples", "prometheus-rules.yaml"), out)
}
