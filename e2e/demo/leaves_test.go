// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/podweir/podweir/plugin/testutil"
)

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
