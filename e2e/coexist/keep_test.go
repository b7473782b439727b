// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package coexist_test proves that podweir and the software that shares a pod's device with it
// leave each other alone. It drives podweir's CNI plugin and its neighbours in network
// namespaces, and compares what it sees with testdata/KERNEL.json.
package coexist_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// row is what was seen of one pod at one time.
type row struct {
	// neighbour and device are who else is on which device.
	neighbour, device string
	// egress and ingress are podweir's modes.
	egress, ingress string
	// order says who came when, and what happened last.
	order string
	// egressVerdicts and ingressVerdicts are what became of packets that the
	// neighbour allows and denies.
	egressVerdicts, ingressVerdicts string
	// egressShaped and ingressShaped say whether podweir holds the direction.
	egressShaped, ingressShaped string
	// check is what CNI CHECK answered.
	check string
	// result is the conclusion.
	result string
}

const bar = " | "

func (r *row) String() string {
	return strings.Join([]string{
		r.neighbour, r.device, r.egress, r.ingress, r.order, r.egressVerdicts, r.ingressVerdicts, r.egressShaped, r.ingressShaped, r.check, r.result,
	}, bar)
}

// about is who is there in a row as text, and podweir's modes.
func about(text string) string { return strings.Join(strings.Split(text, bar)[:4], bar) }

// machine is what a kernel has that decides between ways, and how it was judged there whether
// podweir holds a direction.
type machine struct {
	// Kernel is the first two numbers of its version.
	Kernel string
	// TCX and Prio are yes or no, Redirect is bpf, mirred or none.
	TCX, Prio, Redirect string
	// Judged is bursts or counters.
	Judged string
}

// seen is what the tests saw on a kernel, in text.
type seen struct {
	machine

	// Rows are by the test that saw them, sorted.
	Rows map[string][]string
}

const testdata = "testdata"

// envWrite makes the tests write what they see instead of comparing with it. A
// machine that cannot write it logs what it saw; where the variable names a
// directory of such logs, TestWriteSeen writes that.
const envWrite = "PODWEIR_WRITE_COEXISTENCE"

// seenMark begins the line of a log that holds a seen.
const seenMark = "SEEN "

// keep compares the rows of a test with those that were committed of this kernel, or writes
// them.
func (r *rig) keep(t *testing.T, section string, rows []row) {
	t.Helper()
	if t.Failed() {
		return // what was seen is not what may be committed
	}
	s := seen{machine: *r.machine(t), Rows: map[string][]string{}}
	for i := range rows {
		s.Rows[section] = append(s.Rows[section], rows[i].String())
	}
	slices.Sort(s.Rows[section])
	if os.Getenv(envWrite) == "" {
		s.compare(t, section)
		return
	}
	if some() {
		t.Fatalf("%s wants all cases of a test, and -run or -skip leaves some out", envWrite)
	}
	line, err := json.Marshal(&s)
	must.OK(t, err)
	t.Log(seenMark + string(line))
	if !testutil.Emulated() {
		s.write(t)
	}
}

// some says that not all cases of a test run: -run or -skip names subtests, or marks
// leave some out.
func some() bool {
	return mark.LeavesOut() || slices.ContainsFunc([]string{"test.run", "test.skip"}, func(name string) bool {
		f := flag.Lookup(name)
		return f != nil && strings.Contains(f.Value.String(), "/")
	})
}

func readSeen(t *testing.T, file string) *seen {
	t.Helper()
	raw, err := os.ReadFile(file)
	must.OK(t, err)
	s := &seen{}
	must.OK(t, json.Unmarshal(raw, s))
	return s
}

// alike says how much a machine has to see what another one saw: everything on its own kernel
// and on one with the same features, and more or less the same if both have TCX or neither.
func (m *machine) alike(o *machine) int {
	same := *o
	same.Kernel, same.Judged = m.Kernel, m.Judged
	switch {
	case same == *m && o.Kernel == m.Kernel:
		return 3
	case same == *m:
		return 2
	case o.TCX == m.TCX:
		return 1
	}
	return 0
}

func (s *seen) compare(t *testing.T, section string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(testdata, "*.json"))
	must.OK(t, err)
	want, best := &seen{}, 0
	for _, file := range files {
		of := readSeen(t, file)
		if rank := s.alike(&of.machine); rank > best && len(of.Rows[section]) > 0 {
			want, best = of, rank
		}
	}
	if best == 0 {
		t.Fatalf("%s has no rows %q of a kernel like %+v; %s=1 writes them", testdata, section, s.machine, envWrite)
	}
	rows := want.Rows[section]
	if some() {
		rows = slices.DeleteFunc(rows, func(text string) bool {
			return !slices.ContainsFunc(s.Rows[section], func(o string) bool { return about(o) == about(text) })
		})
	}
	if diff := cmp.Diff(rows, s.Rows[section]); diff != "" {
		t.Errorf("the rows %q of Linux %s are not what was seen (-committed +seen); %s=1 rewrites them:\n%s",
			section, want.Kernel, envWrite, diff)
	}
}

// writing is held while a file is read and written: tests run beside one another.
var writing sync.Mutex

// write keeps the rows that other tests saw on the kernel.
func (s *seen) write(t *testing.T) {
	t.Helper()
	writing.Lock()
	defer writing.Unlock()
	file, all := filepath.Join(testdata, s.Kernel+".json"), s
	if _, err := os.Stat(file); err == nil {
		all = readSeen(t, file)
		all.machine = s.machine
		maps.Copy(all.Rows, s.Rows)
	}
	var text bytes.Buffer
	to := json.NewEncoder(&text)
	to.SetEscapeHTML(false)
	to.SetIndent("", "\t")
	must.OK(t, errors.Join(to.Encode(all), os.WriteFile(file, text.Bytes(), 0o644)))
}

// TestWriteSeen writes what the logs of emulated machines say that they saw.
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
		f, err := os.Open(log)
		must.OK(t, err)
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if _, text, ok := strings.Cut(lines.Text(), seenMark); ok {
				s := &seen{}
				must.OK(t, json.Unmarshal([]byte(text), s))
				s.write(t)
				t.Logf("%s: Linux %s", log, s.Kernel)
			}
		}
		must.OK(t, errors.Join(lines.Err(), f.Close()))
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
