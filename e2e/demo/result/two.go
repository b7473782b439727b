// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package result

import (
	"fmt"
	"io"
)

// offered is how much more than the cap an unshaped pod must have carried in
// the same run before a cap counts as tested.
const offered = 1.5

// TwoMachines prints a run on two machines as a table of a page. Every number
// but those of the row without a cap is a ratio.
func (r *Report) TwoMachines(out io.Writer) {
	fmt.Fprintf(out, `
### Pod on %s, clients on %s

Light load: %g new connections and %g requests on the kept connection a second. Unshaped, both directions at once: %s Mbit/s out, %s in on
the wire. The clocks went %.4f %% apart.

| cap | chained plugin | bulk out / in ÷ cap | on the wire out / in ÷ cap | worst 1 s ÷ cap out / in | worst 10 s ÷ cap out / in | worst 1 s from the start | light p50, p99, ms | kept p99, ms | light p99 ÷ bystander's | kept p99 ÷ bystander's | closed loop, rps | resent per 10 s |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
`, r.Machine.Kernel, r.Far.Kernel, r.Load.OpenLoopPerSecond, r.Load.KeptPerSecond,
		Mega(r.unshaped().Egress.WireBitRate), Mega(r.unshaped().Ingress.WireBitRate), r.Far.ClockDrift*100)
	for _, row := range r.Rows {
		fmt.Fprintf(out, "| %s | %s%s | %s | %s | %s | %s | %s | %s, %s | %s | %s | %s | %s | %.0f / %.0f |\n",
			CapName(row.CapBitRate), row.Title, r.notOffered(&row),
			row.OfCap(row.Egress.ElephantBitRate, row.Ingress.ElephantBitRate),
			row.OfCap(row.Egress.WireBitRate, row.Ingress.WireBitRate),
			row.OfCap(row.Egress.WireSpread[2], row.Ingress.WireSpread[2]),
			row.worstTenSeconds(),
			row.OfCap(max(row.Egress.WorstSecondFromStart, row.Ingress.WorstSecondFromStart)),
			Milli(row.Open.P50), Milli(row.Open.P99), Milli(row.Kept.P99),
			times(row.Open.P99, row.BystanderOpen.P99), times(row.Kept.P99, row.BystanderKept.P99),
			Digits(row.Closed.PerSecond), row.Egress.RetransmitsPer10s, row.Ingress.RetransmitsPer10s)
	}
}

// worstTenSeconds is "-" where fewer seconds were measured.
func (r *Row) worstTenSeconds() string {
	if r.Egress.WorstTenSeconds == 0 || r.Ingress.WorstTenSeconds == 0 {
		return "-"
	}
	return r.OfCap(r.Egress.WorstTenSeconds, r.Ingress.WorstTenSeconds)
}

// unshaped is the row without a cap; a zero row if there is none.
func (r *Report) unshaped() Row {
	for _, row := range r.Rows {
		if row.CapBitRate == 0 {
			return row
		}
	}
	return Row{}
}

// notOffered marks a cap that the emulated machines cannot have tested.
func (r *Report) notOffered(of *Row) string {
	u := r.unshaped()
	if min(u.Egress.WireBitRate, u.Ingress.WireBitRate) < offered*float64(of.CapBitRate) {
		return " (not offered)"
	}
	return ""
}

// times writes a ratio; "-" where there is nothing to divide by.
func times(v, by float64) string {
	if by == 0 {
		return "-"
	}
	return Digits(v / by)
}
