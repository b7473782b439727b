// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package suite runs privileged tests on several kernels and says what each
// kernel ran, skipped and failed.
package suite

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// Outcome is how a test ended.
type Outcome string

// The outcomes that go test prints.
const (
	Pass Outcome = "PASS"
	Fail Outcome = "FAIL"
	Skip Outcome = "SKIP"
)

// TestID names a test or subtest of a package.
type TestID struct {
	Package, Name string
}

// MarshalText makes it a key of JSON.
func (id TestID) MarshalText() ([]byte, error) { return []byte(id.Package + " " + id.Name), nil }

// UnmarshalText reads what MarshalText wrote.
func (id *TestID) UnmarshalText(text []byte) error {
	var ok bool
	if id.Package, id.Name, ok = strings.Cut(string(text), " "); !ok {
		return fmt.Errorf("%q is no package and test", text)
	}
	return nil
}

// Test is how a test ended on one kernel.
type Test struct {
	Outcome Outcome
	// Feature is what the kernel lacked, for a skip that says so.
	Feature string
}

// featureMark is how plugin/testutil names what a test misses.
const featureMark = "SKIP-FEATURE: "

// Parse reads the output of "go test -v" of one package. A test that a mark left out is
// not among them. It needs the go command.
func Parse(ctx context.Context, log, pkg string) (map[TestID]Test, error) {
	cmd := exec.CommandContext(ctx, "go", "tool", "test2json", "-p", pkg)
	cmd.Stdin = strings.NewReader(log)
	events, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go tool test2json: %w", err)
	}
	return ParseJSON(bytes.NewReader(events))
}
