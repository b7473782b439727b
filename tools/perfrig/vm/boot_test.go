// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package vm

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

// started are the processes that this one has started and that still run, by
// their command lines.
func started(t *testing.T) []string {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, file := range tasks {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		for pid := range strings.FieldsSeq(string(raw)) {
			if line, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline")); err == nil {
				out = append(out, string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
			}
		}
	}
	return out
}

func directories(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	found, err := filepath.Glob(filepath.Join(os.TempDir(), "perfrig-vm-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		out[f] = true
	}
	return out
}

// cell is one of the profile.
func cell(t *testing.T, id string) *spec.Run {
	t.Helper()
	s, err := spec.Profile("loads")
	if err != nil {
		t.Fatal(err)
	}
	cells, _ := s.Cells()
	for i := range cells {
		if cells[i].ID() == id {
			return &spec.Run{Cell: cells[i]}
		}
	}
	t.Fatalf("profile loads has no cell %s", id)
	return nil
}

// TestPrivilegedRunAndInterrupt takes samples under a qdisc that small kernels
// lack, is interrupted in the next, and leaves nothing behind.
func TestPrivilegedRunAndInterrupt(t *testing.T) {
	s, err := New(root, "6.12")
	if err != nil {
		t.Fatal(err)
	}
	before := directories(t)
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if left := started(t); len(left) > 0 {
			t.Errorf("still running: %q", left)
		}
		for dir := range directories(t) {
			if !before[dir] {
				t.Errorf("%s is left", dir)
			}
		}
	}()
	// The second is taken by the same machine.
	for _, direction := range []string{"egress", "ingress"} {
		take(t, s, direction)
	}
	r := cell(t, "load-call-03-cubic-1-egress/10M/cake")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	began := time.Now()
	err = s.Run(ctx, r, &record.Sample{})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("interrupted Run = %v, want %v", err, context.DeadlineExceeded)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it ended after %v", took)
	}
}

// take takes a sample under cake.
func take(t *testing.T, s *Substrate, direction string) {
	t.Helper()
	r := cell(t, "load-call-03-cubic-1-"+direction+"/10M/cake")
	if why, err := s.Unavailable(t.Context(), &r.Cell); why != "" || err != nil {
		t.Fatalf("Unavailable = %q, %v", why, err)
	}
	into := &record.Sample{}
	if err := s.Run(t.Context(), r, into); err != nil {
		t.Fatal(err)
	}
	used, worst := into.Metrics[direction+"_used_share"], into.Metrics[direction+"_worst_second_share"]
	t.Logf("%s: used %.3f, worst second %.3f", direction, used, worst)
	// Cake holds the pod, and traffic passes: no more is asked of machines that
	// are emulated on a busy one, which may let them wait for seconds.
	if worst < 0.01 || used > 1.1 {
		t.Errorf("%s: used %.3f of the cap, worst second %.3f", direction, used, worst)
	}
}
