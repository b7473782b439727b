// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package view

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/podweir/podweir/plugin/terms"
)

// Top is the live table of what pods carry, by their shares of their limits: it takes rates
// and returns lines.
type Top struct {
	// Idle shows also what carries next to nothing, Flows the heavy flows.
	Idle, Flows bool
	// Filter is part of the names of pods that are shown.
	Filter string
	// Interval is between two looks.
	Interval time.Duration
	// Where are the pods, "this node" if empty.
	Where string

	rates []PodRate
	at    time.Time
}

// Observe takes the rates of a look.
func (t *Top) Observe(rates []PodRate, at time.Time) {
	t.rates, t.at = append(slices.Clip(rates), groupRates(rates)...), at
}

// idleShare is the share of a limit below which a pod is idle.
const idleShare = 0.001

// idle is never said of a pod that is not limited as it should be, or that another party lets send nothing.
func idle(r *PodRate) bool {
	return r.State == "" && r.Blocked == "" && r.Share() < idleShare && r.DropsPerSecond == 0 && r.WaitingBytes == 0
}

// Screen is the table for a terminal: at most height lines of at most width columns, the
// rows that do not fit left out.
func (t *Top) Screen(width, height int) []string {
	lines := t.lines(columnsOf(width))
	lines = lines[:min(max(height, 0), len(lines))]
	for i := range lines {
		if r := []rune(lines[i]); len(r) > width {
			lines[i] = string(r[:max(width, 0)])
		}
	}
	return lines
}

// Plain is the whole table, for a file or a pipe.
func (t *Top) Plain() string { return strings.Join(t.lines(columnsOf(terms.Width)), "\n") + "\n" }

func (t *Top) lines(c columns) []string {
	rows, hidden := t.rows(c)
	return append([]string{t.title(hidden, c), c.head()}, rows...)
}

// columns are the widths of those that give way on a narrow screen: first names are shortened,
// then directions, and the bars go. What is wrong stays.
type columns struct {
	name, direction, bar, flow int
	// pad pads a name.
	pad func(name string) string
}

func columnsOf(width int) columns {
	const full, least = 76, 14 // of a row, and of a name beside a bar
	c := columns{name: 26, direction: 7, bar: 12, flow: min(max(width-23, 12), 53)}
	if missing := full - width; missing > 0 {
		if c.name -= missing; c.name < least {
			c = columns{name: min(max(width-30, 8), 26), direction: 3, flow: c.flow}
		}
	}
	return c
}

func (t *Top) title(hidden int, c columns) string {
	parts := []string{"top, bit/s", t.at.Format(time.TimeOnly)}
	if c.bar > 0 {
		parts[0] = "podweir top"
		parts = append(parts, "every "+t.Interval.String())
	}
	if n := t.problems(); n > 0 {
		parts = append(parts, fmt.Sprintf("problems: %d", n))
	}
	if hidden > 0 {
		parts = append(parts, fmt.Sprintf("%d idle not shown", hidden))
	}
	if t.Filter != "" {
		parts = append(parts, fmt.Sprintf("filter %q", t.Filter))
	}
	return strings.Join(parts, "  ")
}

func (c *columns) head() string {
	if c.bar == 0 {
		return c.row(Pad("POD", c.name), "DIR", "LIMIT", "NOW", "", "  % DROPS/s")
	}
	return c.row(Pad("POD", c.name), "DIR", "LIMIT", "NOW", "SHARE (bit/s)", "      DROPS/s")
}

func (c *columns) row(pod, direction, limit, now, bar, rest string) string {
	if len(direction) > c.direction {
		direction = direction[:c.direction]
	}
	if c.bar > 0 {
		rest = fmt.Sprintf("%-*s %s", c.bar, bar, rest)
	}
	return strings.TrimRight(fmt.Sprintf("%s %-*s %6s %6s %s", pod, c.direction, direction, limit, now, rest), " ")
}

// problems is how many pods are not limited as they should be, and of how many pods or
// nodes nothing is known.
func (t *Top) problems() int {
	pods := map[string]bool{}
	for i := range t.rates {
		if r := &t.rates[i]; r.State != "" || r.Error != "" {
			pods[r.Node+" "+r.Pod] = true
		}
	}
	return len(pods)
}

// rows are the rows in their order, and how many idle ones are left out. What is broken
// comes first, so that no busy pod takes it off the screen.
func (t *Top) rows(c columns) (rows []string, hidden int) {
	shown := make([]*PodRate, 0, len(t.rates))
	unread := map[string][]string{}
	for i := range t.rates {
		r := &t.rates[i]
		switch {
		case !strings.Contains(r.Pod, t.Filter):
		case r.Error != "":
			unread[r.Error] = append(unread[r.Error], r.Pod)
		case !t.Idle && idle(r):
			hidden++
		default:
			shown = append(shown, r)
		}
	}
	for _, cause := range slices.Sorted(maps.Keys(unread)) {
		rows = append(rows, unreadRows(unread[cause], cause)...)
	}
	slices.SortStableFunc(shown, compareRates)
	var names []string
	for _, r := range shown {
		names = append(names, r.label())
	}
	c.pad = apart(names, c.name)
	for _, r := range shown {
		rows = append(rows, rateRow(r, c)...)
		if t.Flows {
			rows = append(rows, t.flowRows(r, c)...)
		}
	}
	if len(t.rates) == 0 {
		rows = append(rows, Headline(0, 0, cmp.Or(t.Where, "this node")))
	}
	return rows, hidden
}

// unreadLines is how many lines the names take of which nothing is known for one cause.
const unreadLines = 4

func unreadRows(names []string, cause string) []string {
	text := terms.Paragraph("no rates of ", names[0]+": "+cause, 1)
	if len(names) > 1 {
		text = terms.Paragraph("no rates of ", fmt.Sprintf("%d: %s", len(names), Names(names)), unreadLines) + terms.Paragraph("  cause  ", cause, 1)
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

func compareRates(a, b *PodRate) int {
	if broken := a.State != ""; broken != (b.State != "") {
		if broken {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(b.Share(), a.Share()), strings.Compare(a.Pod, b.Pod), cmp.Compare(a.Direction.Is, b.Direction.Is), strings.Compare(a.Interface, b.Interface))
}

func rateRow(r *PodRate, c columns) (rows []string) {
	drops := ""
	if r.DropsPerSecond > 0 {
		drops = Short(r.DropsPerSecond)
	}
	bar, rest := Bar(r.Share()), fmt.Sprintf("%3.0f %% %5s", min(100*r.Share(), 999), drops)
	word := ""
	if r.State != "" || r.Blocked != "" || r.Observed() {
		word = r.word()
		bar = word
	}
	rows = strings.Split(c.row(c.pad(r.label()), r.Direction.String(), Short(float64(r.Rate)), Short(r.SentBitsPerSecond), bar, rest), "\n")
	if c.bar == 0 && word != "" {
		rows = append(rows, "  "+word) // there is no room for it beside what the pod carries
	}
	return rows
}

// maxFlows is how many heavy flows of a direction are listed, the fastest first.
const maxFlows = 5

func (t *Top) flowRows(r *PodRate, c columns) []string {
	var rows []string
	if v := r.Verdict(); v != "" {
		rows = append(rows, "  "+v)
	}
	order := make([]int, len(r.HeavyFlows))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(r.FlowBitsPerSecond[b], r.FlowBitsPerSecond[a]) })
	for _, i := range order[:min(len(order), maxFlows)] {
		rate := r.FlowBitsPerSecond[i]
		name := r.HeavyFlows[i].Name()
		if from, to, two := strings.Cut(name, " > "); two && utf8.RuneCountInString(name) > c.flow { // of IPv6
			rows, name = append(rows, "  "+from), "> "+to
		}
		rows = append(rows, fmt.Sprintf("  %s offers %6s  %.0f %%", Pad(name, c.flow), Short(rate), 100*r.Part(rate)))
		for _, end := range Ends(&r.HeavyFlows[i], r.Pod) {
			rows = append(rows, "    "+end)
		}
	}
	if n := len(order) - maxFlows; n > 0 {
		rows = append(rows, fmt.Sprintf("  and %d more", n))
	}
	return rows
}

// Bar is a share of 1 as ten blocks; more than all of it is all.
func Bar(share float64) string {
	full := int(math.Round(min(max(share, 0), 1) * 10))
	return "[" + strings.Repeat("█", full) + strings.Repeat("░", 10-full) + "]"
}
