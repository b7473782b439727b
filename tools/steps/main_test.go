// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/testutil/must"
)

// fakeTargets returns a target function that fails for the names in bad, and
// the names that it was called with.
func fakeTargets(bad ...string) (func(string, io.Writer) (time.Duration, error), *[]string) {
	var ran []string
	return func(name string, out io.Writer) (time.Duration, error) {
		ran = append(ran, name)
		fmt.Fprintln(out, "output of", name)
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
			if _, err := run(tt.ctx, &out, []string{"a", "b", "c"}, tt.goOn, target); !errors.Is(err, tt.want) {
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

// TestRunTarget runs a real program, which gets the target as its argument.
func TestRunTarget(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	script := "#!/bin/sh\nfor i in 1 2 3 4 5 6 7 8 9; do for j in 1 2 3 4 5 6 7 8 9; do echo $i$j; done; done >" + dir + "/$1\n[ $1 = good ]\n"
	must.OK(t, os.WriteFile(program, []byte(script), 0o755))
	if processor, err := runTarget(t.Context(), program, "good", io.Discard); err != nil || processor <= 0 {
		t.Errorf("runTarget(good) = %v, %v, want some processor time and no error", processor, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "good")); err != nil {
		t.Errorf("the program did not get the target: %v", err)
	}
	if _, err := runTarget(t.Context(), program, "bad", io.Discard); err == nil {
		t.Error("runTarget(bad) = nil, want an error")
	}
	if _, err := runTarget(t.Context(), filepath.Join(dir, "none"), "good", io.Discard); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("runTarget of a program that is not there = %v, want that it does not exist", err)
	}
}

// TestSideBySide has two targets that each wait for the other, and looks at whose
// lines are whose.
func TestSideBySide(t *testing.T) {
	var out bytes.Buffer
	meet := map[string]chan bool{"a": make(chan bool, 1), "b": make(chan bool, 1)}
	target := func(name string, w io.Writer) (time.Duration, error) {
		other := map[string]string{"a": "b", "b": "a"}[name]
		meet[other] <- true
		select {
		case <-meet[name]:
		case <-time.After(time.Minute):
			return 0, errors.New("the other did not run")
		}
		for _, part := range []string{"one ", "line\nand", " no end"} {
			if _, err := io.WriteString(w, part); err != nil {
				return 0, err
			}
		}
		return 0, nil
	}
	all, err := run(t.Context(), &out, []string{"a+b"}, false, target)
	if err != nil || all.outcome() != passed {
		t.Errorf("run() = %v, %v", all, err)
	}
	for _, line := range []string{"a: one line\n", "b: one line\n", "a: and no end\n", "b: and no end\n", "step a: passed"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("the output lacks %q:\n%s", line, out.String())
		}
	}
}

// TestChain has the second target of a chain wait for the one beside the chain: it runs
// after the first, and not after a failure.
func TestChain(t *testing.T) {
	for name, tt := range map[string]struct {
		bad  bool
		goOn bool
		want []string // outcomes of a, b and c
	}{
		"in order":            {want: []string{passed, passed, passed}},
		"ends with a failure": {bad: true, want: []string{failed, notRun, passed}},
		"goes on if told to":  {bad: true, goOn: true, want: []string{failed, passed, passed}},
	} {
		t.Run(name, func(t *testing.T) {
			a, c := make(chan bool, 1), make(chan bool, 1)
			target := func(name string, _ io.Writer) (time.Duration, error) {
				switch name {
				case "a":
					a <- true
					if tt.bad {
						return 0, errors.New("exit status 2")
					}
				case "b":
					select {
					case <-a:
					default:
						return 0, errors.New("a has not run")
					}
					c <- true
				case "c":
					if tt.want[1] == passed {
						select {
						case <-c:
						case <-time.After(time.Minute):
							return 0, errors.New("c does not run beside b")
						}
					}
				}
				return 0, nil
			}
			all, _ := run(t.Context(), io.Discard, []string{"a,b+c"}, tt.goOn, target)
			var got []string
			for _, s := range all.groups[0] {
				got = append(got, s.outcome)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("outcomes of a, b and c (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRecorded(t *testing.T) {
	all := summary{groups: [][]step{{{"lint", passed, 61 * time.Second, 100 * time.Second}}}}
	page := "a\n<!-- run: begin -->\nold\n<!-- run: end -->\nb\n"
	got, err := recorded(page, time.Date(2026, 11, 28, 23, 0, 0, 0, time.UTC), "abc", &all)
	want := "a\n<!-- run: begin -->\n| what | value |\n| --- | --- |\n| date | 2026-11-28 |\n| commit | `abc` |\n| result | passed |\n" +
		"| `lint` | passed, 61 s, 100 s of processor |\n<!-- run: end -->\nb\n"
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("recorded(): %v (-want +got):\n%s", err, diff)
	}
	if _, err := recorded("a\n", time.Time{}, "abc", &all); err == nil {
		t.Error("recorded() on a page without a place = nil, want an error")
	}
}
