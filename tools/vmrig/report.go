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

	"github.com/podweir/podweir/tools/vmrig/suite"
)

// report fails if a test was run by no kernel, this machine's included.
func report(args []string) (int, error) {
	flags := flag.NewFlagSet("report", flag.ContinueOnError)
	var all []suite.Results
	flags.Func("host", `output of "go test -v" on this machine's own kernel; may be given again`, func(log string) error {
		r, err := hostResults(log)
		all = append(all, r)
		return err
	})
	if err := flags.Parse(args); err != nil {
		return 0, err
	}
	if flags.NArg() == 0 || len(all) == 0 {
		return 0, errors.New("report wants -host and files of results")
	}
	for _, path := range flags.Args() {
		kept, err := suite.Kept(path)
		if err != nil {
			return 0, err
		}
		all = append(all, kept...)
	}
	if faults := suite.RunByNone(all); len(faults) > 0 {
		return 1, errors.New(strings.Join(faults, "\n"))
	}
	fmt.Println("every test ran on a kernel")
	return 0, nil
}

// hostResults reads what the machine's own kernel ran.
func hostResults(log string) (suite.Results, error) {
	f, err := os.Open(log)
	if err != nil {
		return suite.Results{}, err
	}
	defer func() { _ = f.Close() }()
	tests, err := suite.Parse(f, "")
	if err != nil {
		return suite.Results{}, fmt.Errorf("read %s: %w", log, err)
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return suite.Results{}, err
	}
	return suite.Results{Kernel: "host", Release: unix.ByteSliceToString(u.Release[:]), Unchecked: true, Tests: tests}, nil
}
