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
	"strings"
	"syscall"

	"github.com/podweir/podweir/e2e/matrix/row"
	"github.com/podweir/podweir/e2e/matrix/scenario"
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
	err := run(ctx, &o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o *options) error {
	m, err := row.Parse(rows)
	if err != nil {
		return fmt.Errorf("matrix.yaml: %w", err)
	}
	if o.list {
		list(m)
		return nil
	}
	if o.outdated {
		if err := outdated(ctx, o); err != nil || o.page == "" {
			return err
		}
	}
	if o.render || o.outdated {
		return writePage(m, nil, o.page)
	}
	chosen, err := m.Select(o.fast, o.rows...)
	if err != nil {
		return err
	}
	if o.plan {
		return dryRun(ctx, chosen)
	}
	return runRows(ctx, o, chosen, func(r row.Result) error {
		if o.page == "" {
			return nil
		}
		return writePage(m, []row.Result{r}, o.page)
	})
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
func dryRun(ctx context.Context, chosen []*row.Row) error {
	for _, r := range chosen {
		lack, err := lacks(ctx, r.Kernel)
		if err != nil {
			return err
		}
		if lack != "" {
			fmt.Printf("%s: the kernel lacks %s\n", r.Name, lack)
			continue
		}
		steps, err := plan(r)
		if err != nil {
			return err
		}
		fmt.Printf("%s:\n  %s\n", r.Name, strings.Join(steps, "\n  "))
	}
	return nil
}

// plan are the steps of a row with the reasons of those that are left out.
func plan(r *row.Row) ([]string, error) {
	run, err := newRun(r)
	if err != nil {
		return nil, err
	}
	var out []string
	steps := scenario.Steps(r)
	for name := range r.Skip {
		found := false
		for _, s := range steps {
			found = found || s.Name == name
		}
		if !found {
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
func writePage(m *row.Matrix, results []row.Result, page string) error {
	file := strings.TrimSuffix(page, filepath.Ext(page)) + ".json"
	var old []row.Result
	raw, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(raw, &old)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	all := m.Merge(old, results)
	if raw, err = encode(all); err != nil {
		return err
	}
	neighbours, err := readPins(page)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(page)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return errors.Join(os.WriteFile(file, raw, 0o644), os.WriteFile(page, []byte(m.Page(string(text), all, neighbours)), 0o644))
}

// encode has a line for each result and one for each step.
func encode(all []row.Result) ([]byte, error) {
	lines := []string{}
	for _, r := range all {
		steps := make([]string, len(r.Steps))
		for i := range r.Steps {
			step, err := json.Marshal(&r.Steps[i])
			if err != nil {
				return nil, err
			}
			steps[i] = "\n  " + string(step)
		}
		r.Steps = []row.Step{}
		head, err := json.Marshal(&r)
		if err != nil {
			return nil, err
		}
		lines = append(lines, " "+strings.TrimSuffix(string(head), "]}")+strings.Join(steps, ",")+"]}")
	}
	return []byte("[\n" + strings.Join(lines, ",\n") + "\n]\n"), nil
}
