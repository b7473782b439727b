// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package queue

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/rtnl"
	"github.com/podweir/podweir/plugin/shaping"
)

// Share is a class that holds a share, for a loop that reads its counters many times a second. It is
// not safe for concurrent use.
type Share struct {
	handle  *hostif.Handle
	ifindex int
	class   shaping.TCHandle
	request []byte
	take    func([]byte)

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
