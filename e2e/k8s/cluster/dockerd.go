// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Daemon is the dockerd of a cluster.
type Daemon struct {
	cmd    *exec.Cmd // nil: it ran before
	done   chan struct{}
	bridge bool // docker0 was there before
}

// defaultBridge is the device that dockerd makes and leaves.
const defaultBridge = "docker0"

// StartDaemon starts dockerd if it does not run; log is the file for its output.
// Its rules of netfilter are needed: an earlier one may have left the policy to
// forward nothing, and bridges obey it.
func StartDaemon(ctx context.Context, log string) (*Daemon, error) {
	if dockerRuns(ctx) == nil {
		return &Daemon{}, nil
	}
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	_, noBridge := net.InterfaceByName(defaultBridge)
	d := &Daemon{
		cmd: exec.Command("dockerd"), done: make(chan struct{}), bridge: noBridge == nil,
	}
	d.cmd.Stdout, d.cmd.Stderr = out, out
	// Without a signal for the death of this process: each of its threads would
	// give one, and the third makes dockerd leave its containers behind.
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = d.cmd.Wait() // a signal is how it ends
		close(d.done)
	}()
	if err := Eventually(ctx, 30*time.Second, dockerRuns); err != nil {
		return nil, errors.Join(fmt.Errorf("dockerd: %w", err), d.Stop())
	}
	return d, nil
}

func dockerRuns(ctx context.Context) error {
	_, err := command(ctx, nil, "", "docker", "version")
	return err
}

// Stop ends dockerd, and removes its bridge, if StartDaemon started it. Its empty
// chains of netfilter stay, as they do wherever dockerd has run.
func (d *Daemon) Stop() error {
	if d.cmd == nil {
		return nil
	}
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-d.done:
	case <-time.After(30 * time.Second):
		return errors.New("dockerd does not end")
	}
	if d.bridge {
		return nil
	}
	if _, err := net.InterfaceByName(defaultBridge); err != nil {
		return nil //nolint:nilerr // there is none
	}
	_, err := command(context.Background(), nil, "", "ip", "link", "delete", defaultBridge)
	return err
}
