// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package order decides where a program of podweir's goes on a hook that others
// use too, and judges afterwards whether it stands there and is asked.
//
// It is pure: who queries and attaches gives it what was observed.
package order

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/podweir/podweir/compat/profiles"
)

// Program is one program on a hook.
type Program struct {
	ID     uint32 `json:"id"`
	LinkID uint32 `json:"linkId,omitempty"`
	Name   string `json:"name"`
	// Ours says that podweir attached it.
	Ours bool `json:"ours,omitempty"`
	// Pref and Handle are the place of a legacy filter.
	Pref   uint16 `json:"pref,omitempty"`
	Handle uint32 `json:"handle,omitempty"`
	// NotBPF says that a legacy filter is no BPF program.
	NotBPF bool `json:"notBpf,omitempty"`
}

func (p Program) String() string {
	text := fmt.Sprintf("%s (program %d)", p.Name, p.ID)
	if p.NotBPF {
		text = p.Name + " filter"
	}
	if p.Pref != 0 {
		text += fmt.Sprintf(" at preference %d", p.Pref)
	}
	return text
}

// Hook is one hook of a device as it was observed.
type Hook struct {
	Direction profiles.HookDirection `json:"direction"`
	// Revision is the mprog revision of the TCX list, 0 if the kernel has none.
	Revision uint64 `json:"revision,omitempty"`
	// TCX are the programs of the mprog list, in the order they run; they are
	// asked before every legacy filter.
	TCX []Program `json:"tcx,omitempty"`
	// Legacy are the filters of clsact, by preference; of one preference, the
	// newest first.
	Legacy []Program `json:"legacy,omitempty"`
	// Unread says that the hook, or part of it, could not be read.
	Unread string `json:"unread,omitempty"`
}

// Where is the place of an attachment in an mprog list.
type Where string

// The places. The mprog API has more; podweir needs these.
const (
	// AtHead is in front of everybody (BPF_F_BEFORE without an anchor).
	AtHead Where = "head"
	// BeforeProgram is directly in front of Placement.Anchor.
	BeforeProgram Where = "before"
)

// Placement says how to attach.
type Placement struct {
	// Kind is HookTCX or HookClsact.
	Kind   profiles.HookKind
	Where  Where
	Anchor Program
	// Revision is the expected revision of the list: the kernel refuses the
	// attachment (ESTALE) if somebody was faster. 0 asks for none.
	Revision uint64
	// There says that one of ours stands right already and nothing is to do.
	There bool
}

func (p Placement) String() string {
	switch {
	case p.There:
		return "podweir is there"
	case p.Kind == profiles.HookTCX && p.Where == BeforeProgram:
		return "before " + p.Anchor.String()
	case p.Kind == profiles.HookTCX:
		return "alone"
	default:
		return "a filter, alone"
	}
}

var (
	// ErrHeld says that clsact is wanted where somebody else has a program.
	ErrHeld = errors.New("another party has a program on this hook, which is asked before a filter or shares its place")
	// ErrRefused says that the profile rules the mode out.
	ErrRefused = errors.New("ruled out beside this CNI")
	// ErrUnread says that nothing may be decided without knowing who is there.
	ErrUnread = errors.New("the hook cannot be read")
)

// Place decides where a program of ours goes on a hook of the host side for a
// mode. It goes to the head of a TCX list: whoever ends the chain comes after
// us, and we never end it. Clsact is given only where nobody else is, on either
// list, and where the profile expects nobody.
//
// Errors wrap [ErrHeld], [ErrRefused] or [ErrUnread].
func Place(h *Hook, p *profiles.Profile, mode profiles.Mode, attach *profiles.Attach) (Placement, error) {
	if why := attach.Refused[mode]; why != "" {
		return Placement{}, fmt.Errorf("mode %s: %w (%s): %s", mode, ErrRefused, p.Name, why)
	}
	if h.Unread != "" {
		return Placement{}, fmt.Errorf("mode %s: %w: %s", mode, ErrUnread, h.Unread)
	}
	switch mode {
	case profiles.ModeTCXHostSide, profiles.ModeTCXPodSide:
		return placeTCX(h), nil
	case profiles.ModeClsactHostSide, profiles.ModeClsactPodSide:
		// A filter is asked behind every TCX program, so each of them counts.
		if other := firstOther(slices.Concat(h.TCX, h.Legacy)); other != nil {
			return Placement{}, fmt.Errorf("mode %s: %w: %v", mode, ErrHeld, other)
		}
		if mode == profiles.ModeClsactHostSide && p.Holds(profiles.HookClsact, h.Direction) {
			return Placement{}, fmt.Errorf("mode %s: %w: %s will have a filter there", mode, ErrHeld, p.Title)
		}
		return Placement{Kind: profiles.HookClsact, There: ours(h.Legacy) >= 0}, nil
	default:
		return Placement{}, fmt.Errorf("mode %q is not accepted, want tcx or clsact on one of the sides", mode)
	}
}

func placeTCX(h *Hook) Placement {
	out := Placement{Kind: profiles.HookTCX, Where: AtHead, Revision: h.Revision}
	switch at := ours(h.TCX); {
	case at == 0:
		out.There = true
	case len(h.TCX) > 0:
		// An anchor by name of program, besides the revision: a kernel that
		// ignores the one still keeps the other.
		out.Where, out.Anchor = BeforeProgram, h.TCX[0]
	}
	return out
}

// ours is the position of podweir's first program, -1 without one.
func ours(list []Program) int {
	return slices.IndexFunc(list, func(p Program) bool { return p.Ours })
}

func firstOther(list []Program) *Program {
	for i := range list {
		if !list[i].Ours {
			return &list[i]
		}
	}
	return nil
}

// Standing is how a program of ours stands on a hook.
type Standing string

// The standings, from good to bad.
const (
	// First: nobody is asked before us.
	First Standing = "first"
	// Behind: somebody is asked before us of whom it is not known that he ends
	// the chain.
	Behind Standing = "behind"
	// Starved: somebody before us ends the chain, so we see nothing.
	Starved Standing = "starved"
	// Missing: ours is not there.
	Missing Standing = "missing"
	// NotKnown: the hook could not be read.
	NotKnown Standing = "unknown"
)

// Report is the verdict on a hook that was read back.
type Report struct {
	Standing Standing
	// Ahead are the programs of others that are asked before us.
	Ahead []Program
	// By is who ends the chain before us, nil unless Starved.
	By *Program
	// Moved says that somebody came ahead since the attachment, so that moving
	// back to the head mends it.
	Moved bool
}

func (r Report) String() string {
	names := make([]string, len(r.Ahead))
	for i, p := range r.Ahead {
		names[i] = p.String()
	}
	ahead := strings.Join(names, ", ")
	switch r.Standing {
	case First:
		return "podweir is asked first"
	case Behind:
		return ahead + " ahead of podweir: whether it lets packets on is not known"
	case Starved:
		return fmt.Sprintf("%v ends the chain: podweir sees no packet", *r.By)
	case Missing:
		return "podweir's program is not on the hook"
	case NotKnown:
		return "the hook could not be read"
	default:
		return "invalid"
	}
}

// Judge reads an order back. program is the id of ours; kind is where it was
// attached. What a foreign program answers cannot be read from it: programs of
// the CNI are known by name, of any other it is unknown.
func Judge(h *Hook, p *profiles.Profile, kind profiles.HookKind, program uint32) Report {
	if h.Unread != "" {
		return Report{Standing: NotKnown}
	}
	list := h.TCX
	if kind == profiles.HookClsact {
		// The whole TCX list is asked before the first legacy filter.
		list = slices.Concat(h.TCX, h.Legacy)
	}
	at := slices.IndexFunc(list, func(q Program) bool { return q.ID == program && q.Ours })
	if at < 0 {
		return Report{Standing: Missing}
	}
	out := Report{Standing: First}
	for _, q := range list[:at] {
		if q.Ours {
			continue
		}
		out.Ahead = append(out.Ahead, q)
		out.Moved = kind == profiles.HookTCX
		if out.By == nil && endsChain(p, h.Direction, q) {
			out.By, out.Standing = &q, Starved
		}
	}
	if len(out.Ahead) > 0 && out.Standing == First {
		out.Standing = Behind
	}
	return out
}

// endsChain says whether the CNI's profile knows a program as one that nobody
// is asked behind.
func endsChain(p *profiles.Profile, direction profiles.HookDirection, q Program) bool {
	for _, h := range p.Hooks {
		if h.Direction == direction && h.EndsChain == profiles.Yes && h.Names(q.Name) {
			return true
		}
	}
	return false
}

// Drift compares two observations of a hook and says what came ahead of ours
// in between, nil if nothing did.
func Drift(before, after *Hook, p *profiles.Profile, kind profiles.HookKind, program uint32) *Report {
	was, is := Judge(before, p, kind, program), Judge(after, p, kind, program)
	if was.Standing == is.Standing && slices.Equal(was.Ahead, is.Ahead) {
		return nil
	}
	return &is
}

// Strangers lists the programs on a hook that are neither ours nor, by name, the
// CNI's.
func Strangers(h *Hook, p *profiles.Profile) []Program {
	var out []Program
	for _, q := range slices.Concat(h.TCX, h.Legacy) {
		if !q.Ours && !p.OwnsProgram(q.Name) {
			out = append(out, q)
		}
	}
	return out
}
