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
	"errors"
	"fmt"
	"os"
	"slices"
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

// Program is a loaded program.
type Program struct{ object }

// logBytes is room for the end of a verifier's log; the kernel keeps the end
// since 6.4, the beginning before that.
const logBytes = 1 << 20

type programAttr struct {
	programType, instructions uint32
	pointer, license          unsafe.Pointer
	logLevel, logBytes        uint32
	log                       unsafe.Pointer
	_                         uint32 // kernel version
	flags                     uint32
	name                      objectName
}

// LoadProgram has the kernel verify a program of type BPF_PROG_TYPE_SCHED_CLS
// and compile it. If it refuses, the error has the last lines of its reasons.
// Addresses in packets may have any alignment, also on a kernel that was built
// without CONFIG_HAVE_EFFICIENT_UNALIGNED_ACCESS: the processors that podweir is
// built for can do with that.
func LoadProgram(name, license string, instructions []byte) (*Program, error) {
	const instructionBytes = 8
	text := append([]byte(license), 0)
	attr := programAttr{
		programType: unix.BPF_PROG_TYPE_SCHED_CLS, flags: unix.BPF_F_ANY_ALIGNMENT, instructions: uint32(len(instructions) / instructionBytes),
		pointer: pointer(instructions), license: pointer(text), name: newName(name),
	}
	fd, err := call(unix.BPF_PROG_LOAD, &attr)
	if err != nil {
		// Try first, explain afterwards: a log costs more than a load.
		log := make([]byte, logBytes)
		attr.logLevel, attr.logBytes, attr.log = 1, logBytes, pointer(log)
		// Before 6.4 a log that is full makes the second error another one.
		if again, second := call(unix.BPF_PROG_LOAD, &attr); second == nil {
			fd, err = again, nil
		} else {
			err = fmt.Errorf("load program %s: %w%s", name, err, lastLines(log))
		}
	}
	if err != nil {
		return nil, err
	}
	return &Program{object{fd}}, nil
}

// lastLines is what of a verifier's log says why, in one line.
func lastLines(log []byte) string {
	const lines = 3
	log, _, _ = bytes.Cut(log, []byte{0})
	all := bytes.Split(bytes.TrimSpace(log), []byte{'\n'})
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	if len(all[0]) == 0 {
		return ""
	}
	return ": " + string(bytes.Join(all, []byte("; ")))
}

// OpenProgram opens a pinned program. An error that wraps [os.ErrNotExist]
// means that there is none.
func OpenProgram(path string) (*Program, error) {
	fd, err := open(path)
	if err != nil {
		return nil, err
	}
	return &Program{fd}, nil
}

type byIDAttr struct {
	id uint32
	_  [2]uint32 // next ID, flags
}

// ProgramByID opens a program by its ID; it needs CAP_SYS_ADMIN.
func ProgramByID(id uint32) (*Program, error) {
	fd, err := call(unix.BPF_PROG_GET_FD_BY_ID, &byIDAttr{id: id})
	if err != nil {
		return nil, fmt.Errorf("open program %d: %w", id, err)
	}
	return &Program{object{fd}}, nil
}

// programInfo is the beginning of struct bpf_prog_info.
type programInfo struct {
	_, id uint32 // type
	tag   [8]byte
	_     uint32 // length of the machine's code
	bytes uint32
	_     uint64 // the machine's code
	code  unsafe.Pointer
	_     uint64 // load time
	_     uint32 // created by
	nMaps uint32
	maps  unsafe.Pointer
	name  objectName
}

type testRunAttr struct {
	program, verdict uint32
	inBytes, _       uint32 // size of the output
	in               unsafe.Pointer
	_                uint64    // output
	_                [4]uint32 // repeat, duration, sizes of contexts
	_                [2]uint64 // contexts
}

// Run sends a copy of an Ethernet frame through the program, once and on no
// device, and returns the verdict. The kernel refuses frames below 14 bytes.
func (p *Program) Run(frame []byte) (int32, error) {
	attr := testRunAttr{program: uint32(p.fd), inBytes: uint32(len(frame)), in: pointer(frame)}
	if _, err := call(unix.BPF_PROG_TEST_RUN, &attr); err != nil {
		return 0, fmt.Errorf("test run: %w", err)
	}
	return int32(attr.verdict), nil
}

// ProgramInfo is what the kernel tells of a program.
type ProgramInfo struct {
	ID   uint32
	Name string
	// Tag is the kernel's digest of the instructions, the same for every copy of a
	// program whatever maps it has.
	Tag [8]byte
	// MapIDs are the IDs of the maps that the program uses, 0 where there is none.
	MapIDs [16]uint32
}

// Uses says whether the program uses a map, by the map's ID.
func (i *ProgramInfo) Uses(mapID uint32) bool {
	return mapID != 0 && slices.Contains(i.MapIDs[:], mapID)
}

// Code returns the program's instructions as the kernel runs them, before they are compiled
// for the processor; nil if they are more than a number of bytes, or the caller may not read them. It needs
// CAP_BPF; a kernel that hides constants from programs (bpf_jit_harden) needs CAP_SYSLOG too.
func (p *Program) Code(atMost int) ([]byte, error) {
	var i programInfo
	if err := info(&p.object, &i); err != nil {
		return nil, fmt.Errorf("length of program: %w", err)
	}
	if i.bytes == 0 || int(i.bytes) > atMost {
		return nil, nil
	}
	code := make([]byte, i.bytes)
	i = programInfo{bytes: i.bytes, code: pointer(code)}
	if err := info(&p.object, &i); err != nil {
		return nil, fmt.Errorf("instructions of program: %w", err)
	}
	if i.code == nil {
		return nil, nil
	}
	return code[:min(int(i.bytes), len(code))], nil
}

// Info asks the kernel about the program.
func (p *Program) Info() (ProgramInfo, error) {
	var is ProgramInfo
	i := programInfo{nMaps: uint32(len(is.MapIDs)), maps: unsafe.Pointer(&is.MapIDs)}
	if err := info(&p.object, &i); err != nil {
		return ProgramInfo{}, fmt.Errorf("program: %w", err)
	}
	is.ID, is.Name, is.Tag = i.id, i.name.String(), i.tag
	return is, nil
}

// Attach types of TCX programs.
const (
	TCXIngress = unix.BPF_TCX_INGRESS
	TCXEgress  = unix.BPF_TCX_EGRESS
)

// Link is an open link.
type Link struct{ object }

type linkAttr struct {
	program, ifindex, attachType, flags uint32
	_                                   uint64 // anchor
	revision                            uint64
}

// AttachTCXHead makes a link that has the program run first on a hook of the
// device with this index in the caller's network namespace. revision belongs to
// the list the caller saw, 0 for whatever it is; if it is another one by now,
// the error wraps [unix.ESTALE]. It waits for RCU under RTNL, 11 to 16 ms
// on Linux 6.18.
func AttachTCXHead(p *Program, ifindex int, attachType uint32, revision uint64) (*Link, error) {
	// Before nothing in particular is before everything.
	fd, err := call(unix.BPF_LINK_CREATE, &linkAttr{
		program: uint32(p.fd), ifindex: uint32(ifindex), attachType: attachType, flags: unix.BPF_F_BEFORE,
		revision: revision,
	})
	if err != nil {
		return nil, fmt.Errorf("make link: %w", err)
	}
	return &Link{object{fd}}, nil
}

// OpenLink opens a pinned link. An error that wraps [os.ErrNotExist] means that
// there is none.
func OpenLink(path string) (*Link, error) {
	fd, err := open(path)
	if err != nil {
		return nil, err
	}
	return &Link{fd}, nil
}

// LinkByID opens a link by its ID; it needs CAP_SYS_ADMIN. An error that wraps
// [unix.ENOENT] means that there is none any more.
func LinkByID(id uint32) (*Link, error) {
	fd, err := call(unix.BPF_LINK_GET_FD_BY_ID, &byIDAttr{id: id})
	if err != nil {
		return nil, fmt.Errorf("open link %d: %w", id, err)
	}
	return &Link{object{fd}}, nil
}

// linkInfo is the beginning of struct bpf_link_info.
type linkInfo struct {
	_           uint32 // type
	id, program uint32
}

func (l *Link) info() (i linkInfo, err error) {
	if err := info(&l.object, &i); err != nil {
		return i, fmt.Errorf("link: %w", err)
	}
	return i, nil
}

// ProgramID is the ID of the program that the link holds.
func (l *Link) ProgramID() (uint32, error) {
	i, err := l.info()
	return i.program, err
}

// Same says that both are one link of the kernel's.
func (l *Link) Same(other *Link) (bool, error) {
	one, err := l.info()
	if err != nil {
		return false, err
	}
	two, err := other.info()
	return err == nil && one.id == two.id, err
}

// Update puts another program in the place of the one that the link holds; every
// packet meets the one or the other. A link that was detached is an error
// wrapping [unix.ENOLINK].
func (l *Link) Update(p *Program) error {
	_, err := call(unix.BPF_LINK_UPDATE, &struct{ link, program, flags, _ uint32 }{link: uint32(l.fd), program: uint32(p.fd)})
	if err != nil {
		return fmt.Errorf("update link: %w", err)
	}
	return nil
}

// Detach takes the program off its hook now, whoever holds the link.
func (l *Link) Detach() error {
	_, err := call(unix.BPF_LINK_DETACH, &struct{ fd uint32 }{uint32(l.fd)})
	return err
}

type queryAttr struct {
	ifindex, attachType uint32
	_                   [2]uint32 // flags
	programs            unsafe.Pointer
	count, _            uint32
	_                   uint64 // their flags
	links               unsafe.Pointer
	_                   uint64 // flags of the links
	revision            uint64
}

// hookPrograms is the most programs that a hook can have
// (BPF_MPROG_MAX in linux/bpf_mprog.h).
const hookPrograms = 64

// TCXList is what is on a TCX hook.
type TCXList struct {
	// Programs are the IDs, in the order they run.
	Programs []uint32
	// Links are the IDs of the links that hold them, 0 where that is no link.
	Links []uint32
	// Revision is raised by the kernel with every change, 0 if the hook never
	// had a program.
	Revision uint64
}

// QueryTCX reads a hook of the device with this index in the caller's network
// namespace. Without TCX the kernel answers EINVAL.
func QueryTCX(ifindex int, attachType uint32) (TCXList, error) {
	var ids, links [hookPrograms]uint32
	attr := queryAttr{
		ifindex: uint32(ifindex), attachType: attachType,
		programs: unsafe.Pointer(&ids), links: unsafe.Pointer(&links), count: hookPrograms,
	}
	_, err := call(unix.BPF_PROG_QUERY, &attr)
	if errors.Is(err, unix.ENOENT) {
		return TCXList{}, nil
	}
	if err != nil {
		return TCXList{}, fmt.Errorf("query hook: %w", err)
	}
	return TCXList{Programs: ids[:attr.count], Links: links[:attr.count], Revision: attr.revision}, nil
}
