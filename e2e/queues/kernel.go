// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// thisMachine is the name of the machine's own kernel.
const thisMachine = "host"

// measureOn runs this program on a kernel, with one group, and returns the
// rows that it prints. Its progress goes to stderr.
func measureOn(ctx context.Context, kernel, group string, timeout time.Duration) ([]row, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := []string{self, "-measure", group}
	if kernel != thisMachine {
		// One processor: two of an emulated machine on the two of this one
		// pace worse than one does.
		args = append([]string{
			"bin/vmrig", "run", "-k", kernel, "-cpus", "1", "-mem", "1536", "-timeout", timeout.String(), "--",
		}, args...)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	before := loadAverage()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	rows, readErr := readRows(stdout)
	err = errors.Join(readErr, cmd.Wait())
	load := before + " to " + loadAverage()
	for i := range rows {
		rows[i].Kernel, rows[i].Group, rows[i].MachineLoad = kernel, group, load
	}
	return rows, err
}

// loadAverage is that of a minute.
func loadAverage() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "?"
	}
	load, _, _ := strings.Cut(string(raw), " ")
	return load
}

// readRows reads objects until the end.
func readRows(r io.Reader) ([]row, error) {
	var rows []row
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var one row
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return rows, fmt.Errorf("row %q: %w", lines.Text(), err)
		}
		rows = append(rows, one)
	}
	return rows, lines.Err()
}
