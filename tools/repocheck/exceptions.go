// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package repocheck

import (
	"fmt"
	"maps"
	"slices"
)

// longFiles may exceed the size of a file; the reason is the value.
var longFiles = map[string]string{}

// longFuncs may exceed the size of a function, as "path:name"; the reason is
// the value.
var longFuncs = map[string]string{
	"plugin/shaping/compute_test.go:TestComputeTrees": "one table of whole queue trees, a situation each",
}

// stale returns a fault for each exception that nothing needs.
func stale(list string, exceptions map[string]string, used map[string]bool) []string {
	var faults []string
	for _, name := range slices.Sorted(maps.Keys(exceptions)) {
		if !used[name] {
			faults = append(faults, fmt.Sprintf("%s: the exception in %s is not needed", name, list))
		}
	}
	return faults
}
