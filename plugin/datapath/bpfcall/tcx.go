// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package bpfcall

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

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
	_       [2]uint32 // type, ID
	program uint32
}

// ProgramID is the ID of the program that the link holds.
func (l *Link) ProgramID() (uint32, error) {
	var i linkInfo
	if err := info(&l.object, &i); err != nil {
		return 0, fmt.Errorf("link: %w", err)
	}
	return i.program, nil
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
