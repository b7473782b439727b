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
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/plugin/testutil/must"
)

var keepFiles = flag.String("files", "", "directory for the cluster's logs; a temporary one, which is removed if all goes well, if empty")

// Suite is the cluster of all tests of a package.
type Suite struct {
	*cluster.Cluster

	// Start makes the cluster; dir takes its files.
	Start func(ctx context.Context, dir string) (*cluster.Cluster, error)
	// Lazy leaves the start to the first [Suite.Need]: the package has tests that
	// need no cluster.
	Lazy bool
	// Stop ends what runs beside the cluster; it may be nil.
	Stop func() error

	// Took is how long the start took.
	Took time.Duration

	dir  string
	once sync.Once
	err  error
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
	if !s.Lazy {
		if err := s.start(ctx); err != nil {
			return s.with(err)
		}
	}
	ended := make(chan int, 1)
	go func() { ended <- m.Run() }()
	var err error
	select {
	case code := <-ended:
		if code != 0 {
			err = errors.New("some tests failed")
		}
	case <-ctx.Done():
		err = errors.New("interrupted")
	}
	if s.Cluster != nil {
		if s.Stop != nil {
			err = errors.Join(err, s.Stop())
		}
		err = errors.Join(err, s.Close())
	}
	if err == nil && *keepFiles == "" && s.dir != "" {
		return os.RemoveAll(s.dir)
	}
	return s.with(err)
}

// with says where the logs are.
func (s *Suite) with(err error) error {
	if err == nil || s.dir == "" {
		return err
	}
	return fmt.Errorf("%w\nlogs are in %s", err, s.dir)
}

// Need starts the cluster if that has not happened yet.
func (s *Suite) Need(t *testing.T) {
	t.Helper()
	// The cluster outlives the test.
	must.OK(t, s.start(context.WithoutCancel(t.Context())))
}

func (s *Suite) start(ctx context.Context) error {
	s.once.Do(func() {
		s.dir = *keepFiles
		if s.dir == "" {
			if s.dir, s.err = os.MkdirTemp("", "podweir-k8s-"); s.err != nil {
				return
			}
		}
		began := time.Now()
		s.Cluster, s.err = s.Start(ctx, s.dir)
		s.Took = time.Since(began)
	})
	return s.err
}
