// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/testutil/must"
)

// inContainer is a program that starts the agent with mounts as the chart's: /run/podweir and the BPF file system elsewhere,
// the directories that it writes to at their places below the root.
func (n *testNode) inContainer(t *testing.T, run, bpf string) []string {
	t.Helper()
	return script(t, `#!/bin/sh
set -e
if [ "$INSIDE" != 1 ]; then INSIDE=1 exec unshare --mount --propagation slave "$0" "$@"; fi
for dir in etc/cni/net.d opt/cni/bin var/lib/podweir; do mount --bind `+n.root+`/$dir `+n.root+`/$dir; done
mount --bind `+n.run+` `+run+`
mount --bind `+filepath.Dir(n.pins)+` `+bpf+`
exec "$@" --run `+run+` --pins `+bpf+`/podweir
`)
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
	}{
		{"run", "", func(t *testing.T, dir string) { t.Helper(); must.OK(t, os.RemoveAll(dir)) }},
		{"conflists", "etc/cni/net.d", renamed},
		{"plugins", "opt/cni/bin", renamed},
		{"over", "etc/cni/net.d", over},
		{"bpffs", "bpf", remount},
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
			dir, told := filepath.Join(n.root, c.dir), filepath.Join(n.root, c.dir)
			switch c.dir {
			case "":
				dir, told = n.run, run
			case "bpf":
				dir, told = seen, bpf
			}

			a := n.startAs(t, n.inContainer(t, run, bpf))
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
