// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package image holds the BPF programs as the kernel takes them, and the Go
// types of bpf/lib/abi.h.
//
// It is the object of package bpf with everything done that does not depend on
// the node, so that a process that starts for each pod neither reads an ELF file
// nor holds the code to read one: that was 2 MB of its memory. imagegen makes
// it; a test proves that it says what the object says.
package image

import (
	"crypto/sha1"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"fmt"
	"slices"
)

//go:generate go run ./imagegen ../podweir_bpfel.o generated.go instructions.bin

//go:embed instructions.bin
var instructions string

// License is the licence of every program.
const License = "Dual BSD/GPL"

// Size of struct bpf_insn, and what it has in a 64-bit immediate load of a map, in
// the call of a helper and in "r0 = -1" (linux/bpf.h).
const (
	instructionBytes = 8
	sourceByte       = 1
	sourceShift      = 4
	immediateByte    = 4
	pseudoMapFD      = 1
)

var (
	readKernel = [instructionBytes]byte{0: 0x85, immediateByte: 113}
	failed     = [instructionBytes]byte{0: 0xb7, 4: 0xff, 5: 0xff, 6: 0xff, 7: 0xff}
)

// Map is what is requested of the kernel. Type and Flags are numbers of
// linux/bpf.h.
type Map struct {
	Name                             string
	Type                             uint32
	KeyBytes, ValueBytes, MaxEntries uint32
	Flags                            uint32
	// Inner names the map that the entries of an array of maps are like.
	Inner string
}

// Program is one program; all are of type BPF_PROG_TYPE_SCHED_CLS.
type Program struct {
	Name       string
	references []reference
	from, to   int
	// carrier is the index of the instruction that loads the carrier, -1 if the
	// program needs no slot.
	carrier int
	// tags are those with each carrier that many pods share, by SHA-256 and by SHA-1: to work them out took 1 % of
	// an ADD.
	tags [][2][8]byte
}

// Carrier says how a program learns the slot of its packet.
type Carrier uint32

// FirstSlot is the lowest number of a slot, PW_FIRST_SLOT in bpf/lib/abi.h.
const FirstSlot = 256

// The carriers of programs that many pods share; any other is the number of the
// one slot that a program serves.
const (
	// ByClassID is the classid of the filter that a program is on.
	ByClassID Carrier = iota
	// ByHostEgress and ByHostIngress are the device at the host side.
	ByHostEgress
	ByHostIngress
)

// HasTag says whether a program to which the kernel gave this tag is this one with
// a carrier, whatever maps it has. A tag is the beginning of the SHA-1 of the
// instructions, since Linux 6.18 of the SHA-256 (bpf_prog_calc_tag in
// kernel/bpf/core.c).
func (p *Program) HasTag(tag [8]byte, carrier Carrier) bool {
	if int(carrier) < len(p.tags) && slices.Contains(p.tags[carrier][:], tag) {
		return true
	}
	none := make(map[string]int)
	for _, r := range p.references {
		none[r.mapName] = 0
	}
	text, err := p.Link(none, carrier)
	return err == nil && (hasTag(text, tag) || hasTag(Unsighted(text), tag))
}

func hasTag(text []byte, tag [8]byte) bool {
	if newer := sha256.Sum256(text); [8]byte(newer[:8]) == tag {
		return true
	}
	older := sha1.Sum(text)
	return [8]byte(older[:8]) == tag
}

// Unsighted is what Link returned for a kernel that lets no program read its memory,
// as in the lockdown mode "confidentiality": every read fails, and the program does
// without.
func Unsighted(text []byte) []byte {
	out := slices.Clone(text)
	for at := 0; at < len(out); at += instructionBytes {
		if [instructionBytes]byte(out[at:]) == readKernel {
			copy(out[at:], failed[:])
		}
	}
	return out
}

// reference is an instruction, by its index, that names a map.
type reference struct {
	instruction int
	mapName     string
}

// ProgramByName returns a program; an unknown name is an error.
func ProgramByName(name string) (Program, error) {
	for i := range programs {
		if programs[i].Name == name {
			return programs[i], nil
		}
	}
	return Program{}, fmt.Errorf("no BPF program %q", name)
}

// MapByName returns a map; an unknown name is an error.
func MapByName(name string) (Map, error) {
	for _, m := range maps {
		if m.Name == name {
			return m, nil
		}
	}
	return Map{}, fmt.Errorf("no BPF map %q", name)
}

// MapNames are the maps that the program uses, each once.
func (p *Program) MapNames() []string {
	var names []string
	for _, r := range p.references {
		if !slices.Contains(names, r.mapName) {
			names = append(names, r.mapName)
		}
	}
	return names
}

// Carried says whether the program is another one with another carrier.
func (p *Program) Carried() bool { return p.carrier >= 0 }

// Link returns the instructions with the file descriptors of the maps and the
// carrier in place. A map that is missing is an error.
func (p *Program) Link(fds map[string]int, carrier Carrier) ([]byte, error) {
	out := []byte(instructions[p.from:p.to])
	if p.Carried() {
		binary.LittleEndian.PutUint32(out[p.carrier*instructionBytes+immediateByte:], uint32(carrier))
	}
	for _, r := range p.references {
		fd, ok := fds[r.mapName]
		if !ok {
			return nil, fmt.Errorf("program %s: no map %s to link", p.Name, r.mapName)
		}
		ins := out[r.instruction*instructionBytes:]
		ins[sourceByte] = ins[sourceByte]&(1<<sourceShift-1) | pseudoMapFD<<sourceShift
		binary.LittleEndian.PutUint32(ins[immediateByte:], uint32(fd))
	}
	return out, nil
}
