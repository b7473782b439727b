// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/terms"
)

// Unenforced tells of a limit that the agent saw exceeded, or taken away again and
// again.
type Unenforced struct {
	ID        attach.ID                    `json:"id"`
	Pod       string                       `json:"pod,omitempty"`
	Interface string                       `json:"interface"`
	Direction terms.Named[terms.Direction] `json:"direction"`
	Reason    Reason                       `json:"reason"`
	Since     time.Time                    `json:"since"`
	// Held says that the limit holds all the same.
	Held               bool   `json:"held,omitempty"`
	LimitBitsPerSecond uint64 `json:"limitBitsPerSecond"`
	// CarriedBitsPerSecond is what its device carried, 0 if that was within the limit.
	CarriedBitsPerSecond uint64 `json:"carriedBitsPerSecond,omitempty"`
	// TakenBy says who may take the limit away, "" if nobody does.
	TakenBy Taker `json:"takenBy,omitempty"`
	// Cause is the likely cause in words.
	Cause string `json:"cause"`
}

// Reason is what is wrong with a limit that is in force.
type Reason string

// The reasons.
const (
	// ReasonExceeded: the device carried more than the limit lets through.
	ReasonExceeded Reason = "exceeded"
	// ReasonTampered: the limit is taken away again and again. It may hold all the same.
	ReasonTampered Reason = "tampered"
)

// Taker is who may take a limit away again and again.
type Taker string

// Those who may.
const (
	// TakerPod is a process in the pod: what is taken away is in its reach. Software on
	// the node reaches that, too.
	TakerPod Taker = "pod"
	// TakerNode is software on the node alone.
	TakerNode Taker = "node"
)

func (t Taker) String() string {
	if t == TakerPod {
		return "a process in the pod that has CAP_NET_ADMIN, or software on the node"
	}
	return "software on the node"
}

func (p Paths) unenforcedPath() string { return filepath.Join(p.Run, "unenforced.json") }

// RecordUnenforced leaves a record for status and the doctor, in place of the one
// before. That it cannot be written is logged: the pods' Events say the same.
func (p Paths) RecordUnenforced(log *slog.Logger, all []Unenforced) {
	if len(all) == 0 {
		p.ForgetUnenforced()
		return
	}
	path := p.unenforcedPath()
	if err := writeJSON(path, all); err != nil {
		log.Error("record of unenforced limits not written", "path", path, "error", err)
	}
}

// ForgetUnenforced removes the record: an agent that starts has seen nothing yet, and
// after one that ends nobody looks.
func (p Paths) ForgetUnenforced() { _ = os.Remove(p.unenforcedPath()) }

// Unenforced returns the limits that the agent found not to hold, none if no agent
// watches. Attachments may have gone since it looked.
func (n *Node) Unenforced() ([]Unenforced, error) {
	all, err := n.Paths.Unenforced()
	if err != nil || len(all) == 0 {
		return nil, err
	}
	ids, err := n.List()
	return stillAttached(all, ids), err
}

func stillAttached(all []Unenforced, ids []attach.ID) []Unenforced {
	return slices.DeleteFunc(all, func(u Unenforced) bool { return !slices.Contains(ids, u.ID) })
}

// Unenforced returns what the agent recorded last, none if no agent watches: a record
// that one left when it was killed says nothing of now.
func (p Paths) Unenforced() ([]Unenforced, error) {
	if watched, err := p.Watched(); err != nil || !watched {
		return nil, err
	}
	b, err := os.ReadFile(p.unenforcedPath())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Unenforced
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", p.unenforcedPath(), err)
	}
	return all, nil
}
