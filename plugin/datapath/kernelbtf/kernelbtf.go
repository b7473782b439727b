// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package kernelbtf says where a kernel's structures have their members, by the type
// information (BTF) that the kernel has of itself. It knows as much of BTF as that
// takes: a process that starts for each pod would have to hold a whole library.
package kernelbtf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Spec is type information as in /sys/kernel/btf/vmlinux, of this processor's byte
// order.
type Spec struct {
	types, names []byte
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
	return &Spec{types: raw[types : types+u32(12)], names: raw[names : names+u32(20)]}, nil
}

// kernelType is one type, and the bytes of its parts.
type kernelType struct {
	name, info uint32
	parts      []byte
}

func (t *kernelType) kind() uint32 { return t.info >> kindShift & kindMask }

// each calls f for every type, whose numbers count from 1, until it returns false.
func (s *Spec) each(f func(id uint32, t *kernelType) bool) error {
	rest := s.types
	for id := uint32(1); len(rest) > 0; id++ {
		if len(rest) < typeBytes {
			return errShort
		}
		t := kernelType{name: binary.NativeEndian.Uint32(rest), info: binary.NativeEndian.Uint32(rest[4:])}
		more := moreBytes[t.kind()]
		end := typeBytes + more.once + more.each*int(t.info&countMask)
		if len(rest) < end {
			return errShort
		}
		t.parts, rest = rest[typeBytes:end], rest[end:]
		if !f(id, &t) {
			return nil
		}
	}
	return nil
}

// Offset is where a structure has a member, in bytes. A member of a structure or
// union without a name in it counts as its own. It is an error if there is no such
// structure or member, or if the member is a bit field.
func (s *Spec) Offset(structure, member string) (uint32, error) {
	var found *kernelType
	err := s.each(func(_ uint32, t *kernelType) bool {
		if t.kind() == kindStruct && s.named(t.name, structure) {
			found = t
		}
		return found == nil
	})
	if err != nil {
		return 0, err
	}
	if found == nil {
		return 0, fmt.Errorf("BTF has no struct %s", structure)
	}
	bits, err := s.member(found, member, nestingLimit)
	switch {
	case err != nil:
		return 0, err
	case bits < 0:
		return 0, fmt.Errorf("struct %s has no member %s", structure, member)
	case bits%bitsPerByte != 0:
		return 0, fmt.Errorf("%s of struct %s does not begin with a byte", member, structure)
	}
	return uint32(bits / bitsPerByte), nil
}

// member is the offset of a member in bits, -1 if there is none.
func (s *Spec) member(in *kernelType, name string, nesting int) (int64, error) {
	for parts := in.parts; len(parts) > 0; parts = parts[memberBytes:] {
		its, id := binary.NativeEndian.Uint32(parts), binary.NativeEndian.Uint32(parts[4:])
		offset := int64(binary.NativeEndian.Uint32(parts[8:]))
		if in.info>>flagShift != 0 { // the upper bits are the size of a bit field
			offset &= offsetMask
		}
		if s.named(its, name) {
			return offset, nil
		}
		if !s.named(its, "") || nesting == 0 {
			continue
		}
		inner, err := s.nested(id, name, nesting-1)
		if err != nil || inner >= 0 {
			return offset + inner, err
		}
	}
	return -1, nil
}

// nested is member of a structure or union by its number.
func (s *Spec) nested(number uint32, name string, nesting int) (int64, error) {
	var found *kernelType
	err := s.each(func(id uint32, t *kernelType) bool {
		if id == number {
			found = t
		}
		return id < number
	})
	if err != nil || found == nil || found.kind() != kindStruct && found.kind() != kindUnion {
		return -1, err
	}
	return s.member(found, name, nesting)
}

// named says whether the name at an offset is this one.
func (s *Spec) named(offset uint32, name string) bool {
	if uint64(offset) > uint64(len(s.names)) {
		return false
	}
	rest, ok := bytes.CutPrefix(s.names[offset:], []byte(name))
	return ok && len(rest) > 0 && rest[0] == 0
}
