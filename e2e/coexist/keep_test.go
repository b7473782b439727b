// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package coexist_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/coexist"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

const pagePath = "testdata/seen.txt"

// envWrite makes the tests write the page instead of comparing with it. A
// machine that cannot write it logs what it saw; where the variable names a
// directory of such logs, TestWriteSeen writes that.
const envWrite = "PODWEIR_WRITE_COEXISTENCE"

// seen is what one test saw on one machine.
type seen struct {
	Section string
	Machine coexist.Machine
	Rows    []coexist.Row
}

// seenMark begins the line of a log that holds a seen.
const seenMark = "SEEN "

// keep compares rows with those of this kernel in their section of the
// committed page, or writes them.
func (r *rig) keep(t *testing.T, section string, rows []coexist.Row) {
	t.Helper()
	if t.Failed() {
		return // what was seen is not what the page may say
	}
	s := seen{section, *r.machine(t), coexist.Merged(rows)}
	if os.Getenv(envWrite) != "" {
		if some() {
			t.Fatalf("%s wants all cases of a test, and -run or -skip leaves some out", envWrite)
		}
		line, err := json.Marshal(&s)
		must.OK(t, err)
		t.Log(seenMark + string(line))
		if !testutil.Emulated() {
			s.write(t)
		}
		return
	}
	s.compare(t)
}

// some says that not all cases of a test run: -run or -skip names subtests, or marks
// leave some out.
func some() bool {
	return mark.LeavesOut() || slices.ContainsFunc([]string{"test.run", "test.skip"}, func(name string) bool {
		f := flag.Lookup(name)
		return f != nil && strings.Contains(f.Value.String(), "/")
	})
}

func readPage(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(pagePath)
	must.OK(t, err)
	return string(raw)
}

// parts are the tables of the page that a seen is about.
func (s *seen) parts(t *testing.T, page string) (machines []coexist.Machine, rows []coexist.OnKernels) {
	t.Helper()
	machineText, err := coexist.Section(page, "machines")
	rowText, rowErr := coexist.Section(page, s.Section)
	must.OK(t, errors.Join(err, rowErr))
	if machines, err = coexist.ReadMachines(machineText); err != nil {
		t.Fatalf("section machines of %s: %v", pagePath, err)
	}
	if rows, err = coexist.ReadTable(rowText); err != nil {
		t.Fatalf("section %s of %s: %v", s.Section, pagePath, err)
	}
	return machines, rows
}

func (s *seen) compare(t *testing.T) {
	t.Helper()
	machines, rows := s.parts(t, readPage(t))
	kernel := coexist.Alike(machines, &s.Machine, rows)
	if kernel == "" {
		t.Fatalf("section %q of %s has no kernel like %+v; %s=1 writes it", s.Section, pagePath, s.Machine, envWrite)
	}
	// On the page, rows of kernels are mixed.
	on := func(rows []coexist.Row) string {
		rows = slices.SortedFunc(slices.Values(rows), func(a, b coexist.Row) int { return strings.Compare(a.String(), b.String()) })
		return coexist.Table(coexist.Put(nil, kernel, rows))
	}
	want := coexist.Of(rows, kernel)
	if some() {
		want = coexist.About(want, s.Rows)
	}
	if diff := cmp.Diff(on(want), on(s.Rows)); diff != "" {
		t.Errorf("section %q of %s for Linux %s is not what was seen (-page +seen); %s=1 rewrites it:\n%s",
			s.Section, pagePath, kernel, envWrite, diff)
	}
}

// writing is held while the page is read and written: tests run beside one another.
var writing sync.Mutex

func (s *seen) write(t *testing.T) {
	t.Helper()
	writing.Lock()
	defer writing.Unlock()
	page := readPage(t)
	machines, rows := s.parts(t, page)
	page, err := coexist.Replace(page, "machines", coexist.Machines(coexist.PutMachine(machines, &s.Machine)))
	if err == nil {
		page, err = coexist.Replace(page, s.Section, coexist.Table(coexist.Put(rows, s.Machine.Kernel, s.Rows)))
	}
	if err == nil {
		err = os.WriteFile(pagePath, []byte(page), 0o644)
	}
	must.OK(t, err)
}

// TestWriteSeen writes into the page what the logs of emulated machines say
// that they saw.
func TestWriteSeen(t *testing.T) {
	dir := os.Getenv(envWrite)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return // there is nothing to be written, or a test writes it itself
	}
	logs, err := filepath.Glob(filepath.Join(dir, "*coexist*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no log of this package in %s: %v", dir, err)
	}
	for _, log := range logs {
		for _, s := range readSeen(t, log) {
			s.write(t)
			t.Logf("%s: %s: %d rows", log, s.Section, len(s.Rows))
		}
	}
}

func readSeen(t *testing.T, log string) []seen {
	t.Helper()
	f, err := os.Open(log)
	must.OK(t, err)
	defer func() { _ = f.Close() }()
	var all []seen
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		_, text, ok := strings.Cut(lines.Text(), seenMark)
		if !ok {
			continue
		}
		var s seen
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatalf("%s: %v", log, err)
		}
		all = append(all, s)
	}
	must.OK(t, lines.Err())
	return all
}

// The committed page is what its own tables write, and no kernel of it is unlike itself.
func TestPageIsReadAndWritten(t *testing.T) {
	page := readPage(t)
	for _, section := range []string{"hostile", "cilium", "npa", "bandwidth"} {
		s := seen{Section: section}
		machines, rows := s.parts(t, page)
		again, err := coexist.Replace(page, section, coexist.Table(rows))
		if err == nil {
			again, err = coexist.Replace(again, "machines", coexist.Machines(machines))
		}
		if err != nil || again != page {
			t.Errorf("section %s, read and written again (%v):\n%s", section, err, cmp.Diff(page, again))
		}
		for i := range machines {
			m := &machines[i]
			kernel := coexist.Alike(machines, m, rows)
			if has := len(coexist.Of(rows, m.Kernel)) > 0; has && kernel != m.Kernel {
				t.Errorf("section %s: rows of Linux %s are compared with those of %q", section, m.Kernel, kernel)
			}
			if put := coexist.Put(rows, m.Kernel, coexist.Of(rows, m.Kernel)); coexist.Table(put) != coexist.Table(rows) {
				t.Errorf("section %s: what Linux %s saw, put once more, changes the table", section, m.Kernel)
			}
		}
	}
	if _, err := coexist.ReadTable("| a |"); !errors.Is(err, coexist.ErrTable) {
		t.Errorf("ReadTable of no table = %v, want ErrTable", err)
	}
}

// series is the first two numbers of the kernel's version.
func series(t *testing.T) string {
	t.Helper()
	var u unix.Utsname
	must.OK(t, unix.Uname(&u))
	parts := strings.SplitN(unix.ByteSliceToString(u.Release[:]), ".", 3)
	if len(parts) < 2 {
		t.Fatalf("release %q has no two numbers", parts)
	}
	return parts[0] + "." + parts[1]
}
