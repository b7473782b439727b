// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

const possiblePath = "/sys/devices/system/cpu/possible"

// possibleCPUs is how many CPUs a per-CPU map has room for, present or not.
func possibleCPUs() (int, error) {
	b, err := os.ReadFile(possiblePath)
	if err != nil {
		return 0, fmt.Errorf("count CPUs: %w", err)
	}
	return countCPUs(strings.TrimSpace(string(b)))
}

// countCPUs counts a list like 0-3,8.
func countCPUs(list string) (int, error) {
	cpus := 0
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		low, err := strconv.Atoi(from)
		if err != nil {
			return 0, fmt.Errorf("%s: %q is no list like 0-3,8", possiblePath, list)
		}
		high, err := strconv.Atoi(to)
		if err != nil || high < low {
			return 0, fmt.Errorf("%s: %q is no list like 0-3,8", possiblePath, list)
		}
		cpus += high - low + 1
	}
	return cpus, nil
}
