// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package detect

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// HostRoot is the file system of a node whose root directory is at dir: "/" on
// the node itself, the mount point of the node's root in a container. Symbolic
// links, absolute ones too, are followed as the node would follow them: they
// never lead out of dir. /proc/PID/root is followed into that process's mount
// namespace, which needs CAP_SYS_PTRACE.
func HostRoot(dir string) fs.FS { return hostRoot(filepath.Clean(dir)) }

// Resolve returns where a file of the node is in our own file system, without
// symbolic links, followed as [HostRoot] does. Name is below the node's root;
// every part of it must be there, or the error wraps [fs.ErrNotExist].
func Resolve(root, name string) (string, error) {
	return hostRoot(filepath.Clean(root)).resolve("resolve", clean(name), true)
}

type hostRoot string

// maxLinks is MAXSYMLINKS of Linux.
const maxLinks = 40

// Open opens a file for reading.
func (r hostRoot) Open(name string) (fs.File, error) {
	return resolved(r, "open", name, true, func(full string) (fs.File, error) { return os.Open(full) })
}

// Stat follows links, as [fs.StatFS] asks.
func (r hostRoot) Stat(name string) (fs.FileInfo, error) {
	return resolved(r, "stat", name, true, os.Lstat)
}

// ReadDir lists a directory, sorted by name.
func (r hostRoot) ReadDir(name string) ([]fs.DirEntry, error) {
	return resolved(r, "readdir", name, true, os.ReadDir)
}

// ReadLink returns the target of a link as it is written.
func (r hostRoot) ReadLink(name string) (string, error) {
	return resolved(r, "readlink", name, false, os.Readlink)
}

// Lstat does not follow the last link.
func (r hostRoot) Lstat(name string) (fs.FileInfo, error) {
	return resolved(r, "lstat", name, false, os.Lstat)
}

// resolved does something with the path without links.
func resolved[T any](r hostRoot, op, name string, last bool, do func(full string) (T, error)) (is T, err error) {
	full, err := r.resolve(op, name, last)
	if err != nil {
		return is, err
	}
	return do(full)
}

// resolve walks name component by component and returns a path without links.
// Between the walk and the use the tree may change: what is read here
// decides what podweir says, not what it may do.
func (r hostRoot) resolve(op, name string, last bool) (string, error) {
	if !fs.ValidPath(name) {
		return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	base, done := string(r), ""
	rest := strings.Split(name, "/")
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case ".", "":
			continue
		case "..":
			done = path.Dir("/" + done)[1:]
			continue
		}
		next := path.Join(done, part)
		if processRoot(next) {
			base, done = filepath.Join(base, next), ""
			continue
		}
		full := filepath.Join(base, next)
		info, err := os.Lstat(full)
		if err != nil {
			return "", &fs.PathError{Op: op, Path: name, Err: underlying(err)}
		}
		if info.Mode()&fs.ModeSymlink == 0 || len(rest) == 0 && !last {
			done = next
			continue
		}
		if links++; links > maxLinks {
			return "", &fs.PathError{Op: op, Path: name, Err: syscall.ELOOP}
		}
		target, err := os.Readlink(full)
		if err != nil {
			return "", &fs.PathError{Op: op, Path: name, Err: underlying(err)}
		}
		if path.IsAbs(target) {
			done = ""
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return filepath.Join(base, done), nil
}

// processRoot says whether a path is the kernel's link to the root of a process,
// whose text would lead to the wrong place.
func processRoot(name string) bool {
	dir, last := path.Split(name)
	pid, ok := strings.CutPrefix(path.Clean(dir), "proc/")
	return ok && last == "root" && isNumber(pid)
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

func underlying(err error) error {
	if e, ok := err.(*fs.PathError); ok { //nolint:errorlint // only the outermost wrapper is dropped
		return e.Err
	}
	return err
}
