// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Command tiers says which privileged tests run in a tier at a place, by their marks,
// and writes the table of marks.
package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/podweir/podweir/e2e/step"
	"github.com/podweir/podweir/tools/tiers/marks"
)

const usage = `usage, in the root of the repository:
  tiers packages TIER PLACE   the packages, as arguments of go test
  tiers pattern TIER PLACE    the pattern of the tests, for -run of go test
  tiers names                 every test of the repository, a line each
  tiers page                  write the table of marks in docs/contributing/testing.md
`

func main() {
	flag.Usage = func() { fmt.Fprint(flag.CommandLine.Output(), usage) }
	flag.Parse()
	if err := run(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "tiers:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	tests, faults, err := marks.Read(".")
	if err != nil {
		return err
	}
	if len(faults) > 0 {
		return errors.New(strings.Join(faults, "\n"))
	}
	switch command := strings.Join(args, " "); {
	case command == "names":
		for _, t := range tests {
			fmt.Println(t.Dir, t.Name)
		}
		return nil
	case command == "page":
		return writePage(tests)
	case len(args) == 3 && (args[0] == "packages" || args[0] == "pattern"):
		return selection(tests, args[0], args[1], marks.Place(args[2]))
	default:
		return fmt.Errorf("unknown command %q\n%s", command, usage)
	}
}

func selection(tests []marks.Test, what, tier string, at marks.Place) error {
	if !slices.Contains(marks.Tiers(), tier) || !slices.Contains(marks.Places(), at) {
		return fmt.Errorf("tier %q at %q: want one of %v at one of %v", tier, at, marks.Tiers(), marks.Places())
	}
	selected := marks.Select(tests, tier, at)
	if len(selected) == 0 {
		return fmt.Errorf("no test is selected for tier %q at %q", tier, at)
	}
	if what == "packages" {
		fmt.Println(strings.Join(marks.Packages(selected), " "))
		return nil
	}
	fmt.Println(marks.Pattern(slices.Concat(slices.Collect(maps.Values(selected))...)))
	return nil
}

func writePage(tests []marks.Test) (err error) {
	defer step.End(&err)
	old := step.Get(os.ReadFile(marks.Page))
	page := step.Get(marks.Replace(string(old), marks.Table(tests)))
	return os.WriteFile(marks.Page, []byte(page), 0o644)
}
