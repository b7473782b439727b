// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package suite

import (
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
	"time"

	"github.com/podweir/podweir/e2e/step"
	"github.com/podweir/podweir/plugin/testutil/mark"
)

// Runner runs test binaries on kernels.
type Runner struct {
	// Timeout bounds a machine, and Env is what its tests have.
	Timeout time.Duration
	Env     []string
	// Run is the pattern of the tests to run.
	Run string
	// Logs is the directory for the whole output of each binary.
	Logs string
	// Progress gets why a kernel is emulated, a line for each binary when its machine has
	// ended, and the output of one that failed.
	Progress io.Writer
}

// On runs binaries on kernels, a machine at a time: those of a kernel one after the other on
// one machine, which is followed by another where it ends too early. Those that measure run
// after all others. It is for a [step.Run].
func (r *Runner) On(ctx context.Context, kernels []string, binaries, alone []Binary) []Results {
	// A machine's processes die with the thread that started them.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all := make([]Results, len(kernels))
	for i, name := range kernels {
		all[i] = step.Get(about(ctx, name, r.Progress))
	}
	for _, rest := range [][]Binary{binaries, alone} {
		for i := range all {
			for rest := rest; len(rest) > 0; {
				rest = rest[r.boot(ctx, &all[i], rest):]
			}
		}
	}
	return all
}

// boot runs binaries on a machine of their own, and adds what became of those that began to
// the kernel's results. It returns how many these are, at least one.
func (r *Runner) boot(ctx context.Context, kernel *Results, binaries []Binary) (began int) {
	out, complaints, runErr := machine(ctx, kernel, r.Timeout, append(slices.Clone(r.Env), mark.EnvGuest+"=1"), r.script(binaries))
	step.OK(ctx.Err())
	packages, err := Parse(strings.NewReader(out))
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) { // the machine went down in the line
		step.OK(fmt.Errorf("kernel %s: %w", kernel.Kernel, err))
	}
	step.OK(os.MkdirAll(r.Logs, 0o755))
	for _, c := range complaints {
		kernel.Troubles = append(kernel.Troubles, "the kernel complained: "+c)
	}
	for i := range binaries {
		b := &binaries[i]
		p := packages[b.Package]
		if p == nil && i > 0 {
			break
		}
		began++
		if p == nil {
			p = &Package{}
		}
		maps.Copy(kernel.Tests, p.Tests)
		log := filepath.Join(r.Logs, kernel.Kernel+"_"+filepath.Base(b.Path)+".log")
		kernel.Troubles = append(kernel.Troubles, troubles(b, log, p, runErr)...)
		step.OK(os.WriteFile(log, []byte(p.Output.String()), 0o644))
		r.report(kernel.Kernel, b, p)
	}
	return began
}

// report writes a line about a binary, and the output of one that failed, without the lines
// of tests that began or passed.
func (r *Runner) report(kernel string, b *Binary, p *Package) {
	ran := Results{Tests: p.Tests}
	fmt.Fprintf(r.Progress, "%s: %s: %d passed, %d failed, %d skipped in %.0f s\n",
		kernel, b.Package, ran.count(Pass), ran.count(Fail), ran.count(Skip), p.Seconds)
	if p.Outcome == Pass {
		return
	}
	for line := range strings.Lines(p.Output.String()) {
		if !strings.HasPrefix(line, "=== RUN") && !strings.HasPrefix(strings.TrimSpace(line), "--- PASS") {
			fmt.Fprint(r.Progress, line)
		}
	}
}

// script is what a machine runs: one binary after the other, whatever comes of each, with
// what they print as events. The console gets their names, too: what the kernel complains of
// stands behind one.
func (r *Runner) script(binaries []Binary) string {
	// The tests give up before the machine is killed, and say where they are.
	timeout := r.Timeout - r.Timeout/10
	var text strings.Builder
	for i := range binaries {
		b := &binaries[i]
		fmt.Fprintf(&text, "echo '<4>%s%s' >/dev/kmsg; cd %s\n%s -t -p %s %s -test.v=test2json -test.run=%s -test.timeout=%v\n",
			beginMark, b.Package, quote(b.Dir), quote(filepath.Join(filepath.Dir(b.Path), converter)), b.Package, quote(b.Path),
			quote(cmp.Or(b.Run, r.Run)), timeout)
	}
	return text.String()
}

// troubles are what went wrong with a binary besides its tests.
func troubles(b *Binary, log string, p *Package, runErr error) []string {
	ran := Results{Tests: p.Tests}
	switch {
	case p.Outcome == "" && runErr != nil:
		return []string{fmt.Sprintf("%s: %v", b.Package, runErr)}
	case p.Outcome == "":
		return []string{fmt.Sprintf("%s did not end: see %s", b.Package, log)}
	case p.Outcome == Fail && ran.count(Fail) == 0:
		return []string{fmt.Sprintf("%s failed without a failed test: see %s", b.Package, log)}
	case len(p.Tests) == 0:
		return []string{fmt.Sprintf("%s ran no test: see %s", b.Package, log)}
	}
	return nil
}
