// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package suite runs privileged tests on several kernels and says what each
// kernel ran, skipped and failed.
package suite

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/podweir/podweir/plugin/testutil/mark"
)

// Outcome is how a test or a package ended, "" if it did not.
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

// Package is what a package's tests said and how they ended. A test that a mark left out
// is not among them.
type Package struct {
	Tests   map[TestID]Test
	Outcome Outcome
	Seconds float64
	Output  strings.Builder
}

// featureMark is how plugin/testutil names what a test misses.
const featureMark = "SKIP-FEATURE: "

// Parse reads the output of "go test -json" (cmd/test2json of Go), in which packages that run
// side by side are told apart. With an error it returns those that it has read before.
func Parse(r io.Reader) (map[string]*Package, error) {
	all, features, marked := map[string]*Package{}, map[TestID]string{}, map[TestID]bool{}
	outcomes := map[string]Outcome{"pass": Pass, "fail": Fail, "skip": Skip}
	for d := json.NewDecoder(r); ; {
		var e struct {
			Action, Package, Test, Output string
			Elapsed                       float64
		}
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return all, err
		}
		p := all[e.Package]
		if p == nil {
			p = &Package{Tests: map[TestID]Test{}}
			all[e.Package] = p
		}
		p.Output.WriteString(e.Output)
		id := TestID{e.Package, e.Test}
		if _, feature, ok := strings.Cut(e.Output, featureMark); ok {
			features[id] = strings.TrimSpace(feature)
		}
		marked[id] = marked[id] || strings.Contains(e.Output, ": "+mark.SkipPrefix)
		switch outcome, ok := outcomes[e.Action]; {
		case ok && e.Test == "":
			p.Outcome, p.Seconds = outcome, e.Elapsed
		case ok && !marked[id]:
			p.Tests[id] = Test{outcome, features[id]}
		}
	}
}
