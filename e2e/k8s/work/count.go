// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// count prints what the pod receives on its interfaces, loopback apart, in bits
// per second over a time.
func count(length time.Duration) error {
	began := time.Now()
	before, err := received()
	if err != nil {
		return err
	}
	<-time.After(length)
	after, err := received()
	if err != nil {
		return err
	}
	fmt.Printf("%.0f\n", float64(after-before)*8/time.Since(began).Seconds())
	return nil
}

func received() (uint64, error) {
	f, err := os.Open("/proc/net/dev")
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	return parseReceived(f)
}

// parseReceived adds up the bytes received, the first column of /proc/net/dev.
func parseReceived(r io.Reader) (uint64, error) {
	var sum uint64
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		device, columns, ok := strings.Cut(lines.Text(), ":")
		if !ok || strings.TrimSpace(device) == "lo" {
			continue
		}
		var bytes uint64
		if _, err := fmt.Sscan(columns, &bytes); err != nil {
			return 0, fmt.Errorf("/proc/net/dev: %q: %w", lines.Text(), err)
		}
		sum += bytes
	}
	return sum, lines.Err()
}
