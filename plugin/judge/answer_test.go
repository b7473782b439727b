// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package judge_test

import (
	"encoding/binary"
	"testing"

	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/terms"
)

// insn is one instruction: opcode, registers (source above destination), offset, constant.
func insn(op, regs byte, offset int16, constant int32) []byte {
	b := []byte{op, regs, 0, 0, 0, 0, 0, 0}
	binary.NativeEndian.PutUint16(b[2:], uint16(offset))
	binary.NativeEndian.PutUint32(b[4:], uint32(constant))
	return b
}

func program(all ...[]byte) (code []byte) {
	for _, i := range all {
		code = append(code, i...)
	}
	return code
}

func returns(v int32) []byte { return program(insn(0xb7, 0, 0, v), insn(0x95, 0, 0, 0)) }

// What a program does with every packet follows from its instructions, or is not known.
func TestAnswers(t *testing.T) {
	t.Parallel()
	exit, call := insn(0x95, 0, 0, 0), insn(0x85, 0, 0, 1)
	load := insn(0x61, 0x10, 0, 0) // r0 = *(u32 *)(r1 + 0)
	const tcx, clsact = terms.HookKindTCX, terms.HookKindClsact
	for name, tt := range map[string]struct {
		code   []byte
		kind   terms.HookKind
		direct bool
		// match is what the actions of a filter do.
		match judge.Answer
		want  judge.Answer
	}{
		"next":                             {returns(-1), tcx, true, 0, judge.AnswerNext},
		"ends":                             {returns(0), tcx, true, 0, judge.AnswerEnds},
		"drops":                            {returns(2), tcx, true, 0, judge.AnswerDrops},
		"redirects":                        {returns(7), tcx, true, 0, judge.AnswerEnds},
		"a value that TCX does not know":   {returns(3), tcx, true, 0, judge.AnswerNext},
		"trap is for filters alone":        {returns(8), tcx, true, 0, judge.AnswerNext},
		"a filter traps":                   {returns(8), clsact, true, 0, judge.AnswerEnds},
		"a filter ends":                    {returns(0), clsact, true, 0, judge.AnswerEnds},
		"a filter that matches none":       {returns(0), clsact, false, 0, judge.AnswerNext},
		"a filter that matches all":        {returns(-1), clsact, false, judge.AnswerEnds, judge.AnswerEnds},
		"one that matches all by a class":  {returns(1), clsact, false, judge.AnswerDrops, judge.AnswerDrops},
		"one with actions not known":       {returns(-1), clsact, false, 0, judge.AnswerUnknown},
		"one that matches all or none":     {program(insn(0x15, 1, 2, 0), returns(0), returns(-1)), clsact, false, judge.AnswerEnds, judge.AnswerUnknown},
		"in a 64-bit constant":             {program(insn(0x18, 0, 0, -1), insn(0, 0, 0, -1), exit), tcx, true, 0, judge.AnswerNext},
		"counts, then ends":                {program(call, insn(0x15, 0, 1, 0), insn(0xdb, 0x10, 0, 0), insn(0xb4, 0, 0, 0), exit), tcx, true, 0, judge.AnswerEnds},
		"drops or accepts":                 {program(insn(0x15, 1, 2, 0), returns(0), returns(2)), tcx, true, 0, judge.AnswerEnds},
		"by another register":              {program(insn(0xb7, 6, 0, 0), call, insn(0xbf, 0x60, 0, 0), exit), tcx, true, 0, judge.AnswerEnds},
		"cleared by itself":                {program(call, insn(0xac, 0, 0, 0), exit), tcx, true, 0, judge.AnswerEnds},
		"a loop":                           {program(insn(0xb7, 0, 0, 0), insn(0x15, 1, -1, 0), exit), tcx, true, 0, judge.AnswerEnds},
		"a jump over what is never run":    {program(insn(0x05, 0, 2, 0), insn(0xb7, 0, 0, 2), exit, insn(0xb7, 0, 0, -1), exit), tcx, true, 0, judge.AnswerNext},
		"what a helper returns":            {program(call, exit), tcx, true, 0, judge.AnswerUnknown},
		"what is in the packet":            {program(load, exit), tcx, true, 0, judge.AnswerUnknown},
		"what was added up":                {program(insn(0xb7, 0, 0, 0), insn(0x07, 0, 0, 2), exit), tcx, true, 0, judge.AnswerUnknown},
		"next, or a value from the packet": {program(insn(0x15, 1, 2, 0), returns(-1), load, exit), tcx, true, 0, judge.AnswerUnknown},
		"a tail call":                      {program(insn(0x85, 0, 0, 12), returns(-1)), tcx, true, 0, judge.AnswerUnknown},
		"code that ends in the middle":     {program(insn(0xb7, 0, 0, 0)), tcx, true, 0, judge.AnswerUnknown},
		"none that may be read":            {nil, tcx, true, 0, judge.AnswerUnknown},
	} {
		got := judge.ReadVerdicts(tt.code).Answer(tt.kind, tt.direct, tt.match)
		if got != tt.want {
			t.Errorf("%s: it %v, want that it %v", name, got, tt.want)
		}
	}
}

// Who answers the same to every packet is judged without a name.
func TestStandBesideConstants(t *testing.T) {
	t.Parallel()
	for answer, want := range map[judge.Answer]judge.Standing{
		judge.AnswerUnknown: judge.Behind, judge.AnswerNext: judge.First, judge.AnswerEnds: judge.Starved, judge.AnswerDrops: judge.Starved,
	} {
		ahead := stranger
		ahead.Answer = answer
		got := on(terms.SideHost, ahead, mine).Stand(mine.ProgramID, nil)
		if got.Standing != want {
			t.Errorf("behind a program that %v: %v, want %v", answer, got.Standing, want)
		}
	}
}
