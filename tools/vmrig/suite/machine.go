// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// lacks are the kernels that run.sh boots, with the features, as plugin/testutil names them,
// that each is known not to have. A test that is skipped for the lack of another has found a
// fault of the rig or of the probe. 6.1 is the oldest kernel that podweir is tested on (Debian
// 12's and Amazon Linux 2023's), 6.12 has TCX and netkit, and the newest is Debian's.
var lacks = map[string][]string{
	"6.1":    {"tcx", "netkit", "bpf_redirect to an ifb"},
	"6.12":   nil,
	"newest": nil,
}

// runScript boots a machine, from the root of the repository.
const runScript = "tools/vmrig/run.sh"

// beginMark begins what a command writes to the console (/dev/kmsg) to say what it is doing:
// complaints.awk puts the last of these before a complaint of the kernel's.
const beginMark = "vmrig begins "

// rig is a call of run.sh, whose processes have ended when it has.
func rig(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, runScript, args...)
	// It gets no signal of the terminal, and ends its own processes.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	return cmd
}

// about returns a kernel with its release and what runs its processors: under KVM it is tried
// first, which takes 20 s where that hangs. Why it is emulated goes to progress.
func about(ctx context.Context, kernel string, progress io.Writer) (Results, error) {
	features, ok := lacks[kernel]
	if !ok {
		return Results{}, fmt.Errorf("kernel %q is none of 6.1, 6.12, newest", kernel)
	}
	cmd := rig(ctx, "-k", kernel, "-about")
	var stderr strings.Builder
	cmd.Stderr = io.MultiWriter(&stderr, progress)
	out, err := cmd.Output()
	if err != nil {
		return Results{}, fmt.Errorf("%w: %s", err, stderr.String())
	}
	r := Results{Kernel: kernel, Lacks: features, Tests: map[TestID]Test{}}
	_, err = fmt.Sscan(string(out), &r.Release, &r.Accel)
	return r, err
}

// machine runs a shell's script on a kernel. It returns the output, what the kernel complained
// of, and an error that has the console if the machine did not end as it should.
func machine(ctx context.Context, kernel *Results, timeout time.Duration, env []string, script string) (output string, complaints []string, err error) {
	cmd := rig(ctx, "-k", kernel.Kernel, "-accel", kernel.Accel, "-timeout", fmt.Sprintf("%.0fs", timeout.Seconds()), "--", "bash", "-c", "exec 2>&1; "+script)
	var stdout, stderr bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &stdout, &stderr
	err = cmd.Run()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, stderr.String())
	}
	return stdout.String(), complaintsOf(stderr.String()), errors.Join(err, ctx.Err())
}

// complaintsOf are what the kernel complained of, in what run.sh writes to stderr.
func complaintsOf(stderr string) (complaints []string) {
	for line := range strings.Lines(stderr) {
		if _, complaint, ok := strings.Cut(line, " complained: "); ok {
			complaints = append(complaints, strings.TrimSpace(complaint))
		}
	}
	return complaints
}

// quote makes a string a word of a shell's.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
