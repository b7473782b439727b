// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// offered is how much more than the cap an unshaped pod must have carried in
// the same run before a cap counts as tested.
const offered = 1.5

// writePage prints the results of runs on two machines as tables of a page.
// Each file holds one run or a list of runs.
func writePage(out io.Writer, paths []string) error {
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		runs, err := parseRuns(raw)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, r := range runs {
			if r.Far == nil {
				return fmt.Errorf("%s: not a run on two machines", path)
			}
			r.writeTable(out)
		}
	}
	return nil
}

// parseRuns reads one run, as the demo writes it, or a list of them.
func parseRuns(raw []byte) ([]report, error) {
	if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("[")) {
		var runs []report
		err := json.Unmarshal(raw, &runs)
		return runs, err
	}
	var one report
	err := json.Unmarshal(raw, &one)
	return []report{one}, err
}

// writeTable prints a run. Every number but those of the row without a cap is
// a ratio.
func (r *report) writeTable(out io.Writer) {
	fmt.Fprintf(out, `
### Pod on %s, clients on %s

Light load: %g new connections and %g requests on the kept connection a second. Unshaped, both directions at once: %s Mbit/s out, %s in on
the wire. The clocks went %.4f %% apart.

| cap | chained plugin | bulk out / in ÷ cap | on the wire out / in ÷ cap | worst 1 s ÷ cap out / in | worst 10 s ÷ cap out / in | worst 1 s from the start | light p50, p99, ms | kept p99, ms | light p99 ÷ bystander's | kept p99 ÷ bystander's | closed loop, rps | resent per 10 s |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
`, r.Machine.Kernel, r.Far.Kernel, r.Load.OpenLoopPerSecond, r.Load.KeptPerSecond,
		mega(r.unshaped().Egress.WireBitRate), mega(r.unshaped().Ingress.WireBitRate), r.Far.ClockDrift*100)
	for _, row := range r.Rows {
		fmt.Fprintf(out, "| %s | %s%s | %s | %s | %s | %s | %s | %s, %s | %s | %s | %s | %s | %.0f / %.0f |\n",
			capName(row.CapBitRate), row.Title, r.notOffered(&row),
			row.ofCap(row.Egress.ElephantBitRate, row.Ingress.ElephantBitRate),
			row.ofCap(row.Egress.WireBitRate, row.Ingress.WireBitRate),
			row.ofCap(row.Egress.WireSpread[2], row.Ingress.WireSpread[2]),
			row.worstTenSeconds(),
			row.ofCap(max(row.Egress.WorstSecondFromStart, row.Ingress.WorstSecondFromStart)),
			milli(row.Open.P50), milli(row.Open.P99), milli(row.Kept.P99),
			times(row.Open.P99, row.BystanderOpen.P99), times(row.Kept.P99, row.BystanderKept.P99),
			digits(row.Closed.PerSecond), row.Egress.RetransmitsPer10s, row.Ingress.RetransmitsPer10s)
	}
}

// worstTenSeconds is "-" where fewer seconds were measured.
func (r *row) worstTenSeconds() string {
	if r.Egress.WorstTenSeconds == 0 || r.Ingress.WorstTenSeconds == 0 {
		return "-"
	}
	return r.ofCap(r.Egress.WorstTenSeconds, r.Ingress.WorstTenSeconds)
}

// unshaped is the row without a cap; a zero row if there is none.
func (r *report) unshaped() row {
	for _, row := range r.Rows {
		if row.CapBitRate == 0 {
			return row
		}
	}
	return row{}
}

// notOffered marks a cap that the emulated machines cannot have tested.
func (r *report) notOffered(of *row) string {
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
	return digits(v / by)
}
