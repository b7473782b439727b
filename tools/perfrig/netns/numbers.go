// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/e2e/traffic"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
	"github.com/podweir/podweir/tools/perfrig/stats"
)

func (r *run) set(name string, value float64) { r.into.Metrics[name] = value }

// millis is a duration as a metric has it.
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// percentiles are those that are told where there are samples enough.
var percentiles = []struct {
	name string
	q    float64
}{{"p50", 0.5}, {"p95", 0.95}, {"p99", 0.99}, {"p99.5", 0.995}, {"p99.9", 0.999}, {"p99.99", 0.9999}}

// answers records what a load of requests saw: a request without an answer
// counts with the time at which it was given up.
func (r *run) answers(name string, l *lab.Latencies) *stats.Histogram {
	h := r.distribution(name, l.Samples)
	r.set(name+"_requests_per_second", l.PerSecond())
	r.set(name+"_errors_count", float64(l.Failed()))
	for reason, n := range l.Errors {
		if r.into.Errors == nil {
			r.into.Errors = map[string]int{}
		}
		r.into.Errors[name+": "+reason] += n
	}
	return h
}

// distribution keeps how long something took, of which the samples of all rounds
// are put together, and tells what this sample resolves.
func (r *run) distribution(name string, took []time.Duration) *stats.Histogram {
	h := stats.NewHistogram(took)
	if r.into.Latencies == nil {
		r.into.Latencies = map[string]*stats.Histogram{}
	}
	r.into.Latencies[name] = h
	for _, p := range percentiles {
		if h.Resolves(p.q) {
			r.set(name+"_"+p.name+"_ms", millis(h.Quantile(p.q)))
		}
	}
	r.set(name+"_max_ms", millis(h.Max()))
	return h
}

// against records the p99 of the pod by the bystander's of the same run.
func (r *run) against(name string, pod, bystander *stats.Histogram) {
	if pod.Resolves(0.99) && bystander.Resolves(0.99) {
		r.set(name+"_p99_over_bystander_ratio",
			float64(pod.Quantile(0.99))/float64(bystander.Quantile(0.99)))
	}
}

// seriesStep is how finely rates over time are kept.
const seriesStep = 100 * time.Millisecond

// rates keeps the rate on the wire over time, in bits per second.
func (r *run) rates(name string, s *wiremeter.Series) {
	if r.into.Series == nil {
		r.into.Series = map[string]record.Series{}
	}
	out := record.Series{EverySeconds: seriesStep.Seconds()}
	n := int(seriesStep / time.Millisecond)
	for i := 0; i+n <= len(s.Bytes); i += n {
		var sum uint64
		for _, b := range s.Bytes[i : i+n] {
			sum += b
		}
		out.Values = append(out.Values, float64(sum)*8/seriesStep.Seconds())
	}
	r.into.Series[name] = out
}

// promise records how the wire of a direction keeps to the cap.
func (r *run) promise(d traffic.Direction, s *wiremeter.Series) {
	if r.cell.Rate == 0 {
		return
	}
	limit := traffic.Case{Cap: r.cell.Rate}
	perSecond := float64(r.cell.Rate) / 8
	r.set(d.String()+"_worst_second_share", float64(s.Worst(time.Second))/perSecond)
	r.set(d.String()+"_allowed_second_share", float64(limit.Limit())/perSecond)
	r.set(d.String()+"_excess_ms", s.Excess(float64(r.cell.Rate))/perSecond*1000)
}

// direction is that of the workload.
func (r *run) direction() traffic.Direction {
	if r.cell.Workload.Direction == "ingress" {
		return traffic.Ingress
	}
	return traffic.Egress
}

// load is the bulk that a workload describes.
func load(w *spec.Workload) traffic.Load {
	return traffic.Load{Name: w.Name, Flows: w.Streams, Congestion: w.Congestion}
}
