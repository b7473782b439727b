// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package quote

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/podweir/podweir/tools/perfrig/report"
)

// Where the charts of the newest run of the demo and of the newest campaign beside
// rivals are, from the root.
const (
	demoChart   = "docs/results/demo.svg"
	rivalsChart = "docs/results/rivals.svg"
)

// drawAll draws those charts whose results are committed.
func drawAll(results *results, write bool) (changed []string, err error) {
	run, _, err := results.demo("demo")
	if err != nil {
		return nil, err
	}
	campaign, _, err := results.campaign("netns-rivals")
	if err != nil {
		return nil, err
	}
	charts := map[string]func(io.Writer) error{}
	if run != nil {
		charts[demoChart] = run.Chart
	}
	if campaign != nil {
		charts[rivalsChart] = report.RivalsChart(campaign).WriteSVG
	}
	for _, file := range slices.Sorted(maps.Keys(charts)) {
		var made bytes.Buffer
		if err := charts[file](&made); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		differs, err := renew(filepath.Join(results.root, filepath.FromSlash(file)), made.Bytes(), write)
		if err != nil {
			return nil, err
		}
		if differs {
			changed = append(changed, file)
		}
	}
	return changed, nil
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
