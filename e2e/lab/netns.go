// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/rtnl"
)

// netnsDir is where ip-netns(8) keeps named network namespaces, so that a
// reader of a running lab can look at it with `ip netns exec`.
const netnsDir = "/run/netns"

// Netns is a named network namespace. Its methods are safe for concurrent use; its path is
// the one that CNI_NETNS has.
type Netns struct{ *rtnl.NetNS }

// newNetns makes the namespace and bind mounts it under [netnsDir].
func newNetns(name string) (n *Netns, err error) {
	if err := os.MkdirAll(netnsDir, 0o755); err != nil {
		return nil, fmt.Errorf("make %s: %w", netnsDir, err)
	}
	scratch, err := rtnl.NewScratchNetNS()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, scratch.Close()) }()
	path := filepath.Join(netnsDir, name)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", scratch.FD()), path, "none", unix.MS_BIND, ""); err != nil {
		return nil, errors.Join(fmt.Errorf("bind mount %s: %w", path, err), os.Remove(path))
	}
	return openNetns(path)
}

// openNetns opens a namespace that exists, by its path in [netnsDir].
func openNetns(path string) (*Netns, error) {
	ns, err := rtnl.OpenNetNS(path)
	return &Netns{ns}, err
}

// Name is the name that `ip netns` shows.
func (n *Netns) Name() string { return filepath.Base(n.Path()) }

// Run runs a script of the shell's in the namespace. What it did and said is in the error.
func (n *Netns) Run(script string) error {
	var out []byte
	err := n.Do(func() (err error) {
		out, err = exec.Command("sh", "-exc", script).CombinedOutput()
		return err
	})
	if err != nil {
		return fmt.Errorf("namespace %s: %w: %s", n.Name(), err, bytes.TrimSpace(out))
	}
	return nil
}

// close removes the name; the namespace goes when its last process and socket go.
func (n *Netns) close() error { return errors.Join(n.Close(), removeNetns(n.Path())) }

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
