// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package coexist proves that podweir and the software that shares a pod's
// device with it leave each other alone, and keeps the tables that say what was
// seen.
//
// The tests drive podweir's CNI plugin and its neighbours in network namespaces
// and compare what they see with testdata/seen.txt, kernel by kernel.
// With PODWEIR_WRITE_COEXISTENCE set they write that file instead.
package coexist

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Row is one line of the matrix.
type Row struct {
	// Neighbour and Device are who else is on which device.
	Neighbour, Device string
	// Egress and Ingress are podweir's modes.
	Egress, Ingress string
	// Order says who came when, and what happened last.
	Order string
	// EgressVerdicts and IngressVerdicts are what became of packets that the
	// neighbour allows and denies.
	EgressVerdicts, IngressVerdicts string
	// EgressShaped and IngressShaped say whether podweir holds the direction.
	EgressShaped, IngressShaped string
	// Check is what CNI CHECK answered.
	Check string
	// Result is the conclusion.
	Result string
}

// OnKernels is a row with the kernels on which it was seen, as 6.12.
type OnKernels struct {
	Row

	Kernels []string
}

// columns and cells have to agree.
var columns = []string{
	"neighbour", "device", "egress mode", "ingress mode", "order", "egress: verdicts", "ingress: verdicts",
	"egress shaped", "ingress shaped", "CHECK", "result", "kernels",
}

func (r *Row) cells() []*string {
	return []*string{
		&r.Neighbour, &r.Device, &r.Egress, &r.Ingress, &r.Order, &r.EgressVerdicts, &r.IngressVerdicts,
		&r.EgressShaped, &r.IngressShaped, &r.Check, &r.Result,
	}
}

func (r *Row) String() string {
	var out []string
	for _, cell := range r.cells() {
		out = append(out, *cell)
	}
	return strings.Join(out, " | ")
}

// Merged makes one row of rows one after the other that differ in nothing but
// the order, with all of their orders.
func Merged(rows []Row) []Row {
	var merged []Row
	for _, r := range rows {
		if n := len(merged); n > 0 {
			same := r
			same.Order = merged[n-1].Order
			if same == merged[n-1] {
				merged[n-1].Order += "; " + r.Order
				continue
			}
		}
		merged = append(merged, r)
	}
	return merged
}

// Table renders rows as Markdown.
func Table(rows []OnKernels) string {
	lines := make([][]string, len(rows))
	for i := range rows {
		for _, cell := range rows[i].cells() {
			lines[i] = append(lines[i], *cell)
		}
		lines[i] = append(lines[i], strings.Join(rows[i].Kernels, ", "))
	}
	return table(columns, lines)
}

// ReadTable is the inverse of [Table].
func ReadTable(text string) ([]OnKernels, error) {
	lines, err := readTable(columns, text)
	if err != nil {
		return nil, err
	}
	rows := make([]OnKernels, len(lines))
	for i, line := range lines {
		for c, cell := range rows[i].cells() {
			*cell = line[c]
		}
		rows[i].Kernels = strings.Split(line[len(line)-1], ", ")
	}
	return rows, nil
}

// Of returns the rows that were seen on a kernel.
func Of(rows []OnKernels, kernel string) []Row {
	var out []Row
	for _, r := range rows {
		if slices.Contains(r.Kernels, kernel) {
			out = append(out, r.Row)
		}
	}
	return out
}

// About returns the rows with a neighbour and modes that one of the others has:
// what the page says of cases that were seen.
func About(rows, others []Row) []Row {
	var out []Row
	for _, r := range rows {
		if slices.ContainsFunc(others, func(o Row) bool {
			return o.Neighbour == r.Neighbour && o.Egress == r.Egress && o.Ingress == r.Ingress
		}) {
			out = append(out, r)
		}
	}
	return out
}

// Put replaces what was seen on a kernel. A row that other kernels have seen,
// too, gets another kernel; one that is new stands beside those with the same
// neighbour and mode.
func Put(rows []OnKernels, kernel string, seen []Row) []OnKernels {
	var out []OnKernels
	for _, r := range rows {
		r.Kernels = slices.DeleteFunc(slices.Clone(r.Kernels), func(k string) bool { return k == kernel })
		if len(r.Kernels) > 0 || slices.Contains(seen, r.Row) {
			out = append(out, r)
		}
	}
	for _, r := range seen {
		at := slices.IndexFunc(out, func(o OnKernels) bool { return o.Row == r })
		if at < 0 {
			at = place(out, &r)
			out = slices.Insert(out, at, OnKernels{Row: r})
		}
		out[at].Kernels = append(out[at].Kernels, kernel)
		slices.SortFunc(out[at].Kernels, compareVersions)
	}
	return out
}

// place is where a new row goes: behind the last one of its neighbour and mode,
// else behind the last of its neighbour, else at the end.
func place(rows []OnKernels, r *Row) int {
	for _, like := range []func(o *Row) bool{
		func(o *Row) bool { return o.Neighbour == r.Neighbour && o.Egress == r.Egress && o.Ingress == r.Ingress },
		func(o *Row) bool { return o.Neighbour == r.Neighbour },
	} {
		for i := len(rows) - 1; i >= 0; i-- {
			if like(&rows[i].Row) {
				return i + 1
			}
		}
	}
	return len(rows)
}

// compareVersions puts 6.1 before 6.12, and 6.12 before 7.
func compareVersions(a, b string) int {
	part := func(s string) []int {
		var out []int
		for p := range strings.SplitSeq(s, ".") {
			n, err := strconv.Atoi(p)
			if err != nil {
				n = -1
			}
			out = append(out, n)
		}
		return out
	}
	return slices.Compare(part(a), part(b))
}

// ErrNoSection means that a page lacks the marks of a section.
var ErrNoSection = errors.New("page has no such section")

func marks(section string) (begin, end string) {
	return "<!-- begin " + section + " -->\n", "<!-- end " + section + " -->\n"
}

// Section returns what stands between the marks of a section of the page. It
// returns an error wrapping [ErrNoSection] if they are not there.
func Section(page, section string) (string, error) {
	from, to, err := bounds(page, section)
	if err != nil {
		return "", err
	}
	return page[from:to], nil
}

// Replace returns the page with other content between the marks of a section.
// It returns an error wrapping [ErrNoSection] if they are not there.
func Replace(page, section, content string) (string, error) {
	from, to, err := bounds(page, section)
	if err != nil {
		return "", err
	}
	return page[:from] + content + page[to:], nil
}

func bounds(page, section string) (from, to int, err error) {
	begin, end := marks(section)
	from = strings.Index(page, begin)
	if from < 0 {
		return 0, 0, fmt.Errorf("%w: %q", ErrNoSection, section)
	}
	from += len(begin)
	to = strings.Index(page[from:], end)
	if to < 0 {
		return 0, 0, fmt.Errorf("%w: %q does not end", ErrNoSection, section)
	}
	return from, from + to, nil
}
