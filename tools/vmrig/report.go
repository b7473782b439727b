// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/step"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/tools/tiers/marks"
	"github.com/podweir/podweir/tools/vmrig/suite"
)

// report fails if a test on this machine was skipped for the lack of what every machine
// must have and, with results of other kernels, if a test was run by no kernel. Tests
// that are for other kernels in "make test-all" alone are owed by that.
func report(args []string) {
	flags := flag.NewFlagSet("report", flag.ContinueOnError)
	var all []suite.Results
	tier := flags.String("tier", mark.TierGate, "the tier that ran")
	flags.Func("host", `output of "go test -json" on this machine's own kernel; may be given again`, func(log string) error {
		all = append(all, hostResults(log))
		return nil
	})
	step.OK(flags.Parse(args))
	if len(all) == 0 {
		step.OK(errors.New("report wants -host"))
	}
	flawless(suite.Faults(all))
	if flags.NArg() == 0 {
		return
	}
	for _, path := range flags.Args() {
		all = append(all, step.Get(suite.Kept(path))...)
	}
	if *tier != mark.TierAll {
		leaveOutNightly(all)
	}
	flawless(suite.RunByNone(all))
	fmt.Println("every test ran on a kernel")
}

// leaveOutNightly takes out the tests that are marked with NightlyKernels.
func leaveOutNightly(all []suite.Results) {
	tests, _, err := marks.Read(".")
	step.OK(err)
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
}

// module is the path of the module, with which import paths begin.
const module = "github.com/podweir/podweir/"

// lacksPage lists what a machine's own kernel may lack, below the root of the repository.
const lacksPage = "tools/allowed-skips.txt"

// mayLack reads a list of features, one a line, each with a reason behind #.
func mayLack(path string) []string {
	text := step.Get(os.ReadFile(path))
	var features []string
	for line := range strings.Lines(string(text)) {
		feature, _, _ := strings.Cut(line, "#")
		if feature = strings.TrimSpace(feature); feature != "" {
			features = append(features, feature)
		}
	}
	return features
}

// hostResults reads what the machine's own kernel ran.
func hostResults(log string) suite.Results {
	f := step.Get(os.Open(log))
	defer step.Close(f.Close)
	packages, err := suite.Parse(f)
	step.Say(err, "%s", log)
	tests := map[suite.TestID]suite.Test{}
	for _, p := range packages {
		maps.Copy(tests, p.Tests)
	}
	var u unix.Utsname
	step.OK(unix.Uname(&u))
	return suite.Results{Kernel: "host", Release: unix.ByteSliceToString(u.Release[:]), Lacks: mayLack(lacksPage), Tests: tests}
}
