// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/compat/conflist"
)

var (
	// ErrRunning says that another process of podweir's writes to this node's files.
	ErrRunning = errors.New("an agent of podweir manages this node and installs by itself (delete its DaemonSet, or stop it, first), or another install or uninstall runs")
	// ErrInUse says that podweir's binary has to stay.
	ErrInUse = errors.New("podweir-cni is still needed")
	// ErrCalled is an [ErrInUse]: podweir's conflist has to stay, too, and pods that start get
	// their limit by it.
	ErrCalled = fmt.Errorf("%w", ErrInUse)
)

// settingError says which setting, by the name of its flag, cannot be used, what is accepted,
// and what stands against the value on this node, "" for nothing.
func settingError(setting, value, accepted, why string) error {
	if why != "" {
		accepted += ": " + why
	}
	return fmt.Errorf("%s %q is not accepted, want %s", setting, value, accepted)
}

// unusable says which file or directory, in our own file system, cannot be used for what, and
// what is needed instead.
func unusable(op, path string, err error, want string) error {
	return fmt.Errorf("%s %s: %w, want %s", op, path, err, want)
}

// fileError makes an error of what the os package returned, with the remedy where the
// cause tells one.
func fileError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	cause := err
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		cause = p.Err
	}
	switch {
	case errors.Is(cause, unix.EROFS):
		return unusable(op, path, cause, "a file system that is mounted writable; or the agent with the delivery nri or watch, which write nothing")
	case errors.Is(cause, fs.ErrPermission):
		return unusable(op, path, cause, conflist.MayUse+", and no policy (SELinux, AppArmor) against it")
	case errors.Is(cause, unix.ENOSPC), errors.Is(cause, unix.EDQUOT):
		return unusable(op, path, cause, "free space there")
	case errors.Is(cause, unix.EISDIR), errors.Is(cause, unix.ENOTDIR):
		return unusable(op, path, cause, "a file in a directory")
	}
	return fmt.Errorf("%s %s: %w", op, path, cause)
}
