// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
	"github.com/podweir/podweir/tools/perfrig/stats"
)

// Of so many bars of a kind each is told; of more, the range and what missed.
// Of the reference plugin's numbers, for which there are no bars, fewer are.
const (
	listed       = 4
	besideListed = 2
)

// notMeasured stands where no campaign has a number.
const notMeasured = "not measured"

// judged is a bar with the campaign that it is from.
type judged struct {
	Bar
	r *record.Results
}

// Summary holds campaigns, taken together, against what was promised: a row
// for each of [Kinds], also where no campaign has it, then one for those of each
// other name. Beside podweir's numbers stand those of the reference plugin for the
// same workloads and caps.
func Summary(campaigns ...*record.Results) Table {
	var all []judged
	for _, r := range campaigns {
		for _, b := range Bars(r) {
			all = append(all, judged{b, r})
		}
	}
	return sumUp(all)
}

func sumUp(bars []judged) Table {
	t := Table{Header: []string{"what", "podweir", "bandwidth plugin 1.9, as shipped", "tuned", "target", ""}}
	byKind := map[string][]judged{}
	for _, b := range bars {
		byKind[b.Kind] = append(byKind[b.Kind], b)
	}
	for _, k := range Kinds() {
		t.Rows = append(t.Rows, k.row(byKind[k.Name]))
	}
	for _, k := range loadKinds() {
		if bars := byKind[k.Name]; len(bars) > 0 {
			t.Rows = append(t.Rows, k.row(bars))
		}
	}
	for _, alike := range byName(byKind[""]) {
		k := Kind{Name: alike[0].name(), Asked: asked(alike)}
		t.Rows = append(t.Rows, k.row(alike))
	}
	return t
}

// name is what a bar is called, without its cell.
func (b *judged) name() string { return strings.TrimPrefix(b.What, b.Cell.ID()+": ") }

// byName puts bars of no kind together, in the order of the first of each
// name. They are ordered by the number that their text has.
func byName(bars []judged) [][]judged {
	var out [][]judged
	for _, b := range bars {
		for word := range strings.FieldsSeq(b.Measured) {
			if v, err := strconv.ParseFloat(word, 64); err == nil {
				b.Value = v
				break
			}
		}
		n := slices.IndexFunc(out, func(alike []judged) bool { return alike[0].name() == b.name() })
		if n < 0 {
			n = len(out)
			out = append(out, nil)
		}
		out[n] = append(out[n], b)
	}
	return out
}

// asked is what all of some bars want, or the first and the last of it.
func asked(bars []judged) string {
	first, last := bars[0].Want, bars[len(bars)-1].Want
	if slices.ContainsFunc(bars, func(b judged) bool { return b.Want != first }) {
		return first + " … " + last
	}
	return first
}

// row sums a kind up.
func (k *Kind) row(bars []judged) []string {
	if len(bars) == 0 {
		return []string{k.Name, notMeasured, notMeasured, notMeasured, k.Asked, "-"}
	}
	what := k.Name
	var text string
	if len(bars) <= listed {
		var each []string
		for i := range bars {
			each = append(each, k.one(bars, i))
		}
		text = strings.Join(each, "; ")
	} else {
		what += fmt.Sprintf(" (%d: %s)", len(bars), scope(bars))
		text = span(bars)
		for i := range bars {
			if !bars[i].Pass {
				text += "; " + k.one(bars, i)
			}
		}
	}
	return []string{what, text, beside(bars, shipped), beside(bars, tuned), k.Asked, verdict(bars)}
}

// one tells a single bar: what tells it apart from the others, the number, the
// bystander's.
func (k *Kind) one(bars []judged, i int) string {
	b := &bars[i]
	text := b.Measured
	if !b.Pass {
		text = "**" + text + "**"
	}
	if k.Bystander != "" {
		if v := summary(b.r, &b.Cell, k.Bystander); v.N > 0 {
			text += fmt.Sprintf(" (bystander %.2f)", v.Mean)
		}
	}
	if label := label(bars, i); label != "" {
		return label + " " + text
	}
	return text
}

// label has those parts of a bar's name in which the bars differ.
func label(bars []judged, i int) string {
	parts := func(b *judged) []string {
		load, direction := directed(b)
		what := b.name()
		switch b.Kind {
		case capKind.Name:
			what = "" // says the direction once more
		case addKind.Name:
			what = strings.TrimPrefix(strings.TrimPrefix(what, "median"), ", ")
		}
		return []string{load, direction, spec.RateName(b.Cell.Rate), strings.TrimPrefix(b.Cell.Phase.Name, "podweir-"), what}
	}
	mine := parts(&bars[i])
	var out []string
	for n := range mine {
		if mine[n] != "" && slices.ContainsFunc(bars, func(b judged) bool { return parts(&b)[n] != mine[n] }) {
			out = append(out, mine[n])
		}
	}
	return strings.Join(out, ", ")
}

// directed takes the direction off a workload's name. That of a workload of
// both is the metric's.
func directed(b *judged) (load, direction string) {
	w := &b.Cell.Workload
	if w.Direction != "" {
		return strings.Replace(w.Name, "-"+w.Direction, "", 1), w.Direction
	}
	for _, d := range []string{"egress", "ingress"} {
		if strings.HasPrefix(b.Metric, d+"_") {
			return w.Name, d
		}
	}
	return w.Name, ""
}

// span is the lowest and the highest number.
func span(bars []judged) string {
	byValue := func(a, b judged) int { return cmp.Compare(a.Value, b.Value) }
	low, high := slices.MinFunc(bars, byValue).Measured, slices.MaxFunc(bars, byValue).Measured
	if low == high {
		return low
	}
	number, unit, _ := strings.Cut(low, " ")
	if _, same, _ := strings.Cut(high, " "); same == unit {
		low = number
	}
	return low + " to " + high
}

// scope says on which workloads, without their direction, and at which caps.
func scope(bars []judged) string {
	var loads []string
	low, high := uint64(math.MaxUint64), uint64(0)
	for i := range bars {
		c := &bars[i].Cell
		load, _ := directed(&bars[i])
		if !slices.Contains(loads, load) {
			loads = append(loads, load)
		}
		low, high = min(low, c.Rate), max(high, c.Rate)
	}
	text := strings.Join(loads, ", ")
	switch {
	case high == 0:
		return text
	case low == high:
		return text + ", " + spec.RateName(low)
	default:
		return text + ", " + spec.RateName(low) + " to " + spec.RateName(high)
	}
}

// beside has the numbers of another phase for the cells of bars, each workload
// and rate once.
func beside(bars []judged, phase string) string {
	var found []judged
	seen := map[string]bool{}
	wanted := false
	for _, b := range bars {
		if b.Metric == "" {
			continue
		}
		wanted = true
		b.Cell.Phase = spec.Phase{Name: phase}
		id := b.Cell.ID() + b.Metric
		if b.Value = b.number(); seen[id] || math.IsNaN(b.Value) {
			continue
		}
		seen[id] = true
		b.Measured = Quantity(b.Metric, b.Value)
		b.Pass, b.What = true, b.Cell.ID()+": "
		found = append(found, b)
	}
	switch {
	case !wanted:
		return "-"
	case len(found) == 0:
		return notMeasured
	case len(found) > besideListed:
		return span(found)
	}
	var each []string
	for i := range found {
		each = append(each, (&Kind{}).one(found, i))
	}
	return strings.Join(each, "; ")
}

// number is the bar's metric in the bar's cell: the mean, of worst
// seconds the largest, and of segments those of ten seconds.
func (b *judged) number() float64 {
	s := stats.Summarise(values(b.r, &b.Cell, b.Metric))
	switch b.Kind {
	case capKind.Name:
		return s.Max
	case lostKind.Name:
		return s.Mean * 10 / (b.Cell.Workload.BulkSeconds - slowStart)
	default:
		return s.Mean
	}
}

// Quantity writes a number of a metric with its unit.
func Quantity(metric string, v float64) string {
	switch unit, _ := record.Unit(metric); {
	case strings.HasSuffix(metric, "_share"):
		return fmt.Sprintf("%.4f of the cap", v)
	case unit == "ms":
		return fmt.Sprintf("%.2f ms", v)
	case unit == "ns" && v >= 100:
		return fmt.Sprintf("%.0f ns", v)
	case unit == "bit/s":
		return fmt.Sprintf("%.1f Mbit/s", v/1e6)
	case unit == "B":
		return fmt.Sprintf("%.1f KiB", v/1024)
	case strings.HasSuffix(metric, "_count"):
		return fmt.Sprintf("%.0f", v)
	case unit == "":
		return fmt.Sprintf("%.3f", v)
	default:
		return fmt.Sprintf("%.3g %s", v, unit)
	}
}

func verdict(bars []judged) string {
	missed, open := 0, 0
	for i := range bars {
		switch {
		case bars[i].Undecided:
			open++
		case !bars[i].Pass:
			missed++
		}
	}
	switch {
	case missed == 0 && open == len(bars):
		return "not decided"
	case missed == 0 && open > 0:
		return fmt.Sprintf("not decided in %d of %d", open, len(bars))
	case missed == 0:
		return "ok"
	case len(bars) == 1:
		return "**missed**"
	default:
		return fmt.Sprintf("**missed** by %d of %d", missed, len(bars))
	}
}
