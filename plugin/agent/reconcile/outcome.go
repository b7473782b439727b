// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile

import (
	"fmt"
	"time"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// Outcome is what became of a pod when it was last looked at.
type Outcome uint8

// The outcomes.
const (
	// Unlimited: no limit is requested, and none is there.
	Unlimited Outcome = iota + 1
	// Deferred: its limits are left to another shaper, and none of podweir's is
	// there.
	Deferred
	// Shaped: everything was as it should be.
	Shaped
	// Attached: it was not shaped, and is now.
	Attached
	// Updated: its limits were changed to what is requested now.
	Updated
	// Mended: what had been changed or removed was put right.
	Mended
	// Removed: no limit is requested any more, and it was taken off.
	Removed
	// Waiting: its network is not set up yet, or not any more.
	Waiting
	// Invalid: what is requested cannot be read. A limit that was there stays.
	Invalid
	// HostNetwork: it has no interface of its own to shape.
	HostNetwork
	// Held: an attachment that the agent does not know the pod of, such as
	// one by hand, shapes its interface.
	Held
	// Refused: it cannot be shaped without touching what is another party's.
	Refused
	// Failed: something went wrong; it is tried again.
	Failed
	// Overdue: it runs, and its network has not been found for longer than a
	// set-up takes; it is looked for again and again.
	Overdue
)

var outcomeNames = map[Outcome]string{
	Unlimited: "unlimited", Deferred: "deferred", Shaped: "shaped", Attached: "attached", Updated: "updated", Mended: "mended",
	Removed: "removed", Waiting: "waiting", Invalid: "invalid", HostNetwork: "hostNetwork", Held: "held",
	Refused: "refused", Failed: "failed", Overdue: "overdue",
}

func (o Outcome) String() string {
	if s, ok := outcomeNames[o]; ok {
		return s
	}
	return fmt.Sprintf("invalid(%d)", uint8(o))
}

// Enforced says that the pod has the limits that it asks for, which may be
// none.
func (o Outcome) Enforced() bool {
	switch o {
	case Unlimited, Deferred, Shaped, Attached, Updated, Mended, Removed, Held:
		return true
	default:
		return false
	}
}

// Unshaped counts by outcome the pods that have a limit and run without it; every
// such outcome is named.
func Unshaped(states []PodState) map[string]int {
	count := make(map[string]int)
	for _, o := range []Outcome{Invalid, HostNetwork, Refused, Failed, Overdue} {
		count[o.String()] = 0
	}
	for i := range states {
		name := states[i].Outcome.String()
		if _, counts := count[name]; counts {
			count[name]++
		}
	}
	return count
}

// NotLimited says that the pod runs without a limit that it should have. That of a pod with
// hostNetwork is one that no pod can have.
func (s *PodState) NotLimited() bool {
	switch s.Outcome {
	case Invalid, Refused, Failed, Overdue:
		return !s.Kept
	default:
		return false
	}
}

// PodState is what is known of a pod since it was last looked at.
type PodState struct {
	// Namespace and Name are empty where an attachment is not of a pod that
	// the API server told of, and does not say itself.
	Namespace, Name string
	// UID is empty where the API server did not tell of the pod.
	UID     string
	Outcome Outcome
	// Reason is the outcome in words: the differences that were mended, or why
	// nothing was done; empty where there is nothing to say.
	Reason string
	// Err is why it is not as it should be, nil if it is.
	Err error
	// Kept says that every limit from before stays in force in place of what cannot be read.
	Kept bool
	// Since is since when it has waited for its network although it runs; zero
	// if it does not.
	Since time.Time
	// At is when it was looked at, Duration how long that took, waiting in the
	// queue not counted.
	At       time.Time
	Duration time.Duration
	// Tampered are the limits that another party takes away, again and again.
	Tampered []Tampering
	// Mends are the newest of each direction, within the last minute.
	Mends []Mend
	// Asked are the directions that it has a limit in, as far as that can be read.
	Asked []terms.Direction
	// Limits are those that are enforced, one for each interface and
	// direction; also those that stay after an error.
	Limits []KeptLimit
}

// KeptLimit is one direction of one interface, as it is enforced or observed.
type KeptLimit struct {
	// ID is the attachment, by which pins and counters are found.
	ID        attach.ID
	Interface attach.Interface
	terms.Limit
	// Exempt says that there are subnets beside the limit.
	Exempt bool
	// Allowance is what the device may carry as long as the limit holds.
	Allowance shaping.Allowance
	// Declined say what was requested by name and is not used.
	Declined []string
	// Notes say why what was requested was not available in that form.
	Notes []string
	// Stale says that the last look could not bring it to what it should be: it is as
	// it was known before.
	Stale bool
}

func limitsOf(id attach.ID, states []*attach.Desired) []KeptLimit {
	var all []KeptLimit
	for _, s := range states {
		for _, d := range terms.Directions {
			ds := s.Directions[d]
			if ds == nil {
				continue
			}
			p := ds.Params
			all = append(all, KeptLimit{
				ID: id, Interface: s.Interface, Limit: p.Limit(), Notes: p.Notes, Declined: p.Declined,
				Exempt: p.Exempt, Allowance: p.Allowance,
			})
		}
	}
	return all
}

// Observation is one look at one pod.
type Observation struct {
	Outcome  Outcome
	Duration time.Duration
}
