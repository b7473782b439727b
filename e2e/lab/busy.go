// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"errors"
	"os"
	"strconv"
	"strings"
)

// userHz is the unit of /proc/stat (USER_HZ of Linux, on every machine).
const userHz = 100

// BusySeconds is the processor time of the machine that was not idle.
func BusySeconds() (float64, error) {
	raw, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(raw), "\n")
	f := strings.Fields(line)
	if len(f) < 8 || f[0] != "cpu" {
		return 0, errors.New("/proc/stat begins with another line: " + line)
	}
	sum := 0.0
	for i, v := range f[1:8] {
		ticks, err := strconv.ParseFloat(v, 64)
		if err != nil {
			return 0, err
		}
		// The fourth and fifth are idle and waiting for a disk.
		if i != 3 && i != 4 {
			sum += ticks / userHz
		}
	}
	return sum, nil
}
