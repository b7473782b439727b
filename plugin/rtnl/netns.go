// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package rtnl enters network namespaces, and has netlink sockets, the events of devices
// and sysctls in them, without moving the caller's thread; it needs CAP_NET_ADMIN and
// CAP_SYS_ADMIN.
package rtnl

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Errors that callers branch on. They are wrapped with the name of the object.
var (
	// ErrNoNetNS means that there is no network namespace at the path.
	ErrNoNetNS = errors.New("no such network namespace")
	// ErrPermission means that the process lacks a capability.
	ErrPermission = errors.New("permission denied, CAP_NET_ADMIN is needed")
	// ErrNoEntry means that the process may not enter network namespaces.
	ErrNoEntry = errors.New("permission denied, CAP_SYS_ADMIN is needed")
)

// threadNetNS names the namespace of the calling thread. A path under
// /proc/self would name that of the main thread.
const threadNetNS = "/proc/thread-self/ns/net"

// NetNS is an open network namespace. It stays alive as long as it is open. It
// is safe for concurrent use, Close excepted.
type NetNS struct {
	// fd is no os.File: the Go runtime would make each one known to its poller.
	fd   int
	path string
	dev  uint64
	ino  uint64
}

// OpenNetNS opens the network namespace at path, for example /run/netns/x.
//
// Returns an error wrapping [ErrNoNetNS] if there is nothing at the path, or
// something that is not a network namespace: the mount is gone and its file
// stayed behind.
func OpenNetNS(path string) (*NetNS, error) {
	fd, err := open(Seen(path), unix.O_RDONLY)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("netns %s: %w", path, ErrNoNetNS)
	}
	if err != nil {
		return nil, fmt.Errorf("open netns: %w", err)
	}
	// NS_GET_NSTYPE answers on nsfs only.
	kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE)
	if err != nil || kind != unix.CLONE_NEWNET {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("%s is not a network namespace: %w", path, ErrNoNetNS)
	}
	return newNetNS(fd, path)
}

func open(path string, flags int) (fd int, err error) {
	for {
		fd, err = unix.Open(path, flags|unix.O_CLOEXEC, 0)
		if err == nil {
			return fd, nil
		}
		if !errors.Is(err, unix.EINTR) {
			return -1, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// CurrentNetNS opens the network namespace of the calling thread. Lock the
// goroutine to its thread if the thread may have been moved.
func CurrentNetNS() (*NetNS, error) {
	fd, err := open(threadNetNS, unix.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("open current netns: %w", err)
	}
	return newNetNS(fd, "(current)")
}

// NewScratchNetNS makes a network namespace that has no name and is gone when
// it is closed; its devices go with it.
func NewScratchNetNS() (*NetNS, error) {
	var ns *NetNS
	err := onOwnThread(func(t *thread) error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare netns: %w", err)
		}
		t.left = true
		var err error
		ns, err = CurrentNetNS()
		return err
	})
	if err != nil {
		return nil, err
	}
	ns.path = "(scratch)"
	return ns, nil
}

func newNetNS(fd int, path string) (*NetNS, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("stat netns %s: %w", path, err)
	}
	return &NetNS{fd: fd, path: path, dev: st.Dev, ino: st.Ino}, nil
}

// Path returns the path that the namespace was opened by.
func (n *NetNS) Path() string { return n.path }

// FD returns the file descriptor, which stays owned by n.
func (n *NetNS) FD() int { return n.fd }

// Inode returns the inode number, the namespace's identity as long as it
// lives. Numbers are used again.
func (n *NetNS) Inode() uint64 { return n.ino }

// Same says whether both are the same network namespace.
func (n *NetNS) Same(other *NetNS) bool {
	return other != nil && n.ino == other.ino && n.dev == other.dev
}

// SameNetNS says whether two paths name the same network namespace: one may have several. Those that cannot be looked
// at are the same if they are one path.
func SameNetNS(path, other string) bool {
	if path == other {
		return true
	}
	var a, b unix.Stat_t
	if unix.Stat(Seen(path), &a) != nil || unix.Stat(Seen(other), &b) != nil {
		return false
	}
	return a.Dev == b.Dev && a.Ino == b.Ino
}

// Close lets go of the namespace. Once more is nothing.
func (n *NetNS) Close() error {
	fd := n.fd
	if fd < 0 {
		return nil
	}
	n.fd = -1
	return unix.Close(fd)
}

// Do runs f in the namespace, on a thread that runs nothing else meanwhile. Goroutines
// that f starts are not in the namespace. The thread is thrown away if it cannot be
// brought back. To enter another namespace than the own one takes CAP_SYS_ADMIN: without
// it the error wraps [ErrNoEntry].
func (n *NetNS) Do(f func() error) error {
	return onOwnThread(func(t *thread) error {
		if n.Same(t.home) {
			return f()
		}
		if err := unix.Setns(n.fd, unix.CLONE_NEWNET); err != nil {
			return entryError(n.path, err)
		}
		t.left = true
		return f()
	})
}

func entryError(path string, err error) error {
	if errors.Is(err, unix.EPERM) {
		err = fmt.Errorf("%w: %w", ErrNoEntry, err)
	}
	return fmt.Errorf("enter netns %s: %w", path, err)
}

// thread is a locked thread.
type thread struct {
	// home is the network namespace that it is to come back to if it left it.
	home *NetNS
	left bool
}

// release brings the thread back and unlocks it. One that stays locked ends with its
// goroutine.
func (t *thread) release() {
	if t.left && unix.Setns(t.home.fd, unix.CLONE_NEWNET) != nil {
		return
	}
	runtime.UnlockOSThread()
}

// home is the network namespace of the process, in which all threads are that run no function of Do. It stays open: its
// path takes the kernel as long as a visit to another namespace.
var home atomic.Pointer[NetNS]

// homeNetNS returns home, for a thread that has just been locked.
func homeNetNS() (*NetNS, error) {
	if ns := home.Load(); ns != nil {
		return ns, nil
	}
	ns, err := CurrentNetNS()
	if err == nil {
		home.Store(ns)
	}
	return ns, err
}

// onOwnThread runs f on a locked thread.
func onOwnThread(f func(t *thread) error) error {
	err := errors.New("the function did not return")
	done := make(chan struct{})
	go func() {
		// Deferred, so that runtime.Goexit in f does not leave the caller waiting.
		defer close(done)
		runtime.LockOSThread()
		var t thread
		defer t.release()
		var failed error
		if t.home, failed = homeNetNS(); failed != nil {
			err = failed
			return
		}
		err = f(&t)
	}()
	<-done
	return err
}

// ownProc has the processes of this process' PID namespace, nodeProc the directory of the node's, nil for ownProc.
const ownProc = "/proc"

var nodeProc atomic.Pointer[string]

// ProcessesBelow says that the node's root directory is at root. A container has other processes at /proc, under the
// numbers by which a runtime such as cri-dockerd names the network namespaces of pods.
func ProcessesBelow(root string) {
	dir := filepath.Join("/", root, ownProc)
	if _, err := os.Lstat(filepath.Join(dir, "self")); err != nil {
		dir = ownProc
	}
	nodeProc.Store(&dir)
}

// Seen is where this process sees a path to a network namespace as the node has it.
func Seen(path string) string {
	below, ok := strings.CutPrefix(path, ownProc+"/")
	if dir := nodeProc.Load(); ok && dir != nil {
		return filepath.Join(*dir, below)
	}
	return path
}

// netnsPlaces are where network namespaces can be found: those with a name, and those
// of processes.
var netnsPlaces = []string{"/run/netns/*", "/run/docker/netns/*", "/proc/[0-9]*/ns/net"}

// NetNSPaths returns one path to each network namespace that has a name or a process,
// those with a name first. A file that is no namespace may be among them.
func NetNSPaths() []string {
	type identity struct{ dev, inode uint64 }
	seen := make(map[identity]bool)
	var all []string
	for _, pattern := range netnsPlaces {
		at := Seen(pattern)
		paths, _ := filepath.Glob(at) // the patterns are good
		slices.Sort(paths)
		for _, path := range paths {
			var st unix.Stat_t
			if unix.Stat(path, &st) != nil || seen[identity{st.Dev, st.Ino}] {
				continue // a process that has ended, or known already
			}
			seen[identity{st.Dev, st.Ino}] = true
			all = append(all, strings.TrimPrefix(path, strings.TrimSuffix(at, pattern)))
		}
	}
	return all
}

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
			text, err := ReadFile(filepath.Join(procSys, name))
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

// Sysctl is a sysctl by its path, as in [NetNS.ReadSysctls], and its value.
type Sysctl struct {
	Name  string
	Value int
}

// WriteSysctls sets sysctls of the namespace. If one fails, the others are still set. In a container
// /proc/sys is read-only; then they are written through another procfs, which no other process sees.
// That takes CAP_SYS_ADMIN.
func (n *NetNS) WriteSysctls(all ...Sysctl) error {
	return n.Do(func() error {
		var failed error
		for _, s := range all {
			if err := writeSysctl(s.Name, s.Value); err != nil {
				failed = errors.Join(failed, fmt.Errorf("set %s=%d in %s: %w", s.Name, s.Value, n.path, err))
			}
		}
		return failed
	})
}

// writeSysctl sets one of the calling thread's namespace.
func writeSysctl(name string, value int) error {
	text := []byte(strconv.Itoa(value))
	fd, err := open(filepath.Join(procSys, name), unix.O_WRONLY)
	if errors.Is(err, unix.EROFS) {
		return writeOwnProc(filepath.Join("sys", name), text)
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	_, err = unix.Write(fd, text)
	return os.NewSyscallError("write "+name, err)
}

// ReadFile is [os.ReadFile] without the poller of the Go runtime, which takes seven system calls for each
// file. A process that runs for some milliseconds has no other use for the poller.
func ReadFile(path string) ([]byte, error) {
	fd, err := open(path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	const room = 512 // bytes
	for text := []byte(nil); ; {
		text = slices.Grow(text, room)
		n, err := unix.Read(fd, text[len(text):cap(text)])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, &os.PathError{Op: "read", Path: path, Err: err}
		case n == 0:
			return text, nil
		default:
			text = text[:len(text)+n]
		}
	}
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
