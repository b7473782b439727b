// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package queue

import (
	"errors"
	"fmt"
	"math"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/shaping"
)

// Where a request about a class has the class and its parent: struct nlmsghdr, and struct tcmsg in it.
const handleAt, parentAt = unix.SizeofNlMsghdr + 8, unix.SizeofNlMsghdr + 12

// Share is the queue below a class that holds a share, for a loop that reads its counters and changes it
// many times a second. It is not safe for concurrent use.
type Share struct {
	handle  *hostif.Handle
	ifindex int
	class   shaping.TCHandle
	request []byte
	take    func([]byte)
	// change is the request that changes a class. Its last classParmsLen bytes are the struct tc_htb_opt. pending are
	// the numbers of those that wait for Done.
	change  []byte
	pending []uint32

	stats Stats
	bad   error
}

// NewShare returns the queue below a class of a device, which need not be there.
func NewShare(h *hostif.Handle, ifindex int, class shaping.TCHandle) *Share {
	// Stats reads the root's counters: those of a class with classes below it lack what waits. Kernels before
	// 6.7 answer only requests with NLM_F_ECHO, and send the answer to all that watch, too. So the handle
	// should be a quiet one.
	req := nl.NewNetlinkRequest(unix.RTM_GETQDISC, unix.NLM_F_ECHO)
	req.AddData(&nl.TcMsg{Family: unix.AF_UNSPEC, Ifindex: int32(ifindex), Handle: uint32(class & majorMask), Parent: uint32(shaping.RootParent)})
	s := &Share{handle: h, ifindex: ifindex, class: class, request: req.Serialize()}
	s.take = s.read
	return s
}

// Stats reads the counters: what left the queue, and what waits in it. Returns an error wrapping [ErrNoQdisc]
// or [hostif.ErrNoDevice] if it is gone.
func (s *Share) Stats() (Stats, error) {
	s.bad = nil
	err := s.handle.Repeat(s.request, unix.RTM_NEWQDISC, s.take)
	switch {
	case err == nil:
		err = s.bad
	case errors.Is(err, unix.ENODEV):
		err = hostif.ErrNoDevice
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL):
		err = ErrNoQdisc // the kernel's default is none, and another one's handle differs
	}
	if err != nil {
		return Stats{}, fmt.Errorf("queue of class %s of ifindex %d in %s: %w", handleString(s.class), s.ifindex, s.handle.Where(), err)
	}
	return s.stats, nil
}

// Change has the rate and burst of the class, or of one below it, changed by the next call of [Share.Done]. The class keeps
// its tokens: nothing is refilled, and what waits goes on at the new rate.
func (s *Share) Change(c *shaping.Class) error {
	req, small := s.change, max(c.Rate, c.Ceil) <= math.MaxUint32 // others take more attributes
	if req == nil || !small {
		opts, err := classOptions(c)
		if err != nil {
			return s.failed(err)
		}
		made := newRequest(unix.RTM_NEWTCLASS, 0, s.ifindex, c.Handle, c.Parent, string(shaping.KindHTB))
		made.AddData(opts)
		if req = made.Serialize(); small {
			s.change = req
		}
	} else {
		nl.NativeEndian().PutUint32(req[handleAt:], uint32(c.Handle))
		nl.NativeEndian().PutUint32(req[parentAt:], uint32(c.Parent))
		putClass(req[len(req)-classParmsLen:], c)
	}
	s.pending = append(s.pending, s.handle.Later(req))
	return nil
}

// Done has the kernel make all changes that were asked for on the handle, if it did not yet, and says what became
// of those of this share.
func (s *Share) Done() error {
	var first error
	for _, number := range s.pending {
		if err := s.handle.Done(number); err != nil && first == nil {
			first = s.failed(err)
		}
	}
	s.pending = s.pending[:0]
	return first
}

func (s *Share) failed(err error) error {
	return fmt.Errorf("change share on ifindex %d in %s: %w", s.ifindex, s.handle.Where(), err)
}

// read parses the kernel's answer about the root.
func (s *Share) read(m []byte) {
	if len(m) < nl.SizeofTcMsg {
		return
	}
	err := eachAttr(m[nl.SizeofTcMsg:], func(t uint16, v []byte) {
		if t == nl.TCA_STATS2 {
			s.stats, s.bad = parseStats(v)
		}
	})
	if err != nil {
		s.bad = err
	}
}
