// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package attach

import (
	"slices"

	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// moved lists the directions that cannot be changed while they are in force, because
// other parts are requested, or nothing at all. They are torn down by the record that made
// them, before the new one is written: whoever comes after a crash in between still knows
// how. A queue in another place is made beside the old one, which the plan removes.
func moved(before, now *shaping.Config) []terms.Direction {
	var all []terms.Direction
	other := before.Observe != now.Observe || !slices.Equal(before.Unshaped, now.Unshaped) || !slices.Equal(before.Shaped, now.Shaped)
	for _, d := range terms.Directions {
		old, l := before.Limit(d), now.Limit(d)
		if old == nil {
			continue
		}
		if l == nil || other || old.Mode != l.Mode || old.Queue != l.Queue || old.Policy != l.Policy || old.NoCeiling != l.NoCeiling {
			all = append(all, d)
		}
	}
	return all
}

// switched lists the directions that change between what is wanted and what was
// available: they are made again, since both may use the same program elsewhere.
func switched(prior *Prior, now Choices, gone []terms.Direction) []terms.Direction {
	var all []terms.Direction
	if prior == nil {
		return nil
	}
	for _, d := range terms.Directions {
		was, made := prior.Choices[d]
		is, stays := now[d]
		other := was.Settled != is.Settled || was.Queue != is.Queue
		if made && stays && other && !slices.Contains(gone, d) {
			all = append(all, d)
		}
	}
	return all
}

// without takes what was made for these directions, by these choices, out of what was
// observed: it will be gone.
func without(obs *Observed, choices Choices, directions []terms.Direction) {
	for _, d := range directions {
		majors := choices[d].Majors
		if was := choices[d].Offload; was != nil && obs.Devices[QueueSide(d)] != nil {
			obs.Devices[QueueSide(d)].Offload = *was
		}
		if choice := choices[d]; obs.Pacing != nil {
			obs.Pacing = new(choice.GivenBack(*obs.Pacing))
		}
		for side, dev := range obs.Devices {
			dev.Hooks = slices.DeleteFunc(dev.Hooks, func(h HookProgram) bool {
				return h.Ours && terms.DirectionAt(side, h.Hook) == d
			})
			if root := dev.Root(); root != nil && (slices.Contains(majors, major(root.Handle)) || dev.OwnTree && side == QueueSide(d)) {
				dev.Tree, dev.Classifier, dev.OwnTree = shaping.Tree{}, nil, false
			}
		}
		if d == terms.Ingress {
			delete(obs.Devices, terms.SideIFB)
		}
		delete(obs.Dataplanes, d)
		delete(obs.Recorded, d)
	}
}

// keep returns the choices that still hold: all of a direction that stays. Of
// one that is gone only whoever made the clsact qdiscs, which may be in use by the
// other direction.
func keep(choices Choices, gone []terms.Direction, now *shaping.Config) Choices {
	kept := make(Choices)
	var made []terms.Side
	for _, d := range terms.Directions {
		c := choices[d]
		if slices.Contains(gone, d) {
			made = append(made, c.MadeClsact...)
		} else if now.Limit(d) != nil {
			kept[d] = c
		}
	}
	for _, d := range terms.Directions {
		if now.Limit(d) == nil {
			continue
		}
		c := kept[d]
		c.MadeClsact = slices.Clone(c.MadeClsact)
		for _, s := range made {
			if !slices.Contains(c.MadeClsact, s) {
				c.MadeClsact = append(c.MadeClsact, s)
			}
		}
		kept[d] = c
	}
	return kept
}
