// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package rtnl

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// answerBytes is the room for what the kernel answers with at a time: up to 32 KiB of
// a dump, or one message.
const answerBytes = 64 << 10

// answers are lent for an exchange: a look at a node full of pods has a socket in each
// namespace.
var answers = sync.Pool{New: func() any { return new([answerBytes]byte) }}

// answerTimeout is how long the kernel may take for the next part of an answer: an RTNL
// hold of a busy node is tens of milliseconds. It does not cover the wait for RTNL
// within sendto, which nothing can interrupt.
var answerTimeout = 20 * time.Second

// ErrLate means that a request was not sent, since the deadline of its connection has passed.
var ErrLate = errors.New("no time is left for a netlink request")

// ErrNoAnswer means that the kernel did not answer a request in time. What was requested
// may have been done all the same.
var ErrNoAnswer = errors.New("the kernel did not answer the netlink request")

// errInterrupted means that a list changed while the kernel dumped it.
var errInterrupted = errors.New("the list changed while it was read")

// socket exchanges requests for answers, one at a time. The library's takes 64 KiB of
// fresh memory for each message that it reads, and a second thread that polls.
type socket struct {
	fd   int
	port uint32
	seq  uint32
	// deadline ends every exchange; zero does not.
	deadline time.Time
	// timeout is how long the kernel may take for the next part of an answer.
	timeout time.Duration
}

// openSocket opens a socket in the namespace of the calling thread.
func openSocket(proto int) (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return nil, err
	}
	s := &socket{fd: fd}
	if err := s.setUp(); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return s, nil
}

func (s *socket) setUp() error {
	if err := unix.Bind(s.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	name, err := unix.Getsockname(s.fd)
	if err != nil {
		return err
	}
	address, ok := name.(*unix.SockaddrNetlink)
	if !ok {
		return fmt.Errorf("the socket has the address %v, not one of netlink's", name)
	}
	s.port = address.Pid
	timeout := unix.NsecToTimeval(answerTimeout.Nanoseconds())
	return errors.Join(
		unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout),
		s.bound(),
		unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1))
}

// bound sets how long the next part of an answer may take: [answerTimeout], or what is
// left until the deadline.
func (s *socket) bound() error {
	timeout := answerTimeout
	if !s.deadline.IsZero() {
		timeout = min(timeout, time.Until(s.deadline))
	}
	if timeout <= 0 {
		return ErrLate
	}
	if timeout == s.timeout {
		return nil
	}
	s.timeout = timeout
	timeval := unix.NsecToTimeval(max(timeout, time.Millisecond).Nanoseconds()) // 0 would be forever
	return unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeval)
}

func (s *socket) close() error { return unix.Close(s.fd) }

// exchange sends a request and calls take with every message of type answer, which is
// valid during the call only. It ends with the kernel's error, in the kernel's own words
// where it has any, or with errInterrupted.
func (s *socket) exchange(req *nl.NetlinkRequest, answer uint16, take func(msg []byte)) error {
	if err := s.bound(); err != nil {
		return err
	}
	s.seq++
	req.Seq = s.seq
	if err := unix.Sendto(s.fd, req.Serialize(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	r := reply{seq: s.seq, port: s.port, answer: answer, take: take}
	lent := answers.Get()
	defer answers.Put(lent)
	room := lent.(*[answerBytes]byte) //nolint:forcetypeassert // the pool has nothing else
	for {
		msgs, err := s.receive(room[:])
		if errors.Is(err, unix.EAGAIN) {
			return fmt.Errorf("%w within %v", ErrNoAnswer, s.timeout)
		}
		if err != nil {
			return err
		}
		if ended, err := r.read(msgs); ended {
			return err
		}
		if err := s.bound(); err != nil {
			return err
		}
	}
}

// reply is what has come of the answer to one request.
type reply struct {
	seq, port   uint32
	answer      uint16
	take        func(msg []byte)
	interrupted bool
}

// read takes the messages of one datagram and says whether they end the answer.
func (r *reply) read(msgs []syscall.NetlinkMessage) (ended bool, err error) {
	for i := range msgs {
		h := &msgs[i].Header
		if h.Seq != r.seq || h.Pid != r.port {
			continue // left from a request that ran into the timeout
		}
		r.interrupted = r.interrupted || h.Flags&unix.NLM_F_DUMP_INTR != 0
		switch {
		case h.Type == unix.NLMSG_DONE || h.Type == unix.NLMSG_ERROR:
			ended, err = true, answerError(&msgs[i])
		case r.answer == 0 || h.Type == r.answer:
			r.take(msgs[i].Data)
			ended = h.Flags&unix.NLM_F_MULTI == 0
		}
		if ended && err == nil && r.interrupted {
			err = errInterrupted
		}
		if ended {
			return true, err
		}
	}
	return false, nil
}

// receive returns the messages of one datagram; they are overwritten by the next.
func (s *socket) receive(room []byte) ([]syscall.NetlinkMessage, error) {
	for {
		// MSG_TRUNC: the kernel tells the size also of what does not fit.
		n, from, err := unix.Recvfrom(s.fd, room, unix.MSG_TRUNC)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if n > len(room) {
			return nil, fmt.Errorf("the kernel answers with %d bytes, there is room for %d", n, len(room))
		}
		if sender, ok := from.(*unix.SockaddrNetlink); ok && sender.Pid != 0 {
			continue // no word of the kernel's
		}
		return syscall.ParseNetlinkMessage(room[:n])
	}
}

// answerError is the error that ends an answer; none if the kernel is content.
func answerError(m *syscall.NetlinkMessage) error {
	const errnoBytes = 4
	errno := syscall.Errno(-int32(Uint32(m.Data)))
	if errno == 0 {
		return nil
	}
	if m.Header.Flags&unix.NLM_F_ACK_TLVS == 0 {
		return errno
	}
	attrs := m.Data[errnoBytes:]
	if m.Header.Type == unix.NLMSG_ERROR {
		// The request is echoed: all of it, or its header.
		echo := unix.SizeofNlMsghdr
		if m.Header.Flags&unix.NLM_F_CAPPED == 0 {
			echo = int(Uint32(attrs))
		}
		attrs = attrs[min(nlaRound(echo), len(attrs)):]
	}
	words := ""
	_ = EachAttr(attrs, func(kind uint16, v []byte) error {
		if kind == nl.NLMSGERR_ATTR_MSG {
			words = unix.ByteSliceToString(v)
		}
		return nil
	})
	if words == "" {
		return errno
	}
	return fmt.Errorf("%w: %s", errno, words)
}
