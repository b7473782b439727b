// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package hostif finds both ends of a pod's interface, of any supported device
// kind, and talks netlink inside a network namespace without moving the
// caller's thread; it needs CAP_NET_ADMIN and CAP_SYS_ADMIN.
package hostif

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Errors that callers branch on. They are wrapped with the name of the object.
var (
	// ErrNoNetNS means that there is no network namespace at the path.
	ErrNoNetNS = errors.New("no such network namespace")
	// ErrNoDevice means that the namespace has no such device.
	ErrNoDevice = errors.New("no such device")
	// ErrNoPeer means that the other end of a pair is not in the host's
	// namespace, or that the device is no pair at all.
	ErrNoPeer = errors.New("no host-side peer")
	// ErrPermission means that the process lacks a capability.
	ErrPermission = errors.New("permission denied, CAP_NET_ADMIN is needed")
	// ErrNoEntry means that the process may not enter network namespaces.
	ErrNoEntry = errors.New("permission denied, CAP_SYS_ADMIN is needed")
	// ErrForeignDevice means that a device of our name is not ours.
	ErrForeignDevice = errors.New("a device of this name is not an ifb")
)

// threadNetNS names the namespace of the calling thread. A path under
// /proc/self would name that of the main thread.
const threadNetNS = "/proc/thread-self/ns/net"

// NetNS is an open network namespace. It stays alive as long as it is open. It
// is safe for concurrent use, Close excepted.
type NetNS struct {
	file *os.File
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
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("netns %s: %w", path, ErrNoNetNS)
	}
	if err != nil {
		return nil, fmt.Errorf("open netns: %w", err)
	}
	// NS_GET_NSTYPE answers on nsfs only.
	kind, err := unix.IoctlRetInt(int(f.Fd()), unix.NS_GET_NSTYPE)
	if err != nil || kind != unix.CLONE_NEWNET {
		_ = f.Close()
		return nil, fmt.Errorf("%s is not a network namespace: %w", path, ErrNoNetNS)
	}
	return newNetNS(f, path)
}

// CurrentNetNS opens the network namespace of the calling thread. Lock the
// goroutine to its thread if the thread may have been moved.
func CurrentNetNS() (*NetNS, error) {
	f, err := os.Open(threadNetNS)
	if err != nil {
		return nil, fmt.Errorf("open current netns: %w", err)
	}
	return newNetNS(f, "(current)")
}

// NewScratchNetNS makes a network namespace that has no name and is gone when
// it is closed; its devices go with it.
func NewScratchNetNS() (*NetNS, error) {
	var ns *NetNS
	err := onOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare netns: %w", err)
		}
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

func newNetNS(f *os.File, path string) (*NetNS, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("stat netns %s: %w", path, err)
	}
	return &NetNS{file: f, path: path, dev: st.Dev, ino: st.Ino}, nil
}

// Path returns the path that the namespace was opened by.
func (n *NetNS) Path() string { return n.path }

// FD returns the file descriptor, which stays owned by n.
func (n *NetNS) FD() int { return int(n.file.Fd()) }

// Inode returns the inode number, the namespace's identity as long as it
// lives. Numbers are used again.
func (n *NetNS) Inode() uint64 { return n.ino }

// Same says whether both are the same network namespace.
func (n *NetNS) Same(other *NetNS) bool {
	return other != nil && n.ino == other.ino && n.dev == other.dev
}

// Close lets go of the namespace.
func (n *NetNS) Close() error { return n.file.Close() }

// Do runs f in the namespace, on a thread of its own. Goroutines that f starts
// are not in the namespace. The thread is thrown away if it cannot be brought
// back. The error wraps [ErrNoEntry] without CAP_SYS_ADMIN.
func (n *NetNS) Do(f func() error) error {
	return onOwnThread(func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return entryError(n.path, err)
		}
		return f()
	})
}

func entryError(path string, err error) error {
	if errors.Is(err, unix.EPERM) {
		err = fmt.Errorf("%w: %w", ErrNoEntry, err)
	}
	return fmt.Errorf("enter netns %s: %w", path, err)
}

// onOwnThread runs f on a locked thread and brings the thread back to its
// network namespace.
func onOwnThread(f func() error) error {
	err := errors.New("the function did not return")
	done := make(chan struct{})
	go func() {
		// Deferred, so that runtime.Goexit in f does not leave the caller
		// waiting. A thread that stays locked ends with its goroutine.
		defer close(done)
		runtime.LockOSThread()
		orig, openErr := os.Open(threadNetNS)
		if openErr != nil {
			runtime.UnlockOSThread()
			err = fmt.Errorf("open current netns: %w", openErr)
			return
		}
		defer func() {
			if unix.Setns(int(orig.Fd()), unix.CLONE_NEWNET) == nil {
				runtime.UnlockOSThread()
			}
			_ = orig.Close()
		}()
		err = f()
	}()
	<-done
	return err
}
