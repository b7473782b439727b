// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package suite runs privileged tests on several kernels and says what each
// kernel ran, skipped and failed.
package suite

import (
	"bufio"
	"io"
	"regexp"
	"strings"

	"github.com/podweir/podweir/plugin/testutil/mark"
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

// Test is how a test ended on one kernel.
type Test struct {
	Outcome Outcome
	// Feature is what the kernel lacked, for a skip that says so.
	Feature string
}

var (
	resultLine  = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+) \(`)
	currentLine = regexp.MustCompile(`^=== (?:RUN|NAME|CONT)\s+(\S+)`)
)

// featureMark is how plugin/testutil names what a test misses.
const featureMark = "SKIP-FEATURE: "

// Parse reads the output of "go test -v" of one package. A test that a mark left out is
// not among them.
func Parse(r io.Reader, pkg string) (map[TestID]Test, error) {
	tests := map[TestID]Test{}
	pending, features, marked := map[string]Outcome{}, map[string]string{}, map[string]bool{}
	current := ""
	scanner := bufio.NewScanner(r)
	const longest = 1 << 20 // a difference of two large values is one line
	scanner.Buffer(nil, longest)
	for scanner.Scan() {
		line := scanner.Text()
		if m := currentLine.FindStringSubmatch(line); m != nil {
			current = m[1]
		} else if m := resultLine.FindStringSubmatch(line); m != nil {
			pending[m[2]] = Outcome(m[1])
		} else if _, feature, ok := strings.Cut(line, featureMark); ok {
			features[current] = strings.TrimSpace(feature)
		} else if strings.Contains(line, ": "+mark.SkipPrefix) {
			marked[current] = true
		}
	}
	for name, outcome := range pending {
		if !marked[name] {
			tests[TestID{pkg, name}] = Test{outcome, features[name]}
		}
	}
	return tests, scanner.Err()
}
