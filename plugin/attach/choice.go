// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package attach

import (
	"encoding/json"
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
