// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Command perfrig measures podweir beside what else shapes pods, keeps every
// sample, and holds a campaign against podweir's targets.
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
	"strings"
	"syscall"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/step"
	"github.com/podweir/podweir/tools/perfrig/netns"
	"github.com/podweir/podweir/tools/perfrig/quote"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/report"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

const usage = `usage, in the root of the checkout:
  perfrig run [-profile P] ...            take the samples that bin/perf/P does not have yet (root)
  perfrig plan [-profile P]               say what would be measured, in which order
  perfrig demo [-only REGEXP]             compare limiters in four minutes, and print a table (root)
  perfrig report [-check] FILE.jsonl      print its numbers and bars; -check fails if a bar is missed
  perfrig quote [-check]                  write what README.md and docs quote of docs/results
`

func main() {
	if lab.WorkerMain() {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first Ctrl-C a second one ends the program at once; what it
	// leaves is removed by the next run.
	context.AfterFunc(ctx, stop)
	err := command(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "perfrig:", err)
		os.Exit(1)
	}
}

var commands = map[string]func(context.Context, []string, io.Writer){
	"run": runCommand, "plan": planCommand, "demo": demoCommand, "report": reportCommand, "quote": quoteCommand,
}

func command(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 || commands[args[0]] == nil {
		return fmt.Errorf("no command in %q\n%s", args, usage)
	}
	run := commands[args[0]]
	return step.Run(func() { run(ctx, args[1:], out) })
}

// choices are the flags of run and plan.
type choices struct {
	profile, only string
}

func (c *choices) flags(name string) *flag.FlagSet {
	set := flag.NewFlagSet(name, flag.ContinueOnError)
	set.StringVar(&c.profile, "profile", "costs", "costs, loads, rivals or scale")
	set.StringVar(&c.only, "only", "", "only runs whose name (WORKLOAD/CAP/PHASE#ROUND) has a match of this regular expression; the plan's order stays")
	return set
}

// plan is the ordered list of runs.
func (c *choices) plan() (*spec.Spec, []spec.Run) {
	s := step.Get(spec.Profile(c.profile))
	return s, c.matching(s)
}

// matching are the runs of a spec that were asked for.
func (c *choices) matching(s *spec.Spec) (out []spec.Run) {
	only, err := regexp.Compile(c.only)
	step.Say(err, "-only %q", c.only)
	for _, r := range s.Plan() {
		if only.MatchString(r.ID()) {
			out = append(out, r)
		}
	}
	return out
}

func planCommand(_ context.Context, args []string, out io.Writer) {
	var c choices
	step.OK(c.flags("plan").Parse(args))
	s, runs := c.plan()
	for i := range runs {
		fmt.Fprintln(out, runs[i].ID())
	}
	fmt.Fprintf(out, "profile %s, spec %s: %d runs, about %s\n", s.Profile, s.Digest(), len(runs), spec.Duration(runs))
}

func runCommand(ctx context.Context, args []string, out io.Writer) {
	var c choices
	step.OK(c.flags("run").Parse(args))
	s, runs := c.plan()
	defer step.Get(lab.GoFirst())()
	here := netns.New(".")
	machine := step.Get(here.Machine(ctx))
	dir := filepath.Join("bin", "perf", c.profile)
	step.OK(os.MkdirAll(dir, 0o755))
	file := step.Get(record.Open(filepath.Join(dir, "samples.jsonl"), record.Campaign{
		Profile: s.Profile, Digest: s.Digest(), Planned: len(s.Plan()), Started: time.Now().UTC(), Machine: *machine,
	}, runs))
	defer step.Close(file.Close)
	campaign := campaign{plan: runs, file: file, out: out, measure: here.Run}
	step.OK(campaign.run(ctx))
}

func reportCommand(_ context.Context, args []string, out io.Writer) {
	set := flag.NewFlagSet("report", flag.ContinueOnError)
	check := set.Bool("check", false, "fail if a bar is missed")
	step.OK(set.Parse(args))
	if set.NArg() != 1 {
		step.OK(errors.New("report wants one file"))
	}
	missed := step.Get(report.Terminal(out, step.Get(record.Read(set.Arg(0)))))
	if *check && missed > 0 {
		step.OK(fmt.Errorf("%d bars are missed", missed))
	}
}

func quoteCommand(_ context.Context, args []string, out io.Writer) {
	set := flag.NewFlagSet("quote", flag.ContinueOnError)
	check := set.Bool("check", false, "change nothing; fail if a figure is not what its results give")
	step.OK(set.Parse(args))
	if set.NArg() != 0 {
		step.OK(errors.New("quote wants no arguments"))
	}
	changed := step.Get(quote.Update(".", !*check))
	if *check && len(changed) > 0 {
		step.OK(fmt.Errorf("figures are not what the results give in %s: run `make figures`", strings.Join(changed, ", ")))
	}
	for _, name := range changed {
		fmt.Fprintln(out, name)
	}
}
