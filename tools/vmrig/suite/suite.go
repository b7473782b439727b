// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package suite

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/podweir/podweir/tools/vmrig/vm"
)

// Binary is a package's tests, built.
type Binary struct {
	// Package is the import path, Dir where its tests run.
	Package, Dir string
	Path         string
}

// Build builds the tests of packages into dir, static, so that a guest needs
// nothing of them but the file.
func Build(ctx context.Context, dir string, packages []string) ([]Binary, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	list, err := output(ctx, "go", append([]string{"list", "-f", "{{.ImportPath}}\t{{.Dir}}"}, packages...)...)
	if err != nil {
		return nil, err
	}
	var binaries []Binary
	for line := range strings.Lines(list) {
		pkg, pkgDir, _ := strings.Cut(strings.TrimSpace(line), "\t")
		b := Binary{pkg, pkgDir, filepath.Join(dir, strings.ReplaceAll(pkg, "/", "_")+".test")}
		if _, err := output(ctx, "go", "test", "-c", "-o", b.Path, pkg); err != nil {
			return nil, err
		}
		binaries = append(binaries, b)
	}
	return binaries, nil
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, args[0], err, stderr.Bytes())
	}
	return string(out), nil
}

// Runner runs test binaries on kernels.
type Runner struct {
	Cache *vm.Cache
	// Machine sizes the machines; what to run is filled in.
	Machine vm.Options
	// Run is the pattern of the tests to run.
	Run string
	// Logs is the directory for the whole output of each binary.
	Logs string
	// Progress gets a line for each binary, and the output of one that failed.
	Progress io.Writer
}

// On runs binaries on one kernel, each on a machine of its own: what one breaks
// does not fail the next.
func (r *Runner) On(ctx context.Context, kernel string, binaries []Binary) (Results, error) {
	release, err := r.Cache.Release(kernel)
	if err != nil {
		return Results{}, err
	}
	results := Results{Kernel: kernel, Release: release, Tests: map[TestID]Test{}}
	for _, b := range binaries {
		if err := r.one(ctx, b, &results); err != nil {
			return Results{}, err
		}
	}
	return results, nil
}

// one runs one binary and adds what came of it to the results.
func (r *Runner) one(ctx context.Context, b Binary, results *Results) error {
	o := r.Machine
	var out bytes.Buffer
	o.Kernel, o.Dir, o.Stdout, o.Stderr = results.Kernel, b.Dir, &out, &out
	// The tests give up first, and say where they are.
	grace := o.Timeout / 10
	o.Args = []string{b.Path, "-test.v", "-test.run=" + r.Run, "-test.timeout=" + (o.Timeout - grace).String()}
	start := time.Now()
	result, runErr := r.Cache.Run(ctx, o)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	log := filepath.Join(r.Logs, results.Kernel+"_"+filepath.Base(b.Path)+".log")
	if err := os.MkdirAll(r.Logs, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(log, out.Bytes(), 0o644); err != nil {
		return err
	}
	tests, err := Parse(bytes.NewReader(out.Bytes()), b.Package)
	if err != nil {
		return fmt.Errorf("read %s: %w", log, err)
	}
	part := Results{Tests: tests}
	maps.Copy(results.Tests, tests)
	for _, c := range result.Complaints {
		results.Troubles = append(results.Troubles, fmt.Sprintf("%s: the kernel complained: %s", b.Package, c))
	}
	failed := runErr != nil || result.Status != 0
	switch {
	case runErr != nil:
		results.Troubles = append(results.Troubles, fmt.Sprintf("%s: %v", b.Package, runErr))
	case failed && part.count(Fail) == 0:
		results.Troubles = append(results.Troubles, fmt.Sprintf("%s ended with status %d and no failed test: see %s", b.Package, result.Status, log))
	}
	fmt.Fprintf(r.Progress, "%s: %s: %d passed, %d failed, %d skipped in %.0f s\n",
		results.Kernel, b.Package, part.count(Pass), part.count(Fail), part.count(Skip), time.Since(start).Seconds())
	if failed {
		return writeInteresting(r.Progress, &out)
	}
	return nil
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
