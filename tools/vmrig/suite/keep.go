// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package suite

import (
	"encoding/json"
	"os"
)

// kept is the form of results in a file.
type kept struct {
	Kernel, Release string
	Tests           []keptTest
}

type keptTest struct {
	TestID
	Test
}

// Keep writes which tests each kernel ran and skipped, so that RunByNone can be asked
// of several runs together.
func Keep(path string, all []Results) error {
	var out []kept
	for _, r := range all {
		k := kept{Kernel: r.Kernel, Release: r.Release}
		for id, t := range r.Tests {
			k.Tests = append(k.Tests, keptTest{id, t})
		}
		out = append(out, k)
	}
	b, err := json.Marshal(out)
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
	var in []kept
	if err := json.Unmarshal(b, &in); err != nil {
		return nil, err
	}
	var all []Results
	for _, k := range in {
		r := Results{Kernel: k.Kernel, Release: k.Release, Tests: map[TestID]Test{}}
		for _, t := range k.Tests {
			r.Tests[t.TestID] = t.Test
		}
		all = append(all, r)
	}
	return all, nil
}
