// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package judge

import (
	"fmt"
	"slices"
	"strings"

	"github.com/podweir/podweir/plugin/terms"
)

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
	names := make([]string, len(r.Ahead))
	for i := range r.Ahead {
		names[i] = r.Ahead[i].String()
	}
	switch r.Standing {
	case First:
		return "podweir runs first"
	case Behind:
		return strings.Join(names, ", ") + " ahead of podweir: whether it lets packets on is not known"
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
