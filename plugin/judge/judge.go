// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package judge says whether podweir may attach to a hook that others use too, in
// which way, and who else is there. It is the only one to say so: ADD, CHECK, the
// agent, the delivery of the node's configuration, the commands and the doctor ask it.
//
// It is pure: whoever asks gives it what was observed, and what is known of the CNI.
package judge

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/podweir/podweir/plugin/terms"
)

// Program is a program or filter of any party on a hook of a device.
type Program struct {
	// Kind is TCX, or clsact for a filter.
	Kind terms.HookKind
	Hook terms.Hook
	// ProgramID is 0 for a filter that is no BPF program.
	ProgramID uint32
	Name      string
	// FilterKind is the kernel's name of a filter's kind, bpf for a program.
	FilterKind string
	// Tag is the kernel's digest of the program.
	Tag [8]byte
	// Ours says that podweir made it: whoever reads the hook finds that out by the
	// program's maps, its tag and its place.
	Ours bool
	// Current says that it is a program of podweir's, and of this build.
	Current bool
	// Slot is the slab's slot that it serves there, 0 if none.
	Slot uint32
	// Direct says that what a filter returns is the verdict.
	Direct bool
	// Answer is what it does with every packet. It is looked for in programs of others, and
	// where that is shown to people; that of other filters is always known.
	Answer Answer
	// Match is what a filter without direct action does with a packet that it matches.
	Match Answer
	// Pref and FilterHandle are the position of a clsact filter.
	Pref         uint16
	FilterHandle uint32
	// RedirectIndex is where the filter's mirred action sends to, 0 if it has
	// none.
	RedirectIndex int
}

// String names it for people.
func (p Program) String() string {
	text := fmt.Sprintf("%s (program %d)", p.Name, p.ProgramID)
	if p.ProgramID == 0 {
		text = p.FilterKind + " filter"
	}
	if p.Pref != 0 {
		text += fmt.Sprintf(" at preference %d", p.Pref)
	}
	return text
}

// Blocks are the numbers of the tc blocks of a device's hooks, 0 for none. A block is a list of
// filters that hooks of several devices may share; the kernel refuses to change it by one of
// them.
type Blocks struct{ Ingress, Egress uint32 }

// Chain is what is on one shared hook of a device.
type Chain struct {
	// Device is its name.
	Device string
	Side   terms.Side
	Hook   terms.Hook
	// Programs of all parties, in the order they run: those of TCX before every
	// filter.
	Programs []Program
	// IngressOnly says that the device has an ingress qdisc in place of clsact,
	// with no hook for what leaves.
	IngressOnly bool
	// Blocks are those of the device.
	Blocks Blocks
	// Unread says why the hook, or part of it, could not be read.
	Unread string
}

// FirstOther is whom of other parties the hook asks first, nil if nobody else is
// there.
func (c *Chain) FirstOther() *Program {
	for i := range c.Programs {
		if !c.Programs[i].Ours {
			return &c.Programs[i]
		}
	}
	return nil
}

// Others are the programs of other parties.
func (c *Chain) Others() []Program {
	var all []Program
	for i := range c.Programs {
		if !c.Programs[i].Ours {
			all = append(all, c.Programs[i])
		}
	}
	return all
}

// Closed says why no filter of podweir's can stand on the hook, whoever is there, "" if one can.
func (c *Chain) Closed() string {
	block := c.Blocks.Ingress
	if c.Hook == terms.HookEgress {
		block = c.Blocks.Egress
	}
	switch {
	case c.Hook == terms.HookEgress && c.IngressOnly:
		return fmt.Sprintf("the ingress qdisc of %s is where clsact would have to be", c.Device)
	case block != 0:
		return fmt.Sprintf("%v of %s has the filters of tc block %d, which other devices may share", c.Hook, c.Device, block)
	default:
		return ""
	}
}

// The errors of this package that callers tell apart.
var (
	// ErrHookTaken: a hook cannot be shared with the party that holds it.
	ErrHookTaken = errors.New("hook is held by another party")
	// ErrNoTCX: the kernel has none.
	ErrNoTCX = errors.New("the kernel has no TCX (Linux 6.6)")
	// ErrUnread: nothing may be decided without knowing who is there.
	ErrUnread = errors.New("the hook cannot be read")
)

// Rules are what the CNI beside podweir rules out, in one direction.
type Rules struct {
	// Refused are modes that must not be used, with the reason.
	Refused map[terms.Mode]string
	// HostTCX and PodTCX say that no filter of podweir's may stand on the host side, and
	// on the pod side. They are all that podweir-cni is told, by the keys hostHook and
	// podHook.
	HostTCX, PodTCX bool
}

// noHostFilter is why [terms.ModeClsactHostSide] is refused, whoever asks. That ADD is
// not told the name of the CNI makes no difference to the answer.
const noHostFilter = "hostHook is tcx, because filters on the host side are another party's, or it removes those of others"

// noPodFilter is why [terms.ModeClsactPodSide] is refused.
const noPodFilter = "podHook is tcx, because a runtime adds an ingress qdisc to the pod's device, which the kernel refuses beside clsact"

// RefusedError says that a mode is ruled out beside the node's CNI.
type RefusedError struct {
	Mode terms.Mode
	// Why is the same for all who ask, Detail what is known of the CNI.
	Why, Detail string
}

func (e *RefusedError) Error() string {
	text := fmt.Sprintf("mode %v is refused: %s", e.Mode, e.Why)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// Is says that it is [ErrHookTaken].
func (*RefusedError) Is(target error) bool { return target == ErrHookTaken }

// Filters says whether filters of podweir's may stand on a side.
func (r *Rules) Filters(s terms.Side) bool {
	switch s {
	case terms.SidePod:
		return !r.PodTCX
	case terms.SideHost:
		return !r.HostTCX && r.Refused[terms.ModeClsactHostSide] == ""
	default:
		return true
	}
}

// Mode returns nil if a mode may be asked for, and a [*RefusedError] if not.
func (r *Rules) Mode(m terms.Mode) error {
	switch why := r.Refused[m]; {
	case m == terms.ModeClsactHostSide && !r.Filters(terms.SideHost):
		return &RefusedError{Mode: m, Why: noHostFilter, Detail: why}
	case m == terms.ModeClsactPodSide && !r.Filters(terms.SidePod):
		return &RefusedError{Mode: m, Why: noPodFilter, Detail: why}
	case why != "":
		return &RefusedError{Mode: m, Why: why}
	}
	return nil
}

// Question is whether, and how, a program may be attached to a hook.
type Question struct {
	// Mode is what was requested by name, auto if nothing was.
	Mode  terms.Mode
	Rules Rules
	// TCX says that the kernel has it.
	TCX bool
	// Prior is how an earlier run attached the program, 0 if none did.
	Prior terms.HookKind
	// Limits says that the limit does not hold without the program.
	Limits bool
}

// kind is the mechanism that a mode asks for by name, auto if it leaves that open.
func kind(m terms.Mode) terms.HookKind {
	switch m {
	case terms.ModeTCXPodSide, terms.ModeTCXHostSide:
		return terms.HookKindTCX
	case terms.ModeClsactPodSide, terms.ModeClsactHostSide:
		return terms.HookKindClsact
	default:
		return terms.HookKindAuto
	}
}

// Attach says how the program is to be attached: as a filter, or at the head of the
// TCX list. Where nobody else is on a hook, clsact comes before TCX, whose attach waits
// for RCU under RTNL (ruling 3). A filter runs after every TCX program and after the
// filters before it, each of which may end the chain: once another program is there, it
// has to be TCX. On the host side others may come at any time, so a program without
// which the limit does not hold is TCX there from the beginning.
//
// Errors wrap [ErrHookTaken], [ErrNoTCX] or [ErrUnread].
func (q *Question) Attach(c *Chain) (terms.HookKind, error) {
	if err := q.Rules.Mode(q.Mode); err != nil {
		return 0, err
	}
	if c.Unread != "" {
		return 0, fmt.Errorf("%w: %s", ErrUnread, c.Unread)
	}
	other, closed := c.FirstOther(), c.Closed()
	noFilter := !q.Rules.Filters(c.Side)
	switch way := kind(q.Mode); {
	case way == terms.HookKindTCX && !q.TCX:
		return 0, fmt.Errorf("mode %v: %w", q.Mode, ErrNoTCX)
	case way == terms.HookKindTCX:
		return way, nil
	case way == terms.HookKindAuto && q.TCX && q.prefersTCX(c, other != nil || noFilter || closed != ""):
		return terms.HookKindTCX, nil
	case noFilter:
		return 0, fmt.Errorf("%vHook is tcx, and %w", c.Side, ErrNoTCX)
	case closed != "":
		return 0, fmt.Errorf("%w: %s", ErrHookTaken, closed)
	case other == nil:
		return terms.HookKindClsact, nil
	case other.Kind == terms.HookKindTCX:
		return 0, fmt.Errorf("%w: TCX program %q runs before every filter on %v of %s", ErrHookTaken, other.Name, c.Hook, c.Device)
	default:
		return 0, fmt.Errorf("%w: clsact filter %q on %v of %s", ErrHookTaken, cmp.Or(other.Name, other.FilterKind), c.Hook, c.Device)
	}
}

func (q *Question) prefersTCX(c *Chain, needs bool) bool {
	return needs || q.Prior == terms.HookKindTCX || c.Side == terms.SideHost && q.Limits
}

// Standing is how a program of ours stands on a hook.
type Standing string

// The standings, from good to bad.
const (
	// First: no program runs before ours.
	First Standing = "first"
	// Behind: a foreign program runs first; we cannot tell whether it ends
	// the chain.
	Behind Standing = "behind"
	// Starved: a program before us ends the chain, so we see nothing.
	Starved Standing = "starved"
	// Missing: ours is not there.
	Missing Standing = "missing"
	// NotKnown: the hook could not be read.
	NotKnown Standing = "unknown"
)

// Report is the verdict on a hook that was read back.
type Report struct {
	Standing Standing
	// Ahead are the programs of others that run before us, without those that let every
	// packet on.
	Ahead []Program
	// By is who ends the chain before us, nil unless Starved.
	By *Program
}

func (r Report) String() string {
	switch r.Standing {
	case First:
		return "podweir runs first"
	case Behind:
		return strings.Join(terms.Texts(r.Ahead), ", ") + " ahead of podweir: whether it lets packets on is not known"
	case Starved:
		if r.By.Answer == AnswerDrops {
			return fmt.Sprintf("%v %v", *r.By, AnswerDrops)
		}
		return fmt.Sprintf("%v ends the chain: podweir sees no packet", *r.By)
	case Missing:
		return "podweir's program is not on the hook"
	case NotKnown:
		return "the hook could not be read"
	default:
		return "invalid"
	}
}

// Neighbour is what is known of the CNI's programs, by their names.
type Neighbour interface {
	// EndsChain says that nobody runs after a program of this name on a hook of the
	// host side.
	EndsChain(h terms.Hook, name string) bool
}

// Stand reads an order back: who runs before the program of ours with an id. What a
// foreign program answers is known where it is the same for every packet; programs of the
// CNI are known by name. Without a neighbour nobody is known by name.
func (c *Chain) Stand(program uint32, n Neighbour) Report {
	if c.Unread != "" {
		return Report{Standing: NotKnown}
	}
	at := slices.IndexFunc(c.Programs, func(p Program) bool { return p.ProgramID == program && p.Ours })
	if at < 0 {
		return Report{Standing: Missing}
	}
	out := Report{Standing: First}
	for i := range c.Programs[:at] {
		p := &c.Programs[i]
		if p.Ours || p.Answer == AnswerNext {
			continue
		}
		out.Ahead = append(out.Ahead, *p)
		ends := p.Answer == AnswerEnds || p.Answer == AnswerDrops || n != nil && n.EndsChain(c.Hook, p.Name)
		if out.By == nil && ends {
			out.By, out.Standing = p, Starved
		}
	}
	if len(out.Ahead) > 0 && out.Standing == First {
		out.Standing = Behind
	}
	return out
}
