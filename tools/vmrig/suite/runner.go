// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package suite

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/tools/vmrig/vm"
)

// Runner runs test binaries on kernels.
type Runner struct {
	Cache *vm.Cache
	// Machine sizes the machines; what to run is filled in.
	Machine vm.Options
	// Machines is how many run side by side, at least 1.
	Machines int
	// Run is the pattern of the tests to run.
	Run string
	// Logs is the directory for the whole output of each binary.
	Logs string
	// Progress gets a line for each binary, and the output of one that failed.
	Progress io.Writer

	// mu guards Progress and the results of the kernels.
	mu sync.Mutex
}

// job is one binary on one kernel.
type job struct {
	binary  Binary
	results *Results
}

// On runs binaries on kernels, each on a machine of its own: what one breaks
// does not fail the next. A binary meets all kernels before the next begins,
// so that machines side by side are done with the long ones early. Those that
// measure run afterwards, one machine at a time.
func (r *Runner) On(ctx context.Context, kernels []string, binaries, alone []Binary) ([]Results, error) {
	all := make([]Results, len(kernels))
	for i, name := range kernels {
		kernel, err := vm.Named(name)
		if err != nil {
			return nil, err
		}
		release, err := r.Cache.Release(name)
		if err != nil {
			return nil, err
		}
		accel, err := r.Cache.Accel(ctx, name, r.Machine.Accel, r.Progress)
		if err != nil {
			return nil, err
		}
		all[i] = Results{Kernel: name, Release: release, Accel: accel, Lacks: kernel.Lacks, Tests: map[TestID]Test{}}
	}
	if err := r.work(ctx, r.Machines, jobsOf(binaries, all)); err != nil {
		return all, err
	}
	return all, r.work(ctx, 1, jobsOf(alone, all))
}

func jobsOf(binaries []Binary, all []Results) <-chan job {
	jobs := make(chan job, len(all)*len(binaries))
	for _, b := range binaries {
		for i := range all {
			jobs <- job{b, &all[i]}
		}
	}
	close(jobs)
	return jobs
}

// work does jobs on as many machines at once as it is told, at least 1.
func (r *Runner) work(ctx context.Context, machines int, jobs <-chan job) error {
	ended := make([]error, max(machines, 1))
	var group sync.WaitGroup
	for i := range ended {
		group.Go(func() {
			// A machine's processes die with the thread that started them.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for j := range jobs {
				if ended[i] = r.one(ctx, j); ended[i] != nil {
					return
				}
			}
		})
	}
	group.Wait()
	return errors.Join(ended...)
}

// one runs one binary and adds what came of it to the results. The tests that fail run
// once more, as gotestsum does it on this machine's own kernel.
func (r *Runner) one(ctx context.Context, j job) error {
	part, err := r.boot(ctx, j, cmp.Or(j.binary.Run, r.Run), ".log")
	if err != nil {
		return err
	}
	if names := part.failed(); len(names) > 0 && len(names) <= mostAgain && len(part.Troubles) == 0 {
		again, err := r.boot(ctx, j, exactly(names), ".again.log")
		if err != nil {
			return err
		}
		maps.Copy(part.Tests, again.Tests)
		part.Again, part.Troubles = names, again.Troubles
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	j.results.add(&part)
	return nil
}

// boot runs those tests of a binary that match a pattern, on a machine of their own.
func (r *Runner) boot(ctx context.Context, j job, pattern, suffix string) (Results, error) {
	o := r.Machine
	var out bytes.Buffer
	o.Kernel, o.Accel, o.Dir, o.Stdout, o.Stderr = j.results.Kernel, j.results.Accel, j.binary.Dir, &out, &out
	o.Env = append(slices.Clone(o.Env), mark.EnvGuest+"=1")
	// The tests give up first, and say where they are.
	grace := o.Timeout / 10
	o.Args = []string{j.binary.Path, "-test.v", "-test.run=" + pattern, "-test.timeout=" + (o.Timeout - grace).String()}
	start := time.Now()
	result, runErr := r.Cache.Run(ctx, o)
	if ctx.Err() != nil {
		return Results{}, ctx.Err()
	}
	log := filepath.Join(r.Logs, o.Kernel+"_"+filepath.Base(j.binary.Path)+suffix)
	if err := os.MkdirAll(r.Logs, 0o755); err != nil {
		return Results{}, err
	}
	if err := os.WriteFile(log, out.Bytes(), 0o644); err != nil {
		return Results{}, err
	}
	tests, err := Parse(bytes.NewReader(out.Bytes()), j.binary.Package)
	if err != nil {
		return Results{}, fmt.Errorf("read %s: %w", log, err)
	}
	part := Results{Tests: tests, Troubles: troubles(j.binary, log, tests, &result, runErr)}
	if runErr == nil {
		part.Overheads = []time.Duration{result.Overhead}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.Progress, "%s: %s: %d passed, %d failed, %d skipped in %.0f s\n",
		o.Kernel, j.binary.Package, part.count(Pass), part.count(Fail), part.count(Skip), time.Since(start).Seconds())
	if runErr != nil || result.Status != 0 {
		return part, writeInteresting(r.Progress, &out)
	}
	return part, nil
}

// troubles are what went wrong with a binary besides its tests.
func troubles(b Binary, log string, tests map[TestID]Test, result *vm.Result, runErr error) []string {
	var all []string
	for _, c := range result.Complaints {
		all = append(all, fmt.Sprintf("%s: the kernel complained: %s", b.Package, c))
	}
	ran := Results{Tests: tests}
	switch {
	case runErr != nil:
		all = append(all, fmt.Sprintf("%s: %v", b.Package, runErr))
	case result.Status != 0 && ran.count(Fail) == 0:
		all = append(all, fmt.Sprintf("%s ended with status %d and no failed test: see %s", b.Package, result.Status, log))
	case len(tests) == 0:
		all = append(all, fmt.Sprintf("%s ran no test: see %s", b.Package, log))
	}
	return all
}

// writeInteresting writes a log without the lines of tests that began or
// passed.
func writeInteresting(w io.Writer, log io.Reader) error {
	data, err := io.ReadAll(log)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "=== RUN") || strings.HasPrefix(strings.TrimSpace(line), "--- PASS") {
			continue
		}
		if _, err := io.WriteString(w, line); err != nil {
			return err
		}
	}
	return nil
}
