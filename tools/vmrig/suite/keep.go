// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package suite

import (
	"encoding/json"
	"os"
)

// Keep writes which tests each kernel ran and skipped, so that RunByNone can be asked
// of several runs together.
func Keep(path string, all []Results) error {
	b, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o644)
}

// Kept reads what Keep wrote.
func Kept(path string) ([]Results, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []Results
	return all, json.Unmarshal(b, &all)
}
