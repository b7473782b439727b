// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"
)

// result is one run of a row.
type result struct {
	Row, Date string
	Steps     []stepResult
}

// stepResult is what became of one step.
type stepResult struct {
	Name    string
	Seconds float64
	// Notes are what was measured.
	Notes []string `json:",omitempty"`
	// Error is empty if the step passed.
	Error string `json:",omitempty"`
}

func (r *result) add(name string, took time.Duration, notes []string, err error) {
	s := stepResult{Name: name, Seconds: took.Seconds(), Notes: notes}
	if err != nil {
		s.Error = err.Error()
	}
	r.Steps = append(r.Steps, s)
}

// write writes result.json to a directory, or nothing if dir is empty.
func (r *result) write(dir string) error {
	if dir == "" {
		return nil
	}
	raw, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "result.json"), append(raw, '\n'), 0o644)
}
