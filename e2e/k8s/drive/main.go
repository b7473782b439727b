// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Command drive runs a cluster for another program, which tells it by stdin what
// to do there; package e2e/orders says how. It needs root, what e2e/k8s/setup.sh
// needs, and the image of `make image`. Nothing of the cluster outlives it.
//
//	drive [-root DIR] NODE...
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/podweir/podweir/e2e/k8s/cluster"
)

func main() {
	root := flag.String("root", ".", "directory of the checkout")
	flag.Parse()
	// Who gave the orders may be gone before the answer; the cluster must not be
	// left alone for that.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := drive(ctx, *root, flag.Args(), os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "drive:", err)
		os.Exit(1)
	}
}

// drive runs the cluster until the end of in.
func drive(ctx context.Context, root string, nodes []string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	lines := make(chan []byte)
	go read(ctx, in, lines, cancel)
	dir, err := os.MkdirTemp("", "podweir-k8s-")
	if err != nil {
		return err
	}
	err = inCluster(ctx, root, dir, nodes, func(d *driver) error {
		d.lines, d.out = lines, json.NewEncoder(out)
		return d.serve(ctx)
	})
	if err != nil {
		// The logs say more.
		return fmt.Errorf("%w\nlogs are in %s", err, dir)
	}
	return os.RemoveAll(dir)
}

// errEnd is the end of the orders.
var errEnd = errors.New("end of the orders")

// read hands over lines; the end of them, also one in the middle of an order, is
// the end of the cluster.
func read(ctx context.Context, in io.Reader, lines chan<- []byte, cancel context.CancelCauseFunc) {
	scanner := bufio.NewScanner(in)
	for scanner.Scan() {
		select {
		case lines <- append([]byte(nil), scanner.Bytes()...):
		case <-ctx.Done():
			return
		}
	}
	cancel(errors.Join(errEnd, scanner.Err()))
}

// inCluster starts dockerd if need be and a cluster, and ends both after f.
func inCluster(ctx context.Context, root, dir string, nodes []string, f func(*driver) error) (err error) {
	daemon, err := cluster.StartDaemon(ctx, filepath.Join(dir, "dockerd.log"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, daemon.Stop()) }()
	o, err := cluster.Prepare(ctx, filepath.Join(root, "e2e/k8s"), filepath.Join(dir, "cluster"), nodes...)
	if err == nil {
		err = os.Mkdir(o.Dir, 0o700)
	}
	if err != nil {
		return ended(ctx, err)
	}
	c, err := cluster.Start(ctx, o)
	if err != nil {
		return ended(ctx, err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	return ended(ctx, f(&driver{cluster: c, chart: filepath.Join(root, "chart")}))
}

// ended is what an error means: none, if it is the end of the orders or a signal
// that made it.
func ended(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errEnd) || errors.Is(cause, context.Canceled) {
		return nil
	}
	return err
}
