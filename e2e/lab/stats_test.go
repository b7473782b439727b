// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/testutil/must"
)

func TestQuantile(t *testing.T) {
	var hundred []int
	for i := range 100 {
		hundred = append(hundred, i+1)
	}
	for name, tc := range map[string]struct {
		in   []int
		q    float64
		want int
	}{
		"nothing":                         {nil, 0.5, 0},
		"one element is every quantile":   {[]int{7}, 0.99, 7},
		"median of two is the lower":      {[]int{1, 2}, 0.5, 1},
		"p99 of a hundred is the 99th":    {hundred, 0.99, 99},
		"p99 of 101 is above 99 %":        {append(slices.Clone(hundred), 101), 0.99, 100},
		"0 is the smallest":               {hundred, 0, 1},
		"1 is the largest":                {hundred, 1, 100},
		"below the range is the smallest": {hundred, -1, 1},
		"above the range is the largest":  {hundred, 2, 100},
	} {
		if got := Quantile(tc.in, tc.q); got != tc.want {
			t.Errorf("%s: Quantile(%v) = %v, want %v", name, tc.q, got, tc.want)
		}
	}
}

func TestWorstIsTheSlowestOfAllRuns(t *testing.T) {
	var first, second recorder
	first.addDue(1*time.Second, 3*time.Millisecond, nil)
	first.addDue(2*time.Second, 9*time.Millisecond, nil)
	first.addDue(3*time.Second, 4*time.Millisecond, nil)
	second.addDue(7*time.Second, 5*time.Millisecond, nil)
	got := Merge(first.result(time.Second), second.result(time.Second)).Worst
	if want := (Request{Due: 2 * time.Second, Took: 9 * time.Millisecond}); got != want {
		t.Errorf("Worst %+v, want %+v", got, want)
	}
}

func TestLatenciesCountFailures(t *testing.T) {
	var rec recorder
	rec.add(3*time.Millisecond, nil)
	rec.add(time.Second, os.ErrDeadlineExceeded)
	rec.add(time.Millisecond, nil)
	got := rec.result(2 * time.Second)
	want := &Latencies{
		Samples: []time.Duration{time.Millisecond, 3 * time.Millisecond, time.Second},
		Errors:  map[string]int{"timeout": 1}, Elapsed: 2 * time.Second,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	if rate := got.PerSecond(); rate != 1 {
		t.Errorf("PerSecond() = %v, want 1: a failure is no response", rate)
	}
	if p99 := got.Quantile(0.99); p99 != time.Second {
		t.Errorf("Quantile(0.99) = %v, want the 1s until the request was given up", p99)
	}
}

func TestReasonHasNoPorts(t *testing.T) {
	refused := errors.New("connection refused")
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"deadline":       {fmt.Errorf("get: %w", os.ErrDeadlineExceeded), "timeout"},
		"wrapped reset":  {fmt.Errorf("read 10.0.0.1:4711: %w", io.ErrUnexpectedEOF), "unexpected EOF"},
		"operation only": {&net.OpError{Op: "dial", Err: refused}, "connection refused"},
	} {
		if got := reason(tc.err); got != tc.want {
			t.Errorf("%s: reason = %q, want %q", name, got, tc.want)
		}
	}
}

func TestMeminfo(t *testing.T) {
	const text = "MemTotal: 100 kB\nSlab:   12 kB\nVmallocUsed: 3 kB\nSReclaimable: 9 kB\nPageTables: 7 kB\nPercpu: 1 kB\n"
	got, err := parseMeminfo(text)
	must.OK(t, err)
	if want := (Memory{Slab: 12 << 10, Vmalloc: 3 << 10, PerCPU: 1 << 10, PageTables: 7 << 10}); got != want {
		t.Errorf("parseMeminfo = %+v, want %+v", got, want)
	}
	if got.Total() != 16<<10 {
		t.Errorf("Total() = %d, want %d", got.Total(), 16<<10)
	}
	for name, bad := range map[string]string{
		"no Percpu":     "Slab: 1 kB\nVmallocUsed: 1 kB\nPageTables: 1 kB\n",
		"no PageTables": "Slab: 1 kB\nVmallocUsed: 1 kB\nPercpu: 1 kB\n",
		"not a number":  "Slab: x kB\nVmallocUsed: 1 kB\nPageTables: 1 kB\nPercpu: 1 kB\n",
	} {
		if _, err := parseMeminfo(bad); err == nil {
			t.Errorf("%s: parseMeminfo = nil error, want an error", name)
		}
	}
}

func TestOwnerOfAName(t *testing.T) {
	for name, want := range map[string]bool{
		fmt.Sprintf("pwlab%d-ab12-node", os.Getpid()): true,
		"pwlab4194305-ab12-node":                      false, // above the kernel's largest process ID
		"pwlab-node":                                  true,
		"pwlabx-node":                                 true,
		"somebody":                                    true,
		"pwlab0-node":                                 true,
		"pwlab-1-node":                                true,
	} {
		if got := ownerAlive(name); got != want {
			t.Errorf("ownerAlive(%q) = %v, want %v", name, got, want)
		}
	}
}
