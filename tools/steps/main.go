// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Command steps runs targets of make one after the other and prints how long
// each took.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"
)

// step is one target and how it ended.
type step struct {
	name    string
	outcome string
	// took is the time on the clock. processor is the time that the target's
	// processes used: on a busy machine it says more.
	took, processor time.Duration
}

// Outcomes of a step.
const (
	passed = "passed"
	failed = "FAILED"
	notRun = "not run"
)

// errStep says that a step failed; the table says which.
var errStep = errors.New("a step failed")

func main() {
	goOn := flag.Bool("k", false, "run the remaining targets after one has failed")
	program := flag.String("make", "make", "the program that runs a target")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: steps [-k] [-make PROGRAM] TARGET...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	// The target gets the signal and ends; the table is printed after it.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	target := func(name string) (time.Duration, error) { return runTarget(ctx, *program, name) }
	err := run(ctx, os.Stdout, flag.Args(), *goOn, target)
	if err != nil {
		fmt.Fprintln(os.Stderr, "steps:", err)
		stop()
		os.Exit(1)
	}
}

// runTarget runs one target and returns the processor time that it used.
func runTarget(ctx context.Context, program, name string) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, program, name)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	err := cmd.Run()
	if cmd.ProcessState == nil {
		return 0, err
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), err
}

// run runs the targets in order and prints a line after each and a table at the
// end. After a failure it runs no more of them unless goOn is set.
func run(ctx context.Context, w io.Writer, names []string, goOn bool, target func(string) (time.Duration, error)) error {
	steps := make([]step, len(names))
	var result error
	for i, name := range names {
		steps[i] = step{name: name, outcome: notRun}
		if ctx.Err() != nil || (result != nil && !goOn) {
			continue
		}
		start := time.Now()
		processor, err := target(name)
		steps[i] = step{name: name, outcome: passed, took: time.Since(start), processor: processor}
		if err != nil {
			steps[i].outcome = failed
			result = errStep
		}
		fmt.Fprintf(w, "step %s: %s after %.0f s\n", name, steps[i].outcome, steps[i].took.Seconds())
	}
	table(w, steps)
	return errors.Join(result, ctx.Err())
}

// table prints every step, those that did not run included, and the sum.
func table(w io.Writer, steps []step) {
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "seconds\tprocessor seconds\toutcome\tstep")
	sum := step{name: "all steps", outcome: passed}
	for _, s := range steps {
		printRow(t, s)
		sum.took += s.took
		sum.processor += s.processor
		if s.outcome != passed {
			sum.outcome = failed
		}
	}
	printRow(t, sum)
	_ = t.Flush()
}

func printRow(w io.Writer, s step) {
	fmt.Fprintf(w, "%7.0f\t%17.0f\t%s\t%s\n", s.took.Seconds(), s.processor.Seconds(), s.outcome, s.name)
}
