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
	"github.com/podweir/podweir/tools/perfrig/netns"
	"github.com/podweir/podweir/tools/perfrig/quote"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/report"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

const usage = `usage, in the root of the checkout:
  perfrig run [-profile P] [-dir D] ...   take the samples that D does not have yet (root)
  perfrig plan [-profile P]               say what would be measured, in which order
  perfrig demo [-only REGEXP]             compare limiters in four minutes, and print a table (root)
  perfrig report [-check] FILE.jsonl      print its numbers and bars; -check fails if a bar is missed
  perfrig quote [-check] [-C DIR]         write what README.md and docs quote of docs/results
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
	var wrong *usageError
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return
	case errors.As(err, &wrong):
		fmt.Fprint(os.Stderr, wrong, "\n", usage)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "perfrig:", err)
		os.Exit(1)
	}
}

// usageError is a command line that makes no sense.
type usageError struct{ text string }

func (e *usageError) Error() string { return "perfrig: " + e.text }

func command(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return &usageError{"no command"}
	}
	switch name, args := args[0], args[1:]; name {
	case "run":
		return runCommand(ctx, args, out)
	case "plan":
		return planCommand(args, out)
	case "demo":
		return demoCommand(ctx, args, out)
	case "report":
		return reportCommand(args, out)
	case "quote":
		return quoteCommand(args, out)
	default:
		return &usageError{fmt.Sprintf("no command %q", name)}
	}
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
func (c *choices) plan() (*spec.Spec, []spec.Run, error) {
	s, err := spec.Profile(c.profile)
	if err != nil {
		return nil, nil, err
	}
	runs, err := c.matching(s)
	return s, runs, err
}

// matching are the runs of a spec that were asked for.
func (c *choices) matching(s *spec.Spec) (out []spec.Run, err error) {
	only, err := regexp.Compile(c.only)
	if err != nil {
		return nil, fmt.Errorf("-only %q: %w", c.only, err)
	}
	for _, r := range s.Plan() {
		if only.MatchString(r.ID()) {
			out = append(out, r)
		}
	}
	return out, nil
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
	_, err = fmt.Fprintf(out, "profile %s, spec %s: %d runs, about %s\n", s.Profile, s.Digest(), len(runs), spec.Duration(runs))
	return err
}

func runCommand(ctx context.Context, args []string, out io.Writer) (err error) {
	var c choices
	set := c.flags("run")
	dir := set.String("dir", "", "directory of the campaign; bin/perf/PROFILE if empty")
	if err := set.Parse(args); err != nil {
		return err
	}
	s, runs, err := c.plan()
	if err != nil {
		return err
	}
	here := netns.New(".")
	machine, err := here.Machine(ctx)
	if err != nil {
		return err
	}
	if *dir == "" {
		*dir = filepath.Join("bin", "perf", c.profile)
	}
	if err := os.MkdirAll(*dir, 0o755); err != nil {
		return err
	}
	file, err := record.Open(filepath.Join(*dir, "samples.jsonl"), record.Campaign{
		Profile: s.Profile, Digest: s.Digest(), Planned: len(s.Plan()), Started: time.Now().UTC(), Machine: *machine,
	}, runs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	campaign := campaign{plan: runs, file: file, out: out, measure: here.Run}
	return campaign.run(ctx)
}

func reportCommand(args []string, out io.Writer) error {
	set := flag.NewFlagSet("report", flag.ContinueOnError)
	check := set.Bool("check", false, "fail if a bar is missed")
	if err := set.Parse(args); err != nil {
		return err
	}
	if set.NArg() != 1 {
		return &usageError{"report wants one file"}
	}
	r, err := record.Read(set.Arg(0))
	if err != nil {
		return err
	}
	missed, err := report.Terminal(out, r)
	if err == nil && *check && missed > 0 {
		return fmt.Errorf("%d bars are missed", missed)
	}
	return err
}

func quoteCommand(args []string, out io.Writer) error {
	set := flag.NewFlagSet("quote", flag.ContinueOnError)
	root := set.String("C", ".", "root of the checkout")
	check := set.Bool("check", false, "change nothing; fail if a figure is not what its results give")
	if err := set.Parse(args); err != nil {
		return err
	}
	if set.NArg() != 0 {
		return &usageError{"quote wants no arguments"}
	}
	changed, err := quote.Update(*root, !*check)
	if err != nil {
		return err
	}
	if *check && len(changed) > 0 {
		return fmt.Errorf("figures are not what the results give in %s: run `make figures`", strings.Join(changed, ", "))
	}
	for _, name := range changed {
		fmt.Fprintln(out, name)
	}
	return nil
}
