// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package queue

import (
	"errors"
	"fmt"

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
	// look is the request for the counters, classes are those that change a class: their last classLen bytes are what
	// changes. request is what is sent, all in one.
	look, request []byte
	classes       map[shaping.TCHandle][]byte
	take          func([]byte)

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
	s := &Share{handle: h, ifindex: ifindex, class: class, look: req.Serialize(), classes: make(map[shaping.TCHandle][]byte)}
	s.take = s.read
	return s
}

// Stats reads the counters: what left the queue, and what waits in it. Returns an error wrapping [ErrNoQdisc]
// or [hostif.ErrNoDevice] if it is gone.
func (s *Share) Stats() (Stats, error) { return s.Change(nil) }

// Change changes the rates and bursts of the class and of those below it. They keep their tokens: nothing is
// refilled. What waits goes on at the new rate. Then it reads the counters, as [Share.Stats] does.
func (s *Share) Change(classes []shaping.Class) (Stats, error) {
	s.request = s.request[:0]
	for i := range classes {
		if err := s.add(&classes[i]); err != nil {
			return Stats{}, err
		}
	}
	s.request, s.bad = append(s.request, s.look...), nil
	err := s.handle.Repeat(s.request, unix.RTM_NEWQDISC, s.take)
	switch {
	case err == nil:
		err = s.bad
	case errors.Is(err, unix.ENODEV):
		err = hostif.ErrNoDevice
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL):
		err = fmt.Errorf("%w: %w", ErrNoQdisc, err) // the kernel's default is none, and another one's handle differs
	}
	if err != nil {
		return Stats{}, fmt.Errorf("queue of class %s of ifindex %d in %s: %w", handleString(s.class), s.ifindex, s.handle.Where(), err)
	}
	return s.stats, nil
}

// add adds the change of a class to the request. It is answered only if it fails.
func (s *Share) add(c *shaping.Class) error {
	if s.classes[c.Handle] == nil {
		opts, err := classOptions(c)
		if err != nil {
			return err
		}
		req := newRequest(unix.RTM_NEWTCLASS, 0, s.ifindex, c.Handle, c.Parent, string(shaping.KindHTB))
		req.Flags &^= unix.NLM_F_ACK
		req.AddData(opts)
		s.classes[c.Handle] = req.Serialize()
	}
	s.request = append(s.request, s.classes[c.Handle]...)
	putClass(s.request[len(s.request)-classLen:], c)
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
