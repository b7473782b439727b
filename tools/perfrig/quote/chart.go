// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package quote

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/podweir/podweir/tools/perfrig/report"
)

// rivalsChart is where the chart of the newest campaign beside rivals is, from the root.
const rivalsChart = "docs/results/rivals.svg"

// drawRivals draws that chart if such a campaign is committed.
func drawRivals(results *results, write bool) (changed []string, err error) {
	campaign, _, err := results.campaign("netns-rivals")
	if err != nil || campaign == nil {
		return nil, err
	}
	var made bytes.Buffer
	if err := report.RivalsChart(campaign).WriteSVG(&made); err != nil {
		return nil, fmt.Errorf("%s: %w", rivalsChart, err)
	}
	differs, err := renew(filepath.Join(results.root, filepath.FromSlash(rivalsChart)), made.Bytes(), write)
	if err != nil || !differs {
		return nil, err
	}
	return []string{rivalsChart}, nil
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
