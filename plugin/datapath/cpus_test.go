// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath

import (
	"strings"
	"testing"
)

func TestCountCPUs(t *testing.T) {
	for list, want := range map[string]int{"0": 1, "0-1": 2, "0-3,8": 5, "0,2-3,127": 4} {
		if got, err := countCPUs(list); err != nil || got != want {
			t.Errorf("countCPUs(%q) = %d, %v, want %d", list, got, err, want)
		}
	}
	for _, list := range []string{"", "x", "0-", "3-1", "0,,1"} {
		if got, err := countCPUs(list); err == nil || !strings.Contains(err.Error(), possiblePath) {
			t.Errorf("countCPUs(%q) = %d, %v, want an error that names the file", list, got, err)
		}
	}
}
