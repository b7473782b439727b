// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath

import (
	"sync/atomic"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// Share is the slot of a direction that has a share of its group's limit, for a loop that
// changes the share many times a second. Its memory is mapped as long as the node is open.
type Share struct {
	slot
	whose uint64
	wrote uint32
}

// Share returns that of a direction. dir is where the interface's pins are.
func (n *Slab) Share(dir string, d terms.Direction) (*Share, error) {
	s, err := n.mustFind(dir, d)
	if err != nil {
		return nil, err
	}
	return &Share{slot: s, whose: n.owner(dir, d)}, nil
}

// Bytes is what the programs let into the queue, or past it where there is none, in wire bytes.
func (s *Share) Bytes() uint64 {
	sum := uint64(0)
	for _, d := range [...]image.Disposition{image.Light, image.Conforming, image.Paced, image.Marked, image.FailopenConfig} {
		sum += atomic.LoadUint64(&s.State.Counts[d].Bytes)
	}
	return sum
}

// Lost says that the slot is another direction's by now, or nobody's.
func (s *Share) Lost() bool { return atomic.LoadUint64(&s.Owner) != s.whose }

// Changed says that another process wrote another configuration since [Share.Set].
func (s *Share) Changed() bool { return atomic.LoadUint32(&s.Active) != s.wrote }

// Set writes what the direction has at another share, and makes the meters those of that:
// what waits takes more or less time now. What flows sent is an estimate in parts of the
// share and stays as it is: within a tenth of a second it matches the new share, and
// converting it made no difference (docs/results/shares.md).
//
// It is for one writer at a time, who holds the lock of the attachment.
func (s *Share) Set(dp *shaping.Datapath) {
	before := *s.config()
	to := toConfig(dp, int(before.RedirectIfindex))
	s.configure(to)
	s.scale(speedUp(before.TotalRate, to.TotalRate), speedUp(before.LightRate, to.LightRate))
	s.wrote = atomic.LoadUint32(&s.Active)
}
