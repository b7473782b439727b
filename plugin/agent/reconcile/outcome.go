// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/mailbox"
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
	// one by hand, has its interfaces, and limits the directions that it asks for.
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
		told, _ := states[i].Told()
		name := told.String()
		if _, counts := count[name]; counts && !states[i].Kept {
			count[name]++
		}
	}
	return count
}

// NotLimited says that the pod runs without a limit that it should have. That of a pod with
// hostNetwork is one that no pod can have.
func (s *PodState) NotLimited() bool {
	switch told, _ := s.Told(); told {
	case Invalid, Refused, Failed, Overdue:
		return !s.Kept
	default:
		return false
	}
}

// Told is the outcome as people are told of it, with its error: what is misspelt cannot be read.
func (s *PodState) Told() (Outcome, error) {
	if s.Misspelt != nil {
		return Invalid, s.Misspelt
	}
	return s.Outcome, s.Err
}

// PodState is what is known of a pod since it was last looked at.
type PodState struct {
	// Namespace and Name are empty where an attachment is not of a pod that
	// the API server told of, and does not say itself.
	Namespace, Name string
	// UID is empty where the API server did not tell of the pod, RuntimeUID is [kube.Pod]'s.
	UID, RuntimeUID string
	Outcome         Outcome
	// Reason is the outcome in words: the differences that were mended, or why
	// nothing was done; empty where there is nothing to say.
	Reason string
	// Err is why it is not as it should be, nil if it is.
	Err error
	// Misspelt says which annotations look as if they should ask for a limit that the pod has not, nil if none does.
	// The other limits are as Outcome says.
	Misspelt error
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
	// Asked are the directions in which it asks for a limit, or seems to, whether that can be read or not.
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
	// Tree is the queue that was wanted, nil if none was.
	Tree *shaping.Tree
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
				Exempt: p.Exempt, Allowance: p.Allowance, Tree: p.Tree,
			})
		}
	}
	return all
}

// recordUnshaped has status and the doctor know of a pod that runs without its limit, or
// that it has it now. An attachment of no known pod is shown by its pins.
func (r *Reconciler) recordUnshaped(s *PodState, old *state) {
	switch {
	case s.UID == "":
	case s.NotLimited() || s.Outcome == HostNetwork:
		old.unshaped = cmp.Or(old.unshaped, s.Since, s.At)
		told, err := s.Told()
		r.cfg.Paths.Mail().RecordUnshaped(r.cfg.Log, &mailbox.Unshaped{
			Pod: s.Namespace + "/" + s.Name, UID: s.UID, Reason: told.String(), Since: old.unshaped.UTC(), Error: cmp.Or(text(err), s.Reason),
		})
	case !old.unshaped.IsZero():
		r.cfg.Paths.Mail().ClearUnshaped(s.UID)
		old.unshaped = time.Time{}
	}
}

// cured removes the records of an attachment that could not be limited before. Whether one
// of no known pod has all limits that it should have is not known: a rate may be unread.
func (l *look) cured(id attach.ID) {
	if l.pod == nil {
		return
	}
	l.cfg.Paths.Mail().ClearFailure(id)
	l.clearFailures(id.IfName)
}

// clearFailures removes the records of an interface of the pod, also those of its former
// sandboxes: it has what it asks for now, which may be nothing. Of other interfaces it is
// not known what their networks ask for.
func (l *look) clearFailures(ifName string) {
	failures, err := l.cfg.Paths.Mail().Failures()
	if err != nil {
		l.cfg.Log.Error("failure records not read: status may show a failure that is cured", "pod", l.pod.Key(), "error", err)
	}
	for i := range failures {
		if f := &failures[i]; f.Pod == l.pod.Key() && f.ID.IfName == ifName {
			l.cfg.Paths.Mail().ClearFailure(f.ID)
		}
	}
}

// sweepFailures removes the records of pods that have ended or are gone: nothing calls DEL
// where the agent alone attaches pods. One that is younger than a pass may be of a pod that
// is being set up, which neither the API server nor the runtime has told of yet.
func (r *Reconciler) sweepFailures(ctx context.Context) {
	failures, err := r.cfg.Paths.Mail().Failures()
	if err != nil {
		r.cfg.Log.Error("failure records not read: those of pods that are gone stay", "error", err)
	}
	if len(failures) == 0 || !r.cfg.Pods.Current() {
		return
	}
	runs := make(map[string]bool)
	for _, p := range r.cfg.Pods.List() {
		runs[p.Key()] = runs[p.Key()] || !p.Finished
	}
	for i := range failures {
		f := &failures[i]
		running, listed := runs[f.Pod]
		if running || time.Since(f.Time).Abs() < r.cfg.Pass {
			continue
		}
		if !listed {
			if runs, err := r.cfg.Sandboxes.Runs(ctx, f.ID.ContainerID); err != nil || runs {
				continue
			}
		}
		r.cfg.Paths.Mail().ClearFailure(f.ID)
	}
}

// overdue makes a fault of a wait that lasts: the pod runs, as far as the API
// server knows, and has a limit that nobody holds it to.
func (l *look) overdue(now time.Time) {
	if !l.missing || l.pod == nil || !l.pod.Started() || !l.pod.Running || l.pod.Ending {
		return
	}
	l.Since = l.waitsSince(now)
	if left := l.cfg.Overdue - now.Sub(l.Since); left > 0 {
		l.queue.add(l.key, left)
		return
	}
	// The same words each time: it is one Event, however long it lasts.
	l.Err = fmt.Errorf("the pod runs without its limit: podweir has waited for its network for more than %v: %s", l.cfg.Overdue, l.Reason)
	l.Outcome, l.Reason = Overdue, ""
	l.warn(l.reasonOf(), l.Err.Error())
}

// waitsSince is since when the pod waits, now if it did not.
func (l *look) waitsSince(now time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.states[l.key]; s != nil && !s.Since.IsZero() {
		return s.Since
	}
	return now
}
