// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package mailbox

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// Limit names one direction of one interface of an attachment.
type Limit struct {
	ID        attach.ID                    `json:"id"`
	Interface string                       `json:"interface"`
	Direction terms.Named[terms.Direction] `json:"direction"`
}

// Reached is how long one direction has been at its limit, as the agent saw it.
type Reached struct {
	Limit
	terms.Reached
}

// Enforced says whether one direction of a pod is held to its limit.
type Enforced struct {
	Namespace, Pod string
	Direction      terms.Direction
	Enforced       bool
	// Reason is why not, or what else is wrong; "" if nothing is. The reasons are few and
	// fixed.
	Reason string
}

// Held says how long one direction of an interface was held at its limit, since the
// agent began or the pod started.
type Held struct {
	Namespace, Pod, Interface string
	Direction                 terms.Direction
	// Time is the sum of the times between two looks in which the device carried at least
	// 90 % of the limit.
	Time time.Duration
}

// Past is what went past podweir of one direction.
type Past struct {
	Limit
	terms.Past
}

// RecordPast leaves what the agent saw go past, in place of what it left before. It stays
// when the agent ends: it is about what was.
func (d Dir) RecordPast(all []Past) error { return Write(d.path(pastFile), all) }

// Past returns what an agent saw go past, none if it saw nothing.
func (d Dir) Past() ([]Past, error) { return readJSON[Past](d.path(pastFile)) }

// reachedFresh is how long ago the agent may have looked: one that was killed, or cannot
// look any more, leaves records of another minute than the last.
const reachedFresh = 15 * time.Second

// RecordReached leaves what the agent sees now, in place of what it saw before.
func (d Dir) RecordReached(all []Reached) error {
	if err := Write(d.path(reachedFile), all); err != nil {
		return err
	}
	return d.TouchReached()
}

// TouchReached says that the agent looked and sees what it saw before.
func (d Dir) TouchReached() error {
	now := time.Now()
	return os.Chtimes(d.path(reachedFile), now, now)
}

// ForgetReached removes the record of an agent that no longer looks.
func (d Dir) ForgetReached() { _ = os.Remove(d.path(reachedFile)) }

// Watched says whether an agent watches the limits of the node.
func (d Dir) Watched() (bool, error) {
	at, err := d.Looked()
	return !at.IsZero(), err
}

// Looked is when an agent that watches the limits of the node looked at them last, zero if none does.
func (d Dir) Looked() (time.Time, error) { return writtenNow(d.path(reachedFile)) }

// writtenNow is when the agent wrote or touched a record, zero if that is not just now.
func writtenNow(path string) (time.Time, error) {
	st, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return time.Time{}, nil
	}
	if err != nil || time.Since(st.ModTime()).Abs() > reachedFresh {
		return time.Time{}, err
	}
	return st.ModTime(), nil
}

// Reached returns the directions that the agent watches, none if no agent does.
func (d Dir) Reached() ([]Reached, error) { return readFresh[Reached](d.path(reachedFile)) }

// Unenforced tells of a limit that the agent saw exceeded, or taken away again and
// again.
type Unenforced struct {
	ID        attach.ID `json:"id"`
	Pod       string    `json:"pod,omitempty"`
	Interface string    `json:"interface"`
	terms.Limit
	Reason Reason    `json:"reason"`
	Since  time.Time `json:"since"`
	// Held says that the limit holds all the same.
	Held bool `json:"held,omitempty"`
	// Carried is what its device carried, 0 if that was within the limit.
	Carried units.BitRate `json:"carriedBitsPerSecond,omitempty"`
	Likely
}

// Likely is why a limit may not hold, as far as the agent knows.
type Likely struct {
	Cause Cause `json:"cause"`
	// TakenBy says who may take the limit away, "" if nobody does.
	TakenBy Taker `json:"takenBy,omitempty"`
	// What is the error, or what was changed and put back at a time.
	What string    `json:"what,omitempty"`
	At   time.Time `json:"at,omitzero"`
}

// Cause is a likely cause.
type Cause string

// The causes.
const (
	// CauseTaken: another party takes the limit away again and again.
	CauseTaken Cause = "taken"
	// CauseMended: what keeps the limit was changed, and was put back.
	CauseMended Cause = "mended"
	// CauseError: the last look at the pod failed.
	CauseError Cause = "error"
	// CausePast: packets go past what keeps the limit, CauseRedirected past the host side's
	// device.
	CausePast       Cause = "past"
	CauseRedirected Cause = "redirected"
)

// Of says of a limit in words what the cause is.
func (c *Likely) Of(l *terms.Limit) string {
	const names = "; podweir doctor names those that it sees (PW501, PW506)"
	const pastQueue = "a process in the pod sends past the queue (CAP_NET_RAW), and "
	switch {
	case c.Cause == CauseTaken:
		return TakenAway(l.Direction.Is, c.TakenBy)
	case c.Cause == CauseMended:
		return "what keeps it was changed, and was put back at " + c.At.UTC().Format(time.RFC3339) + " (" + c.What + ")"
	case c.Cause == CauseError:
		return c.What
	case c.Cause == CauseRedirected:
		return "a program takes packets past the host side's device (bpf_redirect_peer)" + names
	case l.Direction.Is == terms.Ingress:
		return "a program or a filter of another party takes packets past the queue" + names
	case l.Ceiling:
		return "a program that runs before the ceiling takes packets past it" + names
	case l.NoCeiling != "":
		return pastQueue + "there is no ceiling: " + l.NoCeiling
	default:
		return pastQueue + "egressCeiling is off"
	}
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

// TakenAway says that another party takes a limit away.
func TakenAway(d terms.Direction, by Taker) string {
	return fmt.Sprintf("the %v limit is taken away again and again, by %v", d, by)
}

// RecordUnenforced leaves a record for status and the doctor, in place of the one
// before. That it cannot be written is logged: the pods' Events say the same.
func (d Dir) RecordUnenforced(log *slog.Logger, all []Unenforced) {
	if len(all) == 0 {
		d.ForgetUnenforced()
		return
	}
	path := d.path(unenforcedFile)
	if err := Write(path, all); err != nil {
		log.Error("record of unenforced limits not written", "path", path, "error", err)
	}
}

// ForgetUnenforced removes the record: an agent that starts has seen nothing yet, and
// after one that ends nobody looks.
func (d Dir) ForgetUnenforced() { _ = os.Remove(d.path(unenforcedFile)) }

// Unenforced returns what the agent recorded last, none if no agent watches: a record
// that one left when it was killed says nothing of now.
func (d Dir) Unenforced() ([]Unenforced, error) {
	if watched, err := d.Watched(); err != nil || !watched {
		return nil, err
	}
	return readJSON[Unenforced](d.path(unenforcedFile))
}
