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

// Share is the queue below a class that holds a share, for a loop that reads its counters and changes it
// many times a second. It is not safe for concurrent use.
type Share struct {
	handle  *hostif.Handle
	ifindex int
	class   shaping.TCHandle
	request []byte
	take    func([]byte)
	// change is the request that changes the class. Its last classParmsLen bytes are the struct tc_htb_opt.
	change []byte

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
		return Stats{}, fmt.Errorf("queue of class %s of ifindex %d in %s: %w", s.class, s.ifindex, s.handle.Where(), err)
	}
	return s.stats, nil
}

// Change changes the rate and burst of the class or of one below it, which keeps its tokens: nothing is
// refilled. What waits goes on at the new rate.
func (s *Share) Change(c *shaping.Class) error {
	var err error
	if c.Handle != s.class || max(c.Rate, c.Ceil) > math.MaxUint32 { // a class below the share changes seldom; a rate above 32 bits takes more attributes
		err = setClass(s.handle, s.ifindex, c, 0)
	} else if err = s.prepare(c); err == nil {
		putClass(s.change[len(s.change)-classParmsLen:], c)
		err = s.handle.Repeat(s.change, 0, s.take)
	}
	if err != nil {
		return fmt.Errorf("change share on ifindex %d in %s: %w", s.ifindex, s.handle.Where(), err)
	}
	return nil
}

// prepare makes the request that changes the class.
func (s *Share) prepare(c *shaping.Class) error {
	if s.change != nil {
		return nil
	}
	opts, err := classOptions(c)
	if err != nil {
		return err
	}
	req := newRequest(unix.RTM_NEWTCLASS, 0, s.ifindex, s.class, c.Parent, string(shaping.KindHTB))
	req.AddData(opts)
	s.change = req.Serialize()
	return nil
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
