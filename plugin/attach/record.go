// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package attach

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// RecordVersion is the format of [Record].
const RecordVersion = 1

// Record is what an attachment leaves on bpffs before anything else is made:
// the wish and every choice that cannot be computed again. DEL, GC, CHECK and
// repair after a crash work from it alone.
type Record struct {
	Version   int            `json:"version"`
	ID        ID             `json:"id"`
	Interface Interface      `json:"interface"`
	Config    shaping.Config `json:"config"`
	Choices   Choices        `json:"choices"`
	// Pod is "namespace/name" where the runtime told it.
	Pod string `json:"pod,omitempty"`
	// By is who made the attachment, "" in records of releases that did not say.
	By By `json:"by,omitempty"`
	// Told says whether the runtime passes the limits of pods to the entry of the chain that made
	// the attachment. It is nil if no entry of a chain made it, and in records of releases that
	// did not say.
	Told *bool `json:"told,omitempty"`
	// Attached is when the attachment was made, zero in records of releases that did not
	// say.
	Attached time.Time `json:"attached,omitzero"`
	// ReplaceQdisc is the operator's word to replace a foreign root qdisc.
	ReplaceQdisc bool `json:"replaceQdisc,omitempty"`
	// Strict is [Request.Strict].
	Strict bool `json:"strict,omitempty"`
	// Asked is the configuration before `podweir set` changed it; nil if it
	// did not.
	Asked *shaping.Config `json:"asked,omitempty"`
}

// Namespace is that of the pod in Kubernetes, "" if the runtime did not tell it.
func (r *Record) Namespace() string {
	namespace, _, _ := strings.Cut(r.Pod, "/")
	return namespace
}

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

// By is who makes an attachment.
type By string

// Those who do.
const (
	// ByPlugin is podweir-cni, called by the runtime before the pod's containers
	// start; so is ByNRI, the agent called by the runtime's hook.
	ByPlugin By = "plugin"
	ByNRI    By = "nri"
	// ByAgent is the agent's look at running pods.
	ByAgent By = "agent"
	// ByHand is `podweir attach`.
	ByHand By = "hand"
)

// Choice is what was decided for one direction when it was first set up.
type Choice struct {
	// Majors are the random handle majors in the order they were drawn.
	Majors   []uint16       `json:"majors"`
	HookKind terms.HookKind `json:"hookKind"`
	// CeilingKind is that of the ceiling.
	CeilingKind terms.HookKind `json:"ceilingKind,omitempty"`
	// GuardKind is that of the guard, 0 in records of releases that had it on clsact alone.
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

// MadeClsact says whether the clsact qdisc of a side is ours to remove with the
// last filter, whichever direction it was made for.
func (r *Record) MadeClsact(s terms.Side) bool {
	for _, c := range r.Choices {
		if slices.Contains(c.MadeClsact, s) {
			return true
		}
	}
	return false
}

// LeaveClsact says that the clsact qdisc of a side is somebody else's.
func (r *Record) LeaveClsact(s terms.Side) {
	for d, c := range r.Choices {
		c.MadeClsact = slices.DeleteFunc(slices.Clone(c.MadeClsact), func(made terms.Side) bool { return made == s })
		r.Choices[d] = c
	}
}

// noteTxQueueLen takes over from before what the devices of queues had as txqueuelen, and
// notes that of those which get a queue with bands now.
func (r *Record) noteTxQueueLen(want *Desired, obs *Observed, before Choices) {
	for d, ds := range want.Directions {
		c, p := r.Choices[d], ds.Params
		c.TxQueueLen = before[d].TxQueueLen
		if c.TxQueueLen == nil && p.Side == QueueSide(d) && p.Tree != nil && p.Tree.BandPackets() != 0 {
			c.TxQueueLen = new(obs.Device(p.Side).TxQueueLen)
		}
		r.Choices[d] = c
	}
}

// Marshal returns the record as it is pinned.
func (r *Record) Marshal() ([]byte, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode record of %v: %w", r.ID, err)
	}
	return b, nil
}

// UnmarshalRecord reads a pinned record. The error wraps [ErrUnknownRecord].
func UnmarshalRecord(b []byte) (*Record, error) {
	var r Record
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnknownRecord, err)
	}
	if r.Version != RecordVersion {
		return nil, fmt.Errorf("%w: version %d, this podweir knows %d", ErrUnknownRecord, r.Version, RecordVersion)
	}
	for _, cfg := range []*shaping.Config{&r.Config, r.Asked} {
		for _, d := range terms.Directions {
			if cfg == nil || cfg.Limit(d) == nil {
				continue
			}
			if l := cfg.Limit(d); l.Queue != terms.QueueTBF && l.Queue != terms.QueueNone {
				l.Queue = terms.QueueAuto // former releases had others
			}
		}
	}
	return &r, nil
}
