// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package judge

import (
	"encoding/binary"

	"github.com/podweir/podweir/plugin/terms"
)

// Answer is what a program does with every packet, as far as its instructions show it.
type Answer uint8

// The answers.
const (
	// AnswerUnknown: it depends on the packet, or could not be read.
	AnswerUnknown Answer = iota
	// AnswerNext: every packet goes on to the next program.
	AnswerNext
	// AnswerEnds: no program after it sees a packet.
	AnswerEnds
	// AnswerDrops: it drops every packet.
	AnswerDrops
)

func (a Answer) String() string {
	switch a {
	case AnswerNext:
		return "lets every packet on"
	case AnswerEnds:
		return "ends the chain for every packet"
	case AnswerDrops:
		return "drops every packet"
	default:
		return "depends on the packet"
	}
}

// Then is the answer of two parts of a filter, of which the second one has what the first
// one lets on.
func (a Answer) Then(next Answer) Answer {
	switch {
	case a == AnswerNext:
		return next
	case a == AnswerUnknown && (next == AnswerEnds || next == AnswerDrops):
		return AnswerEnds
	}
	return a
}

// Control is what an action of a filter does with a packet, by the value that it returns,
// and whether no further action of the filter has it.
func Control(value int32) (does Answer, ends bool) {
	switch value {
	case actUnspec:
		return AnswerNext, true
	case actPipe: // accepted if it is the last one
		return AnswerEnds, false
	case actShot:
		return AnswerDrops, true
	case actOK, actStolen, actQueued, actRedirect, actTrap:
		return AnswerEnds, true
	}
	return AnswerUnknown, true
}

// What programs of traffic control return (linux/pkt_cls.h).
const (
	actUnspec   = -1
	actOK       = 0
	actShot     = 2
	actPipe     = 3
	actStolen   = 4
	actQueued   = 5
	actRedirect = 7
	actTrap     = 8
)

// Verdicts is the set of the values that a program may return: bit 0 is for -1, bit 1
// for 0, up to 14. None is what is not known yet.
type Verdicts uint16

const (
	// AnyVerdict is what a program may return of which nothing is known.
	AnyVerdict  Verdicts = 1<<16 - 1
	lastVerdict          = 14
)

func only(v int32) Verdicts {
	if v < actUnspec || v > lastVerdict {
		return AnyVerdict
	}
	return 1 << (v - actUnspec)
}

// Answer is what a program does that returns one of these values, on a hook of a kind. A
// filter without direct action takes every value but 0 for a match, of which its actions
// decide: match is their answer.
func (v Verdicts) Answer(kind terms.HookKind, direct bool, match Answer) Answer {
	if v == 0 || v == AnyVerdict {
		return AnswerUnknown
	}
	if kind == terms.HookKindClsact && !direct {
		switch {
		case v == only(actOK): // no match
			return AnswerNext
		case v&only(actOK) == 0:
			return match
		}
		return AnswerUnknown
	}
	ends := only(actOK) | only(actRedirect) | only(actShot)
	if kind == terms.HookKindClsact {
		ends |= only(actStolen) | only(actQueued) | only(actTrap)
	}
	switch {
	case v == only(actShot):
		return AnswerDrops
	case v&^ends == 0:
		return AnswerEnds
	case v&ends == 0: // the kernel takes what it does not know for next
		return AnswerNext
	default:
		return AnswerUnknown
	}
}

// What XDP programs return (linux/bpf.h). Every other value drops the packet.
const (
	xdpPass     = 2
	xdpTX       = 3
	xdpRedirect = 4
)

// XDP is what an XDP program does that returns one of these values.
func (v Verdicts) XDP() Answer {
	passes, elsewhere := only(xdpPass), only(xdpTX)|only(xdpRedirect)
	switch {
	case v == 0 || v == AnyVerdict:
		return AnswerUnknown
	case v == passes:
		return AnswerNext
	case v&(passes|elsewhere) == 0:
		return AnswerDrops
	case v&passes == 0:
		return AnswerEnds
	default:
		return AnswerUnknown
	}
}

// Of linux/bpf.h. An instruction has 8 bytes: the opcode, two registers, an offset and a
// constant. The opcode is a class and, within that, what is done.
const (
	insnBytes = 8
	maxInsns  = 4096
	// MaxCodeBytes bounds the work of [ReadVerdicts]: what is longer parses and looks up.
	MaxCodeBytes = maxInsns * insnBytes

	classMask                                        = 0x07
	classLD, classLDX, classSTX                      = 0x00, 0x01, 0x03
	classALU, classJMP, classJMP32, classALU64       = 0x04, 0x05, 0x06, 0x07
	doesMask, bySourceReg                            = 0xf0, 0x08
	doesXor, doesMov, doesJump, doesCall, doesReturn = 0xa0, 0xb0, 0x00, 0x80, 0x90

	opLoadImm64    = 0x18
	modeMask       = 0xe0
	modeAtomic     = 0xc0
	helperTailCall = 12

	registers    = 11
	callClobbers = 6
	returnsIn    = 0
	lowNibble    = 0x0f
)

// registerSet is what each register may hold.
type registerSet [registers]Verdicts

// ReadVerdicts returns what a program may return, whatever the packet and the maps hold;
// [AnyVerdict] if that does not follow from its instructions. Those are the kernel's, in the byte order of
// this machine. A program that may go on in another one by a tail call may return anything.
func ReadVerdicts(code []byte) Verdicts {
	n := len(code) / insnBytes
	if n == 0 || n > maxInsns {
		return AnyVerdict
	}
	at := make([]registerSet, n)
	for r := range at[0] {
		at[0][r] = AnyVerdict
	}
	returned := Verdicts(0)
	for todo := []int{0}; len(todo) > 0; {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		after := at[i]
		ways := instruction(code[i*insnBytes:]).run(&after)
		if ways == nil {
			return AnyVerdict
		}
		if len(ways) == 0 {
			returned |= after[returnsIn]
		}
		for _, way := range ways {
			to := i + way
			if to < 0 || to >= n {
				return AnyVerdict
			}
			if at[to].join(&after) {
				todo = append(todo, to)
			}
		}
	}
	return returned
}

// join adds what registers may hold on another way to an instruction.
func (s *registerSet) join(o *registerSet) (more bool) {
	was := *s
	for r := range s {
		s[r] |= o[r]
	}
	return *s != was
}

// instruction begins with one.
type instruction []byte

// run does to the registers what the instruction does, and returns how far the next one may
// be away: none for an exit, nil if nobody knows.
func (i instruction) run(regs *registerSet) []int {
	op, dst, src := i[0], int(i[1]&lowNibble), int(i[1]>>4)
	offset, constant := int(int16(binary.NativeEndian.Uint16(i[2:]))), int32(binary.NativeEndian.Uint32(i[4:]))
	if dst >= registers || src >= registers {
		return nil
	}
	next := []int{1}
	switch class := op & classMask; class {
	case classALU, classALU64:
		switch does := op & doesMask; {
		case does == doesMov && op&bySourceReg == 0:
			regs[dst] = only(constant)
		case does == doesMov && offset == 0:
			regs[dst] = regs[src]
		case does == doesXor && op&bySourceReg != 0 && dst == src:
			regs[dst] = only(0)
		default:
			regs[dst] = AnyVerdict
		}
	case classLD:
		if op == opLoadImm64 {
			if regs[dst] = AnyVerdict; src == 0 {
				regs[dst] = only(constant) // what is returned has 32 bits
			}
			return []int{2}
		}
		regs[returnsIn] = AnyVerdict
	case classLDX:
		regs[dst] = AnyVerdict
	case classSTX:
		if op&modeMask == modeAtomic { // it may fetch
			regs[src], regs[returnsIn] = AnyVerdict, AnyVerdict
		}
	case classJMP, classJMP32:
		switch does := op & doesMask; {
		case does == doesReturn && class == classJMP:
			return []int{}
		case does == doesCall && src == 0 && constant == helperTailCall:
			return nil
		case does == doesCall:
			for r := range callClobbers {
				regs[r] = AnyVerdict
			}
		case does == doesJump && class == classJMP32:
			return []int{1 + int(constant)}
		case does == doesJump:
			return []int{1 + offset}
		default:
			return []int{1, 1 + offset}
		}
	}
	return next
}
