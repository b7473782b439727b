// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// mounting is one file system to mount.
type mounting struct {
	kind, source, target, options string
	flags                         uintptr
}

func (m mounting) do() error {
	if err := os.MkdirAll(m.target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.options); err != nil {
		return fmt.Errorf("mount %s on %s: %w", m.kind, m.target, err)
	}
	return nil
}

func mountAll(ms ...mounting) error {
	for _, m := range ms {
		if err := m.do(); err != nil {
			return err
		}
	}
	return nil
}

// enterHostRoot makes the host's files the root: read-only below, and what the
// guest writes in memory above.
func enterHostRoot() error {
	err := mountAll(
		mounting{kind: "proc", source: "proc", target: "/proc"},
		mounting{kind: "sysfs", source: "sysfs", target: "/sys"},
		mounting{kind: "devtmpfs", source: "dev", target: "/dev"},
	)
	if err != nil {
		return err
	}
	if err := insertModules(); err != nil {
		return err
	}
	err = mountAll(
		share(RootTag, "/lower", unix.MS_RDONLY),
		mounting{kind: "tmpfs", source: "written", target: "/written", options: "size=60%"},
	)
	if err != nil {
		return err
	}
	for _, dir := range []string{"/written/upper", "/written/work"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	const options = "lowerdir=/lower,upperdir=/written/upper,workdir=/written/work"
	if err := mountAll(mounting{kind: "overlay", source: "root", target: "/new", options: options}); err != nil {
		return err
	}
	for _, dir := range []string{"/proc", "/sys", "/dev"} {
		if err := unix.Mount(dir, "/new"+dir, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move %s: %w", dir, err)
		}
	}
	err = mountAll(
		mounting{kind: "tmpfs", source: "run", target: "/new/run"},
		share(JobTag, "/new"+jobDir, 0),
	)
	if err != nil {
		return err
	}
	if err := os.Chdir("/new"); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the new root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("chroot: %w", err)
	}
	return os.Chdir("/")
}

// share mounts a directory of the host's by its tag.
func share(tag, target string, flags uintptr) mounting {
	return mounting{kind: "virtiofs", source: tag, target: target, flags: flags}
}

// insertModules loads what it takes to reach the host's files; everything
// else the kernel asks modprobe for, as on any machine.
func insertModules() error {
	list, err := os.ReadFile(ModulesFile)
	if err != nil {
		return err
	}
	for path := range strings.FieldsSeq(string(list)) {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		_ = f.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("load %s: %w", path, err)
		}
	}
	return nil
}

// prepare mounts what a booted machine has and names the guest.
func prepare(job Job) error {
	modules := filepath.Join("/lib/modules", release())
	err := mountAll(
		mounting{kind: "none", source: filepath.Join(job.ModulesDir, modules), target: modules, flags: unix.MS_BIND},
		mounting{kind: "cgroup2", source: "cgroup", target: "/sys/fs/cgroup"},
		mounting{kind: "bpf", source: "bpf", target: "/sys/fs/bpf"},
		mounting{kind: "devpts", source: "pts", target: "/dev/pts"},
		mounting{kind: "tmpfs", source: "shm", target: "/dev/shm"},
		mounting{kind: "debugfs", source: "debug", target: "/sys/kernel/debug"},
		mounting{kind: "tracefs", source: "trace", target: "/sys/kernel/tracing"},
	)
	if err != nil {
		return err
	}
	if err := staticNodes(); err != nil {
		return err
	}
	if err := loopbackUp(); err != nil {
		return err
	}
	return unix.Sethostname([]byte(job.Hostname))
}

// staticNodes makes the device files whose opening loads the module; elsewhere
// systemd or udev does.
func staticNodes() error {
	if err := os.MkdirAll("/dev/net", 0o755); err != nil {
		return err
	}
	const major, minor = 10, 200
	err := unix.Mknod("/dev/net/tun", unix.S_IFCHR|0o666, int(unix.Mkdev(major, minor)))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make /dev/net/tun: %w", err)
	}
	return nil
}

// release is the running kernel's, as uname -r prints it.
func release() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

func loopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}
