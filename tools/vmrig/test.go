// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/tools/tiers/marks"
	"github.com/podweir/podweir/tools/vmrig/suite"
)

// test runs privileged tests on every kernel and fails if one of them failed: those
// that the marks select for a tier, or those of packages that match a pattern.
func test(ctx context.Context, args []string) (int, error) {
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	env := os.Environ()
	timeout := flags.Duration("timeout", 10*time.Minute, "kill a machine after this long")
	kernels := flags.String("k", "6.1,6.12,newest", "kernels, with commas between them")
	pattern := flags.String("run", "^TestPrivileged", "tests to run of the packages")
	machines := flags.Int("machines", runtime.NumCPU(), "machines that run side by side")
	dir := flags.String("dir", "bin/kernels", "directory for binaries, logs and results")
	tier := flags.String("tier", "", fmt.Sprintf("in place of packages: run the tests of a tier, one of %v; below the root of the repository", marks.Tiers()))
	without := flags.String("without", "", "do not run those of this tier again")
	if err := flags.Parse(args); err != nil {
		return 0, err
	}
	if (flags.NArg() == 0) == (*tier == "") {
		return 0, errors.New("test wants packages or -tier, and not both")
	}
	var binaries, alone []suite.Binary
	var err error
	if *tier == "" {
		binaries, err = suite.Build(ctx, *dir, flags.Args())
	} else {
		env = append(env, mark.EnvTier+"="+*tier)
		binaries, alone, err = ofTier(ctx, *dir, *tier, *without)
	}
	if err != nil {
		return 0, err
	}
	runner := suite.Runner{
		Timeout: *timeout, Env: env, Machines: *machines,
		Run: *pattern, Logs: filepath.Join(*dir, "logs"), Progress: os.Stdout,
	}
	all, err := runner.On(ctx, strings.Split(*kernels, ","), binaries, alone)
	if err != nil {
		return 0, err
	}
	if *tier != "" {
		if err := suite.Keep(filepath.Join(*dir, *tier+".json"), all); err != nil {
			return 0, err
		}
	}
	if faults := suite.Report(os.Stdout, all); len(faults) > 0 {
		return 1, errors.New(strings.Join(faults, "\n"))
	}
	return 0, nil
}

// ofTier builds what the marks select: what runs beside other machines, and what does
// not.
func ofTier(ctx context.Context, dir, tier, without string) (beside, alone []suite.Binary, err error) {
	tests, faults, err := marks.Read(".")
	if err != nil {
		return nil, nil, err
	}
	if len(faults) > 0 {
		return nil, nil, errors.New(strings.Join(faults, "\n"))
	}
	if !slices.Contains(marks.Tiers(), tier) {
		return nil, nil, fmt.Errorf("-tier %q: want one of %v", tier, marks.Tiers())
	}
	if without != "" {
		tests = slices.DeleteFunc(tests, func(t marks.Test) bool {
			return t.Selected(without, marks.OtherKernels) || t.Selected(without, marks.OtherKernelsAlone)
		})
	}
	if beside, err = build(ctx, dir, marks.Select(tests, tier, marks.OtherKernels)); err != nil {
		return nil, nil, err
	}
	alone, err = build(ctx, dir, marks.Select(tests, tier, marks.OtherKernelsAlone))
	return beside, alone, err
}

// build builds the packages of selected tests.
func build(ctx context.Context, dir string, selected map[string][]string) ([]suite.Binary, error) {
	var all []suite.Binary
	for _, pkg := range slices.Sorted(maps.Keys(selected)) {
		binaries, err := suite.Build(ctx, dir, []string{"./" + pkg})
		if err != nil {
			return nil, err
		}
		for i := range binaries {
			binaries[i].Run = marks.Pattern(selected[pkg])
		}
		all = append(all, binaries...)
	}
	return all, nil
}
