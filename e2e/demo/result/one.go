// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package result

import (
	"fmt"
	"io"
)

// fromStart is how much more of the cap than later the first seconds must have
// held for the table to tell it.
const fromStart = 0.01

// OneMachine prints a run on one machine as a table of a page; numbers leads to
// the JSON.
func (r *Report) OneMachine(out io.Writer, numbers string) {
	dirty := ""
	if r.Machine.GitDirty {
		dirty = "-dirty"
	}
	fmt.Fprintf(out, `[All numbers](%s) of `+"`make demo`"+`: %.10s, %d x %s, Linux %s, podweir %.7s%s, load average %.2f before it.
One pod with a bulk TCP flow (%s) in each direction; beside it %g new connections a second with responses of %.0f kB, and a kept connection
with %g requests of 64 bytes a second. Bulk is payload in Mbit/s; the two latencies are p99 in ms, in brackets that of an unshaped pod under the
same light load at the same time; resent are segments in 10 s. A request of a new connection that has
no answer after %g s counts as that. The memory is the kernel's, "noise" where what the shaper takes cannot be told from what others take.

| cap | shaper | bulk out / in | worst 1 s ÷ cap | small request | kept connection | resent out / in | KiB/pod |
| --- | --- | --- | --- | --- | --- | --- | --- |
`, numbers, r.Started, r.Machine.CPUs, r.Machine.CPU, r.Machine.Kernel, r.Machine.Git, dirty, r.Machine.Load,
		r.Congestion, r.Load.OpenLoopPerSecond, float64(r.Load.ResponseBytes)/1e3, r.Load.KeptPerSecond, r.Load.RequestTimeoutMilli/1e3)
	for i := range r.Rows {
		row := &r.Rows[i]
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s | %s | %s | %s |\n",
			CapName(row.CapBitRate), row.Name(),
			row.OutIn(Mega(row.Egress.ElephantBitRate), Mega(row.Ingress.ElephantBitRate)),
			row.worstSecond(), beside(&row.Open, &row.BystanderOpen), beside(&row.Kept, &row.BystanderKept),
			row.Resent(), row.Memory.Cell())
	}
}

// worstSecond is of both directions that are limited.
func (r *Row) worstSecond() string {
	later, first := r.Worst(AfterWarmUp), r.Worst(FromStart)
	switch {
	case r.CapBitRate == 0:
		return "-"
	case r.Case == "d":
		return "by policy"
	case first-later > fromStart*float64(r.CapBitRate):
		return fmt.Sprintf("%s (%s from the start)", r.OfCap(later), r.OfCap(first))
	default:
		return r.OfCap(later)
	}
}

// beside writes a percentile, the bystander's, and requests without an answer.
func beside(l, bystander *Latency) string {
	text := fmt.Sprintf("%s (%s)", Milli(l.P99), Milli(bystander.P99))
	if failed := l.failed(); failed > 0 {
		text += fmt.Sprintf(", %d of %d without an answer", failed, l.Requests)
	}
	return text
}

// failed is how many requests had no answer.
func (l *Latency) failed() int {
	failed := 0
	for _, n := range l.Errors {
		failed += n
	}
	return failed
}

// Cell writes the total, "-" if there is none, and "noise" if it cannot be the
// plugin's.
func (m *Memory) Cell() string {
	switch {
	case m == nil:
		return "-"
	case !m.Plausible():
		return "noise"
	default:
		return fmt.Sprintf("%.0f", m.Total)
	}
}
