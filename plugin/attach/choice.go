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
	named := struct {
		Egress  *Choice `json:"egress,omitempty"`
		Ingress *Choice `json:"ingress,omitempty"`
	}{}
	for d, choice := range c {
		if d == terms.Egress {
			named.Egress = &choice
		} else {
			named.Ingress = &choice
		}
	}
	return Encode(&named)
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
	// GuardKind is the guard's hook kind, 0 without one.
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
	out := c.kept()
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

// found is what the choices tell of devices as they were before podweir. A clsact qdisc is told with
// either direction: the one that it was made for may not be wanted any more.
func (c Choices) found() Choices {
	var made []terms.Side
	for _, d := range terms.Directions {
		for _, s := range c[d].MadeClsact {
			if !slices.Contains(made, s) {
				made = append(made, s)
			}
		}
	}
	all := make(Choices)
	for _, d := range terms.Directions {
		was := c[d]
		all[d] = Choice{MadeClsact: made, TxQueueLen: was.TxQueueLen, Offload: was.Offload, Pacing: was.Pacing}
	}
	return all
}

func otherEnd(s terms.Side) terms.Side {
	if s == terms.SidePod {
		return terms.SideHost
	}
	return terms.SidePod
}

// ownOffload says that the device has sizes that podweir gives. Those beside its queue may be of another MTU: it was
// changed since.
func (d *Device) ownOffload() bool {
	mtu := d.MTU
	if d.OwnTree {
		mtu = 1 // any
	}
	return shaping.OwnOffload(d.Offload.GSO, mtu)
}

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

// moved lists the directions that have no limit any more, and those of which other parts are
// requested. The first are torn down by the record that made them, before the new one is written:
// whoever comes after a crash in between still knows how.
func moved(before, now *shaping.Config) (gone, renewed []terms.Direction) {
	other := before.Observe != now.Observe || !slices.Equal(before.Unshaped, now.Unshaped) || !slices.Equal(before.Shaped, now.Shaped)
	for _, d := range terms.Directions {
		old, l := before.Limit(d), now.Limit(d)
		switch {
		case old == nil:
		case l == nil:
			gone = append(gone, d)
		case other || old.Mode != l.Mode || old.Queue != l.Queue || old.Policy != l.Policy || old.NoCeiling != l.NoCeiling:
			renewed = append(renewed, d)
		}
	}
	return gone, renewed
}

// switched lists the directions that have another place or program than before, or change between
// what is wanted and what was available.
func (in *Inspection) switched() []terms.Direction {
	var all []terms.Direction
	for d, is := range in.Choices {
		was, made := in.Before[d]
		other := made && (was.Queue != is.Queue || was.Place != is.Place)
		have, p := in.Observed.Dataplanes[d], in.Want.Directions[d].Params
		other = other || have != nil && (have.ProgramName != p.ProgramName() || have.Side != 0 && have.Side != p.Side)
		if other && !slices.Contains(in.Remade, d) {
			all = append(all, d)
		}
	}
	return all
}

// kept is what stays of a choice when a direction is limited in another way: what was there before
// podweir, and the handles of the queue that stands.
func (c *Choice) kept() Choice {
	return Choice{Majors: c.Majors, MadeClsact: c.MadeClsact, TxQueueLen: c.TxQueueLen, Offload: c.Offload, Pacing: c.Pacing}
}

// keep returns the choices that still hold: all of a direction that stays as it is. Who made the clsact
// qdiscs that a direction without a limit had is told with the other direction, which may use them.
func keep(choices Choices, gone, renewed []terms.Direction, now *shaping.Config) Choices {
	all := make(Choices)
	for _, d := range terms.Directions {
		if now.Limit(d) == nil {
			continue
		}
		c := choices[d]
		if slices.Contains(renewed, d) {
			c = c.kept()
		}
		c.MadeClsact = slices.Clone(c.MadeClsact)
		for _, other := range gone {
			for _, s := range choices[other].MadeClsact {
				if !slices.Contains(c.MadeClsact, s) {
					c.MadeClsact = append(c.MadeClsact, s)
				}
			}
		}
		all[d] = c
	}
	return all
}
