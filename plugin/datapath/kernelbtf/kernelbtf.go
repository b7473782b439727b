// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package kernelbtf says where a kernel's structures have their members, by the type
// information (BTF) that the kernel has of itself. It knows as much of BTF as that
// takes: a process that starts for each pod would have to hold a whole library.
package kernelbtf

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Spec is type information as in /sys/kernel/btf/vmlinux, of this processor's byte
// order.
type Spec struct {
	types, names []byte
	// starts are where types begin; their numbers count from 1.
	starts []uint32
}

// Header and kinds of BTF (linux/btf.h).
const (
	magic       = 0xeb9f
	headerBytes = 24
	typeBytes   = 12

	kindInt      = 1
	kindArray    = 3
	kindStruct   = 4
	kindUnion    = 5
	kindEnum     = 6
	kindProto    = 13
	kindVar      = 14
	kindSection  = 15
	kindDeclTag  = 17
	kindEnum64   = 19
	kindShift    = 24
	kindMask     = 0x1f
	countMask    = 0xffff
	flagShift    = 31
	memberBytes  = 12
	offsetMask   = 1<<24 - 1
	bitsPerByte  = 8
	nestingLimit = 8
)

// moreBytes are what follows a type, and what follows it for each of its parts.
var moreBytes = [kindMask + 1]struct{ once, each int }{
	kindInt:     {4, 0},
	kindArray:   {12, 0},
	kindStruct:  {0, memberBytes},
	kindUnion:   {0, memberBytes},
	kindEnum:    {0, 8},
	kindProto:   {0, 8},
	kindVar:     {4, 0},
	kindSection: {0, 12},
	kindDeclTag: {4, 0},
	kindEnum64:  {0, 12},
}

var errShort = errors.New("BTF ends too early")

// Parse takes raw BTF, which it keeps.
func Parse(raw []byte) (*Spec, error) {
	if len(raw) < headerBytes {
		return nil, errShort
	}
	u32 := func(at int) uint64 { return uint64(binary.NativeEndian.Uint32(raw[at:])) }
	if got := binary.NativeEndian.Uint16(raw); got != magic {
		return nil, fmt.Errorf("BTF begins with %#x instead of %#x", got, magic)
	}
	header, size := u32(4), uint64(len(raw))
	types, names := header+u32(8), header+u32(16)
	if types+u32(12) > size || names+u32(20) > size {
		return nil, errShort
	}
	s := &Spec{types: raw[types : types+u32(12)], names: raw[names : names+u32(20)]}
	return s, s.index()
}

// index finds where the types begin.
func (s *Spec) index() error {
	const usualBytes = 32
	s.starts = make([]uint32, 0, len(s.types)/usualBytes)
	for at := 0; at < len(s.types); {
		if len(s.types)-at < typeBytes {
			return errShort
		}
		s.starts = append(s.starts, uint32(at))
		info := binary.NativeEndian.Uint32(s.types[at+4:])
		more := moreBytes[info>>kindShift&kindMask]
		at += typeBytes + more.once + more.each*int(info&countMask)
		if at > len(s.types) {
			return errShort
		}
	}
	return nil
}

// composite is a structure or union: whether it has bit fields, and its members.
type composite struct {
	bitFields bool
	members   []byte
}

func (s *Spec) composite(start uint32) (c composite, kind uint32) {
	info := binary.NativeEndian.Uint32(s.types[start+4:])
	kind = info >> kindShift & kindMask
	if kind != kindStruct && kind != kindUnion {
		return c, kind
	}
	first := int(start) + typeBytes
	return composite{info>>flagShift != 0, s.types[first : first+memberBytes*int(info&countMask)]}, kind
}

// Offset is where a structure has a member, in bytes. A member of a structure or
// union without a name in it counts as its own. It is an error if there is no such
// structure or member, or if the member is a bit field.
func (s *Spec) Offset(structure, member string) (uint32, error) {
	for _, start := range s.starts {
		if !s.named(binary.NativeEndian.Uint32(s.types[start:]), structure) {
			continue
		}
		c, kind := s.composite(start)
		if kind != kindStruct {
			continue
		}
		bits := s.member(c, member, nestingLimit)
		switch {
		case bits < 0:
			return 0, fmt.Errorf("struct %s has no member %s", structure, member)
		case bits%bitsPerByte != 0:
			return 0, fmt.Errorf("%s of struct %s does not begin with a byte", member, structure)
		}
		return uint32(bits / bitsPerByte), nil
	}
	return 0, fmt.Errorf("BTF has no struct %s", structure)
}

// member is the offset of a member in bits, -1 if there is none.
func (s *Spec) member(in composite, name string, nesting int) int64 {
	for parts := in.members; len(parts) > 0; parts = parts[memberBytes:] {
		its, number := binary.NativeEndian.Uint32(parts), binary.NativeEndian.Uint32(parts[4:])
		offset := int64(binary.NativeEndian.Uint32(parts[8:]))
		if in.bitFields { // the upper bits are the size of one
			offset &= offsetMask
		}
		if s.named(its, name) {
			return offset
		}
		if !s.named(its, "") || nesting == 0 || number == 0 || uint64(number) > uint64(len(s.starts)) {
			continue
		}
		inner, _ := s.composite(s.starts[number-1])
		if at := s.member(inner, name, nesting-1); at >= 0 {
			return offset + at
		}
	}
	return -1
}

// named says whether the name at an offset is this one.
func (s *Spec) named(offset uint32, name string) bool {
	if uint64(offset) > uint64(len(s.names)) {
		return false
	}
	rest := s.names[offset:]
	return len(rest) > len(name) && rest[len(name)] == 0 && string(rest[:len(name)]) == name
}
