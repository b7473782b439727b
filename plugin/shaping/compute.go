// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package shaping

import (
	"fmt"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/terms"
)

// Compute turns what is requested in one direction into everything that has to
// exist. It returns nil where no limit is requested.
//
// majors gives the handle major of each qdisc in the order of [Tree.Qdiscs],
// as [RandomMajor] does; with the majors of an existing tree the same
// parameters come out again. A repeated or forbidden major is drawn again.
//
// Returns a [*FieldError] for a combination that is not in the tables of the
// design, and an error of another kind where a queue or device is requested by
// name and is not available.
func Compute(cfg *Config, d terms.Direction, f Facts, majors func() uint16) (*Params, error) {
	limit := cfg.Part(d)
	if limit == nil {
		return nil, nil
	}
	if f.Namespace == "" { // nobody would divide among such pods
		alone := *limit
		alone.Group = 0
		limit = &alone
	}
	b := &builder{limit: limit, facts: f, exempt: cfg.subnetsMode() != SubnetsNone, majors: majors}
	b.params = &Params{
		Direction: d, Policy: limit.Policy, Rate: limit.Rate, Group: limit.Group, Exempt: b.exempt,
		Program: ProgramNone, Hook: terms.HookNone, HookKind: terms.HookKindAuto, CapHolds: true,
		Datapath: image.Config{Policy: uint8(limit.Policy), Direction: uint8(d), SubnetsMode: uint8(cfg.subnetsMode())},
	}
	if f.L3Only {
		b.params.Datapath.L3Only = 1
	}
	if cfg.Among > 1 {
		b.params.Notes = append(b.params.Notes,
			fmt.Sprintf("%v is shared by %d interfaces of the pod, in equal parts", cfg.Limit(d).Rate, cfg.Among))
	}
	if err := b.resolve(); err != nil {
		return nil, err
	}
	b.size()
	if limit.Group != 0 {
		b.params.NoShare = b.noShare()
	}
	if cfg.Observe {
		b.observe()
		return b.params, nil
	}
	if err := b.build(); err != nil {
		return nil, fmt.Errorf("compute %s %s queue: %w", d, b.params.Queue, err)
	}
	b.offload()
	b.measure()
	b.allow()
	b.ceiling()
	b.groupCeiling()
	b.explain()
	return b.params, nil
}

// Validate lists the combinations of cfg for which [Compute] returns an error
// on every kernel; it needs no kernel and so gives the same answer on every
// node.
func Validate(cfg *Config) []*FieldError {
	var all []*FieldError
	for _, d := range terms.Directions {
		limit := cfg.Limit(d)
		if limit == nil {
			continue
		}
		if _, err := choosePlace(limit, d); err != nil {
			all = append(all, err)
		}
	}
	return all
}

// builder holds what the steps of [Compute] share.
type builder struct {
	limit  *Limit
	facts  Facts
	exempt bool
	majors func() uint16
	params *Params
	used   map[uint16]bool
}

// bypassed says that some packets bypass the cap.
func (b *builder) bypassed() bool { return b.exempt || b.limit.Policy == terms.PolicyElephants }

// classful says that packets are classified before they come to the shaper: some
// bypass the cap, in a class without one, or drops are told.
func (b *builder) classful() bool { return b.bypassed() || b.dropsWhole() }

// ownFilter says that the program is a filter on our own qdisc, not on a
// shared hook.
func (b *builder) ownFilter() bool { return b.params.Mode == terms.ModeQdisc }

func (b *builder) note(format string, args ...any) {
	b.params.Notes = append(b.params.Notes, fmt.Sprintf(format, args...))
}

func (c *Config) subnetsMode() SubnetsMode {
	switch {
	case len(c.Unshaped) != 0:
		return SubnetsUnshaped
	case len(c.Shaped) != 0:
		return SubnetsShaped
	default:
		return SubnetsNone
	}
}

// FieldError says that a field of the configuration has a value that cannot be
// used, or that two fields contradict each other.
type FieldError struct {
	// Field is the key or annotation, or both that contradict each other.
	Field string
	// Value is the value as it was written.
	Value string
	// Accepted is the accepted form and range.
	Accepted string
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("%s: %q is not accepted, want %s", e.Field, e.Value, e.Accepted)
}

// observe puts a meter in the place of what would enforce the limit: the policer's
// program, which counts and lets every packet pass. The meter is as wide as the queue
// that the limit would have, so that what it counts is what that queue would do.
func (b *builder) observe() {
	p := b.params
	p.Program = ProgramPolice // the meters know the cap's clock by it
	b.meters()
	where := "be policed"
	if p.Queue != terms.QueueNone {
		where = "have the queue " + p.Queue.String() + " on the " + p.Side.String() + " side"
	}
	if p.Mode == terms.ModeQdisc { // the other modes have a hook by name
		b.atOwnHook()
	}
	p.Queue, p.DepthBytes, p.MaxWait = terms.QueueNone, 0, 0
	p.Redirect, p.CapHolds, p.Declined = false, false, nil
	p.Datapath.Observe = 1
	b.note("observed: nothing is held; with enforce: %v it would %s", terms.EnforceLimit, where)
}
