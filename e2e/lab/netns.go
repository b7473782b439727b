// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// netnsDir is where ip-netns(8) keeps named network namespaces, so that a
// reader of a running lab can look at it with `ip netns exec`.
const netnsDir = "/run/netns"

// Netns is a named network namespace with one thread that lives in it. Its
// methods are safe for concurrent use; functions given to Do run one at a time.
type Netns struct {
	name  string
	calls chan func()
	done  chan struct{}
}

// newNetns makes the namespace and bind mounts it under [netnsDir]. The thread
// stays until close, so that children started on it with a parent-death signal
// live exactly as long as the namespace is open.
func newNetns(name string) (*Netns, error) {
	if err := os.MkdirAll(netnsDir, 0o755); err != nil {
		return nil, fmt.Errorf("make %s: %w", netnsDir, err)
	}
	return startNetns(name, func(n *Netns) error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		return n.bind()
	})
}

// openNetns enters a namespace that exists, by its path in [netnsDir].
func openNetns(path string) (*Netns, error) {
	return startNetns(filepath.Base(path), func(n *Netns) error {
		f, err := os.Open(n.Path())
		if err != nil {
			return err
		}
		return errors.Join(unix.Setns(int(f.Fd()), unix.CLONE_NEWNET), f.Close())
	})
}

func startNetns(name string, enter func(*Netns) error) (*Netns, error) {
	n := &Netns{name: name, calls: make(chan func()), done: make(chan struct{})}
	ready := make(chan error, 1)
	go func() {
		defer close(n.done)
		onThreadOfItsOwn(func() { n.run(enter, ready) })
	}()
	if err := <-ready; err != nil {
		return nil, fmt.Errorf("network namespace %s: %w", name, err)
	}
	return n, nil
}

// onThreadOfItsOwn calls f on a thread that ends with the goroutine, and with it
// what the thread holds: its namespace, and children with a parent-death signal.
// The main thread never ends before the process does.
func onThreadOfItsOwn(f func()) {
	// Not unlocked: the thread must not be handed to unrelated goroutines.
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		onThreadOfItsOwn(f)
	}()
	<-done
	runtime.UnlockOSThread()
}

func (n *Netns) run(enter func(*Netns) error, ready chan<- error) {
	err := enter(n)
	ready <- err
	if err != nil {
		return
	}
	for call := range n.calls {
		call()
	}
}

func (n *Netns) bind() error {
	f, err := os.OpenFile(n.Path(), os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	self := fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
	if err := unix.Mount(self, n.Path(), "none", unix.MS_BIND, ""); err != nil {
		return errors.Join(fmt.Errorf("bind mount: %w", err), os.Remove(n.Path()))
	}
	return nil
}

// Name is the name that `ip netns` shows.
func (n *Netns) Name() string { return n.name }

// Path is the file of the namespace, as CNI_NETNS names it.
func (n *Netns) Path() string { return filepath.Join(netnsDir, n.name) }

// Do runs f on the thread of the namespace and returns its error. Sockets and
// processes that f makes belong to the namespace. f must not start goroutines
// that expect the namespace, and must not call Do of the same Netns.
func (n *Netns) Do(f func() error) error {
	result := make(chan error, 1)
	select {
	case n.calls <- func() { result <- f() }:
		return <-result
	case <-n.done:
		return fmt.Errorf("network namespace %s is closed", n.name)
	}
}

// sysctl writes a value below /proc/sys of the namespace.
func (n *Netns) sysctl(key, value string) error {
	return n.Do(func() error {
		return os.WriteFile(filepath.Join("/proc/sys", key), []byte(value), 0o644)
	})
}

// close ends the thread and removes the name; the namespace goes when its last
// process and socket go. It may be called once.
func (n *Netns) close() error {
	n.stop()
	return removeNetns(n.Path())
}

// stop ends the thread and leaves the namespace.
func (n *Netns) stop() {
	close(n.calls)
	<-n.done
}

// removeNetns detaches and deletes the file of a named namespace. One that is
// gone is no error.
func removeNetns(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
