// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/orders"
)

// program is the driver of the cluster, below the checkout (make perf-k8s).
const program = "bin/cluster"

// closing bounds the end of a cluster: a minute for the nodes and half of one
// for dockerd.
const closing = 100 * time.Second

// driver is the process that runs the cluster.
type driver struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	replies <-chan []byte // closed at the end of the process's output
	ended   <-chan error
}

// startDriver returns when the cluster is there. It is a session of its own
// without the priority of the load generators, and a Ctrl-C at the terminal does
// not reach it.
func startDriver(ctx context.Context, root string, nodes ...string) (*driver, *orders.Cluster, error) {
	// The system call answers 20 - nice.
	now, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		return nil, nil, err
	}
	args := append([]string{"--adjustment=" + strconv.Itoa(now-20), filepath.Join(root, program), "-root", root}, nodes...)
	d := &driver{cmd: exec.Command("nice", args...)}
	d.cmd.Stderr = os.Stderr
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if d.in, err = d.cmd.StdinPipe(); err != nil {
		return nil, nil, err
	}
	// Not the command's own pipe, which its Wait would close too early.
	out, into, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	d.cmd.Stdout = into
	if err := errors.Join(d.cmd.Start(), into.Close()); err != nil {
		return nil, nil, errors.Join(err, out.Close())
	}
	replies, ended := make(chan []byte, 1), make(chan error, 1)
	d.replies, d.ended = replies, ended
	go receive(out, replies)
	go func() { ended <- d.cmd.Wait() }()
	reply, err := d.next(ctx)
	if err == nil && reply.Cluster == nil {
		err = errors.New("the driver of the cluster does not say what it runs")
	}
	if err != nil {
		return nil, nil, errors.Join(err, d.close())
	}
	return d, reply.Cluster, nil
}

// receive hands over lines until there are no more.
func receive(out io.ReadCloser, replies chan<- []byte) {
	defer close(replies)
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			_ = out.Close()
			return
		}
		replies <- line
	}
}

// do gives an order and waits for the answer. After an error of ctx no more
// orders can be given.
func (d *driver) do(ctx context.Context, o *orders.Order) (*orders.Reply, error) {
	raw, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	if _, err := d.in.Write(append(raw, '\n')); err != nil {
		return nil, fmt.Errorf("the driver of the cluster: %w", err)
	}
	return d.next(ctx)
}

func (d *driver) next(ctx context.Context) (*orders.Reply, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case line, ok := <-d.replies:
		if !ok {
			return nil, errors.New("the driver of the cluster has ended")
		}
		var reply orders.Reply
		if err := json.Unmarshal(line, &reply); err != nil {
			return nil, err
		}
		if reply.Error != "" {
			return nil, errors.New(reply.Error)
		}
		return &reply, nil
	}
}

// close ends the cluster.
func (d *driver) close() error {
	if err := d.in.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	// An answer that nobody waited for.
	go func() {
		for range d.replies {
		}
	}()
	select {
	case err := <-d.ended:
		return err
	case <-time.After(closing):
		return fmt.Errorf("the cluster's driver (process %d) does not end", d.cmd.Process.Pid)
	}
}
