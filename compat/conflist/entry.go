// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package conflist

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
)

// notSettings are keys of podweir's entry that say nothing of limits. What the runtime
// passes has a check of its own.
var notSettings = []string{"type", "name", "cniVersion", "capabilities"}

// Differences lists the settings in which two entries of podweir's differ, by name. How
// they are written does not count.
func Differences(a, b []byte) []string {
	var first, second map[string]any
	if json.Unmarshal(a, &first) != nil || json.Unmarshal(b, &second) != nil {
		return nil
	}
	all := maps.Clone(first)
	maps.Copy(all, second)
	var differ []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if !slices.Contains(notSettings, key) && !reflect.DeepEqual(first[key], second[key]) {
			differ = append(differ, key)
		}
	}
	return differ
}
