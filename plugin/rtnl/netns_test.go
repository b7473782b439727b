// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package rtnl_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/rtnl"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

func TestOpenNetNSOfAPlainFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ns")
	must.Is(t, "OpenNetNS(no file)", rtnl.ErrNoNetNS, must.Err(rtnl.OpenNetNS(path)))
	// What a reboot or a removed namespace leaves behind.
	must.OK(t, os.WriteFile(path, nil, 0o600))
	_, err := rtnl.OpenNetNS(path)
	must.Is(t, "OpenNetNS(plain file)", rtnl.ErrNoNetNS, err, path)
	must.Is(t, "OpenNetNS(pid namespace)", rtnl.ErrNoNetNS, must.Err(rtnl.OpenNetNS("/proc/self/ns/pid")))
}

func currentInode(t *testing.T) uint64 {
	t.Helper()
	ns, err := rtnl.CurrentNetNS()
	if err != nil {
		t.Error(err) // Do calls it beside the test
		return 0
	}
	defer func() { _ = ns.Close() }()
	return ns.Inode()
}

// Nobody who is in a namespace needs a right to go there.
func TestDoWhereTheCallerIs(t *testing.T) {
	ns := must.Get(rtnl.CurrentNetNS())(t)
	var inside uint64
	boom := errors.New("boom")
	if err := ns.Do(func() error { inside = currentInode(t); return boom }); !errors.Is(err, boom) || inside != ns.Inode() {
		t.Errorf("Do = %v in netns %d, want the function's error, %d", err, inside, ns.Inode())
	}
	// Once more is nothing, or it would close what got the number since.
	for range 2 {
		must.OK(t, ns.Close())
	}
}

func TestPrivilegedDo(t *testing.T) {
	ns := testutil.NewNetNS(t)
	before := currentInode(t)
	var inside uint64
	boom := errors.New("boom")
	must.Is(t, "Do", boom, ns.Do(func() error { inside = currentInode(t); return boom }))
	if inside != ns.Inode() || inside == before {
		t.Errorf("Do ran in netns %d, want %d (outside: %d)", inside, ns.Inode(), before)
	}
	must.Fail(t, "Do of a function that does not return", ns.Do(func() error { runtime.Goexit(); return nil }))
	// No thread may have stayed in the namespace.
	for range 100 {
		must.Be(t, "netns of a thread after Do", before, currentInode(t))
	}
	other := testutil.NewNetNS(t)
	if ns.Same(other.NetNS) || !ns.Same(ns.NetNS) {
		t.Error("Same does not tell namespaces apart")
	}
}

// A sysctl belongs to the namespace alone, also from a container, where /proc/sys is read-only.
func TestPrivilegedSysctls(t *testing.T) {
	const name = "net/ipv4/tcp_min_tso_segs"
	one, other := testutil.NewNetNS(t), testutil.NewNetNS(t)
	want := func(when string, n *testutil.NetNS, value int) {
		t.Helper()
		must.Match(t, when+": "+name, []int{value}, must.Get(n.ReadSysctls(name))(t))
	}
	before := must.Get(other.ReadSysctls(name))(t)
	must.OK(t, one.WriteSysctls(rtnl.Sysctl{Name: name, Value: 5}))
	want("written", one, 5)
	want("of another namespace", other, before[0])
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its mounts
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
				return err
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return err
			}
			if err := unix.Mount("/proc/sys", "/proc/sys", "", unix.MS_BIND, ""); err != nil {
				return err
			}
			if err := unix.Mount("", "/proc/sys", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
				return err
			}
			if err := unix.Setns(one.FD(), unix.CLONE_NEWNET); err != nil {
				return err
			}
			// In place: NetNS.Do takes a thread of its own, which would not have these mounts.
			must.Is(t, "write to a read-only /proc/sys", unix.EROFS, os.WriteFile("/proc/sys/"+name, []byte("6"), 0))
			return rtnl.WriteSysctlHere(name, 6)
		}()
	}()
	must.OK(t, <-done)
	want("written from a container", one, 6)
	want("of another namespace", other, before[0])
	must.Is(t, "a sysctl that the kernel lacks", os.ErrNotExist, must.Err(one.ReadSysctls("net/ipv4/no_such")))
}
