// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Command perfrig measures podweir beside what else shapes pods, keeps every
// sample, and judges one campaign against another.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/tools/perfrig/compare"
	"github.com/podweir/podweir/tools/perfrig/executor"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/report"
	"github.com/podweir/podweir/tools/perfrig/sampler"
	"github.com/podweir/podweir/tools/perfrig/spec"
	"github.com/podweir/podweir/tools/perfrig/vm"
	"github.com/podweir/podweir/tools/vmrig/guest"
)

const usage = `usage, in the root of the checkout:
  perfrig run [-profile P] [-dir D] ...   take the samples that D does not have yet (root)
  perfrig plan [-profile P] [-seed N]     say what would be measured, in which order
  perfrig report FILE.jsonl               print its tables and bars
  perfrig compare A.jsonl B.jsonl         exit with 1 if B is worse than A
  perfrig quote [-check] [-C DIR]         write what README.md and docs quote of docs/results, and its pages, anew
`

// Exit statuses.
const (
	statusFailed = 1
	statusUsage  = 2
	// statusLeft says that the slice is over and the plan is not.
	statusLeft = 3
)

func main() {
	if guest.IsInit() {
		guest.Init() // process 1 of an emulated machine; does not return
	}
	if lab.WorkerMain() {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first Ctrl-C a second one ends the program at once; what it
	// leaves is removed by the next run.
	context.AfterFunc(ctx, stop)
	err := command(ctx, os.Args[1:], os.Stdout)
	stop()
	var wrong *usageError
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return
	case errors.As(err, &wrong):
		fmt.Fprint(os.Stderr, wrong, "\n", usage)
		os.Exit(statusUsage)
	case errors.Is(err, executor.ErrLeft):
		fmt.Fprintln(os.Stderr, "perfrig:", err)
		os.Exit(statusLeft)
	default:
		fmt.Fprintln(os.Stderr, "perfrig:", err)
		os.Exit(statusFailed)
	}
}

// usageError is a command line that makes no sense.
type usageError struct{ text string }

func (e *usageError) Error() string { return "perfrig: " + e.text }

func command(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return &usageError{"no command"}
	}
	if args[0] == vm.GuestCommand { // in an emulated machine; not for users
		return vm.Guest(ctx, ".")
	}
	switch args[0] {
	case "run":
		return runCommand(ctx, args[1:], out)
	case "plan":
		return planCommand(args[1:], out)
	case "report":
		return reportCommand(args[1:], out)
	case "compare":
		return compareCommand(args[1:], out)
	case "quote":
		return quoteCommand(args[1:], out)
	default:
		return &usageError{fmt.Sprintf("no command %q", args[0])}
	}
}

// choices are the flags of run and plan.
type choices struct {
	profile, dir, only string
	where, kernel      string // the substrate, and what it runs
	seed               uint64
	slice              time.Duration
	anew               bool
}

func (c *choices) flags(name string) *flag.FlagSet {
	set := flag.NewFlagSet(name, flag.ContinueOnError)
	set.StringVar(&c.profile, "profile", "costs", "costs, loads, rivals or scale")
	set.Uint64Var(&c.seed, "seed", 1, "of the order")
	set.StringVar(&c.only, "only", "", "only runs whose name (WORKLOAD/CAP/PHASE#ROUND) has a match of this regular expression; the plan's order stays")
	return set
}

// plan is the ordered list of runs.
func (c *choices) plan() (*spec.Spec, []spec.Run, error) {
	s, err := spec.Profile(c.profile)
	if err != nil {
		return nil, nil, err
	}
	only, err := regexp.Compile(c.only)
	if err != nil {
		return nil, nil, fmt.Errorf("-only %q: %w", c.only, err)
	}
	var out []spec.Run
	for _, r := range s.Plan(c.seed) {
		if only.MatchString(r.ID()) {
			out = append(out, r)
		}
	}
	return s, out, nil
}

func planCommand(args []string, out io.Writer) error {
	var c choices
	if err := c.flags("plan").Parse(args); err != nil {
		return err
	}
	s, runs, err := c.plan()
	if err != nil {
		return err
	}
	for i := range runs {
		fmt.Fprintln(out, runs[i].ID())
	}
	_, err = fmt.Fprintf(out, "profile %s, spec %s, seed %d: %d runs, about %s\n", s.Profile, s.Digest(), c.seed,
		len(runs), (time.Duration(spec.Seconds(runs)) * time.Second).String())
	return err
}

// samplesFile is the name of a campaign's samples in its directory.
const samplesFile = "samples.jsonl"

func runCommand(ctx context.Context, args []string, out io.Writer) (err error) {
	var c choices
	set := c.flags("run")
	set.StringVar(&c.where, "substrate", "netns", "netns (this machine) or vm (a kernel in an emulated machine)")
	set.StringVar(&c.kernel, "kernel", "6.12", "of substrate vm: 6.1, 6.12 or newest")
	set.StringVar(&c.dir, "dir", "", "directory of the campaign; bin/perf/PROFILE if empty")
	set.DurationVar(&c.slice, "slice", 0, "begin no run that would not end within this time; the next call goes on")
	set.BoolVar(&c.anew, "anew", false, "put aside a campaign that is complete or of another commit; one that was interrupted goes on")
	if err := set.Parse(args); err != nil {
		return err
	}
	if c.dir == "" {
		c.dir = filepath.Join("bin", "perf", c.profile)
	}
	s, runs, err := c.plan()
	if err != nil {
		return err
	}
	restore, err := lab.GoFirst()
	if err != nil {
		return err
	}
	defer restore()
	substrate, down, err := c.substrate()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, down()) }()
	machine, err := substrate.Machine(ctx)
	if err != nil {
		return err
	}
	watcher, err := sampler.New(filepath.Join(c.dir, "usage"))
	if err != nil {
		return err
	}
	file, err := c.open(s, runs, machine)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return executor.Run(ctx, substrate, executor.Options{
		Plan: runs, File: file, Watcher: watcher, Out: out, Slice: c.slice,
	})
}

// open makes the campaign's file, or goes on with it.
func (c *choices) open(s *spec.Spec, runs []spec.Run, machine *record.Machine) (*record.File, error) {
	name := filepath.Join(c.dir, samplesFile)
	campaign := record.Campaign{
		Profile: s.Profile, Digest: s.Digest(), Seed: c.seed, Planned: len(s.Plan(c.seed)),
		Started: time.Now().UTC(), Machine: *machine,
	}
	if c.anew {
		var ids []string
		for i := range runs {
			ids = append(ids, runs[i].ID())
		}
		if err := record.Aside(name, campaign, ids); err != nil {
			return nil, err
		}
	}
	return record.Open(name, campaign)
}

func reportCommand(args []string, out io.Writer) error {
	if len(args) != 1 {
		return &usageError{"report wants one file"}
	}
	r, err := record.Read(args[0])
	if err != nil {
		return err
	}
	return report.Terminal(out, r)
}

func compareCommand(args []string, out io.Writer) error {
	if len(args) != 2 {
		return &usageError{"compare wants two files"}
	}
	before, err := record.Read(args[0])
	if err != nil {
		return err
	}
	after, err := record.Read(args[1])
	if err != nil {
		return err
	}
	for _, r := range []*record.Results{before, after} {
		c, m := &r.Campaign, &r.Campaign.Machine
		fmt.Fprintf(out, "%s: profile %s, commit %s, Linux %s, %d x %s\n",
			c.Started.Format(time.DateOnly), c.Profile, m.Commit, m.Kernel, m.CPUs, m.CPU)
	}
	rows := compare.Judge(before, after)
	if err := compare.Write(out, rows); err != nil {
		return err
	}
	if len(rows) == 0 {
		return errors.New("the campaigns have no ratio in common")
	}
	if worse := compare.Regressions(rows); len(worse) > 0 {
		return fmt.Errorf("%d of %d ratios became worse", len(worse), len(rows))
	}
	return nil
}
