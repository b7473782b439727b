// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/tools/tiers/marks"
	"github.com/podweir/podweir/tools/vmrig/suite"
)

// report fails if a test on this machine was skipped for the lack of what every machine
// must have and, with results of other kernels, if a test was run by no kernel. Tests
// that are for other kernels in "make test-all" alone are owed by that.
func report(args []string) (int, error) {
	flags := flag.NewFlagSet("report", flag.ContinueOnError)
	var all []suite.Results
	tier := flags.String("tier", mark.TierGate, "the tier that ran")
	flags.Func("host", `output of "go test -json" on this machine's own kernel; may be given again`, func(log string) error {
		r, err := hostResults(log)
		all = append(all, r)
		return err
	})
	if err := flags.Parse(args); err != nil {
		return 0, err
	}
	if len(all) == 0 {
		return 0, errors.New("report wants -host")
	}
	if faults := suite.Faults(all); len(faults) > 0 {
		return 1, errors.New(strings.Join(faults, "\n"))
	}
	if flags.NArg() == 0 {
		return 0, nil
	}
	for _, path := range flags.Args() {
		kept, err := suite.Kept(path)
		if err != nil {
			return 0, err
		}
		all = append(all, kept...)
	}
	if *tier != mark.TierAll {
		if err := leaveOutNightly(all); err != nil {
			return 0, err
		}
	}
	if faults := suite.RunByNone(all); len(faults) > 0 {
		return 1, errors.New(strings.Join(faults, "\n"))
	}
	fmt.Println("every test ran on a kernel")
	return 0, nil
}

// leaveOutNightly takes out the tests that are marked with NightlyKernels.
func leaveOutNightly(all []suite.Results) error {
	tests, _, err := marks.Read(".")
	if err != nil {
		return err
	}
	nightly := map[string]bool{}
	for i := range tests {
		nightly[tests[i].Dir+" "+tests[i].Name] = tests[i].Whole(marks.NightlyKernels)
	}
	for _, r := range all {
		for id := range r.Tests {
			name, _, _ := strings.Cut(id.Name, "/")
			if nightly[strings.TrimPrefix(id.Package, module)+" "+name] {
				delete(r.Tests, id)
			}
		}
	}
	return nil
}

// module is the path of the module, with which import paths begin.
const module = "github.com/podweir/podweir/"

// lacksPage lists what a machine's own kernel may lack, below the root of the repository.
const lacksPage = "tools/allowed-skips.txt"

// mayLack reads a list of features, one a line, each with a reason behind #.
func mayLack(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var features []string
	for line := range strings.Lines(string(text)) {
		feature, _, _ := strings.Cut(line, "#")
		if feature = strings.TrimSpace(feature); feature != "" {
			features = append(features, feature)
		}
	}
	return features, nil
}

// hostResults reads what the machine's own kernel ran.
func hostResults(log string) (suite.Results, error) {
	f, err := os.Open(log)
	if err != nil {
		return suite.Results{}, err
	}
	defer func() { _ = f.Close() }()
	tests, err := suite.ParseJSON(f)
	if err != nil {
		return suite.Results{}, fmt.Errorf("read %s: %w", log, err)
	}
	lacks, err := mayLack(lacksPage)
	if err != nil {
		return suite.Results{}, err
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return suite.Results{}, err
	}
	return suite.Results{Kernel: "host", Release: unix.ByteSliceToString(u.Release[:]), Lacks: lacks, Tests: tests}, nil
}
