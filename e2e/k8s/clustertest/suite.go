// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package clustertest is what tests in a cluster share, whichever primary CNI the
// cluster has.
package clustertest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/podweir/podweir/e2e/k8s/cluster"
)

var keepFiles = flag.String("files", "", "directory for the cluster's logs; a temporary one, which is removed if all goes well, if empty")

// Suite is the cluster of all tests of a package.
type Suite struct {
	*cluster.Cluster

	// Start makes the cluster; dir takes its files.
	Start func(ctx context.Context, dir string) (*cluster.Cluster, error)
	// Chart is the directory of podweir's chart, and Values the name of the values that
	// releases have.
	Chart, Values string
}

// Main runs the tests, and ends the cluster with them, also when a signal ends
// them. It is for TestMain.
func (s *Suite) Main(m *testing.M) {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := s.run(ctx, m)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func (s *Suite) run(ctx context.Context, m *testing.M) error {
	dir := *keepFiles
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "podweir-k8s-"); err != nil {
			return err
		}
	}
	var err error
	if s.Cluster, err = s.Start(ctx, dir); err == nil {
		ended := make(chan int, 1)
		go func() { ended <- m.Run() }()
		select {
		case code := <-ended:
			if code != 0 {
				err = errors.New("some tests failed")
			}
		case <-ctx.Done():
			err = errors.New("interrupted")
		}
		err = errors.Join(err, s.Close())
	}
	if err != nil {
		return fmt.Errorf("%w\nlogs are in %s", err, dir)
	}
	if *keepFiles != "" {
		return nil
	}
	return os.RemoveAll(dir)
}
