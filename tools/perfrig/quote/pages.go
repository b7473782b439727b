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

// remake makes the pages of all committed campaigns from their samples, and
// returns the files that have changed.
func remake(root string, write bool) (changed []string, err error) {
	campaigns, err := filepath.Glob(filepath.Join(root, "docs", "results", "*", "samples.jsonl"))
	if err != nil {
		return nil, err
	}
	for _, samples := range campaigns {
		files, err := remakeOne(samples, write)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", samples, err)
		}
		for _, file := range files {
			name, err := filepath.Rel(root, file)
			if err != nil {
				return nil, err
			}
			changed = append(changed, filepath.ToSlash(name))
		}
	}
	return changed, nil
}

// remakeOne makes the page of one campaign, its numbers and its charts.
func remakeOne(samples string, write bool) (changed []string, err error) {
	scratch, err := os.MkdirTemp("", "figures")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	if err := report.Write(scratch, samples); err != nil {
		return nil, err
	}
	files, err := os.ReadDir(scratch)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		made, err := os.ReadFile(filepath.Join(scratch, f.Name()))
		if err != nil {
			return nil, err
		}
		name := filepath.Join(filepath.Dir(samples), f.Name())
		old, err := os.ReadFile(name)
		switch {
		case err != nil && !errors.Is(err, os.ErrNotExist):
			return nil, err
		case err == nil && bytes.Equal(old, made):
			continue
		}
		changed = append(changed, name)
		if write {
			if err := os.WriteFile(name, made, 0o644); err != nil {
				return nil, err
			}
		}
	}
	return changed, nil
}
