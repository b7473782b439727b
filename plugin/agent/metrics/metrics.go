// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package metrics answers Prometheus: what the pods' limits are and did, read
// from the pins at every scrape, and how the agent itself is doing.
//
// Every name says its unit. Series of a pod go with the pod; there is no label
// whose values grow with time.
package metrics

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"

	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/status"
)

// Shaped is what is attached, at every scrape.
type Shaped struct {
	// Interfaces are every shaped one of a pod that still runs; Failed counts those that could
	// not be read.
	Interfaces []Interface
	Failed     int
}

// Interface is one shaped interface of a pod.
type Interface struct {
	// Namespace and Pod name it; an attachment that no runtime made has an empty
	// namespace and its container ID for a name.
	Namespace, Pod, Name string
	Directions           []status.Direction

	attached time.Time
}

// Config is what the metrics are made from. Functions are called at every scrape,
// possibly by several goroutines; nil means that there is nothing to tell.
type Config struct {
	Log *slog.Logger
	// Pods returns an error if nothing could be read.
	Pods func() (Shaped, error)
	// Unshaped counts by reason the pods that have a limit and run without it.
	// The reasons are few and fixed.
	Unshaped func() map[string]int
	// Enforced are the limited directions of pods, each once.
	Enforced func() []mailbox.Enforced
	// Held are the limited directions of interfaces, each once.
	Held func() []mailbox.Held
	// Groups are the limits that pods of a namespace have together, each once.
	Groups func() ([]mailbox.Group, error)
	// Failures counts the failure records of ADD.
	Failures func() (int, error)
	// Ready tells for each part of the agent whether it works.
	Ready func() map[string]bool
	// Delivery is the way in which new pods come to be shaped.
	Delivery func() string
	// Doctor is what the doctor found last and when, nil if it has not looked yet.
	Doctor func() (*doctor.Report, time.Time)
}

// Metrics is the agent's registry.
type Metrics struct {
	registry  *prometheus.Registry
	log       *slog.Logger
	reconcile *prometheus.HistogramVec
	hooks     *prometheus.HistogramVec
}

// Buckets in seconds. A pod takes 1 to 50 ms (16 ms for each TCX link), a wait for
// another process up to 30 s.
var (
	reconcileBuckets = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 30}
	hookBuckets      = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2}
)

// New makes a registry.
func New(c Config) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(), log: c.Log,
		reconcile: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "podweir_reconcile_duration_seconds", Buckets: reconcileBuckets,
			Help: "Time that one pod took to be compared with what it should be and mended, by outcome.",
		}, []string{"outcome"}),
		hooks: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "podweir_nri_hook_duration_seconds", Buckets: hookBuckets,
			Help: "Time for which a hook of the container runtime was held up, by hook and result.",
		}, []string{"hook", "result"}),
	}
	m.registry.MustRegister(m.reconcile, m.hooks, &collector{config: c},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func result(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}

// ObserveReconcile counts one look at one pod. The outcomes are few and fixed.
func (m *Metrics) ObserveReconcile(outcome string, d time.Duration) {
	m.reconcile.WithLabelValues(outcome).Observe(d.Seconds())
}

// ObserveHook counts one call of the container runtime.
func (m *Metrics) ObserveHook(hook string, d time.Duration, err error) {
	m.hooks.WithLabelValues(hook, result(err)).Observe(d.Seconds())
}

// format is Prometheus' text format 0.0.4, which every version of it reads.
var format = expfmt.NewFormat(expfmt.TypeTextPlain)

// ContentType of what Write writes.
var ContentType = string(format)

// Write answers a scrape. What cannot be read is left out and logged.
func (m *Metrics) Write(w io.Writer) error {
	families, err := m.registry.Gather()
	if err != nil {
		m.log.Error("scrape failed", "error", err)
	}
	if len(families) == 0 {
		return errors.Join(errors.New("no metric can be read"), err)
	}
	enc := expfmt.NewEncoder(w, format)
	for _, f := range families {
		if err := enc.Encode(f); err != nil {
			return fmt.Errorf("write %s: %w", f.GetName(), err)
		}
	}
	return nil
}
