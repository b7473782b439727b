// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package suite

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

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
// after all others.
func (r *Runner) On(ctx context.Context, kernels []string, binaries, alone []Binary) ([]Results, error) {
	// A machine's processes die with the thread that started them.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all := make([]Results, len(kernels))
	for i, name := range kernels {
		var err error
		if all[i], err = about(ctx, name, r.Progress); err != nil {
			return nil, err
		}
	}
	for _, rest := range [][]Binary{binaries, alone} {
		for i := range all {
			for rest := rest; len(rest) > 0; {
				parts, err := r.boot(ctx, &all[i], rest)
				if err != nil {
					return all, err
				}
				for _, p := range parts {
					maps.Copy(all[i].Tests, p.Tests)
					all[i].Troubles = append(all[i].Troubles, p.Troubles...)
				}
				rest = rest[len(parts):]
			}
		}
	}
	return all, nil
}

// boot runs binaries on a machine of their own. It returns the results of those that
// began, at least of the first.
func (r *Runner) boot(ctx context.Context, kernel *Results, binaries []Binary) ([]Results, error) {
	out, complaints, runErr := machine(ctx, kernel, r.Timeout, append(slices.Clone(r.Env), mark.EnvGuest+"=1"), r.script(binaries))
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err := os.MkdirAll(r.Logs, 0o755); err != nil {
		return nil, err
	}
	var parts []Results
	for i, s := range sections(out, len(binaries)) {
		b := &binaries[i]
		log := filepath.Join(r.Logs, kernel.Kernel+"_"+filepath.Base(b.Path)+".log")
		if err := os.WriteFile(log, []byte(s.text), 0o644); err != nil {
			return nil, err
		}
		tests, err := Parse(ctx, s.text, b.Package)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", log, err)
		}
		part := Results{Tests: tests, Troubles: troubles(b, log, tests, &s, runErr)}
		if i == 0 {
			for _, c := range complaints {
				part.Troubles = append(part.Troubles, "the kernel complained: "+c)
			}
		}
		if err := r.report(kernel.Kernel, b, &part, &s); err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// report writes a line about a binary, and the output of one that failed.
func (r *Runner) report(kernel string, b *Binary, part *Results, s *section) error {
	fmt.Fprintf(r.Progress, "%s: %s: %d passed, %d failed, %d skipped in %d s\n",
		kernel, b.Package, part.count(Pass), part.count(Fail), part.count(Skip), s.seconds)
	if s.status == 0 {
		return nil
	}
	return writeInteresting(r.Progress, s.text)
}

// The script of a machine writes these lines before and after each binary.
const (
	beginLine = "=== BINARY "
	endLine   = "=== STATUS "
)

// script is what a machine runs: one binary after the other, whatever comes of each. The
// console gets their names, too: what the kernel complains of stands behind one.
func (r *Runner) script(binaries []Binary) string {
	// The tests give up before the machine is killed, and say where they are.
	timeout := r.Timeout - r.Timeout/10
	var text strings.Builder
	for i := range binaries {
		b := &binaries[i]
		fmt.Fprintf(&text, "printf '\n%s%%d\n' %d; echo '<4>%s%s' >/dev/kmsg; cd %s; SECONDS=0\n",
			beginLine, i, beginMark, b.Package, quote(b.Dir))
		fmt.Fprintf(&text, "%s -test.v -test.run=%s -test.timeout=%v 2>&1; printf '\n%s%%d %%d\n' $? $SECONDS\n",
			quote(b.Path), quote(cmp.Or(b.Run, r.Run)), timeout, endLine)
	}
	return text.String()
}

// section is the output of one binary.
type section struct {
	text string
	// status is its exit status, -1 if it did not end, and seconds is how long it took.
	status, seconds int
}

// sections takes the output of a machine with so many binaries apart: those that began,
// at least the first.
func sections(output string, binaries int) []section {
	all := []section{{status: -1}}
	at := &all[0]
	var text strings.Builder
	for line := range strings.Lines(output) {
		var n int
		if _, err := fmt.Sscanf(line, beginLine+"%d", &n); err == nil {
			if n == len(all) && n < binaries {
				at.text = text.String()
				text.Reset()
				all = append(all, section{status: -1})
				at = &all[n]
			}
			continue
		}
		if _, err := fmt.Sscanf(line, endLine+"%d %d", &n, &at.seconds); err == nil {
			at.status = n
			continue
		}
		text.WriteString(line)
	}
	at.text = text.String()
	return all
}

// troubles are what went wrong with a binary besides its tests.
func troubles(b *Binary, log string, tests map[TestID]Test, s *section, runErr error) []string {
	ran := Results{Tests: tests}
	switch {
	case s.status < 0 && runErr != nil:
		return []string{fmt.Sprintf("%s: %v", b.Package, runErr)}
	case s.status < 0:
		return []string{fmt.Sprintf("%s did not end: see %s", b.Package, log)}
	case s.status != 0 && ran.count(Fail) == 0:
		return []string{fmt.Sprintf("%s ended with status %d and no failed test: see %s", b.Package, s.status, log)}
	case len(tests) == 0:
		return []string{fmt.Sprintf("%s ran no test: see %s", b.Package, log)}
	}
	return nil
}

// writeInteresting writes a log without the lines of tests that began or
// passed.
func writeInteresting(w io.Writer, log string) error {
	for line := range strings.Lines(log) {
		if strings.HasPrefix(line, "=== RUN") || strings.HasPrefix(strings.TrimSpace(line), "--- PASS") {
			continue
		}
		if _, err := io.WriteString(w, line); err != nil {
			return err
		}
	}
	return nil
}
