// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"slices"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/e2e/traffic"
	"github.com/podweir/podweir/tools/perfrig/spec"
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
func (r *run) answers(name string, l *lab.Latencies) {
	r.distribution(name, l.Samples)
	r.set(name+"_requests_per_second", l.PerSecond())
	r.set(name+"_errors_count", float64(l.Failed))
}

// distribution records how long something took, as far as there are samples enough: ten lie
// beyond a percentile.
func (r *run) distribution(name string, took []time.Duration) {
	const rounding = 1e-9
	ascending := slices.Sorted(slices.Values(took))
	for _, p := range percentiles {
		if float64(len(ascending))*(1-p.q) >= 10-rounding {
			r.set(name+"_"+p.name+"_ms", millis(lab.Quantile(ascending, p.q)))
		}
	}
	r.set(name+"_max_ms", millis(lab.Quantile(ascending, 1)))
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

// direction of the workload.
func (r *run) direction() traffic.Direction {
	if r.cell.Workload.Direction == "ingress" {
		return traffic.Ingress
	}
	return traffic.Egress
}

// load is the bulk that a workload describes.
func load(w *spec.Workload) traffic.Load {
	return traffic.TCP(w.Name, w.Streams, w.Congestion)
}
