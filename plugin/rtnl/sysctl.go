// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package rtnl

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// procSys holds the sysctls. What is below net belongs to the namespace of the thread that
// opens it.
const procSys = "/proc/sys"

// ReadSysctls returns the values of sysctls of the namespace, such as
// net/ipv4/tcp_min_tso_segs, in their order. The error wraps [os.ErrNotExist] if the
// kernel lacks one of them.
func (n *NetNS) ReadSysctls(names ...string) ([]int, error) {
	values := make([]int, len(names))
	err := n.Do(func() error {
		for i, name := range names {
			text, err := os.ReadFile(filepath.Join(procSys, name))
			if err != nil {
				return err
			}
			if values[i], err = strconv.Atoi(string(bytes.TrimSpace(text))); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read sysctls of %s: %w", n.path, err)
	}
	return values, nil
}

// WriteSysctl sets a sysctl of the namespace. In a container /proc/sys is read-only; then it
// is written through another procfs, which nobody else sees. That takes CAP_SYS_ADMIN.
func (n *NetNS) WriteSysctl(name string, value int) error {
	if err := n.Do(func() error { return writeSysctl(name, value) }); err != nil {
		return fmt.Errorf("set %s=%d in %s: %w", name, value, n.path, err)
	}
	return nil
}

// writeSysctl sets one of the calling thread's namespace.
func writeSysctl(name string, value int) error {
	text := []byte(strconv.Itoa(value))
	err := os.WriteFile(filepath.Join(procSys, name), text, 0)
	if errors.Is(err, unix.EROFS) {
		return writeOwnProc(filepath.Join("sys", name), text)
	}
	return err
}

// writeOwnProc writes a file of a procfs that is mounted nowhere.
func writeOwnProc(name string, text []byte) error {
	fs, err := unix.Fsopen("proc", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("fsopen proc", err)
	}
	defer func() { _ = unix.Close(fs) }()
	if err := unix.FsconfigCreate(fs); err != nil {
		return os.NewSyscallError("fsconfig proc", err)
	}
	proc, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return os.NewSyscallError("fsmount proc", err)
	}
	defer func() { _ = unix.Close(proc) }()
	fd, err := unix.Openat(proc, name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	_, err = unix.Write(fd, text)
	return os.NewSyscallError("write "+name, err)
}
