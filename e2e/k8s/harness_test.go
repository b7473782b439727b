// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
)

var keepFiles = flag.String("files", "", "directory for the cluster's logs; a temporary one, which is removed if all goes well, if empty")

// suite is the cluster of all scenarios.
var suite struct {
	*cluster.Cluster

	tookStart time.Duration
}

func TestMain(m *testing.M) {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := runIn(ctx, m); err != nil {
		log.Fatal(err)
	}
}

// runIn runs the tests in a cluster that goes with them, also when a signal ends
// them. A test that failed is no error.
func runIn(ctx context.Context, m *testing.M) error {
	dir := *keepFiles
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "podweir-k8s-"); err != nil {
			return err
		}
	}
	o, err := cluster.Prepare(ctx, ".", dir, "n1", "n2")
	if err != nil {
		return err
	}
	began := time.Now()
	if suite.Cluster, err = cluster.Start(ctx, o); err != nil {
		return fmt.Errorf("%w\nlogs are in %s", err, dir)
	}
	suite.tookStart = time.Since(began)
	ended := make(chan int, 1)
	go func() { ended <- m.Run() }()
	code := 1
	select {
	case code = <-ended:
	case <-ctx.Done():
		err = errors.New("interrupted")
	}
	err = errors.Join(err, suite.Close())
	if code == 0 && err == nil {
		err = writeReport()
	}
	if code == 0 && err == nil && *keepFiles == "" {
		return os.RemoveAll(dir)
	}
	log.Print("logs are in ", dir)
	return err
}

// kubectl runs kubectl and returns what it wrote.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := suite.Kubectl(t.Context(), "", args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// eventually fails the test if something does not succeed in time.
func eventually(t *testing.T, limit time.Duration, what string, try func(context.Context) error) {
	t.Helper()
	if err := cluster.Eventually(t.Context(), limit, try); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// tail is the end of a long text.
func tail(text string, lines int) string {
	all := bytes.Split([]byte(strings.TrimSpace(text)), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}
