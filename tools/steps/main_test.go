// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fakeTargets returns a target function that fails for the names in bad, and
// the names that it was called with.
func fakeTargets(bad ...string) (func(string) (time.Duration, error), *[]string) {
	var ran []string
	return func(name string) (time.Duration, error) {
		ran = append(ran, name)
		if slices.Contains(bad, name) {
			return time.Second, errors.New("exit status 2")
		}
		return 3 * time.Second, nil
	}, &ran
}

func TestRun(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tt := range map[string]struct {
		ctx     context.Context
		goOn    bool
		bad     []string
		want    error
		ran     []string
		outcome []string // of a, b, c and of all
	}{
		"all pass":              {ctx: t.Context(), ran: []string{"a", "b", "c"}, outcome: []string{passed, passed, passed, passed}},
		"stops at a failure":    {ctx: t.Context(), bad: []string{"b"}, want: errStep, ran: []string{"a", "b"}, outcome: []string{passed, failed, notRun, failed}},
		"goes on if told to":    {ctx: t.Context(), goOn: true, bad: []string{"b"}, want: errStep, ran: []string{"a", "b", "c"}, outcome: []string{passed, failed, passed, failed}},
		"runs nothing if ended": {ctx: cancelled, goOn: true, want: context.Canceled, outcome: []string{notRun, notRun, notRun, failed}},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			target, ran := fakeTargets(tt.bad...)
			if err := run(tt.ctx, &out, []string{"a", "b", "c"}, tt.goOn, target); !errors.Is(err, tt.want) {
				t.Errorf("run() = %v, want %v", err, tt.want)
			}
			if diff := cmp.Diff(tt.ran, *ran); diff != "" {
				t.Errorf("targets that ran (-want +got):\n%s", diff)
			}
			_, rows, _ := strings.Cut(out.String(), "step\n")
			var got []string
			for row := range strings.Lines(rows) {
				switch {
				case strings.Contains(row, notRun):
					got = append(got, notRun)
				default:
					got = append(got, strings.Fields(row)[2])
				}
			}
			if diff := cmp.Diff(tt.outcome, got); diff != "" {
				t.Errorf("outcomes in the table (-want +got):\n%s\n%s", diff, out.String())
			}
		})
	}
}

// TestTableAddsUp checks the whole text, with times that the clock cannot
// change.
func TestTableAddsUp(t *testing.T) {
	var out bytes.Buffer
	table(&out, []step{
		{"lint", passed, 61 * time.Second, 100 * time.Second},
		{"test-unit", failed, 9600 * time.Millisecond, 5 * time.Second},
		{"fuzz", notRun, 0, 0},
	})
	want := `
seconds  processor seconds  outcome  step
     61                100  passed   lint
     10                  5  FAILED   test-unit
      0                  0  not run  fuzz
     71                105  FAILED   all steps
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

// TestRunTarget runs a real program, which gets the target as its argument.
func TestRunTarget(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	script := "#!/bin/sh\nfor i in 1 2 3 4 5 6 7 8 9; do for j in 1 2 3 4 5 6 7 8 9; do echo $i$j; done; done >" + dir + "/$1\n[ $1 = good ]\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if processor, err := runTarget(t.Context(), program, "good"); err != nil || processor <= 0 {
		t.Errorf("runTarget(good) = %v, %v, want some processor time and no error", processor, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "good")); err != nil {
		t.Errorf("the program did not get the target: %v", err)
	}
	if _, err := runTarget(t.Context(), program, "bad"); err == nil {
		t.Error("runTarget(bad) = nil, want an error")
	}
	if _, err := runTarget(t.Context(), filepath.Join(dir, "none"), "good"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("runTarget of a program that is not there = %v, want that it does not exist", err)
	}
}
