// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

func TestCaps(t *testing.T) {
	got, err := parseCaps("10M, 1G,500k,1500")
	must.OK(t, err)
	if diff := cmp.Diff([]uint64{10e6, 1e9, 500e3, 1500}, got); diff != "" {
		t.Errorf("parseCaps (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"", "0M", "10X", "-1M", "10M,"} {
		if _, err := parseCaps(bad); err == nil {
			t.Errorf("parseCaps(%q) = nil error, want an error", bad)
		}
	}
}

func TestPick(t *testing.T) {
	got, err := pick(scenarios(), "d, b")
	must.OK(t, err)
	keys := make([]string, 0, len(got))
	for _, s := range got {
		keys = append(keys, s.key)
	}
	if !slices.Equal(keys, []string{"b", "d"}) {
		t.Errorf("pick = %v, want b and d in the order of the table", keys)
	}
	if _, err := pick(scenarios(), "a,q"); err == nil || !strings.Contains(err.Error(), `"q"`) {
		t.Errorf("pick of an unknown case = %v, want an error that names it", err)
	}
}

func TestColumnsLineUp(t *testing.T) {
	d := &demo{report: &report{Rows: []row{
		{Case: "a", Title: "no plugin"},
		{Case: "b", Title: "bandwidth plugin", CapBitRate: 10e6, Memory: &memory{Total: 51.4}},
		{Case: "c", Title: "podweir strict", CapBitRate: 10e6, Open: latency{Errors: map[string]int{"timeout": 2}, Requests: 9}},
	}}}
	var out strings.Builder
	d.out = &out
	d.table()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	got := lines[len(lines)-1]
	if want := "(c) at 10M, light flows: 2 of 9 without a response: timeout"; strings.TrimSpace(got) != want {
		t.Errorf("last line = %q, want %q", got, want)
	}
	// The rightmost column is aligned to the right: its cells end together.
	var ends []int
	for _, line := range lines[2:6] {
		ends = append(ends, len([]rune(line)))
	}
	if slices.Min(ends) != slices.Max(ends) {
		t.Errorf("lines end at %v, want one place:\n%s", ends, out.String())
	}
	if !strings.Contains(lines[4], "51") {
		t.Errorf("row %q does not show the memory of 51.4 KiB", lines[4])
	}
}

// The demo runs on a machine that never had podweir: with a /run, a /tmp and a bpffs of its own.
func TestPrivilegedDemoLeavesNothing(t *testing.T) {
	testutil.RequireRoot(t)
	dir := t.TempDir()
	demo := filepath.Join(dir, "demo")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", demo, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const script = `mount --make-rprivate / && mount -t tmpfs none /run && mkdir /run/netns && mount -t bpf bpf /sys/fs/bpf &&
		mkdir "$1/tmp" && export TMPDIR="$1/tmp" && cd ../.. && "$1/demo" -cases c -caps 10M -json "$1/demo.json" >&2 &&
		find /run "$1/tmp" -mindepth 1 ! -path /run/netns ! -path /run/mount && ls /sys/fs/bpf | grep -v '\.debug$' || true; ls "$1/demo.json"`
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "bash", "-c", script, "bash", dir)
	out, err := cmd.Output()
	if want := dir + "/demo.json\n"; err != nil || string(out) != want {
		t.Errorf("the demo left (%v):\n%s\nwant %s", err, out, want)
	}
}
