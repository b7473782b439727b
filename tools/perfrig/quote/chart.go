// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package quote

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// demoChart is where the chart of the newest run of the demo is, from the root.
const demoChart = "docs/results/demo.svg"

// drawDemo draws the newest run of the demo, if one is committed.
func drawDemo(results *results, write bool) (changed []string, err error) {
	run, name, err := results.demo("demo")
	if err != nil || run == nil {
		return nil, err
	}
	var made bytes.Buffer
	if err := run.Chart(&made); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	differs, err := renew(filepath.Join(results.root, filepath.FromSlash(demoChart)), made.Bytes(), write)
	if differs {
		changed = append(changed, demoChart)
	}
	return changed, err
}

// renew says whether a file is not what was made, and writes it if it may.
func renew(name string, made []byte, write bool) (differs bool, err error) {
	old, err := os.ReadFile(name)
	switch {
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return false, err
	case err == nil && bytes.Equal(old, made):
		return false, nil
	case !write:
		return true, nil
	}
	return true, os.WriteFile(name, made, 0o644)
}
