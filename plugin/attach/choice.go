// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package attach

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// Choices are what was decided for each direction. A record has them by the names of the
// directions.
type Choices map[terms.Direction]Choice

// MarshalJSON writes the choices by name.
func (c Choices) MarshalJSON() ([]byte, error) {
	named := make(map[terms.Named[terms.Direction]]Choice, len(c))
	for d, choice := range c {
		named[terms.Name(d)] = choice
	}
	return json.Marshal(named)
}

// UnmarshalJSON reads them.
func (c *Choices) UnmarshalJSON(b []byte) error {
	var named map[terms.Named[terms.Direction]]Choice
	if err := json.Unmarshal(b, &named); err != nil {
		return err
	}
	*c = make(Choices, len(named))
	for d, choice := range named {
		(*c)[d.Is] = choice
	}
	return nil
}

// Choice is what was decided for one direction when it was first set up.
type Choice struct {
	// Majors are the random handle majors in the order they were drawn.
	Majors   []uint16       `json:"majors"`
	HookKind terms.HookKind `json:"hookKind"`
	// CeilingKind is the ceiling's hook kind.
	CeilingKind terms.HookKind `json:"ceilingKind,omitempty"`
	// GuardKind is the guard's hook kind, 0 in records of releases that had it on clsact alone.
	GuardKind terms.HookKind `json:"guardKind,omitempty"`
	// Queue replaces an automatic queue where the first choice could not be
	// had; the note says why.
	Queue terms.Queue `json:"queue,omitempty"`
	Note  string      `json:"note,omitempty"`
	// Place replaces an automatic place of the ingress queue in the same way.
	Place terms.Place `json:"place,omitempty"`
	// Since is when the direction fell back to something else than what is wanted,
	// zero if it did not.
	Since time.Time `json:"since,omitzero"`
	// Settled says that these are the choices of auto, because what was requested
	// by name was not available.
	Settled bool `json:"settled,omitempty"`
	// MadeClsact are the sides where no clsact qdisc was before ours.
	MadeClsact []terms.Side `json:"madeClsact,omitempty"`
	// TxQueueLen is what the queue's device had in packets before the bands of the
	// queue needed another one, nil if they never did.
	TxQueueLen *int `json:"txQueueLen,omitempty"`
	// Offload is what the pod's device had before podweir made it less, nil if it
	// never did.
	Offload *Offload `json:"offload,omitempty"`
	// Pacing is what the pod's namespace had before podweir changed it, with 0 for what it
	// never changed; nil if that is both.
	Pacing *shaping.Pacing `json:"pacing,omitempty"`
}

// Degraded says that the queue or its place is not the one that is wanted.
func (c *Choice) Degraded() bool { return c.Queue != 0 || c.Place != 0 }

// instead is the choice of another queue or place than what is wanted. It has the
// handles of an earlier run that chose the same.
func (c *Choice) instead(q terms.Queue, p terms.Place, note string) Choice {
	out := Choice{MadeClsact: c.MadeClsact}
	if c.Degraded() && c.Queue == q && c.Place == p {
		out = *c
	}
	out.Queue, out.Place, out.Note = q, p, note
	return out
}

// What the kernel gives a new device (net/core/dev.c: GSO_LEGACY_MAX_SIZE, and
// DEFAULT_TX_QUEUE_LEN).
const (
	kernelGSO        = 65_536 // bytes
	kernelTxQueueLen = 1_000  // packets
)

// Presume says what the devices of an interface had before podweir, where no record tells:
// the record was lost, or there never was one. A value that podweir itself sets is never
// what was there before. In its place is the value of the other end of the pair, or the
// kernel's default if podweir has changed that end, too, or there is none.
func Presume(obs *Observed) Choices {
	made := obs.ownClsact()
	all := make(Choices)
	for _, d := range terms.Directions {
		c := Choice{MadeClsact: made}
		dev, peer := obs.Device(QueueSide(d)), obs.Device(otherEnd(QueueSide(d)))
		if d == terms.Egress && dev.ownOffload() {
			c.Offload = presumedOffload(dev, peer)
		}
		// The pod's author may have chosen the same values: they are podweir's if its queue is
		// there, too.
		if d == terms.Egress && dev.OwnTree && obs.Pacing != nil {
			c.Pacing = given(obs.Pacing.Presumed())
		}
		if shaping.OwnBandPackets(dev.TxQueueLen) {
			c.TxQueueLen = new(kernelTxQueueLen)
			if peer.Exists && !shaping.OwnBandPackets(peer.TxQueueLen) {
				c.TxQueueLen = new(peer.TxQueueLen)
			}
		}
		all[d] = c
	}
	return all
}

func otherEnd(s terms.Side) terms.Side {
	if s == terms.SidePod {
		return terms.SideHost
	}
	return terms.SidePod
}

// ownOffload says that another party gave the device sizes that podweir gives.
func (d *Device) ownOffload() bool { return shaping.OwnOffload(d.Offload.GSO, d.MTU) }

// presumedOffload is at least what the device has now: podweir only makes it less.
func presumedOffload(dev, peer *Device) *Offload {
	before := Offload{GSO: cmp.Or(peer.Offload.GSO, kernelGSO), GSOIPv4: cmp.Or(peer.Offload.GSOIPv4, kernelGSO)}
	before.GSO = max(before.GSO, dev.Offload.GSO)
	before.GSOIPv4 = max(before.GSOIPv4, dev.Offload.GSOIPv4)
	if most := dev.MostOffload; most != 0 {
		before = before.atMost(most)
	}
	if dev.Offload.GSOIPv4 == 0 {
		before.GSOIPv4 = 0 // the kernel has one for both
	}
	return &before
}

// ownClsact are the sides whose clsact qdisc holds programs of podweir's, and nobody
// else's.
func (o *Observed) ownClsact() []terms.Side {
	var all []terms.Side
	for _, s := range []terms.Side{terms.SidePod, terms.SideHost} {
		ours, others := 0, 0
		for i := range o.Device(s).Hooks {
			switch h := &o.Device(s).Hooks[i]; {
			case h.Kind != terms.HookKindClsact:
			case h.Ours:
				ours++
			default:
				others++
			}
		}
		if ours > 0 && others == 0 && !o.Device(s).IngressOnly {
			all = append(all, s)
		}
	}
	return all
}

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
