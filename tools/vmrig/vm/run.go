// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Options say what to run and on what machine.
type Options struct {
	// Kernel is the name of one of Kernels.
	Kernel string
	// Accel is what runs the machine's processors; "" is AccelAuto.
	Accel Accel
	// CPUs and MemMiB size the machine. One processor keeps time best where
	// the host has few.
	CPUs, MemMiB int
	// Devices are further arguments of qemu, such as a network device.
	Devices []string
	// Timeout bounds boot, command and power-off together.
	Timeout time.Duration
	// Args is the command; Dir and Env are where and with what it runs.
	Args []string
	Dir  string
	Env  []string
	// Stdout and Stderr get the command's output while it runs.
	Stdout, Stderr io.Writer
}

// Result is how a run ended.
type Result struct {
	// Status is the command's exit status.
	Status int
	// Complaints are lines of the console by which the kernel reports a fault
	// of its own, such as a warning with a stack trace.
	Complaints []string
}

// A HangError says that a machine did not end in time, or ended without the
// command's exit status. Console is all that it printed.
type HangError struct {
	Kernel  string
	Reason  string
	Console string
}

// Error returns the reason and the console.
func (e *HangError) Error() string {
	return fmt.Sprintf("kernel %s: %s; its console:\n%s", e.Kernel, e.Reason, e.Console)
}

// The files of a job's directory that init.sh knows, and what the machine's console printed.
// That with the exit status appears when the command has ended.
const (
	jobFile     = "job"
	stdoutFile  = "stdout"
	stderrFile  = "stderr"
	statusFile  = "status"
	consoleFile = "console"
)

// Run boots a kernel, runs one command in the host's files and powers off. The
// command may write wherever its user may: that goes to memory and is lost. A trial
// boot under KVM, if there is one, is not part of the timeout.
// It fails with a *HangError where there is no exit status to return.
func (c *Cache) Run(ctx context.Context, o Options) (Result, error) {
	var err error
	if o.Accel, err = c.Accel(ctx, o.Kernel, o.Accel, o.Stderr); err != nil {
		return Result{}, err
	}
	return c.run(ctx, o)
}

// run is Run under an accelerator that was chosen.
func (c *Cache) run(ctx context.Context, o Options) (Result, error) {
	jobs := filepath.Join(c.dir, "jobs")
	if err := os.MkdirAll(jobs, 0o755); err != nil {
		return Result{}, err
	}
	dir, err := os.MkdirTemp(jobs, o.Kernel+"-")
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := writeJob(dir, o); err != nil {
		return Result{}, err
	}

	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	output := follow(map[string]io.Writer{
		filepath.Join(dir, stdoutFile): o.Stdout,
		filepath.Join(dir, stderrFile): o.Stderr,
	})
	err = c.boot(ctx, dir, o)
	return finish(ctx, dir, o, errors.Join(err, output()))
}

// finish reads what a machine left behind.
func finish(ctx context.Context, dir string, o Options, err error) (Result, error) {
	console, readErr := os.ReadFile(filepath.Join(dir, consoleFile))
	if readErr != nil {
		console = []byte(readErr.Error())
	}
	text := strings.ReplaceAll(string(console), "\r", "")
	status, readErr := os.ReadFile(filepath.Join(dir, statusFile))
	if readErr == nil {
		// The command has ended, so what befell the machine later is no matter.
		code, err := strconv.Atoi(strings.TrimSpace(string(status)))
		return Result{Status: code, Complaints: complaints(text)}, err
	}
	hang := &HangError{Kernel: o.Kernel, Console: text, Reason: "it ended without the command's status"}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		hang.Reason = fmt.Sprintf("killed, not done within %v", o.Timeout)
	case ctx.Err() != nil:
		return Result{}, ctx.Err()
	case err != nil:
		hang.Reason = err.Error()
	}
	return Result{}, hang
}

// writeJob fills the directory that the guest mounts.
func writeJob(dir string, o Options) error {
	words := slices.Concat(o.Env, o.Args)
	for i, word := range words {
		words[i] = Quote(word)
	}
	job := "cd " + Quote(o.Dir) + " && exec env -i " + strings.Join(words, " ")
	var errs []error
	for name, text := range map[string]string{jobFile: job + "\n", stdoutFile: "", stderrFile: "", consoleFile: ""} {
		errs = append(errs, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return errors.Join(errs...)
}

// Quote makes a string a word of a shell's.
func Quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// followPause is how often output is looked for: often enough to look live.
const followPause = 100 * time.Millisecond

// follow copies what is appended to files until the function it returns is
// called, which copies the rest.
func follow(files map[string]io.Writer) (stop func() error) {
	done, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		offsets := map[string]int64{}
		tick := time.NewTicker(followPause)
		defer tick.Stop()
		for last := false; ; {
			for path, w := range files {
				n, err := copyFrom(w, path, offsets[path])
				offsets[path] += n
				if err != nil {
					ended <- err
					return
				}
			}
			if last {
				ended <- nil
				return
			}
			select {
			case <-done:
				last = true
			case <-tick.C:
			}
		}
	}()
	return func() error {
		close(done)
		return <-ended
	}
}

func copyFrom(w io.Writer, path string, offset int64) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return 0, err
	}
	return io.Copy(w, f)
}

// faultMarks begin a kernel's reports of its own faults.
var faultMarks = []string{"BUG: ", "WARNING: CPU", "Oops", "general protection fault", "UBSAN:", "KASAN:", "Kernel panic", "refcount_t: "}

// BeginMark begins what a command writes to the console (/dev/kmsg) to say what it is
// doing: a complaint then names the last of these.
const BeginMark = "vmrig begins "

func complaints(console string) []string {
	var out []string
	doing := ""
	for line := range strings.Lines(console) {
		if _, what, ok := strings.Cut(line, BeginMark); ok {
			doing = strings.TrimSpace(what) + ": "
			continue
		}
		for _, mark := range faultMarks {
			if strings.Contains(line, mark) {
				out = append(out, doing+strings.TrimSpace(line))
				break
			}
		}
	}
	return out
}
