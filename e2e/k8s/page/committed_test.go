// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package page_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podweir/podweir/e2e/k8s/page"
)

// TestCommittedPagesAreOfTheirJSON wants -count=1, as make test-unit has it: go
// keeps what a test said whatever files outside of its module have become.
func TestCommittedPagesAreOfTheirJSON(t *testing.T) {
	files, err := filepath.Glob("../../../docs/results/*-kubernetes.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("results: %v, %v, want at least one file", files, err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var p page.Page
		if err := json.Unmarshal(raw, &p); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		committed, err := os.ReadFile(strings.TrimSuffix(file, ".json") + ".md")
		if err != nil {
			t.Fatal(err)
		}
		if p.Markdown() != string(committed) {
			t.Errorf("the page beside %s is not what its numbers give", file)
		}
	}
}
