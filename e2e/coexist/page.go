// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package coexist proves that podweir and the software that shares a pod's
// device with it leave each other alone, and keeps the page that says what was
// seen.
//
// The tests drive podweir's CNI plugin and its neighbours in network namespaces
// and compare what they see with docs/reference/coexistence.md. With
// PODWEIR_WRITE_COEXISTENCE set they write that page instead.
package coexist

import (
	"errors"
	"fmt"
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
	// EgressShaped and IngressShaped compare what a burst got through with
	// what the same pod let through before podweir came.
	EgressShaped, IngressShaped string
	// Check is what CNI CHECK answered.
	Check string
	// Result is the conclusion.
	Result string
}

// header and cells have to agree.
const header = "| neighbour | device | egress mode | ingress mode | order | egress: verdicts | ingress: verdicts " +
	"| egress shaped | ingress shaped | CHECK | result |\n|---|---|---|---|---|---|---|---|---|---|---|\n"

func (r *Row) cells() []string {
	return []string{
		r.Neighbour, r.Device, r.Egress, r.Ingress, r.Order, r.EgressVerdicts, r.IngressVerdicts,
		r.EgressShaped, r.IngressShaped, r.Check, r.Result,
	}
}

// Table renders rows as Markdown. Rows one after the other that differ in
// nothing but the order become one, with all of their orders.
func Table(rows []Row) string {
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
	var b strings.Builder
	b.WriteString(header)
	for i := range merged {
		for _, cell := range merged[i].cells() {
			fmt.Fprintf(&b, "| %s ", strings.ReplaceAll(cell, "|", `\|`))
		}
		b.WriteString("|\n")
	}
	return b.String()
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
