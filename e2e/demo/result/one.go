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
with %g small requests a second. In brackets an unshaped pod under the same light load at the same time.

| cap | chained plugin | bulk out / in, Mbit/s | on the wire out / in, Mbit/s | worst 1 s ÷ cap | small request p99, ms | kept connection p99, ms | resent per 10 s out / in | kernel memory, KiB/pod |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
`, numbers, r.Started, r.Machine.CPUs, r.Machine.CPU, r.Machine.Kernel, r.Machine.Git, dirty, r.Machine.Load,
		r.Congestion, r.Load.OpenLoopPerSecond, float64(r.Load.ResponseBytes)/1e3, r.Load.KeptPerSecond)
	for i := range r.Rows {
		row := &r.Rows[i]
		e, in := &row.Egress, &row.Ingress
		fmt.Fprintf(out, "| %s | %s | %s / %s | %s / %s | %s | %s | %s | %.0f / %.0f | %s |\n",
			CapName(row.CapBitRate), row.Title,
			Mega(e.ElephantBitRate), Mega(in.ElephantBitRate), Mega(e.WireBitRate), Mega(in.WireBitRate),
			row.worstSecond(), beside(&row.Open, &row.BystanderOpen), beside(&row.Kept, &row.BystanderKept),
			e.RetransmitsPer10s, in.RetransmitsPer10s, row.Memory.Cell())
	}
}

// worstSecond is of both directions.
func (r *Row) worstSecond() string {
	later := max(r.Egress.WireSpread[2], r.Ingress.WireSpread[2])
	first := max(r.Egress.WorstSecondFromStart, r.Ingress.WorstSecondFromStart)
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
	failed := 0
	for _, n := range l.Errors {
		failed += n
	}
	if failed > 0 {
		text += fmt.Sprintf(", %d of %d without an answer", failed, l.Requests)
	}
	return text
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
