// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package labtest gives privileged tests a lab that goes with the test.
package labtest

import (
	"testing"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/plugin/testutil"
)

// New makes a lab and closes it at the end of the test, which fails if
// something could not be removed. It skips the test without root. The test
// binary needs a TestMain that calls [lab.WorkerMain] first.
func New(tb testing.TB, opts lab.Options) *lab.Lab {
	tb.Helper()
	testutil.RequireRoot(tb)
	l, err := lab.New(tb.Context(), opts)
	if err != nil {
		tb.Fatalf("make a lab: %v", err)
	}
	tb.Cleanup(func() {
		if err := l.Close(); err != nil {
			tb.Errorf("Close() = %v, want nil", err)
		}
	})
	return l
}

// Pod makes a network with the chained plugins, and a pod of it that is
// deleted with the lab.
func Pod(tb testing.TB, l *lab.Lab, network string, opts lab.PodOptions, chained ...lab.Entry) *lab.Pod {
	tb.Helper()
	n, err := l.Network(network, chained...)
	if err != nil {
		tb.Fatalf("network %s: %v", network, err)
	}
	pod, err := n.Pod(tb.Context(), opts)
	if err != nil {
		tb.Fatalf("network %s: %v", network, err)
	}
	return pod
}

// Client makes a client namespace.
func Client(tb testing.TB, l *lab.Lab, name string) *lab.Host {
	tb.Helper()
	h, err := l.Client(name)
	if err != nil {
		tb.Fatalf("client %s: %v", name, err)
	}
	return h
}
