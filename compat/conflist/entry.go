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

// Otherwise lists the settings in which podweir's entry in the network's own chain differs
// from another entry: a pod starts with those of the chain. It is empty if either is
// missing.
func (n *Network) Otherwise(entry string) []string {
	if n == nil || entry == "" {
		return nil
	}
	at := n.Index(Type)
	if at < 0 {
		return nil
	}
	return Differences(n.Plugins[at].Raw, []byte(entry))
}

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
