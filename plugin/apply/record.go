// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package apply

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// RecordVersion is the format of [Record].
const RecordVersion = 1

// Record is what an attachment leaves on bpffs before anything else is made:
// the wish and every choice that cannot be computed again. DEL, GC, CHECK and
// repair after a crash work from it alone.
type Record struct {
	Version   int              `json:"version"`
	ID        attach.ID        `json:"id"`
	Interface attach.Interface `json:"interface"`
	Config    shaping.Config   `json:"config"`
	Choices   attach.Choices   `json:"choices"`
	// Pod is "namespace/name" where the runtime told it.
	Pod string `json:"pod,omitempty"`
	// By is who made the attachment.
	By By `json:"by,omitempty"`
	// Told says whether the runtime passes the limits of pods to the entry of the chain that made
	// the attachment. It is nil if no entry of a chain made it.
	Told *bool `json:"told,omitempty"`
	// Attached is when the attachment was made.
	Attached time.Time `json:"attached,omitzero"`
	// Booted is when the node started, by the clock that the times of the record are of.
	Booted time.Time `json:"booted,omitzero"`
	// ReplaceQdisc is the operator's word to replace a foreign root qdisc.
	ReplaceQdisc bool `json:"replaceQdisc,omitempty"`
	// Strict is [attach.Request.Strict].
	Strict bool `json:"strict,omitempty"`
	// Held are the names of interfaces that were asked for, too, and that another attachment had or that were gone.
	Held []string `json:"held,omitempty"`
	// Asked is the configuration before `podweir set` changed it; nil if it
	// did not.
	Asked *shaping.Config `json:"asked,omitempty"`
}

// Namespace is that of the pod in Kubernetes, "" if the runtime did not tell it.
func (r *Record) Namespace() string {
	namespace, _, _ := strings.Cut(r.Pod, "/")
	return namespace
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

// LeaveClsact says that the clsact qdisc of a side is another party's.
func (r *Record) LeaveClsact(s terms.Side) {
	for d, c := range r.Choices {
		c.MadeClsact = slices.DeleteFunc(slices.Clone(c.MadeClsact), func(made terms.Side) bool { return made == s })
		r.Choices[d] = c
	}
}

// noteTxQueueLen takes over from before what the devices of queues had as txqueuelen, and
// notes that of those which get a queue with bands now.
func (r *Record) noteTxQueueLen(want *attach.Desired, obs *attach.Observed, before attach.Choices) {
	for d, ds := range want.Directions {
		c, p := r.Choices[d], ds.Params
		c.TxQueueLen = before[d].TxQueueLen
		if c.TxQueueLen == nil && p.Side == attach.QueueSide(d) && p.Tree != nil && p.Tree.BandPackets() != 0 {
			c.TxQueueLen = new(obs.Device(p.Side).TxQueueLen)
		}
		r.Choices[d] = c
	}
}

// ClockWasSet has the times of the record as the node's clock shows them now. It was set forwards by a time since.
func (r *Record) ClockWasSet(by time.Duration) {
	if !r.Attached.IsZero() {
		r.Attached = r.Attached.Add(by)
	}
	for d, c := range r.Choices {
		if !c.Since.IsZero() {
			c.Since = c.Since.Add(by)
			r.Choices[d] = c
		}
	}
}

// Marshal returns the record as it is pinned.
func (r *Record) Marshal() ([]byte, error) {
	b, err := attach.Encode(r)
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
	return &r, nil
}
