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
	"github.com/podweir/podweir/plugin/rtnl"
	"github.com/podweir/podweir/plugin/shaping"
)

// Share is a class that holds a share, for a loop that reads and changes it many times a second. It is
// not safe for concurrent use.
type Share struct {
	handle  *hostif.Handle
	ifindex int
	class   shaping.TCHandle
	request []byte
	take    func([]byte)
	// change is a request that changes the class: the numbers of it are its last bytes.
	change []byte

	found bool
	stats Stats
	bad   error
}

// NewShare returns the class of a device, which need not be there.
func NewShare(h *hostif.Handle, ifindex int, class shaping.TCHandle) *Share {
	req := nl.NewNetlinkRequest(unix.RTM_GETTCLASS, unix.NLM_F_DUMP)
	req.AddData(&nl.TcMsg{Family: unix.AF_UNSPEC, Ifindex: int32(ifindex), Parent: uint32(class & majorMask)})
	s := &Share{handle: h, ifindex: ifindex, class: class, request: req.Serialize()}
	s.take = s.read
	return s
}

// Stats reads the counters: what left the class, and what waits below it.
func (s *Share) Stats() (Stats, error) {
	s.found, s.bad = false, nil
	err := s.handle.Repeat(s.request, unix.RTM_NEWTCLASS, s.take)
	switch {
	case err == nil && s.bad != nil:
		err = s.bad
	case err == nil && !s.found:
		err = ErrNoClass
	case errors.Is(err, unix.ENODEV):
		err = hostif.ErrNoDevice
	}
	if err != nil {
		return Stats{}, fmt.Errorf("class %s of ifindex %d in %s: %w", handleString(s.class), s.ifindex, s.handle.Where(), err)
	}
	return s.stats, nil
}

// Change changes the rate and burst of the class, which keeps its tokens: nothing is refilled. What waits
// goes on at the new rate.
func (s *Share) Change(c *shaping.Class) error {
	var err error
	if max(c.Rate, c.Ceil) > math.MaxUint32 { // that takes more attributes
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

// read takes what the kernel tells of one class.
func (s *Share) read(m []byte) {
	const handleAt = 8
	if len(m) < nl.SizeofTcMsg || shaping.TCHandle(rtnl.Uint32(m[handleAt:])) != s.class {
		return
	}
	s.found = true
	err := eachAttr(m[nl.SizeofTcMsg:], func(t uint16, v []byte) {
		if t == nl.TCA_STATS2 {
			s.stats, s.bad = parseStats(v)
		}
	})
	if err != nil {
		s.bad = err
	}
}
