// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package judge_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
)

var (
	cilFrom  = judge.Program{Kind: terms.HookKindTCX, ProgramID: 10, Name: "cil_from_contai"}
	mine     = judge.Program{Kind: terms.HookKindTCX, ProgramID: 20, Name: "pw_police", Ours: true}
	myFilter = judge.Program{Kind: terms.HookKindClsact, ProgramID: 21, Name: "pw_police", Ours: true, Pref: 49000}
	// namesake has no more of podweir's than the beginning of the name.
	namesake = judge.Program{Kind: terms.HookKindClsact, ProgramID: 22, Name: "pw_police", Pref: 1}
	stranger = judge.Program{Kind: terms.HookKindTCX, ProgramID: 30, Name: "tracer"}
	filter   = judge.Program{Kind: terms.HookKindClsact, ProgramID: 31, Name: "handle_egress", Pref: 1}
	u32      = judge.Program{Kind: terms.HookKindClsact, FilterKind: "u32", Pref: 1}
)

type list = []judge.Program

// cilium is what is known of one neighbour.
type cilium struct{}

func (cilium) EndsChain(h terms.Hook, name string) bool {
	return h == terms.HookIngress && name == cilFrom.Name
}

func on(side terms.Side, programs ...judge.Program) *judge.Chain {
	return &judge.Chain{Device: "veth1", Side: side, Hook: terms.HookIngress, Programs: programs}
}

// block is a hook of a device whose ingress has the filters of a tc block.
func block(h terms.Hook) *judge.Chain {
	return &judge.Chain{Device: "veth1", Side: terms.SideHost, Hook: h, Blocks: judge.Blocks{Ingress: 7}}
}

func TestAttach(t *testing.T) {
	const pod, host, tcx, clsact = terms.SidePod, terms.SideHost, terms.HookKindTCX, terms.HookKindClsact
	byName := func(m terms.Mode) judge.Question { return judge.Question{Mode: m, TCX: true} }
	auto := byName(terms.ModeAuto)
	with := func(q judge.Question, change func(*judge.Question)) judge.Question {
		change(&q)
		return q
	}
	noTCX := func(q *judge.Question) { q.TCX = false }
	hostTCX := func(q *judge.Question) { q.Rules.HostTCX = true }
	podTCX := func(q *judge.Question) { q.Rules.PodTCX = true }
	for name, tc := range map[string]struct {
		ask   judge.Question
		chain *judge.Chain
		want  terms.HookKind
		err   error
		names string
	}{
		"nobody there":                     {auto, on(pod), clsact, nil, ""},
		"only ours":                        {auto, on(pod, mine, myFilter), clsact, nil, ""},
		"a foreign TCX program":            {auto, on(pod, stranger), tcx, nil, ""},
		"a foreign filter":                 {auto, on(host, filter), tcx, nil, ""},
		"that and no TCX":                  {with(auto, noTCX), on(host, filter), 0, judge.ErrHookTaken, `clsact filter "handle_egress" on ingress of veth1`},
		"a filter that is no program":      {with(auto, noTCX), on(host, u32), 0, judge.ErrHookTaken, `clsact filter "u32"`},
		"a namesake is foreign":            {auto, on(host, namesake), tcx, nil, ""},
		"it was TCX before":                {with(auto, func(q *judge.Question) { q.Prior = tcx }), on(pod), tcx, nil, ""},
		"the limit needs it, host side":    {with(auto, func(q *judge.Question) { q.Limits = true }), on(host), tcx, nil, ""},
		"the limit needs it, pod side":     {with(auto, func(q *judge.Question) { q.Limits = true }), on(pod), clsact, nil, ""},
		"an ingress qdisc":                 {auto, &judge.Chain{Side: pod, Hook: terms.HookEgress, IngressOnly: true}, tcx, nil, ""},
		"no filters on the host side":      {with(auto, hostTCX), on(host), tcx, nil, ""},
		"nor without TCX":                  {with(auto, func(q *judge.Question) { hostTCX(q); noTCX(q) }), on(host), 0, judge.ErrNoTCX, "hostHook is tcx"},
		"nor one that was there before":    {with(auto, func(q *judge.Question) { hostTCX(q); noTCX(q); q.Prior = clsact }), on(host, myFilter), 0, judge.ErrNoTCX, "hostHook is tcx"},
		"nor for a limit":                  {with(auto, func(q *judge.Question) { hostTCX(q); noTCX(q); q.Limits = true }), on(host), 0, judge.ErrNoTCX, "hostHook is tcx"},
		"they do not concern the pod side": {with(auto, hostTCX), on(pod), clsact, nil, ""},
		"no filters on the pod side":       {with(auto, podTCX), on(pod), tcx, nil, ""},
		"nor without TCX, pod side":        {with(auto, func(q *judge.Question) { podTCX(q); noTCX(q) }), on(pod), 0, judge.ErrNoTCX, "podHook is tcx"},
		"that does not concern the host":   {with(auto, podTCX), on(host), clsact, nil, ""},
		"nor an ifb":                       {with(auto, func(q *judge.Question) { podTCX(q); hostTCX(q); noTCX(q) }), on(terms.SideIFB), clsact, nil, ""},
		"clsact in the pod, refused":       {with(byName(terms.ModeClsactPodSide), podTCX), on(pod), 0, judge.ErrHookTaken, "mode clsact-podside is refused: podHook is tcx"},
		"an ingress qdisc and no TCX":      {with(auto, noTCX), &judge.Chain{Side: pod, Hook: terms.HookEgress, IngressOnly: true}, 0, judge.ErrHookTaken, "where clsact would have to be"},
		"a block":                          {auto, block(terms.HookIngress), tcx, nil, ""},
		"a block and no TCX":               {with(auto, noTCX), block(terms.HookIngress), 0, judge.ErrHookTaken, "ingress of veth1 has the filters of tc block 7"},
		"one of the other hook":            {with(auto, noTCX), block(terms.HookEgress), clsact, nil, ""},
		"clsact by name, a block":          {byName(terms.ModeClsactHostSide), block(terms.HookIngress), 0, judge.ErrHookTaken, "tc block 7"},
		"TCX by name":                      {byName(terms.ModeTCXHostSide), on(host, filter), tcx, nil, ""},
		"TCX by name, and none":            {with(byName(terms.ModeTCXPodSide), noTCX), on(pod), 0, judge.ErrNoTCX, "mode tcx-podside"},
		"clsact by name":                   {byName(terms.ModeClsactHostSide), on(host), clsact, nil, ""},
		"clsact by name beside ours":       {byName(terms.ModeClsactHostSide), on(host, myFilter), clsact, nil, ""},
		"clsact by name, another is there": {byName(terms.ModeClsactPodSide), on(pod, filter), 0, judge.ErrHookTaken, "handle_egress"},
		"clsact by name behind TCX":        {byName(terms.ModeClsactHostSide), on(host, stranger), 0, judge.ErrHookTaken, `TCX program "tracer" runs before every filter`},
		"clsact by name, refused":          {with(byName(terms.ModeClsactHostSide), hostTCX), on(host), 0, judge.ErrHookTaken, "mode clsact-hostside is refused"},
		"refused comes first":              {with(byName(terms.ModeClsactHostSide), hostTCX), on(host, stranger), 0, judge.ErrHookTaken, "mode clsact-hostside is refused"},
		"unread":                           {auto, &judge.Chain{Unread: "EPERM"}, 0, judge.ErrUnread, "EPERM"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.ask.Attach(tc.chain)
			must.Be(t, "Attach()", tc.want, got)
			must.Is(t, "Attach()", tc.err, err, tc.names)
		})
	}
}

// A filter never stands beside another party's program, whatever is requested.
func TestFilterNeverBesideOthers(t *testing.T) {
	for _, side := range []terms.Side{terms.SidePod, terms.SideHost} {
		for _, mode := range []terms.Mode{terms.ModeAuto, terms.ModeQdisc, terms.ModeClsactPodSide, terms.ModeClsactHostSide} {
			for _, other := range (list{filter, u32, stranger, namesake}) {
				for _, tcx := range []bool{true, false} {
					q := judge.Question{Mode: mode, TCX: tcx}
					if got, err := q.Attach(on(side, myFilter, other)); err == nil && got == terms.HookKindClsact {
						t.Errorf("%v on the %v side beside %v: %v, want no filter", mode, side, other, got)
					}
				}
			}
		}
	}
}

func TestRules(t *testing.T) {
	host := judge.Rules{HostTCX: true}
	profile := judge.Rules{Refused: map[terms.Mode]string{
		terms.ModeClsactHostSide: "it deletes the filters of others", terms.ModeTCXHostSide: "packets go past it",
	}}
	told, known := host.Mode(terms.ModeClsactHostSide), profile.Mode(terms.ModeClsactHostSide)
	if told == nil || known == nil || known.Error() != told.Error()+": it deletes the filters of others" {
		t.Errorf("refused with %v, and %v by who knows the CNI, want one sentence and what is known", told, known)
	}
	must.Be(t, "Mode(tcx-hostside)", "mode tcx-hostside is refused: packets go past it", must.Text(profile.Mode(terms.ModeTCXHostSide)))
	for _, m := range []terms.Mode{terms.ModeAuto, terms.ModeQdisc, terms.ModeTCXPodSide, terms.ModeClsactPodSide} {
		if err := errors.Join(host.Mode(m), profile.Mode(m), new(judge.Rules).Mode(m)); err != nil {
			t.Errorf("Mode(%v) = %v, want it allowed", m, err)
		}
	}
	must.OK(t, new(judge.Rules).Mode(terms.ModeClsactHostSide))
}

func TestStand(t *testing.T) {
	for name, tc := range map[string]struct {
		programs list
		program  uint32
		want     judge.Standing
		says     string
	}{
		"first":                   {list{mine, cilFrom}, mine.ProgramID, judge.First, "runs first"},
		"starved by Cilium":       {list{cilFrom, mine}, mine.ProgramID, judge.Starved, "cil_from_contai (program 10) ends the chain"},
		"behind a stranger":       {list{stranger, mine, cilFrom}, mine.ProgramID, judge.Behind, "tracer (program 30) ahead of podweir"},
		"stranger, then Cilium":   {list{stranger, cilFrom, mine}, mine.ProgramID, judge.Starved, "cil_from_contai"},
		"behind another of ours":  {list{mine, myFilter}, myFilter.ProgramID, judge.First, "first"},
		"missing":                 {list{cilFrom}, mine.ProgramID, judge.Missing, "not on the hook"},
		"same id, not ours":       {list{{ProgramID: 20, Name: "x"}}, mine.ProgramID, judge.Missing, "not on the hook"},
		"a filter behind TCX":     {list{cilFrom, myFilter}, myFilter.ProgramID, judge.Starved, "cil_from_contai"},
		"a filter behind another": {list{u32, myFilter}, myFilter.ProgramID, judge.Behind, "u32 filter at preference 1 ahead"},
	} {
		t.Run(name, func(t *testing.T) {
			got := on(terms.SideHost, tc.programs...).Stand(tc.program, cilium{})
			if got.Standing != tc.want || !strings.Contains(got.String(), tc.says) {
				t.Errorf("Stand() = %+v (%v), want %s saying %q", got, got, tc.want, tc.says)
			}
		})
	}
	unread := &judge.Chain{Unread: "EPERM", Programs: list{mine}}
	must.Be(t, "Stand() of what was not read", judge.NotKnown, unread.Stand(mine.ProgramID, cilium{}).Standing)
	// The same program on a hook where Cilium has none is nobody's that is known.
	out := on(terms.SideHost, cilFrom, mine)
	out.Hook = terms.HookEgress
	for _, known := range []judge.Neighbour{cilium{}, nil} {
		must.Be(t, "Stand(other direction)", judge.Behind, out.Stand(mine.ProgramID, known).Standing)
	}
}

func TestOthers(t *testing.T) {
	must.Match(t, "Others()", list{stranger, filter}, on(terms.SidePod, mine, stranger, myFilter, filter).Others())
}

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
		must.Be(t, name, tt.want, judge.ReadVerdicts(tt.code).Answer(tt.kind, tt.direct, tt.match))
	}
}

// XDP programs have other verdicts: what is neither passed on nor sent elsewhere is dropped.
func TestXDPAnswers(t *testing.T) {
	t.Parallel()
	for want, all := range map[judge.Answer][][]byte{
		judge.AnswerDrops: {returns(0), returns(1), returns(9), program(insn(0x15, 1, 2, 0), returns(0), returns(1))},
		judge.AnswerNext:  {returns(2)},
		judge.AnswerEnds:  {returns(3), returns(4), program(insn(0x15, 1, 2, 0), returns(1), returns(4))},
		judge.AnswerUnknown: {
			nil, program(insn(0x15, 1, 2, 0), returns(1), returns(2)), program(insn(0x15, 1, 2, 0), returns(2), returns(4)),
		},
	} {
		for _, code := range all {
			must.Be(t, fmt.Sprintf("%x", code), want, judge.ReadVerdicts(code).XDP())
		}
	}
}

// Whoever answers the same to every packet is judged without a name.
func TestStandBesideConstants(t *testing.T) {
	t.Parallel()
	for answer, want := range map[judge.Answer]judge.Standing{
		judge.AnswerUnknown: judge.Behind, judge.AnswerNext: judge.First, judge.AnswerEnds: judge.Starved, judge.AnswerDrops: judge.Starved,
	} {
		ahead := stranger
		ahead.Answer = answer
		got := on(terms.SideHost, ahead, mine).Stand(mine.ProgramID, nil)
		must.Be(t, fmt.Sprintf("behind a program that %v", answer), want, got.Standing)
	}
}
