// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/lab"
)

// machine is where the numbers were taken.
type machine struct {
	Date, Kernel, CPU, Clang, Commit string
	CPUs                             int
}

// sectionInfo is how busy the machine was during a section.
type sectionInfo struct {
	Name, LoadBefore, LoadAfter string
	Seconds                     float64
}

// table is a group of measured rows.
type table struct {
	Section, Title, Note string
	Header               []string
	Rows                 [][]string
}

// bar is a number that must be reached.
type bar struct {
	Section, What, Measured, Want string
	Pass                          bool
}

// report is everything that was measured.
type report struct {
	Machine  machine
	Sections []sectionInfo
	Bars     []bar
	Tables   []table

	section string
}

// load takes over what an earlier run measured.
func (r *report) load(file string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("results to keep: %w", err)
	}
	var old report
	if err := json.Unmarshal(raw, &old); err != nil {
		return fmt.Errorf("results to keep, %s: %w", file, err)
	}
	r.Sections, r.Bars, r.Tables = old.Sections, old.Bars, old.Tables
	return nil
}

// begin starts a section and forgets what it measured before.
func (r *report) begin(name string) {
	r.section = name
	r.Sections = slices.DeleteFunc(r.Sections, func(s sectionInfo) bool { return s.Name == name })
	r.Bars = slices.DeleteFunc(r.Bars, func(b bar) bool { return b.Section == name })
	r.Tables = slices.DeleteFunc(r.Tables, func(t table) bool { return t.Section == name })
}

// bar adds a bar and tells it to whoever watches.
func (r *report) bar(pass bool, what, measured, want string) {
	r.Bars = append(r.Bars, bar{r.section, what, measured, want, pass})
	fmt.Fprintf(os.Stderr, "%-4s %s: %s (want %s)\n", passWord(pass), what, measured, want)
}

func passWord(pass bool) string {
	if pass {
		return "ok"
	}
	return "MISS"
}

// table adds an empty table.
func (r *report) table(title, note string, header ...string) *table {
	r.Tables = append(r.Tables, table{Section: r.section, Title: title, Note: note, Header: header})
	return &r.Tables[len(r.Tables)-1]
}

func (t *table) row(cells ...string) {
	t.Rows = append(t.Rows, cells)
	fmt.Fprintln(os.Stderr, "    ", strings.Join(cells, " | "))
}

func (r *report) write(opts *options) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(opts.json, append(raw, '\n'), 0o644); err != nil {
		return err
	}
	if opts.page == "" {
		return nil
	}
	return os.WriteFile(opts.page, r.markdown(), 0o644)
}

func (r *report) markdown() []byte {
	var b bytes.Buffer
	m := r.Machine
	fmt.Fprintf(&b, "# Measured on %s, Linux %s\n\n", m.Date, m.Kernel)
	b.WriteString("Written by `make bench`. A bar is a number that podweir has promised to reach; a miss stays in the table.\n\n")
	fmt.Fprintf(&b, "| | |\n| --- | --- |\n| kernel | %s |\n| processor | %d x %s |\n| clang of the BPF object | %s |\n| commit | %s |\n",
		m.Kernel, m.CPUs, m.CPU, m.Clang, m.Commit)
	fmt.Fprintf(&b, "| priority of the load generators | nice %d |\n", lab.Niceness)
	for _, s := range r.Sections {
		fmt.Fprintf(&b, "| load average, %s | %s before, %s after %.0f s |\n", s.Name, s.LoadBefore, s.LoadAfter, s.Seconds)
	}
	b.WriteString("\n## Bars\n\n| what | measured | bar | |\n| --- | --- | --- | --- |\n")
	for _, x := range r.Bars {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", x.What, x.Measured, x.Want, passWord(x.Pass))
	}
	for _, t := range r.Tables {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| %s |\n|%s\n", t.Title, t.Note,
			strings.Join(t.Header, " | "), strings.Repeat(" --- |", len(t.Header)))
		for _, row := range t.Rows {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		}
	}
	return b.Bytes()
}

func readMachine(ctx context.Context) (*machine, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, err
	}
	m := &machine{
		Date: time.Now().UTC().Format(time.DateOnly), Kernel: unix.ByteSliceToString(u.Release[:]),
		CPUs: runtime.NumCPU(), CPU: "unknown", Commit: "unknown",
	}
	raw, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(raw)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	if raw, err = os.ReadFile("bpf/CLANG_VERSION"); err != nil {
		return nil, fmt.Errorf("run in the root of the checkout: %w", err)
	}
	m.Clang = strings.TrimSpace(string(raw))
	// Without git the numbers are still numbers.
	if out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output(); err == nil {
		m.Commit = strings.TrimSpace(string(out))
	}
	return m, nil
}

// loadAverage is that of the last minute.
func loadAverage() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(raw), " ")
	return first
}
