// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Command matrix runs rows of the CNI matrix: podweir beside a primary CNI in a
// real Kubernetes cluster of this machine. It needs root, what e2e/k8s/setup.sh
// needs, and the image of `make image`.
//
//	matrix [-root DIR] [-fast] [-jobs N] [-list] [-dry-run] [-outdated] [-page FILE [-render]] [-logs DIR] [ROW...]
//
// ROW is a regular expression for whole names; without one, every row that can
// run here.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/podweir/podweir/e2e/matrix/row"
	"github.com/podweir/podweir/e2e/matrix/scenario"
	"github.com/podweir/podweir/e2e/step"
)

//go:embed matrix.yaml
var rows []byte

// options are the command line.
type options struct {
	root, page, logs string
	fast, list, plan bool
	// jobs is how many rows run side by side, each in a cluster of its own.
	jobs int
	// render writes the page of old results.
	render bool
	// outdated asks for the newest releases of what tests build.
	outdated bool
	rows     []string
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", ".", "directory of the checkout")
	flag.BoolVar(&o.fast, "fast", false, "only the rows of the fast tier")
	flag.IntVar(&o.jobs, "jobs", 1, "how many rows run side by side, each in a cluster of its own")
	flag.BoolVar(&o.list, "list", false, "list rows, also those that cannot run here, and run none")
	flag.BoolVar(&o.plan, "dry-run", false, "print the steps of each row and run none")
	flag.BoolVar(&o.render, "render", false, "run none, and write -page from the results beside it")
	flag.BoolVar(&o.outdated, "outdated", false, "run none, ask for the newest release of each neighbour and write them beside -page")
	flag.StringVar(&o.page, "page", "", "write the tables of this page, and the results to the .json file beside it")
	flag.StringVar(&o.logs, "logs", "", "directory for the logs of every row; if empty, a temporary one for those of rows that fail")
	flag.Parse()
	o.rows = flag.Args()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := step.Run(func() { run(ctx, &o) })
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o *options) {
	m, err := row.Parse(rows)
	step.Say(err, "matrix.yaml")
	switch {
	case o.list:
		list(m)
	case o.outdated:
		outdated(ctx, o)
		if o.page != "" {
			writePage(m, o.page)
		}
	case o.render:
		writePage(m, o.page)
	case o.plan:
		dryRun(ctx, step.Get(m.Select(o.fast, o.rows...)))
	default:
		step.OK(runRows(ctx, o, step.Get(m.Select(o.fast, o.rows...)), func(r row.Result) error {
			if o.page == "" {
				return nil
			}
			return step.Run(func() { writePage(m, o.page, r) })
		}))
	}
}

func list(m *row.Matrix) {
	for _, r := range m.Rows {
		where := r.Tier
		if r.Needs != "" {
			where = "needs a " + r.Needs
		}
		fmt.Printf("%-24s %s, %s, policy %s (%s)\n", r.Name, r.Version, r.Variant, r.Policy, where)
	}
}

// dryRun says what a run would do.
func dryRun(ctx context.Context, chosen []*row.Row) {
	for _, r := range chosen {
		if lack := step.Get(lacks(ctx, r.Kernel)); lack != "" {
			fmt.Printf("%s: the kernel lacks %s\n", r.Name, lack)
			continue
		}
		fmt.Printf("%s:\n  %s\n", r.Name, strings.Join(step.Get(plan(r)), "\n  "))
	}
}

// plan are the steps of a row with the reasons of those that are left out.
func plan(r *row.Row) (_ []string, err error) {
	defer step.End(&err)
	run := step.Get(newRun(r))
	var out []string
	steps := scenario.Steps(r)
	for name := range r.Skip {
		if !slices.ContainsFunc(steps, func(s scenario.Step) bool { return s.Name == name }) {
			return nil, fmt.Errorf("row %s skips %q, which is no step of it", r.Name, name)
		}
	}
	for _, s := range steps {
		if reason := run.Skips(&s); reason != "" {
			out = append(out, s.Name+" (skipped: "+reason+")")
		} else {
			out = append(out, s.Name)
		}
	}
	return out, nil
}

// writePage merges results into those beside the page and writes both.
func writePage(m *row.Matrix, page string, results ...row.Result) {
	file := strings.TrimSuffix(page, filepath.Ext(page)) + ".json"
	var old []row.Result
	step.OK(readJSON(file, &old))
	all := m.Merge(old, results)
	text, err := os.ReadFile(page)
	if !errors.Is(err, os.ErrNotExist) {
		step.OK(err)
	}
	neighbours := step.Get(readPins(page))
	step.OK(os.WriteFile(file, encode(all), 0o644))
	step.OK(os.WriteFile(page, []byte(m.Page(string(text), all, neighbours)), 0o644))
}

// readJSON reads a file, if there is one.
func readJSON(file string, into any) error {
	raw, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	return err
}

// encode has a line for each result and one for each step.
func encode(all []row.Result) []byte {
	lines := []string{}
	for _, r := range all {
		steps := make([]string, len(r.Steps))
		for i := range r.Steps {
			steps[i] = "\n  " + string(step.Get(json.Marshal(&r.Steps[i])))
		}
		r.Steps = []row.Step{}
		head := string(step.Get(json.Marshal(&r)))
		lines = append(lines, " "+strings.TrimSuffix(head, "]}")+strings.Join(steps, ",")+"]}")
	}
	return []byte("[\n" + strings.Join(lines, ",\n") + "\n]\n")
}
