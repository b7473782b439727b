// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/tools/perfrig/stats"
)

// freshBoot runs a plugin where nothing is pinned and nothing was probed yet: with a
// bpffs and a state directory that are this process's alone, and go with it. What is
// before the exec is not measured.
const freshBoot = `mkdir -p /run/podweir
mount -t bpf none /sys/fs/bpf
mount -t tmpfs none /run/podweir
echo >&4
read -r go <&3
exec "$0" 3<&- 4>&-`

// addFirst times the first ADD of a boot, again and again. The pods' devices go with
// the lab, and what is on them.
func (r *run) addFirst(ctx context.Context, l *lab.Lab) error {
	calls, err := r.makePods(ctx, l, "first", peaks)
	if err != nil {
		return err
	}
	var took []float64
	for _, call := range calls {
		d, err := call.first(ctx)
		if err != nil {
			return err
		}
		took = append(took, millis(d))
	}
	r.set("add_first_p50_ms", stats.Summarise(took).Median)
	return nil
}

// first executes ADD as the first of a boot.
func (i *invocation) first(ctx context.Context) (took time.Duration, err error) {
	goRead, goWrite, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	readyRead, readyWrite, err := os.Pipe()
	if err != nil {
		return 0, errors.Join(err, goRead.Close(), goWrite.Close())
	}
	defer func() { err = errors.Join(err, goWrite.Close(), readyRead.Close()) }()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "sh", "-ec", freshBoot, i.bin)
	cmd.Env = append(slices.Clone(i.env), "CNI_COMMAND=ADD")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(i.stdin), &stdout, &stderr
	cmd.ExtraFiles = []*os.File{goRead, readyWrite}
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	err = i.node.Do(cmd.Start)
	if err = errors.Join(err, goRead.Close(), readyWrite.Close()); err != nil {
		return 0, err
	}
	// An end of file means that the shell has ended, which Wait tells.
	_, _ = readyRead.Read(make([]byte, 1))
	began := time.Now()
	_, _ = goWrite.WriteString("\n")
	err = cmd.Wait()
	return time.Since(began), i.shaped(err, "ADD", &stdout, &stderr)
}
