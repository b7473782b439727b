// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package metrics

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/podweir/podweir/plugin/datapath"
)

// labelSet is sorted by name, as the library wants it.
type labelSet []*dto.LabelPair

func label(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }

func (l labelSet) with(more ...*dto.LabelPair) labelSet {
	all := slices.Concat(l, more)
	slices.SortFunc(all, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
	return all
}

// series is one sample. Its labels are those of other series too: the library
// holds a whole scrape in memory, and with labels of their own the series of 250
// pods were most of what the agent had at its most.
type series struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	value  float64
	labels labelSet
}

// Desc implements [prometheus.Metric].
func (s *series) Desc() *prometheus.Desc { return s.desc }

// Write implements [prometheus.Metric].
func (s *series) Write(m *dto.Metric) error {
	m.Label = s.labels
	if s.kind == prometheus.CounterValue {
		m.Counter = &dto.Counter{Value: &s.value}
	} else {
		m.Gauge = &dto.Gauge{Value: &s.value}
	}
	return nil
}

// waits is the histogram of how long the packets of a band waited.
type waits struct {
	of     *datapath.Wait
	labels labelSet
}

// Desc implements [prometheus.Metric].
func (*waits) Desc() *prometheus.Desc { return descWait }

// Write implements [prometheus.Metric].
func (w *waits) Write(m *dto.Metric) error {
	m.Label = w.labels
	buckets := make([]*dto.Bucket, len(w.of.Below))
	for i := range buckets {
		buckets[i] = &dto.Bucket{UpperBound: &datapath.WaitBounds[i], CumulativeCount: &w.of.Below[i]}
	}
	m.Histogram = &dto.Histogram{SampleCount: &w.of.Packets, SampleSum: &w.of.Seconds, Bucket: buckets}
	return nil
}
