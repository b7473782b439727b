// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/pins"
	"github.com/podweir/podweir/plugin/queue"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/share"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// Share is the queue of one direction of a pod that has a share of its group's limit. It can
// be used as long as the node that it comes from is open. Close it.
type Share struct {
	// Namespace is the pod's, whose pods have Group together, and Pod namespace/name.
	Namespace, Pod string
	Direction      terms.Direction
	// Group is the limit of the group, and Most that of the pod itself, in bits per second.
	Group, Most units.BitRate
	// Now is the share that the queue had when it was found, in bytes per second.
	Now units.ByteRate

	// slot, counted and followed are what a tick reads of an idle queue, in few cache lines. counted is what the classifier had
	// counted when the queue was looked at, which was at the time looked.
	slot     datapath.Share
	counted  uint64
	looked   time.Duration
	followed share.Follower

	node    *Node
	netns   string
	at      *place
	queue   *queue.Share
	turn    *pins.Turn
	divider *shaping.Divider
	// classes are the classes as they were last set, that of the share itself first; nil if that is not known.
	classes []shaping.Class
	// rate is the share, which the queue has since so long; behind says that its light packets have a smaller rate than at
	// that share, and since is when that began.
	rate   units.ByteRate
	since  time.Duration
	behind bool
}

// Undivided is a direction of a pod of a group that has no queue with a share.
type Undivided struct {
	Namespace, Pod string
	Direction      terms.Direction
	// Group is the limit of the group, in bits per second.
	Group units.BitRate

	// slot counts what it sends, nil if nobody does.
	slot  *datapath.Share
	began uint64
	// counted is what it had counted at the last look.
	counted uint64
}

// Counted says that a program counts what the direction sends.
func (u *Undivided) Counted() bool { return u.slot != nil }

// Look returns what passed since the direction was found. No packet is known to wait.
func (u *Undivided) Look(time.Duration, bool) (sent, waiting units.Bytes, err error) {
	if u.slot.Lost() {
		return 0, 0, fmt.Errorf("%v outside of its group: %w", u.Direction, datapath.ErrNoSlot)
	}
	u.counted = u.slot.Bytes()
	return units.Bytes(u.counted - u.began), 0, nil
}

// Still says that nothing passed since the last look.
func (u *Undivided) Still(time.Duration) bool { return u.slot.Bytes() == u.counted }

// Unsure is false: there is no queue that could be asked.
func (*Undivided) Unsure() bool { return false }

// Set changes nothing: the direction has its own limit alone.
func (*Undivided) Set(units.ByteRate) error { return nil }

// Changed is false: there is nothing that another process could change.
func (*Undivided) Changed() bool { return false }

// Undivided returns the directions of an attachment that are in a group and have no share.
func (n *Node) Undivided(r *apply.Record, shares []*Share) (all []*Undivided) {
	for _, d := range terms.Directions {
		limit := r.Config.Limit(d)
		has := slices.ContainsFunc(shares, func(s *Share) bool { return s.Direction == d })
		if limit != nil && limit.Group != 0 && !has && !r.Config.Observe && r.Namespace() != "" {
			u := &Undivided{Namespace: r.Namespace(), Pod: r.Pod, Direction: d, Group: limit.Group}
			if slot, err := n.kernel.slab.Share(n.kernel.pins(r), d); err == nil { // else it has no program
				u.slot, u.began = slot, slot.Bytes()
				u.counted = u.began
			}
			all = append(all, u)
		}
	}
	return all
}

// GroupDropped is what the ceiling of a namespace's limit dropped, in packets and wire bytes.
func (n *Node) GroupDropped(namespace string, d terms.Direction, limit units.BitRate) (packets, bytes uint64, err error) {
	return n.kernel.slab.GroupDropped(shaping.GroupKey(namespace, d, limit))
}

// Shares returns the queues of an attachment that have a share of a group's limit. A queue
// that is not whole has none yet. The loop that divides (package divide) opens a node for them
// alone: the kernel does not report that node's changes to the watches of this process.
func (n *Node) Shares(r *apply.Record) ([]*Share, error) {
	if (r.Config.Egress == nil || r.Config.Egress.Group == 0) && (r.Config.Ingress == nil || r.Config.Ingress.Group == 0) || r.Namespace() == "" {
		return nil, nil
	}
	defer n.kernel.releaseUnused(r.Interface.NetNSPath)
	in, err := n.Inspect(r)
	if err != nil {
		return nil, err
	}
	var all []*Share
	for _, d := range terms.Directions {
		want := in.Want.Directions[d]
		if want == nil || !want.Params.Divided {
			continue
		}
		s, err := n.share(r, in, want.Params)
		if err != nil {
			for _, s := range all {
				s.Close()
			}
			return nil, err
		}
		if s != nil {
			all = append(all, s)
		}
	}
	return all, nil
}

func (n *Node) share(r *apply.Record, in *attach.Inspection, p *shaping.Params) (*Share, error) {
	facts, _, err := n.kernel.Facts(in.Interface)
	if err != nil {
		return nil, err
	}
	at, err := n.kernel.placeOf(r, p.Side)
	if at == nil || err != nil {
		return nil, err
	}
	now := p.Tree.Share(&in.Observed.Device(p.Side).Tree)
	if now == nil {
		return nil, nil
	}
	slot, err := n.kernel.slab.Share(n.kernel.pins(r), p.Direction)
	if err != nil {
		return nil, err
	}
	if err := at.handle.Quiet(); err != nil {
		return nil, err
	}
	turn, err := n.store.pins.Turn(r.ID)
	if err != nil {
		return nil, err
	}
	if pod := n.kernel.pods[in.Interface.NetNSPath]; pod != nil {
		pod.shares++
	}
	limit, divider := r.Config.Limit(p.Direction), shaping.NewDivider(&r.Config, facts, p)
	found := &Share{
		Namespace: r.Namespace(), Pod: r.Pod, Direction: p.Direction, Group: limit.Group, Most: p.Rate, Now: now.Rate,
		node: n, netns: in.Interface.NetNSPath, at: at, turn: turn, slot: *slot, divider: divider, queue: queue.NewShare(at.handle, at.index, now.Handle),
	}
	found.followed.Share(now.Rate, now.Burst)
	return found, nil
}

// Look returns how many bytes have left the queue since it was found, and how many wait in it. now is
// of any monotonic clock. Usually Look computes both from the classifier's counter. It asks the kernel
// if ask is true or if packets seem to begin to wait.
func (s *Share) Look(now time.Duration, ask bool) (sent, waiting units.Bytes, err error) {
	counted, passed := s.slot.Bytes(), now-s.looked
	came := units.Bytes(counted - min(s.counted, counted))
	// A slot whose counter did not move cannot be in use by another pod, so it is not checked.
	if (came > 0 || ask) && s.slot.Lost() {
		return 0, 0, fmt.Errorf("share of %v: %w", s.Direction, datapath.ErrNoSlot)
	}
	s.counted, s.looked = counted, now
	if s.followed.Came(came, passed) || ask {
		seen, err := s.queue.Stats()
		if err != nil {
			return 0, 0, err
		}
		s.followed.Is(units.Bytes(seen.Bytes), units.Bytes(seen.BacklogBytes))
	}
	return s.followed.Sent(), s.followed.Waiting(), nil
}

// Still says that Look would return what it returned before, and stands for a look. It takes much less time: what
// a look reads of an idle queue is in no cache of the processor.
func (s *Share) Still(now time.Duration) bool {
	if s.slot.Bytes() != s.counted || !s.followed.Still() {
		return false
	}
	s.looked = now
	return true
}

// Unsure says that the kernel should be asked now and then; see [share.Follower].
func (s *Share) Unsure() bool { return s.followed.Unsure() }

// ErrBusy says that another process of podweir is about to change the attachment.
var ErrBusy = errors.New("the attachment is being changed")

// lightLater is how long light packets wait for a higher rate of their own within a share that rose. A share that
// follows bursts falls again before, and each class that changes takes the kernel some microseconds.
const lightLater = 200 * time.Millisecond

// Set gives the queue and its classifier another share, at least [units.MinRate]. The rate that light packets have
// within it falls at once, and rises when Set is called again with the same share: see [Share.Changed]. The error
// is [ErrBusy] if it is to be tried again.
func (s *Share) Set(rate units.ByteRate) error {
	if !s.turn.Take() {
		return ErrBusy
	}
	defer s.turn.Give()
	if s.slot.Lost() {
		return fmt.Errorf("share of %v: %w", s.Direction, datapath.ErrNoSlot)
	}
	classes, dp := s.divider.At(rate)
	known := s.classes
	if s.slot.Changed() {
		known = nil // another process may have made the queue again
	}
	// At least that often it rises with a share that never rests.
	late := s.behind && s.looked-s.since >= lightLater
	behind := len(known) > 1 && rate != s.rate && !late && known[1].Rate < classes[1].Rate
	if behind {
		classes[1] = known[1]
	}
	for i := range classes {
		if i < len(known) && classes[i] == known[i] {
			continue
		}
		if err := s.queue.Change(&classes[i]); err != nil {
			s.classes = nil
			return err
		}
	}
	s.slot.Set(&dp)
	if !behind || !s.behind {
		s.since = s.looked
	}
	s.classes, s.rate, s.behind = classes, rate, behind
	s.followed.Share(classes[0].Rate, classes[0].Burst)
	return nil
}

// Close releases what Shares took, the last one of a pod the pod's namespace too.
func (s *Share) Close() {
	s.turn.Close()
	if p := s.node.kernel.pods[s.netns]; p != nil {
		p.shares--
		s.node.kernel.releaseUnused(s.netns)
	}
}

// Changed says that [Share.Set] is to be called again: another process wrote the limits of the classifier since,
// or the share is the same for long enough to complete it.
func (s *Share) Changed() bool {
	return s.behind && s.looked-s.since >= lightLater || s.slot.Changed()
}
