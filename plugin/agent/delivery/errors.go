// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
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

// SettingError says which setting cannot be used and why.
type SettingError struct {
	// Setting is its name as a flag, without the dashes.
	Setting string
	// Value is what was given, Accepted what may be given.
	Value, Accepted string
	// Why says what stands against the value on this node, or is empty.
	Why string
}

func (e *SettingError) Error() string {
	text := fmt.Sprintf("%s %q is not accepted, want %s", e.Setting, e.Value, e.Accepted)
	if e.Why != "" {
		text += ": " + e.Why
	}
	return text
}

// FileError says which file or directory of the node cannot be used.
type FileError struct {
	// Op is what was to be done, Path where, in our own file system.
	Op, Path string
	Err      error
	// Want says what is needed instead, or is empty.
	Want string
}

func (e *FileError) Error() string {
	text := fmt.Sprintf("%s %s: %v", e.Op, e.Path, e.Err)
	if e.Want != "" {
		text += ", want " + e.Want
	}
	return text
}

// Unwrap returns the cause.
func (e *FileError) Unwrap() error { return e.Err }

// fileError makes a [*FileError] of what the os package returned, with the
// remedy where the cause tells one.
func fileError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	cause := err
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		cause = p.Err
	}
	e := &FileError{Op: op, Path: path, Err: cause}
	switch {
	case errors.Is(cause, unix.EROFS):
		e.Want = "a file system that is mounted writable; or the agent with the delivery nri or watch, which write nothing"
	case errors.Is(cause, fs.ErrPermission):
		e.Want = "root, and no policy (SELinux, AppArmor) against it"
	case errors.Is(cause, unix.ENOSPC), errors.Is(cause, unix.EDQUOT):
		e.Want = "free space there"
	case errors.Is(cause, unix.EISDIR), errors.Is(cause, unix.ENOTDIR):
		e.Want = "a file in a directory"
	}
	return e
}
