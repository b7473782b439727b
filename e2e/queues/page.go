// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/podweir/podweir/e2e/figures"
)

const pageHead = `# Queues on every kernel

Written by ` + "`bin/queues -json FILE -page FILE`" + ` from the JSON file beside this page. Every queue kind in every place that it can have, with a
pod made by a real conflist (ptp, host-local, podweir), real traffic, and the wire meter behind the queue (for the ifb: behind the ifb).

**What emulation costs.** 6.1, 6.12 and newest run on an emulated processor (QEMU without KVM, one processor), whose timers and
processes come late: the column "stall" is the latest of the short sleeps during the row. "uml" is User-Mode Linux, a kernel that runs as a
process: some ten times faster, and as late. So: compare rows of one kernel and one group with
each other, and with what the unlimited pod carried in the same run ("unshaped"); believe no rate in Mbit/s, no millisecond and no processor
time as such. A row is "not offered" if the generator had less than 1.2 times the cap. Where a load average is given, the machine of two
processors had other work, and the emulator went first (nice -20).

**How to read it.** Worst 1 s is the largest number of wire bytes in any window of a second (one begins in every millisecond), as a share of
the cap. "By counter" is the same from the root qdisc's own byte counter, read every 25 ms: it counts when a packet leaves the qdisc, and the
longest time that a reading can have taken is charged to it, so it is a lower bound; the wire meter counts when the receiver gets the packet.
Allowed is what promise 2 allows a second: 1.01 from 10 Mbit/s, and cap + burst + one packet of 9,100 bytes below. Excess is the smallest burst,
in ms of the cap, that explains every window. Retransmits: in the first 3 s, then after, then the latter as a share of segments. "+light":
HTTP requests on fresh connections start after a third of the time and stop after two.
`

// page renders the rows, kernels from old to new.
func (r *results) page() []byte {
	var b bytes.Buffer
	b.WriteString(pageHead)
	r.machines(&b)
	r.summary(&b)
	rows := slices.Clone(r.Rows)
	slices.SortStableFunc(rows, func(x, y row) int {
		return cmp.Or(groupIndex(x.Group)-groupIndex(y.Group), kernelIndex(x.Kernel)-kernelIndex(y.Kernel),
			wayIndex(&x)-wayIndex(&y))
	})
	for _, g := range groups {
		for _, kernel := range kernelOrder {
			var here []row
			for i := range rows {
				if rows[i].Group == g.name && rows[i].Kernel == kernel {
					here = append(here, rows[i])
				}
			}
			if len(here) > 0 {
				table(&b, &g, kernel, here)
			}
		}
	}
	return b.Bytes()
}

// userMode is User-Mode Linux, as tools/vmrig calls it.
const userMode = "uml"

// kernelOrder is that of the page.
var kernelOrder = []string{"6.1", "6.12", "newest", userMode, thisMachine}

func kernelIndex(name string) int { return slices.Index(kernelOrder, name) }

func groupIndex(name string) int {
	return slices.IndexFunc(groups, func(g group) bool { return g.name == name })
}

func wayIndex(r *row) int {
	return slices.IndexFunc(ways, func(w way) bool { return w.name == r.Way && w.place == r.Place })
}

// machines names the kernels behind the names, and the days.
func (r *results) machines(b *bytes.Buffer) {
	t := figures.Table{Header: []string{"kernel", "release", "measured on", "rows"}}
	for _, kernel := range kernelOrder {
		releases, days, n := map[string]bool{}, map[string]bool{}, 0
		for i := range r.Rows {
			if r.Rows[i].Kernel == kernel {
				releases[r.Rows[i].Release], days[r.Rows[i].Date] = true, true
				n++
			}
		}
		if n > 0 {
			t.Add(kernel, keys(releases), keys(days), fmt.Sprint(n))
		}
	}
	b.WriteString("\n" + t.Markdown())
}

func keys(set map[string]bool) string { return strings.Join(slices.Sorted(maps.Keys(set)), ", ") }

// summary is the worst of every way over all kernels, which is what auto's
// choice hangs on.
func (r *results) summary(b *bytes.Buffer) {
	b.WriteString("\n## What the choice of `auto` hangs on\n\nThe worst of all rows that were offered, at caps from 10 Mbit/s: which rows exceed what is allowed, and the least use of the cap by TCP.\n\n")
	b.WriteString("| queue | place | rows | worst 1 s | rows above 1.01 | worst by counter | least use, TCP | most retransmits after 3 s | p99 of a kept connection ÷ bystander's | out of order |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	var within []string
	for i := range ways {
		w := &ways[i]
		var s wayWorst
		for j := range r.Rows {
			if one := &r.Rows[j]; one.Way == w.name && one.Place == w.place && one.Cap >= 10*mbit {
				s.add(one)
			}
		}
		if s.rows > 0 {
			fmt.Fprintf(b, "| %s | %s | %d | %.4f | %d | %.4f | %.3f | %.2f %% | %s | %d |\n",
				w.name, w.place, s.rows, s.worst, s.above, s.counter, s.used, s.late*100, s.keptText(), s.inversions)
		}
		if s.rows > 0 && s.above == 0 {
			within = append(within, fmt.Sprintf("%s (%s, %d rows)", w.name, w.place, s.rows))
		}
	}
	if len(within) == 0 {
		within = []string{"none"}
	}
	fmt.Fprintf(b, "\nWithin what is allowed in every row: %s.\n\n%s", strings.Join(within, ", "), catchUp)
}

// catchUp explains the pattern of the table.
const catchUp = `A queue that was late, because its timer was, has a choice. tbf sends at most its bucket at once (8 ms of the cap), holds the cap and loses
the rest of the time, so a stall of the emulated machine costs use. fq sends all that was due meanwhile: its departure times are absolute, so a
stall of 50 ms may be 50 ms of the cap too much in one second. Policing has a credit of 0.25 s, which its rows show.
`

type wayWorst struct {
	rows, above                        int
	worst, counter, used, late, beside float64
	inversions                         uint64
}

func (s *wayWorst) add(r *row) {
	if r.Order != nil {
		s.inversions += r.Order.Inversions
	}
	if r.Kept != nil && r.Kept.BystanderP99 > 0 {
		s.beside = max(s.beside, r.Kept.P99/r.Kept.BystanderP99)
	}
	n := r.Caps
	if n == nil || !n.offered(r.Cap) {
		return
	}
	if s.rows == 0 {
		s.used = 1
	}
	s.rows++
	s.worst, s.counter = max(s.worst, n.Worst), max(s.counter, n.Counter)
	if n.Worst > n.Limit {
		s.above++
	}
	if n.Segments > 0 {
		s.used, s.late = min(s.used, n.Used), max(s.late, n.Late/n.Segments)
	}
}

func (s *wayWorst) keptText() string {
	if s.beside == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", s.beside)
}

// offered is ruling 17 of the design.
func (n *capNumbers) offered(bitsPerSec uint64) bool { return n.Carried >= 1.2*float64(bitsPerSec) }
