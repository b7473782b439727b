// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package sampler

import (
	"io"
	"maps"
	"slices"
	"strconv"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// exporter collects families; every value has the time of its reading.
type exporter struct {
	run      string
	families []*dto.MetricFamily
	family   *dto.MetricFamily
}

func (e *exporter) begin(name, help string, kind dto.MetricType) {
	e.family = &dto.MetricFamily{Name: &name, Help: &help, Type: &kind}
	e.families = append(e.families, e.family)
}

// add adds a value; labels are names and values in turns.
func (e *exporter) add(r *reading, value float64, labels ...string) {
	m := &dto.Metric{TimestampMs: new(int64)}
	*m.TimestampMs = r.at.UnixMilli()
	for i := 0; i < len(labels); i += 2 {
		m.Label = append(m.Label, &dto.LabelPair{Name: &labels[i], Value: &labels[i+1]})
	}
	run := "run"
	m.Label = append(m.Label, &dto.LabelPair{Name: &run, Value: &e.run})
	if e.family.GetType() == dto.MetricType_COUNTER {
		m.Counter = &dto.Counter{Value: &value}
	} else {
		m.Gauge = &dto.Gauge{Value: &value}
	}
	e.family.Metric = append(e.family.Metric, m)
}

// export writes readings as OpenMetrics: the values of one series stand
// together, in the order of time.
func export(w io.Writer, runID string, readings []*reading) error {
	e := &exporter{run: runID}
	e.kernel(readings)
	e.processes(readings)
	for _, f := range e.families {
		if len(f.Metric) == 0 {
			continue
		}
		if _, err := expfmt.MetricFamilyToOpenMetrics(w, f); err != nil {
			return err
		}
	}
	_, err := expfmt.FinalizeOpenMetrics(w)
	return err
}

func (e *exporter) kernel(readings []*reading) {
	e.begin("perfrig_cpu_seconds_total", "Processor time of the machine by what it was spent on.", dto.MetricType_COUNTER)
	for _, mode := range []struct {
		name  string
		value func(*reading) float64
	}{
		{"user", func(r *reading) float64 { return r.cpu.User }},
		{"nice", func(r *reading) float64 { return r.cpu.Nice }},
		{"system", func(r *reading) float64 { return r.cpu.System }},
		{"irq", func(r *reading) float64 { return r.cpu.IRQ }},
		{"softirq", func(r *reading) float64 { return r.cpu.SoftIRQ }},
		{"steal", func(r *reading) float64 { return r.cpu.Steal }},
		{"idle", func(r *reading) float64 { return r.cpu.Idle + r.cpu.Iowait }},
	} {
		for _, r := range readings {
			e.add(r, mode.value(r), "mode", mode.name)
		}
	}
	e.begin("perfrig_kernel_memory_bytes", "Memory of the kernel by kind.", dto.MetricType_GAUGE)
	for _, kind := range []struct {
		name  string
		value func(*reading) *uint64
	}{
		{"slab", func(r *reading) *uint64 { return r.memory.SlabBytes }},
		{"vmalloc", func(r *reading) *uint64 { return r.memory.VmallocUsedBytes }},
		{"percpu", func(r *reading) *uint64 { return r.memory.PercpuBytes }},
		{"page_tables", func(r *reading) *uint64 { return r.memory.PageTablesBytes }},
		{"stacks", func(r *reading) *uint64 { return r.memory.KernelStackBytes }},
		{"available", func(r *reading) *uint64 { return r.memory.MemAvailableBytes }},
	} {
		for _, r := range readings {
			if v := kind.value(r); v != nil {
				e.add(r, float64(*v), "kind", kind.name)
			}
		}
	}
}

// processes leaves out kernel threads that did nothing.
func (e *exporter) processes(readings []*reading) {
	seen := map[int]bool{}
	first := map[int]process{}
	for _, r := range readings {
		for pid, p := range r.processes {
			if old, ok := first[pid]; !ok {
				first[pid] = p
			} else if p.user+p.sys > old.user+old.sys {
				seen[pid] = true
			}
			if !p.kernel {
				seen[pid] = true
			}
		}
	}
	pids := slices.Sorted(maps.Keys(seen))
	each := func(value func(process) float64, labels ...string) {
		for _, pid := range pids {
			for _, r := range readings {
				if p, ok := r.processes[pid]; ok {
					e.add(r, value(p), append([]string{"pid", strconv.Itoa(pid), "name", p.name}, labels...)...)
				}
			}
		}
	}
	e.begin("perfrig_process_cpu_seconds_total", "Processor time of a process.", dto.MetricType_COUNTER)
	each(func(p process) float64 { return p.user }, "mode", "user")
	each(func(p process) float64 { return p.sys }, "mode", "system")
	e.begin("perfrig_process_resident_bytes", "Resident set of a process.", dto.MetricType_GAUGE)
	each(func(p process) float64 { return p.resident })
}
