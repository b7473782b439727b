// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package suite

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// mostAgain is how many tests of a binary may fail and run once more: those that
// measure may have met a moment without a processor. More than that is a fault.
const mostAgain = 4

// failed lists the tests that failed by themselves: not those of which a case did.
func (r *Results) failed() []string {
	var names []string
	for id, t := range r.Tests {
		if t.Outcome == Fail && !r.caseFailed(id) {
			names = append(names, id.Name)
		}
	}
	slices.Sort(names)
	return names
}

func (r *Results) caseFailed(parent TestID) bool {
	for id, t := range r.Tests {
		if t.Outcome == Fail && id.Package == parent.Package && strings.HasPrefix(id.Name, parent.Name+"/") {
			return true
		}
	}
	return false
}

// exactly is the pattern of go test that matches these tests and no other.
func exactly(names []string) string {
	patterns := make([]string, len(names))
	for i, name := range names {
		parts := strings.Split(name, "/")
		for j, part := range parts {
			parts[j] = "^" + regexp.QuoteMeta(part) + "$"
		}
		patterns[i] = strings.Join(parts, "/")
	}
	return strings.Join(patterns, "|")
}

// add adds what one binary did.
func (r *Results) add(part *Results) {
	maps.Copy(r.Tests, part.Tests)
	r.Troubles = append(r.Troubles, part.Troubles...)
	r.Again = append(r.Again, part.Again...)
}
