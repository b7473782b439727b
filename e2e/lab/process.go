// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/podweir/podweir/e2e/child"
	"github.com/podweir/podweir/e2e/step"
)

// process is a child inside a namespace. It dies with the lab and with the program, and a
// Ctrl-C at the terminal does not reach it.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout bytes.Buffer
	stderr bytes.Buffer
	done   chan struct{}
	err    error
	lab    *Lab
	closer *closer
}

// startProcess runs a program in the host's namespace. stdout, if not nil, is
// given its output instead of the buffer. The process is killed when the lab
// closes or ctx ends.
func (l *Lab) startProcess(ctx context.Context, h *Host, stdout *os.File, name string, args ...string) (_ *process, err error) {
	defer step.End(&err)
	p := &process{cmd: exec.CommandContext(ctx, name, args...), done: make(chan struct{}), lab: l}
	p.cmd.WaitDelay = time.Second
	p.cmd.Stderr = &p.stderr
	p.cmd.Stdout = &p.stdout
	if stdout != nil {
		p.cmd.Stdout = stdout
	}
	p.stdin = step.Get(p.cmd.StdinPipe())
	step.Say(child.Start(p.cmd, h.Netns.NetNS), "start %s in %s", name, h.Name)
	p.closer = l.onClose("process "+name, func(context.Context) error { return p.kill() })
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// wait returns when the process has ended, with its error and what it wrote
// to stderr.
func (p *process) wait(ctx context.Context) error {
	select {
	case <-p.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	// It is gone: forget it, so that a long-lived lab does not pile up closers.
	_ = p.lab.closeNow(ctx, p.closer)
	if p.err != nil {
		return fmt.Errorf("%s: %w: %s", p.cmd.Path, p.err, bytes.TrimSpace(p.stderr.Bytes()))
	}
	return nil
}

// running says whether the process has not ended yet.
func (p *process) running() bool { return !closed(p.done) }

// signal sends a signal; a process that is gone is no error.
func (p *process) signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

func (p *process) kill() error {
	if !p.running() {
		return nil
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}
