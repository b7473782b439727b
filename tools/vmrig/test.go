// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/tools/vmrig/suite"
	"github.com/podweir/podweir/tools/vmrig/vm"
)

// test runs the privileged tests of packages on every kernel and fails if one
// of them failed, or was run by none.
func test(ctx context.Context, args []string) (int, error) {
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	o := machine(flags)
	kernels := flags.String("k", "6.1,6.12,newest", "kernels, with commas between them")
	pattern := flags.String("run", "^TestPrivileged", "tests to run")
	skip := flags.String("skip", "", "tests not to run")
	machines := flags.Int("machines", runtime.NumCPU(), "machines that run side by side")
	dir := flags.String("dir", "bin/kernels", "directory for binaries and logs")
	var beside, alone []string
	flags.Func("beside", "PACKAGE=PATTERN of tests that are run like those of the packages; may be given again", appendTo(&beside))
	flags.Func("alone", "PACKAGE=PATTERN of tests that measure, for which one machine runs at a time; may be given again", appendTo(&alone))
	host := flags.String("host", "", `output of "go test -v" on this machine's own kernel, which counts too`)
	if err := flags.Parse(args); err != nil {
		return 0, err
	}
	if flags.NArg() == 0 {
		return 0, errors.New("no package to test")
	}
	cache, err := vm.OpenCache()
	if err != nil {
		return 0, err
	}
	var all []suite.Results
	if *host != "" {
		r, err := hostResults(*host)
		if err != nil {
			return 0, err
		}
		never, err := r.OnlySkipped(*skip)
		if err != nil {
			return 0, err
		}
		if len(never) > 0 {
			return 0, fmt.Errorf("-skip %q leaves out what this machine's kernel cannot run, so no kernel would: %s", *skip, strings.Join(never, ", "))
		}
		all = append(all, r)
	}
	binaries, err := suite.Build(ctx, *dir, flags.Args())
	if err != nil {
		return 0, err
	}
	some, err := buildSome(ctx, *dir, "beside", beside)
	if err != nil {
		return 0, err
	}
	binaries = append(binaries, some...)
	measuring, err := buildSome(ctx, *dir, "alone", alone)
	if err != nil {
		return 0, err
	}
	runner := suite.Runner{
		Cache: cache, Machine: *o, Machines: *machines,
		Run: *pattern, Skip: *skip, Logs: filepath.Join(*dir, "logs"), Progress: os.Stdout,
	}
	guests, err := runner.On(ctx, strings.Split(*kernels, ","), binaries, measuring)
	if err != nil {
		return 0, err
	}
	all = append(all, guests...)
	if faults := suite.Report(os.Stdout, all); len(faults) > 0 {
		return 1, errors.New(strings.Join(faults, "\n"))
	}
	return 0, nil
}

func appendTo(list *[]string) func(string) error {
	return func(s string) error {
		*list = append(*list, s)
		return nil
	}
}

// buildSome builds packages of which only some tests are run; name is the
// flag's that says so.
func buildSome(ctx context.Context, dir, name string, some []string) ([]suite.Binary, error) {
	var all []suite.Binary
	for _, s := range some {
		pkg, pattern, ok := strings.Cut(s, "=")
		if !ok || pattern == "" {
			return nil, fmt.Errorf("-%s %q: want PACKAGE=PATTERN", name, s)
		}
		binaries, err := suite.Build(ctx, dir, []string{pkg})
		if err != nil {
			return nil, err
		}
		for i := range binaries {
			binaries[i].Run = pattern
		}
		all = append(all, binaries...)
	}
	return all, nil
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
