// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Command steps runs targets of make and prints how long each took.
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
	"strings"
	"sync"
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
	page := flag.String("record", "", "write date, commit and result of the run into this page")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: steps [-k] [-make PROGRAM] [-record PAGE] TARGETS...\nTargets joined by + run side by side, those joined by a comma one after the other: a,b+c runs c beside both.")
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
	target := func(name string, out io.Writer) (time.Duration, error) { return runTarget(ctx, *program, name, out) }
	all, err := run(ctx, os.Stdout, flag.Args(), *goOn, target)
	if *page != "" {
		err = errors.Join(err, record(ctx, *page, &all))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "steps:", err)
		stop()
		os.Exit(1)
	}
}

// runTarget runs one target and returns the processor time that it used.
func runTarget(ctx context.Context, program, name string, out io.Writer) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, program, name)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, out, out
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute // for a process that outlives the target and holds its output
	err := cmd.Run()
	if cmd.ProcessState == nil {
		return 0, err
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), err
}

// summary is a whole run: the steps by group, and the time on the clock.
type summary struct {
	groups [][]step
	took   time.Duration
}

// outcome of the whole run.
func (s *summary) outcome() string {
	for _, group := range s.groups {
		for i := range group {
			if group[i].outcome != passed {
				return failed
			}
		}
	}
	return passed
}

// run runs the groups of targets in order and the chains of a group side by side. It
// prints a line after each target and a table at the end. After a failure the other
// chains of the group end, and no more targets run unless goOn is set.
func run(ctx context.Context, w io.Writer, groups []string, goOn bool, target func(name string, out io.Writer) (time.Duration, error)) (summary, error) {
	start := time.Now()
	all := summary{groups: make([][]step, len(groups))}
	var result error
	for i, names := range groups {
		var lengths []int
		for chain := range strings.SplitSeq(names, "+") {
			targets := strings.Split(chain, ",")
			lengths = append(lengths, len(targets))
			for _, name := range targets {
				all.groups[i] = append(all.groups[i], step{name: name, outcome: notRun})
			}
		}
		if ctx.Err() != nil || (result != nil && !goOn) {
			continue
		}
		var chains [][]step
		for rest := all.groups[i]; len(rest) > 0; rest = rest[lengths[len(chains)-1]:] {
			chains = append(chains, rest[:lengths[len(chains)]])
		}
		runGroup(w, chains, goOn, target)
		for j := range all.groups[i] {
			if all.groups[i][j].outcome != passed {
				result = errStep
			}
		}
	}
	all.took = time.Since(start)
	table(w, &all)
	return all, errors.Join(result, ctx.Err())
}

func runGroup(w io.Writer, chains [][]step, goOn bool, target func(name string, out io.Writer) (time.Duration, error)) {
	var lines sync.Mutex
	var ends sync.WaitGroup
	for _, chain := range chains {
		ends.Go(func() {
			for i := range chain {
				s := &chain[i]
				out := w
				if len(chains) > 1 {
					out = &prefixed{w: w, lines: &lines, prefix: s.name + ": "}
				}
				start := time.Now()
				processor, err := target(s.name, out)
				s.outcome, s.took, s.processor = passed, time.Since(start), processor
				if err != nil {
					s.outcome = failed
				}
				if p, ok := out.(*prefixed); ok {
					p.flush()
				}
				lines.Lock()
				fmt.Fprintf(w, "step %s: %s after %.0f s\n", s.name, s.outcome, s.took.Seconds())
				lines.Unlock()
				if err != nil && !goOn {
					return
				}
			}
		})
	}
	ends.Wait()
}

// prefixed writes whole lines, each with a prefix, to what several share.
type prefixed struct {
	w      io.Writer
	lines  *sync.Mutex
	prefix string
	rest   []byte
}

// Write keeps the end of the last line until the rest of it comes.
func (p *prefixed) Write(b []byte) (int, error) {
	text := string(append(p.rest, b...))
	p.rest = nil
	p.lines.Lock()
	defer p.lines.Unlock()
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(line, "\n") {
			p.rest = []byte(line)
			break
		}
		if _, err := io.WriteString(p.w, p.prefix+line); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

func (p *prefixed) flush() {
	if len(p.rest) > 0 {
		_, _ = p.Write([]byte("\n"))
	}
}

// table prints every step, those that did not run included, and the whole.
func table(w io.Writer, all *summary) {
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "seconds\tprocessor seconds\toutcome\tstep")
	whole := step{name: "all steps", outcome: all.outcome(), took: all.took}
	for _, group := range all.groups {
		for i := range group {
			s := group[i]
			whole.processor += s.processor
			if len(group) > 1 {
				s.name += " (side by side)"
			}
			printRow(t, &s)
		}
	}
	printRow(t, &whole)
	_ = t.Flush()
}

func printRow(w io.Writer, s *step) {
	fmt.Fprintf(w, "%7.0f\t%17.0f\t%s\t%s\n", s.took.Seconds(), s.processor.Seconds(), s.outcome, s.name)
}
