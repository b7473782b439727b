// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package hostif_test

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/testutil"
)

// A sysctl is that of the namespace alone, also from a container, where /proc/sys is read-only.
func TestPrivilegedSysctls(t *testing.T) {
	const name = "net/ipv4/tcp_min_tso_segs"
	one, other := testutil.NewNetNS(t), testutil.NewNetNS(t)
	want := func(when string, n *testutil.NetNS, value int) {
		t.Helper()
		if got, err := n.ReadSysctls(name); err != nil || !slices.Equal(got, []int{value}) {
			t.Errorf("%s: %s is %v, %v, want %d", when, name, got, err, value)
		}
	}
	before, err := other.ReadSysctls(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := one.WriteSysctl(name, 5); err != nil {
		t.Fatal(err)
	}
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
			if err := os.WriteFile("/proc/sys/"+name, []byte("6"), 0); !errors.Is(err, unix.EROFS) {
				t.Errorf("write to a read-only /proc/sys: %v, want EROFS", err)
			}
			return hostif.WriteSysctlHere(name, 6)
		}()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	want("written from a container", one, 6)
	want("of another namespace", other, before[0])
	if _, err := one.ReadSysctls("net/ipv4/no_such"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a sysctl that the kernel lacks: %v, want ErrNotExist", err)
	}
}
