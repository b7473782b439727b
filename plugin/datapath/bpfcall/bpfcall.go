// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package bpfcall makes the handful of bpf(2) calls that shaping a pod takes:
// maps, programs, pins, TCX links and what is on a hook. Loading needs CAP_BPF
// and CAP_NET_ADMIN; the kernel is 5.15 or newer, 6.6 for TCX.
//
// A general library reads ELF and BTF, works around old kernels and holds 2 MB
// of memory for it, in a process that runs once for every pod. Everything else
// (tests, tools) uses one.
package bpfcall

import (
	"bytes"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// call makes one bpf(2) call. attr is one of the structs below, laid out as the
// member of union bpf_attr in linux/bpf.h that the command takes. Pointers in it
// are real ones, so that the runtime neither frees nor moves what they point to;
// that the kernel reads 64 bits there holds on 64-bit processors only, and the
// build fails on others.
func call[T any](cmd uintptr, attr *T) (int, error) {
	for {
		r, _, errno := unix.Syscall(unix.SYS_BPF, cmd, uintptr(unsafe.Pointer(attr)), unsafe.Sizeof(*attr))
		// The verifier gives up when a signal is pending, as that by which the
		// Go runtime preempts a thread (bpf_prog_load in kernel/bpf/syscall.c).
		if errno == unix.EAGAIN || errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return -1, errno
		}
		return int(r), nil
	}
}

var _ [unsafe.Sizeof(uintptr(0)) - 8]byte

func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// object is a BPF object by its file descriptor.
type object struct{ fd int }

// FD returns the number of the descriptor, valid until Close.
func (f *object) FD() int { return f.fd }

// Close closes the descriptor, once; what is pinned or attached stays.
func (f *object) Close() error {
	fd := f.fd
	if fd < 0 {
		return nil
	}
	f.fd = -1
	return unix.Close(fd)
}

type pinAttr struct {
	path  unsafe.Pointer
	fd, _ uint32 // flags
}

// Pin gives the object a name on bpffs, which keeps it alive. A name that is
// taken is an error wrapping [os.ErrExist].
func (f *object) Pin(path string) error {
	name := append([]byte(path), 0)
	_, err := call(unix.BPF_OBJ_PIN, &pinAttr{path: pointer(name), fd: uint32(f.fd)})
	return named("pin", path, err)
}

func open(path string) (object, error) {
	name := append([]byte(path), 0)
	fd, err := call(unix.BPF_OBJ_GET, &pinAttr{path: pointer(name)})
	return object{fd}, named("open", path, err)
}

func named(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &os.PathError{Op: op, Path: path, Err: err}
}

type infoAttr struct {
	fd      uint32
	length  uint32
	pointer unsafe.Pointer
}

// info fills the beginning of one of the kernel's info structs.
func info[T any](f *object, into *T) error {
	attr := infoAttr{fd: uint32(f.fd), length: uint32(unsafe.Sizeof(*into)), pointer: unsafe.Pointer(into)}
	_, err := call(unix.BPF_OBJ_GET_INFO_BY_FD, &attr)
	if err != nil {
		return fmt.Errorf("read info: %w", err)
	}
	return nil
}

// objectName is a name as the kernel keeps it: 15 bytes and a zero.
type objectName [unix.BPF_OBJ_NAME_LEN]byte

func newName(s string) (n objectName) {
	copy(n[:len(n)-1], s)
	return n
}

func (n *objectName) String() string {
	text, _, _ := bytes.Cut(n[:], []byte{0})
	return string(text)
}
