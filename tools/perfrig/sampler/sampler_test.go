// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package sampler

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
)

// twoReadings are ten seconds apart. Process 100 is ours, 101 its child, 102
// the child's; 200 and 300 are others', 300 began in between; 50 and 51 are
// the kernel's.
func twoReadings() []*reading {
	at := time.Unix(1000, 0)
	slab := uint64(4096)
	p := func(pid, parent int, name string, seconds float64) process {
		return process{pid: pid, parent: parent, name: name, user: seconds, resident: 1000, kernel: parent == kthreadd}
	}
	r := func(after time.Duration, all ...process) *reading {
		out := &reading{at: at.Add(after), processes: map[int]process{}, cpu: procfs.CPUStat{User: 5 + after.Seconds(), Steal: 2 + after.Seconds()/4}}
		out.memory.SlabBytes = &slab
		for _, one := range all {
			out.processes[one.pid] = one
		}
		return out
	}
	return []*reading{
		r(0, p(100, 1, "perfrig", 1), p(101, 100, "env", 0), p(102, 101, "iperf3", 1), p(200, 1, "go", 3), p(50, kthreadd, "idle", 7), p(51, kthreadd, "ksoftirqd", 1)),
		r(10*time.Second, p(100, 1, "perfrig", 2), p(101, 100, "env", 0), p(102, 101, "iperf3", 9),
			p(200, 1, "go", 5), p(300, 200, "link", 1), p(50, kthreadd, "idle", 7), p(51, kthreadd, "ksoftirqd", 5)),
	}
}

func TestForeign(t *testing.T) {
	if got, want := foreign(twoReadings(), 100), 0.3; got != want {
		t.Errorf("foreign = %v cores, want %v: 2 s of go and 1 s of link in 10 s", got, want)
	}
	if got := foreign(twoReadings(), 100, 200); got != 0 {
		t.Errorf("foreign = %v cores, want 0 where go is one of ours too", got)
	}
	if got := foreign(twoReadings()[:1], 100); got != 0 {
		t.Errorf("foreign of one reading = %v, want 0", got)
	}
}

func TestStolen(t *testing.T) {
	if got, want := stolen(twoReadings()), 0.25; got != want {
		t.Errorf("stolen = %v cores, want %v: 2.5 s in 10 s", got, want)
	}
	if got := stolen(twoReadings()[:1]); got != 0 {
		t.Errorf("stolen of one reading = %v, want 0", got)
	}
}

func TestExport(t *testing.T) {
	var b bytes.Buffer
	if err := export(&b, "w/10M/p#00", twoReadings()); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{
		"# TYPE perfrig_cpu_seconds counter\n",
		`perfrig_cpu_seconds_total{mode="user",run="w/10M/p#00"} 5.0 1000.0` + "\n" +
			`perfrig_cpu_seconds_total{mode="user",run="w/10M/p#00"} 15.0 1010.0` + "\n",
		`perfrig_kernel_memory_bytes{kind="slab",run="w/10M/p#00"} 4096.0 1000.0` + "\n",
		`perfrig_process_cpu_seconds_total{pid="102",name="iperf3",mode="user",run="w/10M/p#00"} 9.0 1010.0` + "\n",
		`perfrig_process_resident_bytes{pid="300",name="link",run="w/10M/p#00"} 1000.0 1010.0` + "\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the export lacks %q", want)
		}
	}
	if !strings.HasSuffix(text, "# EOF\n") {
		t.Error("the export does not end with # EOF")
	}
	if strings.Contains(text, `name="idle"`) {
		t.Error("a kernel thread that did nothing is in the export")
	}
	if t.Failed() {
		t.Log(text)
	}
}

// TestWatch: what a child of this process spends is in the file and is not
// foreign.
func TestWatch(t *testing.T) {
	dir := t.TempDir()
	s, err := New(dir)
	if err != nil {
		t.Fatal(err)
	}
	stop, err := s.Watch("w/10M/p#00")
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), "sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; read -r line")
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	busy := func() bool {
		p, err := procfs.NewProc(child.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		stat, err := p.Stat()
		if err != nil {
			t.Fatal(err)
		}
		return stat.CPUTime() > 0.1
	}
	for end := time.Now().Add(10 * time.Second); !busy() && time.Now().Before(end); {
		<-time.After(10 * time.Millisecond)
	}
	now, err := s.read()
	if err != nil {
		t.Fatal(err)
	}
	if !descendants(now.processes, os.Getpid())[child.Process.Pid] {
		t.Error("the child is not among our descendants")
	}
	if _, err := stop(); err != nil {
		t.Fatal(err)
	}
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	raw, err := os.ReadFile(filepath.Join(dir, "w_10M_p_00.openmetrics"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(raw, []byte(`name="sh",mode="user"`)) {
		t.Errorf("the child is not in the export:\n%s", raw)
	}
}
