// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
)

// The demo runs on a machine that never had podweir: with a /run, a /tmp and a bpffs of its own.
func TestPrivilegedDemoLeavesNothing(t *testing.T) {
	mark.NightlyKernels(t, "it measures rates, which an emulated processor does not have")
	testutil.RequireRoot(t)
	dir := t.TempDir()
	program := filepath.Join(dir, "perfrig")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const script = `mount --make-rprivate / && mount -t tmpfs none /run && mkdir /run/netns && mount -t bpf bpf /sys/fs/bpf &&
		mkdir "$1/tmp" && export TMPDIR="$1/tmp" && cd ../.. && "$1/perfrig" demo -only tcp-1-cubic-ingress/20M/podweir-strict &&
		find /run "$1/tmp" -mindepth 1 ! -path /run/netns ! -path /run/mount | sed 's/^/left: /' && { ls /sys/fs/bpf | grep -v '\.debug$' | sed 's/^/left: /' || true; }`
	out, err := exec.CommandContext(t.Context(), "unshare", "--mount", "bash", "-c", script, "bash", dir).CombinedOutput()
	if said := string(out); err != nil || strings.Contains(said, "left: ") || !strings.Contains(said, "20M    podweir") {
		t.Errorf("the demo left (%v):\n%s\nwant a row and nothing left", err, said)
	}
}
