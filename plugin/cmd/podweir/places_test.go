// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/testutil/must"
)

// inContainer is a program that starts the agent with mounts as the chart's: /run/podweir and the BPF file system elsewhere,
// the directories that it writes to at their places below the root. What the node mounts later is seen if slave, and not if
// private.
func (n *testNode) inContainer(t *testing.T, run, bpf, propagation string) []string {
	t.Helper()
	return script(t, `#!/bin/sh
set -e
if [ "$INSIDE" != 1 ]; then INSIDE=1 exec unshare --mount --propagation `+propagation+` "$0" "$@"; fi
for dir in etc/cni/net.d opt/cni/bin var/lib/podweir; do mount --bind `+n.root+`/$dir `+n.root+`/$dir; done
mount --bind `+n.run+` `+run+`
mount --bind `+filepath.Dir(n.pins)+` `+bpf+`
exec "$@" --run `+run+` --pins `+bpf+`/podweir
`)
}

// firstProcess gives the node one whose root is the node's.
func (n *testNode) firstProcess(t *testing.T) {
	t.Helper()
	id, end := make(chan int), make(chan struct{})
	t.Cleanup(func() { close(end) })
	go func() {
		defer close(id)
		runtime.LockOSThread() // never unlocked: the thread ends with this
		if unix.Unshare(unix.CLONE_FS) == nil && unix.Chroot(n.root) == nil {
			id <- unix.Gettid()
			<-end
		}
	}()
	must.OK(t, os.MkdirAll(filepath.Join(n.root, "proc"), 0o755))
	must.OK(t, os.Symlink(fmt.Sprintf("/proc/%d", <-id), filepath.Join(n.root, "proc/1")))
}

// Whoever replaces a directory of the node under an agent in a container leaves it with the former one, in which everything
// would stay in order. The agent ends: one that starts anew has the right one.
func TestPrivilegedDirectoriesAreReplaced(t *testing.T) {
	remount := func(t *testing.T, dir string) {
		t.Helper()
		must.OK(t, unix.Unmount(dir, unix.MNT_DETACH))
		must.OK(t, unix.Mount("bpf", dir, "bpf", 0, "mode=0700"))
	}
	renamed := func(t *testing.T, dir string) {
		t.Helper()
		must.OK(t, os.Rename(dir, dir+".old"))
		must.OK(t, os.Mkdir(dir, 0o755))
	}
	over := func(t *testing.T, dir string) {
		t.Helper()
		must.OK(t, unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
	}
	for _, c := range []struct {
		name, dir string
		replace   func(t *testing.T, dir string)
		mounts    string
	}{
		{"run", "", func(t *testing.T, dir string) { t.Helper(); must.OK(t, os.RemoveAll(dir)) }, "slave"},
		{"conflists", "etc/cni/net.d", renamed, "slave"},
		{"plugins", "opt/cni/bin", renamed, "slave"},
		{"over", "etc/cni/net.d", over, "slave"},
		{"bpffs", "bpf", remount, "slave"},
		// The chart's hostFiles: eks has single directories of the node.
		{"over, apart", "etc/cni/net.d", over, "private"},
		{"bpffs, apart", "bpf", remount, "private"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newTestNode(t)
			run, bpf := t.TempDir(), t.TempDir()
			must.OK(t, os.MkdirAll(filepath.Join(n.root, "var/lib/podweir"), 0o755))
			// A node may have a directory of the name by which its root is mounted.
			must.OK(t, os.MkdirAll(filepath.Join(n.root, n.root), 0o755))
			// What the node mounts is seen below its root, too.
			must.OK(t, unix.Mount(n.root, n.root, "", unix.MS_BIND, ""))
			t.Cleanup(func() { must.OK(t, unix.Unmount(n.root, unix.MNT_DETACH)) })
			must.OK(t, unix.Mount("", n.root, "", unix.MS_SHARED, ""))
			seen := filepath.Join(n.root, bpf)
			must.OK(t, os.MkdirAll(seen, 0o755))
			must.OK(t, unix.Mount(filepath.Dir(n.pins), seen, "", unix.MS_BIND, ""))
			n.firstProcess(t)
			dir, told := filepath.Join(n.root, c.dir), filepath.Join(n.root, c.dir)
			switch c.dir {
			case "":
				dir, told = n.run, run
			case "bpf":
				dir, told = seen, bpf
			}

			a := n.startAs(t, n.inContainer(t, run, bpf, c.mounts))
			a.until(t, time.Minute, "the agent is ready", func() (bool, string) { return a.ready(t.Context()) })
			ended := make(chan error, 1)
			go a.once.Do(func() { ended <- a.cmd.Wait() })
			c.replace(t, dir)
			select {
			case err := <-ended:
				if want := told + " is not the node's directory any more"; err == nil || !strings.Contains(a.String(), want) {
					t.Errorf("the agent ended with %v, want an error and %q", err, want)
				}
			case <-time.After(20 * time.Second):
				ready, text := a.ready(t.Context())
				t.Errorf("the agent goes on with the former directory: ready %v: %s", ready, text)
				must.OK(t, a.cmd.Process.Kill())
				must.Fail(t, "an agent that was killed", <-ended)
			}
		})
	}
}
