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
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/e2e/step"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/tools/tiers/marks"
	"github.com/podweir/podweir/tools/vmrig/suite"
)

// test runs privileged tests on every kernel and fails if one of them failed: those
// that the marks select for a tier, or those of packages that match a pattern.
func test(ctx context.Context, args []string) {
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	env := os.Environ()
	timeout := flags.Duration("timeout", 10*time.Minute, "kill a machine after this long")
	kernels := flags.String("k", "6.1,6.12,newest", "kernels, with commas between them")
	pattern := flags.String("run", "^TestPrivileged", "tests to run of the packages")
	dir := flags.String("dir", "bin/kernels", "directory for binaries, logs and results")
	tier := flags.String("tier", "", fmt.Sprintf("in place of packages: run the tests of a tier, one of %v; below the root of the repository", marks.Tiers()))
	without := flags.String("without", "", "do not run those of this tier again")
	step.OK(flags.Parse(args))
	if (flags.NArg() == 0) == (*tier == "") {
		step.OK(errors.New("test wants packages or -tier, and not both"))
	}
	var binaries, alone []suite.Binary
	if *tier == "" {
		binaries = suite.Build(ctx, *dir, flags.Args())
	} else {
		env = append(env, mark.EnvTier+"="+*tier)
		binaries, alone = ofTier(ctx, *dir, *tier, *without)
	}
	runner := suite.Runner{
		Timeout: *timeout, Env: env, Run: *pattern, Logs: filepath.Join(*dir, "logs"), Progress: os.Stdout,
	}
	all := runner.On(ctx, strings.Split(*kernels, ","), binaries, alone)
	if *tier != "" {
		step.OK(suite.Keep(filepath.Join(*dir, *tier+".json"), all))
	}
	flawless(suite.Report(os.Stdout, all))
}

// ofTier builds what the marks select: what does not measure, and what does.
func ofTier(ctx context.Context, dir, tier, without string) (beside, alone []suite.Binary) {
	tests, faults, err := marks.Read(".")
	step.OK(err)
	flawless(faults)
	if !slices.Contains(marks.Tiers(), tier) {
		step.OK(fmt.Errorf("-tier %q: want one of %v", tier, marks.Tiers()))
	}
	if without != "" {
		tests = slices.DeleteFunc(tests, func(t marks.Test) bool {
			return t.Selected(without, marks.OtherKernels) || t.Selected(without, marks.OtherKernelsAlone)
		})
	}
	return build(ctx, dir, marks.Select(tests, tier, marks.OtherKernels)), build(ctx, dir, marks.Select(tests, tier, marks.OtherKernelsAlone))
}

// build builds the packages of selected tests.
func build(ctx context.Context, dir string, selected map[string][]string) (all []suite.Binary) {
	if len(selected) > 0 {
		all = suite.Build(ctx, dir, marks.Packages(selected))
	}
	for i := range all {
		all[i].Run = marks.Pattern(selected[strings.TrimPrefix(all[i].Package, module)])
	}
	return all
}
