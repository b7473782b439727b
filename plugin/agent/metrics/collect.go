// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package metrics

import (
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/version"
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

func podDesc(name, help string, more ...string) *prometheus.Desc {
	return desc(name, help, append([]string{"namespace", "pod", "interface", "direction"}, more...)...)
}

func groupDesc(name, help string, more ...string) *prometheus.Desc {
	return desc(name, help, append([]string{"namespace", "direction"}, more...)...)
}

// Of each direction of each shaped interface.
var (
	descBytes = podDesc("podweir_pod_bytes_total",
		"Bytes on the wire by what the classifier did with them.", "disposition")
	descPackets = podDesc("podweir_pod_packets_total",
		"Packets by what the classifier did with them.", "disposition")
	descSentBytes = podDesc("podweir_pod_queue_sent_bytes_total",
		"Bytes on the wire that left the queue.")
	descSentPackets = podDesc("podweir_pod_queue_sent_packets_total",
		"Packets that left the queue, counting each segment of an offloaded packet.")
	descDrops = podDesc("podweir_pod_queue_dropped_packets_total",
		"Packets that found their band of the queue full, counting an offloaded packet once.")
	descBacklog = podDesc("podweir_pod_queue_backlog_bytes",
		"Bytes that wait in the queue now.")
	descWait = podDesc("podweir_pod_wait_seconds",
		"How long packets wait in a band of the queue, as the classifier estimates it.", "band")
	descLimit = podDesc("podweir_pod_limit_bits_per_second", "The cap.")
	descBurst = podDesc("podweir_pod_burst_bytes", "What may leave back to back after idle.")
	descMode  = podDesc("podweir_pod_mode_info",
		"1, with the way in which the cap is enforced.", "enforce", "policy", "queue", "mode", "side")
	descShaped   = desc("podweir_shaped_pods", "Pods with at least one limit in force.")
	descObserved = desc("podweir_observed_pods", "Pods whose limits are measured and not enforced (enforce: observe).")
	descFailed   = desc("podweir_unreadable_interfaces",
		"Shaped interfaces that this scrape could not read.")
	descRead = desc("podweir_read_duration_seconds", "Time that this scrape took to read the pods.")
)

// Of the node.
var (
	descUnshaped = desc("podweir_unshaped_pods",
		"Pods that have a limit and run without it, by reason.", "reason")
	descEnforced = desc("podweir_pod_enforced",
		"1 if the limit of the pod holds, else 0, with the reason; empty if nothing is wrong.", "namespace", "pod", "direction", "reason")
	descHeld = podDesc("podweir_pod_held_seconds_total",
		"Time in which the device carried at least 90 % of the limit, by looks every 2 s.")
	descGroupLimit = groupDesc("podweir_namespace_limit_bits_per_second",
		"What the pods of the namespace have together on this node.")
	descGroupPods = groupDesc("podweir_namespace_pods",
		"Pods by whether they have a share of the namespace's limit.", "share")
	descGroupSent = groupDesc("podweir_namespace_sent_bytes_total",
		"Bytes on the wire that the queues of the namespace's pods let through.")
	descGroupHeld = groupDesc("podweir_namespace_held_seconds_total",
		"Time in which the pods together had at least 90 % of the namespace's limit.")
	descGroupDropped = groupDesc("podweir_namespace_dropped_packets_total",
		"Packets that left their queues and were more than the namespace's limit.")
	descFailures = desc("podweir_cni_failures",
		"Attachments whose ADD could not shape them and that are still there.")
	descReady  = desc("podweir_ready", "1 if the part of the agent works, else 0.", "part")
	descDoctor = desc("podweir_doctor_check",
		"1, with the result of a check of the doctor.", "code", "category", "result")
	descDoctorTime = desc("podweir_doctor_last_run_timestamp_seconds",
		"When the doctor last looked, as a Unix time.")
	descDelivery = desc("podweir_delivery_info", "1, with the way in which new pods come to be shaped.", "delivery")
	descBuild    = desc("podweir_build_info", "1, with the version of the agent.", "version", "goversion")
)

func gauge(d *prometheus.Desc, v float64, labels ...string) prometheus.Metric {
	return constant(d, prometheus.GaugeValue, v, labels...)
}

func constant(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) prometheus.Metric {
	m, err := prometheus.NewConstMetric(d, kind, v, labels...)
	if err != nil { // a name that is no UTF-8
		return prometheus.NewInvalidMetric(d, err)
	}
	return m
}

// collector reads everything at every scrape.
type collector struct{ config Config }

// Describe implements [prometheus.Collector]: which series there are shows when they are read.
func (*collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	ch <- gauge(descBuild, 1, version.String(), runtime.Version())
	if c.config.Pods != nil {
		c.pods(ch)
	}
	c.node(ch)
}

func (c *collector) pods(ch chan<- prometheus.Metric) {
	start := time.Now()
	read, err := c.config.Pods()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(descShaped, err)
		return
	}
	ch <- gauge(descRead, time.Since(start).Seconds())
	ch <- gauge(descFailed, float64(read.Failed))
	shaped, observed := map[[2]string]bool{}, map[[2]string]bool{}
	for i := range read.Interfaces {
		one := &read.Interfaces[i]
		for j := range one.Directions {
			collectDirection(ch, one, &one.Directions[j])
			pods := shaped
			if one.Directions[j].Observed() {
				pods = observed
			}
			pods[[2]string{one.Namespace, one.Pod}] = true
		}
	}
	ch <- gauge(descShaped, float64(len(shaped)))
	ch <- gauge(descObserved, float64(len(observed)))
}

func collectDirection(ch chan<- prometheus.Metric, i *Interface, d *status.Direction) {
	labels := labelSet{
		label("direction", d.Direction.String()), label("interface", i.Name), label("namespace", i.Namespace), label("pod", i.Pod),
	}
	tell := func(desc *prometheus.Desc, kind prometheus.ValueType, v float64, labels labelSet) {
		ch <- &series{desc, kind, v, labels}
	}
	tell(descLimit, prometheus.GaugeValue, float64(d.Rate), labels)
	tell(descBurst, prometheus.GaugeValue, float64(d.Burst), labels)
	tell(descMode, prometheus.GaugeValue, 1,
		labels.with(label("enforce", d.Enforce.String()), label("policy", d.Policy.String()), label("queue", d.Queue.String()), label("mode", d.Mode.String()), label("side", d.Side.String())))
	expected := usual[d.Queue.Is]
	if d.Observed() {
		expected = usualObserved
	}
	for _, c := range d.Counters {
		if c.Packets == 0 && !slices.Contains(expected, c.Disposition) {
			continue
		}
		labels := labels.with(label("disposition", c.Disposition))
		tell(descBytes, prometheus.CounterValue, float64(c.Bytes), labels)
		tell(descPackets, prometheus.CounterValue, float64(c.Packets), labels)
	}
	for i := range d.Waits {
		if w := &d.Waits[i]; w.Packets > 0 {
			ch <- &waits{w, labels.with(label("band", w.Band))}
		}
	}
	if q := d.Qdisc; q != nil {
		tell(descSentBytes, prometheus.CounterValue, float64(q.Bytes), labels)
		tell(descSentPackets, prometheus.CounterValue, float64(q.Packets), labels)
		tell(descDrops, prometheus.CounterValue, float64(q.Drops), labels)
		tell(descBacklog, prometheus.GaugeValue, float64(q.BacklogBytes), labels)
	}
}

// usual are the dispositions that a kind of queue leads to as a rule: those have
// series from the start, so that their first packets count in a rate. The others
// get theirs with their first packet, which halves the number of series.
var usual = map[terms.Queue][]string{
	terms.QueueTBF:  {"light", "paced", "dropped-horizon"},
	terms.QueueNone: {"light", "conforming", "marked", "dropped-early", "dropped-policed"},
}

var usualObserved = []string{"light", "conforming", "would-wait", "would-drop"}

func (c *collector) node(ch chan<- prometheus.Metric) {
	if c.config.Unshaped != nil {
		for reason, n := range c.config.Unshaped() {
			ch <- gauge(descUnshaped, float64(n), reason)
		}
	}
	if c.config.Enforced != nil {
		for _, e := range c.config.Enforced() {
			ch <- gauge(descEnforced, oneIf(e.Enforced), e.Namespace, e.Pod, e.Direction.String(), e.Reason)
		}
	}
	if c.config.Held != nil {
		for _, h := range c.config.Held() {
			ch <- constant(descHeld, prometheus.CounterValue, h.Time.Seconds(), h.Namespace, h.Pod, h.Interface, h.Direction.String())
		}
	}
	if c.config.Groups != nil {
		collectGroups(ch, c.config.Groups)
	}
	if c.config.Failures != nil {
		n, err := c.config.Failures()
		if err != nil {
			ch <- prometheus.NewInvalidMetric(descFailures, err)
		} else {
			ch <- gauge(descFailures, float64(n))
		}
	}
	if c.config.Ready != nil {
		for part, works := range c.config.Ready() {
			ch <- gauge(descReady, oneIf(works), part)
		}
	}
	if d := c.config.Delivery; d != nil && d() != "" {
		ch <- gauge(descDelivery, 1, d())
	}
	if c.config.Doctor == nil {
		return
	}
	if rep, at := c.config.Doctor(); rep != nil {
		for _, o := range rep.Checks {
			ch <- gauge(descDoctor, 1, o.Code, string(o.Category), string(o.Status))
		}
		ch <- gauge(descDoctorTime, float64(at.UnixMilli())/1e3)
	}
}

func collectGroups(ch chan<- prometheus.Metric, read func() ([]mailbox.Group, error)) {
	groups, err := read()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(descGroupLimit, err)
		return
	}
	for i := range groups {
		g := &groups[i]
		namespace, direction := g.Namespace, g.Direction.String()
		ch <- gauge(descGroupLimit, float64(g.Limit), namespace, direction)
		ch <- gauge(descGroupPods, float64(g.Pods), namespace, direction, "yes")
		ch <- gauge(descGroupPods, float64(len(g.Outside)), namespace, direction, "no")
		ch <- constant(descGroupSent, prometheus.CounterValue, float64(g.SentBytes), namespace, direction)
		ch <- constant(descGroupHeld, prometheus.CounterValue, g.Held.Seconds(), namespace, direction)
		ch <- constant(descGroupDropped, prometheus.CounterValue, float64(g.DroppedPackets), namespace, direction)
	}
}

func oneIf(holds bool) float64 {
	if holds {
		return 1
	}
	return 0
}

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
