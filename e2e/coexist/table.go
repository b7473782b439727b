// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package coexist

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/podweir/podweir/e2e/figures"
)

// Machine is what a kernel has that decides between ways, and how it was judged
// there whether podweir holds a direction.
type Machine struct {
	// Kernel is the first two numbers of its version.
	Kernel string
	// TCX and Prio are yes or no, Redirect is bpf, mirred or none.
	TCX, Prio, Redirect string
	// Judged is bursts or counters.
	Judged string
}

var machineColumns = []string{"kernel", "TCX", "sch_prio", "redirect to an ifb by", "shaped judged by"}

func (m *Machine) cells() []*string {
	return []*string{&m.Kernel, &m.TCX, &m.Prio, &m.Redirect, &m.Judged}
}

// Machines renders the table of kernels.
func Machines(all []Machine) string {
	lines := make([][]string, len(all))
	for i := range all {
		for _, cell := range all[i].cells() {
			lines[i] = append(lines[i], *cell)
		}
	}
	return table(machineColumns, lines)
}

// ReadMachines is the inverse of [Machines].
func ReadMachines(text string) ([]Machine, error) {
	lines, err := readTable(machineColumns, text)
	if err != nil {
		return nil, err
	}
	all := make([]Machine, len(lines))
	for i, line := range lines {
		for c, cell := range all[i].cells() {
			*cell = line[c]
		}
	}
	return all, nil
}

// PutMachine adds a machine, or replaces the one with its kernel.
func PutMachine(all []Machine, m *Machine) []Machine {
	all = slices.DeleteFunc(slices.Clone(all), func(o Machine) bool { return o.Kernel == m.Kernel })
	all = append(all, *m)
	slices.SortFunc(all, func(a, b Machine) int { return compareVersions(a.Kernel, b.Kernel) })
	return all
}

// Alike returns the kernel whose rows a machine has to see: its own, else one
// with the same features, else one that has TCX if this one has it; of those
// with rows. It is "" if there is none.
func Alike(all []Machine, m *Machine, rows []OnKernels) string {
	found, best := "", 0
	for _, o := range all {
		same := o
		same.Kernel, same.Judged = m.Kernel, m.Judged
		rank := 0
		switch {
		case len(Of(rows, o.Kernel)) == 0:
		case o.Kernel == m.Kernel && same == *m:
			rank = 3
		case same == *m:
			rank = 2
		case o.TCX == m.TCX:
			rank = 1
		}
		if rank > best {
			found, best = o.Kernel, rank
		}
	}
	return found
}

// ErrTable means that a text is no table of those columns.
var ErrTable = errors.New("not the table that is wanted")

func table(columns []string, lines [][]string) string {
	return (&figures.Table{Header: columns, Rows: lines}).Markdown()
}

// readTable is the inverse of table; cells have no space at their ends.
func readTable(columns []string, text string) ([][]string, error) {
	head := table(columns, nil)
	body, ok := strings.CutPrefix(text, head)
	if !ok {
		return nil, fmt.Errorf("%w: it does not begin with %q", ErrTable, head)
	}
	const bar, escaped = `\|`, "\x00"
	var lines [][]string
	for line := range strings.Lines(body) {
		line = strings.ReplaceAll(strings.TrimSpace(line), bar, escaped)
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != len(columns) {
			return nil, fmt.Errorf("%w: %d cells in %q, want %d", ErrTable, len(cells), line, len(columns))
		}
		for i := range cells {
			cells[i] = strings.ReplaceAll(strings.TrimSpace(cells[i]), escaped, "|")
		}
		lines = append(lines, cells)
	}
	return lines, nil
}
