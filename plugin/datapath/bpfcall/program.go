// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package bpfcall

import (
	"bytes"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

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
}

// MapIDs are the IDs of the maps that the program uses, at most 16.
func (p *Program) MapIDs() ([]uint32, error) {
	var ids [16]uint32
	i := programInfo{nMaps: uint32(len(ids)), maps: unsafe.Pointer(&ids)}
	if err := info(&p.object, &i); err != nil {
		return nil, fmt.Errorf("maps of program: %w", err)
	}
	return ids[:min(int(i.nMaps), len(ids))], nil
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
	var i programInfo
	if err := info(&p.object, &i); err != nil {
		return ProgramInfo{}, fmt.Errorf("program: %w", err)
	}
	return ProgramInfo{ID: i.id, Name: i.name.String(), Tag: i.tag}, nil
}
