// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/podweir/podweir/e2e/child"
	"github.com/podweir/podweir/e2e/step"
)

// process is a program of the control plane; its output is a file in Dir.
type process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
}

// run starts a program of the control plane. It ends with this process.
func (c *Cluster) run(name string, args ...string) (err error) {
	defer step.End(&err)
	log := step.Get(os.Create(c.path(name + ".log")))
	defer func() { _ = log.Close() }()
	p := &process{name: name, cmd: exec.Command(filepath.Join(c.Components, name), args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	step.OK(child.Start(p.cmd, nil))
	go func() {
		_ = p.cmd.Wait() // SIGKILL is how it ends
		close(p.done)
	}()
	c.processes = append(c.processes, p)
	return nil
}

func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(10 * time.Second):
		return fmt.Errorf("%s does not end", p.name)
	}
}

// Eventually tries until something succeeds, and returns its last error if it
// does not in time.
func Eventually(ctx context.Context, limit time.Duration, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last error
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err // not what the end of time made of it
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %v: %w", limit, last)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
