// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"fmt"
	"io"
	"os"

	"github.com/podweir/podweir/e2e/demo/result"
)

// writePage prints the results of runs as tables of a page. Each file holds one
// run or a list of runs.
func writePage(out io.Writer, paths []string) error {
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		runs, err := result.Parse(raw)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, r := range runs {
			if r.Far == nil {
				r.OneMachine(out, path)
			} else {
				r.TwoMachines(out)
			}
		}
	}
	return nil
}
