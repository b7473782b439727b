// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Command queues proves podweir's queues with real traffic: every kind in
// every place, on the kernel that it runs on, or on those of tools/vmrig.
//
//	queues -k 6.1,6.12,newest,host -json docs/results/D-queues.json -page docs/results/D-queues.md
//	queues -json docs/results/D-queues.json -page docs/results/D-queues.md
//	queues -measure caps10
//
// The first measures and merges into the file, the second writes the page
// again from it, the third prints what it measures here as JSON, an object in a
// line. All but the second need root, and the binaries of `make build
// refplugins`; kernels need bin/vmrig and its `setup`.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/podweir/podweir/e2e/lab"
)

type options struct {
	kernels, groups, json, page, measure string
	timeout                              time.Duration
}

func main() {
	if lab.WorkerMain() {
		return
	}
	var o options
	flag.StringVar(&o.kernels, "k", "", "kernels of tools/vmrig, or \"host\" for this machine's own; with commas")
	flag.StringVar(&o.groups, "only", usual(), "groups of measurements, of "+strings.Join(groupNames(), ", "))
	flag.StringVar(&o.json, "json", "queues.json", "file with the results")
	flag.StringVar(&o.page, "page", "", "file for the results as Markdown; none if empty")
	flag.StringVar(&o.measure, "measure", "", "measure these groups here and print them")
	flag.DurationVar(&o.timeout, "timeout", 10*time.Minute, "for each group of each kernel")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, &o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "queues:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o *options) error {
	if o.measure != "" {
		return measureHere(ctx, strings.Split(o.measure, ","), os.Stdout)
	}
	r, err := readResults(o.json)
	if err != nil {
		return err
	}
	var errs []error
	if o.kernels != "" {
		for kernel := range strings.SplitSeq(o.kernels, ",") {
			for group := range strings.SplitSeq(o.groups, ",") {
				got, err := measureOn(ctx, kernel, group, o.timeout)
				if err != nil {
					// What was measured before it is kept beside what there was.
					errs = append(errs, fmt.Errorf("%s, %s: %w", kernel, group, err))
				} else {
					r.drop(kernel, group)
				}
				r.merge(got)
				if err := r.write(o.json); err != nil {
					return err
				}
			}
		}
	}
	if o.page != "" {
		errs = append(errs, os.WriteFile(o.page, r.page(), 0o644))
	}
	return errors.Join(errs...)
}

// measureHere runs groups on this kernel and writes each row when it is there.
func measureHere(ctx context.Context, names []string, w io.Writer) error {
	out := json.NewEncoder(w)
	var errs []error
	for _, name := range names {
		g := groupNamed(name)
		if g == nil {
			return fmt.Errorf("no group %q, there are %s", name, strings.Join(groupNames(), ", "))
		}
		if err := measureGroup(ctx, g, func(r row) error { return out.Encode(r) }); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
