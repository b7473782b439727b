// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Command bench measures what podweir promises in numbers and writes
// bench.json and a page for docs/results. It needs root, the binaries of
// `make build refplugins` and a machine with nothing else to do: it says how
// busy it was.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/podweir/podweir/e2e/lab"
)

// section is one group of measurements.
type section struct {
	name string
	run  func(context.Context, *report) error
}

var sections = []section{
	{"add", benchAdd},
	{"rss", benchRSS},
	{"memory", benchMemory},
	{"programs", benchPrograms},
	{"caps", benchCaps},
	{"kept", benchKept},
	{"retransmits", benchRetransmits},
}

type options struct {
	only, json, page string
	keep             bool
}

func main() {
	if lab.WorkerMain() {
		return
	}
	var opts options
	var names []string
	for _, s := range sections {
		names = append(names, s.name)
	}
	flag.StringVar(&opts.only, "only", strings.Join(names, ","), "sections to run")
	flag.StringVar(&opts.json, "json", "bench.json", "file for the results as JSON")
	flag.BoolVar(&opts.keep, "keep", false, "keep the other sections of the JSON file, to measure some again")
	flag.StringVar(&opts.page, "page", "", "file for the results as Markdown; none if empty")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, &opts)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, opts *options) error {
	restore, err := lab.GoFirst()
	if err != nil {
		return err
	}
	defer restore()
	machine, err := readMachine(ctx)
	if err != nil {
		return err
	}
	rep := &report{Machine: *machine}
	if opts.keep {
		if err := rep.load(opts.json); err != nil {
			return err
		}
	}
	only := strings.Split(opts.only, ",")
	var errs []error
	for _, s := range sections {
		if !slices.Contains(only, s.name) {
			continue
		}
		began := time.Now()
		load := loadAverage()
		fmt.Fprintf(os.Stderr, "== %s (load %s)\n", s.name, load)
		rep.begin(s.name)
		if err := s.run(ctx, rep); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
			if ctx.Err() != nil {
				break
			}
		}
		rep.Sections = append(rep.Sections, sectionInfo{
			Name: s.name, LoadBefore: load, LoadAfter: loadAverage(),
			Seconds: time.Since(began).Seconds(),
		})
	}
	if err := rep.write(opts); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
