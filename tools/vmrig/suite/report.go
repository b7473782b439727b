// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package suite

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/podweir/podweir/e2e/step"
)

// Results are the tests of one kernel.
type Results struct {
	// Kernel is the kernel's name, Release what it calls itself.
	Kernel, Release string
	// Accel is what ran the machine's processors, "" of this machine itself.
	Accel string
	// Lacks are the features that the kernel is known not to have, or need not have: a
	// test that is skipped for another is a fault.
	Lacks []string
	Tests map[TestID]Test
	// Troubles are what went wrong besides a test: a binary that did not end,
	// a fault that the kernel itself reported.
	Troubles []string
}

// count returns how many tests ended so.
func (r *Results) count(o Outcome) int {
	n := 0
	for _, t := range r.Tests {
		if t.Outcome == o {
			n++
		}
	}
	return n
}

// Report writes what each kernel ran and skipped, and returns the faults.
func Report(w io.Writer, all []Results) []string {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "kernel\trelease\taccelerator\tpassed\tfailed\tskipped")
	for _, r := range all {
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%d\t%d\n", r.Kernel, r.Release, cmp.Or(r.Accel, "-"), r.count(Pass), r.count(Fail), r.count(Skip))
	}
	_ = table.Flush()
	for _, r := range all {
		skipped := map[string][]string{}
		for id, t := range r.Tests {
			if t.Outcome == Skip && t.Feature != "" {
				skipped[t.Feature] = append(skipped[t.Feature], id.Name)
			}
		}
		for _, feature := range slices.Sorted(maps.Keys(skipped)) {
			slices.Sort(skipped[feature])
			fmt.Fprintf(w, "%s has no %s, so it skipped %s\n", r.Kernel, feature, strings.Join(skipped[feature], ", "))
		}
	}
	return Faults(all)
}

// RunByNone lists the tests that every kernel skipped.
func RunByNone(all []Results) []string {
	ran := map[TestID]bool{}
	for _, r := range all {
		for id, t := range r.Tests {
			ran[id] = ran[id] || t.Outcome != Skip
		}
	}
	var out []string
	for id, ok := range ran {
		if !ok {
			out = append(out, fmt.Sprintf("%s %s is run by no kernel", id.Package, id.Name))
		}
	}
	slices.Sort(out)
	return out
}

// Faults are tests that failed, and those that were skipped without naming a feature or
// for the lack of one that the kernel has.
func Faults(all []Results) []string {
	var out []string
	for _, r := range all {
		for id, t := range r.Tests {
			switch {
			case t.Outcome == Fail:
				out = append(out, fmt.Sprintf("%s: %s %s failed", r.Kernel, id.Package, id.Name))
			case t.Outcome == Skip && t.Feature == "":
				out = append(out, fmt.Sprintf("%s: %s %s was skipped without naming a feature", r.Kernel, id.Package, id.Name))
			case t.Outcome == Skip && !slices.Contains(r.Lacks, t.Feature):
				out = append(out, fmt.Sprintf("%s: %s %s was skipped for the lack of %s, which the kernel has", r.Kernel, id.Package, id.Name, t.Feature))
			}
		}
		for _, trouble := range r.Troubles {
			out = append(out, r.Kernel+": "+trouble)
		}
	}
	slices.Sort(out)
	return out
}

// Keep writes which tests each kernel ran and skipped, so that RunByNone can be asked
// of several runs together.
func Keep(path string, all []Results) (err error) {
	defer step.End(&err)
	b := step.Get(json.Marshal(all))
	return os.WriteFile(path, b, 0o644)
}

// Kept reads what Keep wrote.
func Kept(path string) (_ []Results, err error) {
	defer step.End(&err)
	b := step.Get(os.ReadFile(path))
	var all []Results
	return all, json.Unmarshal(b, &all)
}
