// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// attachModes are the ways to attach that podweir takes by name, each with the
// key that asks for it.
var attachModes = map[string]struct{ key, value string }{
	"qdisc":           {"mode", "qdisc"},
	"tcx-podside":     {"mode", "tcx-podside"},
	"tcx-hostside":    {"mode", "tcx-hostside"},
	"clsact-podside":  {"mode", "clsact-podside"},
	"clsact-hostside": {"mode", "clsact-hostside"},
	"ifb":             {"ingressPlace", "ifb"},
}

// AttachModes are the names that [Spec.InModes] takes.
func AttachModes() []string { return slices.Sorted(maps.Keys(attachModes)) }

// InModes is the spec with each phase that leaves it to podweir where to attach,
// and beside it the same phase in each of the modes. It returns an error for a
// name that is none of [AttachModes].
func (s *Spec) InModes(names ...string) (*Spec, error) {
	for _, name := range names {
		if _, ok := attachModes[name]; !ok {
			return nil, fmt.Errorf("no attach mode %q: there are %s", name, strings.Join(AttachModes(), ", "))
		}
	}
	out := *s
	out.Blocks = slices.Clone(s.Blocks)
	for i := range out.Blocks {
		var phases []Phase
		for _, p := range out.Blocks[i].Phases {
			phases = append(phases, p)
			if !p.attachesAnywhere() {
				continue
			}
			for _, name := range names {
				in := p.with(name, attachModes[name].key, attachModes[name].value)
				if !slices.ContainsFunc(out.Blocks[i].Phases, func(o Phase) bool { return o.Name == in.Name }) {
					phases = append(phases, in)
				}
			}
		}
		out.Blocks[i].Phases = phases
	}
	return &out, out.Validate()
}

// attachesAnywhere says whether a phase shapes and says nothing of how.
func (p *Phase) attachesAnywhere() bool {
	return p.Kind == Podweir && p.Leaves == "" && len(p.Keys) == 1 && p.Keys["policy"] != ""
}

// Policed says whether a direction of a phase has no queue: by its keys, or
// because the attach mode has none there.
func (p *Phase) Policed(direction string) bool {
	if p.Keys["queue"] == "none" {
		return true
	}
	return strings.HasSuffix(p.Keys["mode"], "-podside") && direction == "ingress" ||
		strings.HasSuffix(p.Keys["mode"], "-hostside") && direction == "egress"
}
