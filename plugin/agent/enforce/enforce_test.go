// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package enforce_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/agent/enforce"
	"github.com/podweir/podweir/plugin/agent/kube"
	"github.com/podweir/podweir/plugin/agent/reconcile"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// node is what the watcher sees: pods that carry so many bytes a second each.
type node struct {
	mu     sync.Mutex
	states []reconcile.PodState
	// rates are bytes a second by direction, beside those that are counted as such.
	rates, beside map[terms.Direction]uint64
	since         time.Time
	bytes, away   map[terms.Direction]uint64
	dump          map[terms.Direction]uint64
	// begun are the bytes at which each of podweir's counters began again.
	begun        []uint64
	err, missing error
	events       []kube.Event
	over         []string
	reads        int
	arrivals     int
	// open is how often the counters are open.
	open int
	// change is called between the two snapshots of a look.
	change func()
	log    bytes.Buffer
}

func (n *node) Snapshot() []reconcile.PodState {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make([]reconcile.PodState, len(n.states))
	for i, s := range n.states {
		s.Limits = append([]reconcile.KeptLimit(nil), s.Limits...)
		all[i] = s
	}
	return all
}

func (n *node) LookAt(s *reconcile.PodState) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range n.states {
		if n.states[i].UID == s.UID {
			n.states[i].At = time.Now()
		}
	}
}

func (n *node) Close() { n.set(func() { n.open-- }) }

func (n *node) Begin() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.carry()
	n.dump = maps.Clone(n.bytes)
	if n.change != nil {
		n.change()
	}
	return n.err
}

// carry brings the counters up to now.
func (n *node) carry() {
	for d, rate := range n.rates {
		n.bytes[d] += uint64(float64(rate) * time.Since(n.since).Seconds())
		n.away[d] += uint64(float64(n.beside[d]) * time.Since(n.since).Seconds())
	}
	n.since = time.Now()
}

func (n *node) Carried(l *reconcile.KeptLimit) (uint64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dump[l.Direction.Is], n.missing
}

func (n *node) Arrived(*reconcile.KeptLimit) (uint64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.carry()
	n.arrivals++
	return n.bytes[terms.Ingress] + n.away[terms.Ingress], nil
}

func (n *node) Beside(l *reconcile.KeptLimit, names []string) (uint64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.carry()
	n.reads++
	want := []string{"dropped-ceiling"}
	if l.Policy.Is == terms.PolicyElephants {
		want = []string{"exempt", "light"}
	}
	if !cmp.Equal(names, want) {
		return 0, errors.New("not what is beside the limit")
	}
	return n.away[l.Direction.Is], nil
}

// Passing has the bytes as what podweir saw, and those beside on top as what the device carried.
func (n *node) Passing(limits []*reconcile.KeptLimit) [][]view.Passing {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.carry()
	all := make([][]view.Passing, len(limits))
	for i, l := range limits {
		d := l.Direction.Is
		for _, reset := range n.begun {
			seen := n.bytes[d] - min(reset, n.bytes[d])
			carried := n.bytes[d] + n.away[d]
			all[i] = append(all[i], view.Passing{Device: [2]uint64{carried, carried}, Seen: &[2]uint64{seen, seen}})
		}
	}
	return all
}

func (n *node) Emit(pod *kube.Pod, e kube.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if pod.UID == "u" && e.Warning {
		n.events = append(n.events, e)
	}
}

func (n *node) Over(uid, reason string) { n.set(func() { n.over = append(n.over, uid+" "+reason) }) }

// limited is a pod with limits of 8 Mbit/s.
func limited(directions ...terms.Direction) reconcile.PodState {
	s := reconcile.PodState{Namespace: "ns", Name: "pod", UID: "u", Outcome: reconcile.Shaped, Asked: directions}
	for _, d := range directions {
		side := terms.SidePod
		if d == terms.Ingress {
			side = terms.SideHost
		}
		s.Limits = append(s.Limits, reconcile.KeptLimit{
			ID: attach.ID{Network: "net", ContainerID: "c1", IfName: "eth0"}, Limit: terms.Limit{
				Direction: terms.Name(d), Rate: 8e6, Side: terms.Name(side), Queue: terms.Name(terms.QueueTBF), Policy: terms.Name(terms.PolicyStrict),
			},
			Interface: attach.Interface{PodName: "eth0", HostIndex: 7, Kind: "veth"},
			Allowance: shaping.Allowance{Excess: 10, AtOnce: 100_000},
		})
	}
	return s
}

// runs lets the watcher run over a node; then the test looks.
func runs(t *testing.T, states []reconcile.PodState, test func(n *node, w *enforce.Watcher, paths engine.Paths)) {
	t.Helper()
	paths := engine.Paths{Run: t.TempDir()}
	synctest.Test(t, func(t *testing.T) {
		n := &node{
			states: states, since: time.Now(), rates: map[terms.Direction]uint64{}, beside: map[terms.Direction]uint64{},
			bytes: map[terms.Direction]uint64{}, away: map[terms.Direction]uint64{}, begun: []uint64{0, 0},
		}
		w := enforce.New(enforce.Config{
			Pods: n, Events: n, Paths: paths, Log: slog.New(slog.NewTextHandler(&n.log, nil)),
			Open: func() (enforce.Counters, error) { n.set(func() { n.open++ }); return n, nil },
		})
		stop := testutil.During(t, w.Run)
		test(n, w, paths)
		stop()
		must.Be(t, "open counters after the end", 0, n.open)
		unenforced(t, paths, 0)
		reached(t, paths, 0)
	})
}

// unenforced are the records of limits that are not enforced, so many.
func unenforced(t *testing.T, paths engine.Paths, limits int) []mailbox.Unenforced {
	t.Helper()
	return must.Len(t, "unenforced", limits, must.Get(paths.Mail().Unenforced())(t))
}

// after lets a time pass, and the watcher finish what falls due at its end.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (n *node) set(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.carry()
	f()
}

func TestExceededIsTold(t *testing.T) {
	runs(t, []reconcile.PodState{limited(terms.Egress, terms.Ingress)}, func(n *node, w *enforce.Watcher, paths engine.Paths) {
		n.set(func() { n.rates[terms.Egress], n.rates[terms.Ingress] = 1_000_000, 1_000_000 })
		after(10 * time.Minute)
		within := []mailbox.Enforced{
			{Namespace: "ns", Pod: "pod", Direction: terms.Egress, Enforced: true},
			{Namespace: "ns", Pod: "pod", Direction: terms.Ingress, Enforced: true},
		}
		must.Match(t, "states within the limits", within, w.States())
		must.Len(t, "events", 0, n.events)
		// The API server did not tell of the pod yet: its Event comes when it does.
		n.set(func() { n.rates[terms.Egress], n.states[0].UID = 10_000_000, "" })
		after(10 * time.Second)
		n.set(func() { n.states[0].UID = "u" })
		after(10 * time.Second)
		if got := w.States()[0]; got.Enforced || got.Reason != string(mailbox.ReasonExceeded) || !w.States()[1].Enforced {
			t.Errorf("states = %+v, want egress to be exceeded", w.States())
		}
		after(time.Hour)
		must.Len(t, "events within an hour", 2, n.events)
		must.Be(t, "the second one", n.events[0], n.events[1])
		n.set(func() {
			n.rates[terms.Egress] = 5_000_000
			n.states[0].Mends = []reconcile.Mend{{ID: n.states[0].Limits[0].ID, Direction: terms.Egress, At: time.Now(), What: "queue"}}
		})
		after(time.Hour + time.Minute)
		must.Have(t, "the event an hour later", n.events[len(n.events)-1].Message, "carried 40 Mbit/s", "was put back at")
		must.Be(t, "reason", "LimitExceeded", n.events[0].Reason)
		must.Have(t, "the event", n.events[0].Message, "egress of eth0 carried 80 Mbit/s", "its limit is 8 Mbit/s", "CAP_NET_RAW", "egressCeiling is off")
		if r := unenforced(t, paths, 1)[0]; r.Reason != "exceeded" || r.Pod != "ns/pod" || r.Held ||
			r.Carried < 39e6 || r.Cause == "" || time.Since(r.Since) > 2*time.Hour+2*time.Minute {
			t.Errorf("record = %+v", r)
		}
		n.set(func() { n.rates[terms.Egress] = 1_000_000 })
		after(enforce.Quiet + 10*time.Second)
		must.Match(t, "states afterwards", within, w.States())
		unenforced(t, paths, 0)
		must.Match(t, "what is over", []string{"u LimitExceeded"}, n.over)
	})
}

// How long a pod was at its limit is counted for each interface once, also under a policy
// that charges only some of what the device counts.
func TestHeldIsCounted(t *testing.T) {
	s := limited(terms.Egress, terms.Ingress)
	s.Limits[1].Policy = terms.Name(terms.PolicyElephants)
	replaced := limited(terms.Egress) // its sandbox lingers, and its device has the same counter
	replaced.UID, replaced.Limits[0].ID.ContainerID = "old", "c0"
	replaced.Limits[0].Rate = 1e9
	runs(t, []reconcile.PodState{replaced, s}, func(n *node, w *enforce.Watcher, paths engine.Paths) {
		n.set(func() {
			n.rates[terms.Egress] = 950_000
			n.rates[terms.Ingress], n.beside[terms.Ingress] = 900_000_000, 899_000_000
		})
		began := time.Now()
		after(10 * time.Minute)
		// The device of the sandbox that lingers is far below its own limit.
		for i, r := range reached(t, paths, 3) {
			late, of := r.AtLimitSince.Sub(began), replaced.Limits[0].ID
			if i == 0 && (r.ID != of || !r.AtLimitSince.IsZero() || *r.HeldShare != 0) || i > 0 && (late < -time.Second || late > 15*time.Second || *r.HeldShare != 1) {
				t.Errorf("reached = %+v, want it since %v and all of the last minute, and nothing of %v", r, began, of)
			}
		}
		n.set(func() {
			n.rates[terms.Egress] = 500_000
			n.rates[terms.Ingress], n.beside[terms.Ingress] = 900_000_000, 900_000_000
		})
		after(10 * time.Minute)
		held := must.Len(t, "held", 2, w.Held()) // one for each direction
		must.Len(t, "events", 0, n.events)
		for i, d := range []terms.Direction{terms.Egress, terms.Ingress} {
			h := held[i]
			if h.Namespace != "ns" || h.Pod != "pod" || h.Interface != "eth0" || h.Direction != d || h.Time < 585*time.Second || h.Time > 10*time.Minute {
				t.Errorf("held[%d] = %+v, want some 10 minutes of %v", i, h, d)
			}
		}
		for _, r := range reached(t, paths, 3) {
			if !r.AtLimitSince.IsZero() || *r.HeldShare != 0 {
				t.Errorf("reached = %+v, want nothing now", r)
			}
		}
	})
	// reached is what the agent leaves: unknown until there are two readings.
	runs(t, []reconcile.PodState{limited(terms.Egress)}, func(_ *node, _ *enforce.Watcher, paths engine.Paths) {
		after(time.Millisecond)
		reached(t, paths, 0)
		must.Be(t, "watched just after the start", true, must.Get(paths.Mail().Watched())(t))
		after(2 * enforce.DefaultEvery)
		reached(t, paths, 1)
	})
}

// reached is what the agent leaves for status, of so many directions.
func reached(t *testing.T, paths engine.Paths, directions int) []mailbox.Reached {
	t.Helper()
	return must.Len(t, "reached", directions, must.Get(paths.Mail().Reached())(t))
}

// podweir's directory under /run may be emptied at any time: what the agent recorded there is back after a look, and the
// agent looks at the pods whose limits it could not set.
func TestRecordsAreBack(t *testing.T) {
	lacking := reconcile.PodState{Namespace: "ns", Name: "lacks", UID: "lacks", Outcome: reconcile.Failed}
	runs(t, []reconcile.PodState{limited(terms.Egress), lacking}, func(n *node, _ *enforce.Watcher, paths engine.Paths) {
		n.set(func() { n.rates[terms.Egress] = 400_000_000 })
		after(time.Minute)
		was := unenforced(t, paths, 1)
		n.set(func() { n.states[1].At = time.Time{} })
		must.OK(t, os.RemoveAll(paths.Run))
		after(enforce.DefaultEvery)
		must.Match(t, "unenforced", was, unenforced(t, paths, 1))
		n.set(func() {
			if n.states[1].At.IsZero() {
				t.Error("nobody looked at the pod without its limit: its record stays away")
			}
		})
	})
}

// What the ceiling drops is counted by the device, and is no excess; its counter is read
// for that only. What goes past the ceiling is.
func TestWhatTheCeilingDrops(t *testing.T) {
	s := limited(terms.Egress)
	s.Limits[0].Ceiling = true
	runs(t, []reconcile.PodState{s}, func(n *node, _ *enforce.Watcher, _ engine.Paths) {
		after(time.Hour)
		n.set(func() {
			must.Be(t, "reads of the ceiling's counter", 0, n.reads)
			n.rates[terms.Egress], n.beside[terms.Egress] = 101_000_000, 100_000_000
		})
		after(time.Hour)
		n.set(func() {
			if len(n.events) != 0 || n.reads == 0 {
				t.Errorf("events = %v after %d reads, want none", n.events, n.reads)
			}
			n.beside[terms.Egress] = 50_000_000
		})
		after(10 * time.Second)
		must.Have(t, "the event about a program that runs before the ceiling", must.Len(t, "events", 1, n.events)[0].Message, "past it")
	})
}

// What goes past the host side's device arrives at the pod's all the same, which is
// looked at now and then.
func TestPastTheHostSide(t *testing.T) {
	runs(t, []reconcile.PodState{limited(terms.Ingress)}, func(n *node, w *enforce.Watcher, _ engine.Paths) {
		n.set(func() { n.rates[terms.Ingress] = 1_000_000 })
		after(time.Hour)
		n.set(func() {
			if len(n.events) != 0 || n.arrivals < 350 || n.arrivals > 370 {
				t.Errorf("%d reads of the pod's device and the events %v, want one each 10 s", n.arrivals, n.events)
			}
			n.beside[terms.Ingress] = 10_000_000
		})
		after(20 * time.Second)
		must.Have(t, "the event about packets past the host side", must.Len(t, "events", 1, n.events)[0].Message, "bpf_redirect_peer")
		must.Be(t, "enforced", false, w.States()[0].Enforced)
		after(10 * time.Minute)
		n.set(func() { n.states[0].Limits[0].Side = terms.Name(terms.SideIFB) })
		after(3 * time.Second)
		must.Be(t, "another place of the queue is another matter: enforced", true, w.States()[0].Enforced)
		n.set(func() { n.states[0].Limits[0].Side, n.events = terms.Name(terms.SideHost), nil })
		after(20 * time.Second)
		n.set(func() { n.beside[terms.Ingress] = 0 })
		must.Len(t, "events", 1, n.events)
		must.Be(t, "it lasts: enforced", false, w.States()[0].Enforced)
		after(2 * enforce.Quiet)
		must.Be(t, "it is over: enforced", true, w.States()[0].Enforced)
	})
}

// A limit that changes while it is looked at is the one or the other.
func TestLimitChanges(t *testing.T) {
	runs(t, []reconcile.PodState{limited(terms.Ingress)}, func(n *node, _ *enforce.Watcher, _ engine.Paths) {
		n.set(func() {
			fast := false
			looks := 0
			n.change = func() {
				if looks++; looks%5 != 0 {
					return
				}
				if fast = !fast; fast {
					n.states[0].Limits[0].Rate, n.rates[terms.Ingress] = 8e9, 1_000_000_000
				} else { // it is slow from 50 ms after the counters were read
					n.states[0].Limits[0].Rate, n.rates[terms.Ingress] = 8e6, 1_000_000
					n.bytes[terms.Ingress] += 50_000_000
				}
			}
		})
		after(time.Hour)
		must.Len(t, "events", 0, n.events)
	})
}

func TestStates(t *testing.T) {
	tampered := limited(terms.Egress, terms.Ingress)
	tampered.Limits[0].Ceiling = true
	for _, l := range tampered.Limits {
		tampered.Tampered = append(tampered.Tampered, reconcile.Tampering{ID: l.ID, Direction: l.Direction.Is, By: mailbox.TakerPod, Since: time.Now()})
	}
	tampered.Name = "tampered"
	failed := reconcile.PodState{Namespace: "ns", Name: "failed", UID: "f", Outcome: reconcile.Failed, Asked: []terms.Direction{terms.Ingress}}
	failed.Limits = limited(terms.Ingress).Limits
	failed.Limits[0].ID.ContainerID, failed.Limits[0].Stale = "f", true
	free := reconcile.PodState{Namespace: "ns", Name: "free", UID: "n", Outcome: reconcile.Unlimited}
	// What is asked for and cannot be had is told without a limit of that direction, too, or beside one of another interface.
	half, part := limited(terms.Egress), limited(terms.Egress)
	half.Name, half.Outcome, half.Asked, half.Limits[0].ID.ContainerID = "half", reconcile.Invalid, terms.Directions[:], "h"
	part.Name, part.Outcome, part.Limits[0].ID.ContainerID = "part", reconcile.Refused, "p"
	misspelt := reconcile.PodState{Namespace: "ns", Name: "wrong", UID: "m", Outcome: reconcile.Unlimited, Misspelt: errors.New("misspelt"), Asked: []terms.Direction{terms.Egress}}
	waits := reconcile.PodState{Namespace: "ns", Name: "waits", UID: "w", Outcome: reconcile.Waiting, Asked: []terms.Direction{terms.Ingress}}
	byHand := limited(terms.Egress)
	byHand.Namespace, byHand.Name, byHand.UID = "", "", ""
	byHand.Limits[0].ID.ContainerID = "netns-1"
	twice := limited(terms.Egress)
	twice.Name, twice.UID = "failed", "f2"
	twice.Limits[0].Direction = terms.Name(terms.Ingress)
	observed := limited(terms.Egress)
	observed.Name, observed.UID = "observed", "o"
	observed.Limits[0].ID.ContainerID, observed.Limits[0].Enforce = "o", terms.Name(terms.EnforceObserve)
	runs(t, []reconcile.PodState{tampered, failed, free, waits, byHand, twice, observed, half, part, misspelt}, func(_ *node, w *enforce.Watcher, paths engine.Paths) {
		after(3 * time.Second)
		must.Match(t, "states", []mailbox.Enforced{
			{Pod: "netns-1", Direction: terms.Egress, Enforced: true},
			{Namespace: "ns", Pod: "failed", Direction: terms.Ingress, Reason: "failed"},
			{Namespace: "ns", Pod: "half", Direction: terms.Egress, Enforced: true},
			{Namespace: "ns", Pod: "half", Direction: terms.Ingress, Reason: "invalid"},
			{Namespace: "ns", Pod: "observed", Direction: terms.Egress, Reason: enforce.ReasonObserve},
			{Namespace: "ns", Pod: "part", Direction: terms.Egress, Reason: "refused"},
			{Namespace: "ns", Pod: "tampered", Direction: terms.Egress, Enforced: true, Reason: string(mailbox.ReasonTampered)},
			{Namespace: "ns", Pod: "tampered", Direction: terms.Ingress, Reason: string(mailbox.ReasonTampered)},
			{Namespace: "ns", Pod: "wrong", Direction: terms.Egress, Reason: "invalid"},
		}, w.States())
		if r := unenforced(t, paths, 2); !r[0].Held || r[1].Held || r[1].Reason != "tampered" || r[1].TakenBy != mailbox.TakerPod {
			t.Errorf("records = %+v, want those of the pod that is tampered with", r)
		}
	})
}

// What exceeds a limit that is observed only is what the operator wants to know, and no
// fault: nobody is told.
func TestObservedIsNotExceeded(t *testing.T) {
	s := limited(terms.Egress)
	s.Limits[0].Enforce = terms.Name(terms.EnforceObserve)
	runs(t, []reconcile.PodState{s}, func(n *node, w *enforce.Watcher, paths engine.Paths) {
		n.set(func() { n.rates[terms.Egress] = 100e6 })
		after(time.Minute)
		unenforced(t, paths, 0)
		must.Len(t, "events", 0, n.events)
		must.Match(t, "states", []mailbox.Enforced{{Namespace: "ns", Pod: "pod", Direction: terms.Egress, Reason: enforce.ReasonObserve}}, w.States())
	})
}

// While nothing can be read nothing is said, but for one line of the log.
func TestUnreadable(t *testing.T) {
	runs(t, []reconcile.PodState{limited(terms.Egress)}, func(n *node, w *enforce.Watcher, _ engine.Paths) {
		after(5 * time.Second)
		must.Len(t, "states", 1, w.States())
		must.Len(t, "held", 1, w.Held())
		n.set(func() { n.err, n.rates[terms.Egress] = errors.New("no socket"), 1_000_000 })
		after(time.Hour)
		n.set(func() { must.Be(t, "open counters that cannot be read", 0, n.open) })
		must.Len(t, "states of a look an hour ago", 0, w.States())
		must.Len(t, "held of it", 0, w.Held())
		n.set(func() { n.err, n.missing = nil, fmt.Errorf("veth1: %w", hostif.ErrNoDevice) })
		after(time.Minute)                                // the pod ends
		must.Have(t, "the log", n.log.String(), "!veth1") // the device is gone
		n.set(func() { n.missing = nil })
		after(time.Minute)
		must.Len(t, "events", 0, n.events)
		must.Len(t, "states", 1, w.States())
		must.Be(t, "times that the log says it", 1, strings.Count(n.log.String(), "no socket"))
	})
}

// What went past podweir is kept: a minute of it an hour ago, and what is slow. A minute in
// which counters may have begun again says nothing.
func TestPastIsKept(t *testing.T) {
	const slow, fast = 20_000, 5_000_000 // bytes a second
	for name, tt := range map[string]struct {
		past    uint64
		disturb func(n *node)
		most    uint64
		least   uint64
	}{
		"nothing":                   {},
		"a little":                  {past: 1000},
		"slowly":                    {past: slow, least: 50 * slow, most: 125 * slow},
		"fast":                      {past: fast, least: 50 * fast, most: 125 * fast},
		"a queue that was rebuilt":  {disturb: func(n *node) { n.begun[0] = n.bytes[terms.Egress] }},
		"a filter that is away":     {disturb: func(n *node) { n.begun[1] = n.bytes[terms.Egress] - 6_000_000 }},
		"counters that begin again": {disturb: func(n *node) { n.begun[0], n.begun[1] = n.bytes[terms.Egress], n.bytes[terms.Egress] }},
		"a repair": {past: fast, disturb: func(n *node) {
			n.states[0].Mends = []reconcile.Mend{{Direction: terms.Egress, At: time.Now(), What: "filter"}}
		}},
		"another device": {past: fast, disturb: func(n *node) { n.states[0].Limits[0].Interface.PodIndex++ }},
	} {
		runs(t, []reconcile.PodState{limited(terms.Egress)}, func(n *node, _ *enforce.Watcher, paths engine.Paths) {
			n.set(func() { n.rates[terms.Egress] = 10_000 })
			after(10 * time.Minute)
			for range 6 { // within one minute, and the one before it
				n.set(func() {
					n.beside[terms.Egress] = tt.past
					if tt.disturb != nil {
						tt.disturb(n)
					}
				})
				after(10 * time.Second)
			}
			n.set(func() { n.beside[terms.Egress] = 0 })
			after(2 * time.Minute)
			n.set(func() { n.states[0].Mends = nil })
			after(time.Hour)
			all := must.Len(t, name+": past", int(min(tt.most, 1)), must.Get(paths.Mail().Past())(t))
			if len(all) == 1 && (all[0].PastBytes < tt.least || all[0].PastBytes > tt.most || time.Since(all[0].PastLast) < time.Hour ||
				all[0].PastLast.Sub(all[0].PastSince) > 3*time.Minute || all[0].Direction.Is != terms.Egress) {
				t.Errorf("%s: past = %+v, want %d to %d bytes an hour ago", name, all[0], tt.least, tt.most)
			}
		})
	}
}
