// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package rtnl

import (
	"bytes"
	"encoding/binary"
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
const answerTimeout = 20 * time.Second

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
	// kernel is where requests go.
	kernel unix.SockaddrNetlink
	seq    uint32
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
	s := &socket{fd: fd, kernel: unix.SockaddrNetlink{Family: unix.AF_NETLINK}}
	err = errors.Join(unix.Bind(fd, &s.kernel), s.bound(), unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1))
	name, failed := unix.Getsockname(fd)
	if address, ok := name.(*unix.SockaddrNetlink); ok {
		s.port = address.Pid
	}
	if err = errors.Join(err, failed); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return s, nil
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

// exchange sends a request, whose number it sets, and calls take with every message of type answer, which is
// valid during the call only. It ends with the kernel's error, in the kernel's own words
// where it has any, or with errInterrupted.
func (s *socket) exchange(req []byte, answer uint16, take func(msg []byte)) error {
	const seqAt = 8
	if err := s.bound(); err != nil {
		return err
	}
	s.seq++
	binary.NativeEndian.PutUint32(req[seqAt:], s.seq)
	if err := unix.Sendto(s.fd, req, 0, &s.kernel); err != nil {
		return err
	}
	r := reply{seq: s.seq, port: s.port, answer: answer, take: take}
	lent := answers.Get()
	defer answers.Put(lent)
	room := lent.(*[answerBytes]byte) //nolint:forcetypeassert // the pool has nothing else
	for {
		n, err := s.receive(room[:])
		if errors.Is(err, unix.EAGAIN) {
			return fmt.Errorf("%w within %v", ErrNoAnswer, s.timeout)
		}
		if err != nil {
			return err
		}
		if ended, err := r.read(room[:n]); ended || err != nil {
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
func (r *reply) read(b []byte) (ended bool, err error) {
	for len(b) >= unix.SizeofNlMsghdr {
		m := headOf(b)
		if m.size < unix.SizeofNlMsghdr || m.size > len(b) {
			return false, fmt.Errorf("netlink message of %d bytes, %d are there", m.size, len(b))
		}
		data := b[unix.SizeofNlMsghdr:m.size]
		b = b[min(nlaRound(m.size), len(b)):]
		if m.seq != r.seq || m.port != r.port {
			continue // left from a request that ran into the timeout
		}
		r.interrupted = r.interrupted || m.flags&unix.NLM_F_DUMP_INTR != 0
		switch {
		case m.kind == unix.NLMSG_DONE || m.kind == unix.NLMSG_ERROR:
			ended, err = true, answerError(m, data)
		case r.answer == 0 || m.kind == r.answer:
			r.take(data)
			ended = m.flags&unix.NLM_F_MULTI == 0
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

// head is a struct nlmsghdr.
type head struct {
	size        int
	kind, flags uint16
	seq, port   uint32
}

func headOf(b []byte) head {
	e := binary.NativeEndian
	return head{size: int(e.Uint32(b)), kind: e.Uint16(b[4:]), flags: e.Uint16(b[6:]), seq: e.Uint32(b[8:]), port: e.Uint32(b[12:])}
}

// receive returns the size of one datagram.
func (s *socket) receive(room []byte) (int, error) {
	for {
		// MSG_TRUNC: the kernel tells the size also of what does not fit.
		n, from, err := unix.Recvfrom(s.fd, room, unix.MSG_TRUNC)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if n > len(room) {
			return 0, fmt.Errorf("the kernel answers with %d bytes, there is room for %d", n, len(room))
		}
		if sender, ok := from.(*unix.SockaddrNetlink); ok && sender.Pid != 0 {
			continue // no word of the kernel's
		}
		return n, nil
	}
}

// answerError is the error that ends an answer; none if the kernel is content.
func answerError(m head, data []byte) error {
	const errnoBytes = 4
	errno := syscall.Errno(-int32(Uint32(data)))
	if errno == 0 {
		return nil
	}
	if m.flags&unix.NLM_F_ACK_TLVS == 0 {
		return errno
	}
	attrs := data[min(errnoBytes, len(data)):]
	if m.kind == unix.NLMSG_ERROR {
		// The request is echoed: all of it, or its header.
		echo := unix.SizeofNlMsghdr
		if m.flags&unix.NLM_F_CAPPED == 0 {
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

// dumpAttempts bounds how often a dump is read again when the kernel says that
// the list changed meanwhile. Each attempt takes well under a millisecond, and
// the changes come one RTNL hold after the other.
const dumpAttempts = 20

// Conn is a netlink socket that lives in one network namespace, so that
// requests need no thread switch. It is safe for concurrent use.
type Conn struct {
	where  string
	mu     sync.Mutex
	socket *socket
}

// Dial opens a netlink socket of a protocol, such as [unix.NETLINK_ROUTE], in ns; nil means
// the namespace of the calling thread. The connection does not need ns to stay open, but the
// namespace lives at least as long as the connection.
func Dial(ns *NetNS, proto int) (*Conn, error) {
	c := &Conn{where: "the current netns"}
	open := func() (err error) {
		c.socket, err = openSocket(proto)
		return err
	}
	var err error
	if ns == nil {
		err = open()
	} else {
		c.where = "netns " + ns.path
		err = ns.Do(open)
	}
	if err != nil {
		return nil, fmt.Errorf("open netlink socket in %s: %w", c.where, err)
	}
	return c, nil
}

// Cookie returns the kernel's number of the connection's namespace, which is not given
// again before the next boot; 0 from kernels older than 5.14.
func (c *Conn) Cookie() uint64 { return cookie(c.socket.fd) }

func cookie(fd int) uint64 {
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0
	}
	return cookie
}

// Where names the namespace in error messages.
func (c *Conn) Where() string { return c.where }

// SetDeadline ends every request at t: one that begins later fails with [ErrLate], one
// that is under way with [ErrNoAnswer]. The zero time means that there is no deadline.
func (c *Conn) SetDeadline(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.socket.deadline = t
}

// Close closes the socket.
func (c *Conn) Close() {
	_ = c.loud()
	_ = c.socket.close()
}

// Execute sends a request and returns the messages of type resType that answer
// it. A dump that the kernel calls inconsistent is read again. Other errors
// carry the kernel's own words where it has any; EPERM is [ErrPermission].
func (c *Conn) Execute(req *nl.NetlinkRequest, resType uint16) ([][]byte, error) {
	return c.ExecuteFor(req, resType, func([]byte) bool { return true })
}

// ExecuteFor is [Conn.Execute] for a dump of which few messages are wanted:
// those that wanted says yes to. The others do not stay in memory, which on a
// node full of pods is a megabyte for each dump.
func (c *Conn) ExecuteFor(req *nl.NetlinkRequest, resType uint16, wanted func(msg []byte) bool) ([][]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var msgs [][]byte
	var err error
	for range dumpAttempts {
		msgs = nil
		err = c.socket.exchange(req.Serialize(), resType, func(msg []byte) {
			if wanted(msg) {
				msgs = append(msgs, bytes.Clone(msg))
			}
		})
		if !errors.Is(err, errInterrupted) {
			break
		}
	}
	if errors.Is(err, unix.EPERM) {
		return nil, fmt.Errorf("%w: %w", ErrPermission, err)
	}
	if err != nil {
		return nil, err
	}
	return msgs, nil
}

// Repeat is [Conn.Execute] for a request that is sent many times a second: it is serialised
// already. take is called with each message, which is valid during the call only; those of a
// dump that is read again come again.
func (c *Conn) Repeat(req []byte, resType uint16, take func(msg []byte)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	for range dumpAttempts {
		if err = c.socket.exchange(req, resType, take); !errors.Is(err, errInterrupted) {
			break
		}
	}
	return err
}

// Of linux/netlink.h: the length of struct nlattr, what attributes are aligned
// to, and the bits of a type beside its flags.
const (
	nlaHeaderLen = 4
	nlaAlign     = 4
	nlaTypeMask  = 0x3fff
)

// EachAttr calls f with the type, without its flags, and the value of every
// netlink attribute in b, until f returns an error. The value is valid as long
// as b is.
func EachAttr(b []byte, f func(kind uint16, value []byte) error) error {
	e := nl.NativeEndian()
	for len(b) >= nlaHeaderLen {
		n := int(e.Uint16(b))
		if n < nlaHeaderLen || n > len(b) {
			return fmt.Errorf("netlink attribute of %d bytes, %d are there", n, len(b))
		}
		if err := f(e.Uint16(b[2:])&nlaTypeMask, b[nlaHeaderLen:n]); err != nil {
			return err
		}
		b = b[min(len(b), nlaRound(n)):]
	}
	return nil
}

// nlaRound is a length with the padding that follows it.
func nlaRound(n int) int { return (n + nlaAlign - 1) &^ (nlaAlign - 1) }

// Uint32 reads a number in the order of the machine's bytes, 0 if b is shorter.
func Uint32(b []byte) uint32 {
	const size = 4
	if len(b) < size {
		return 0
	}
	return nl.NativeEndian().Uint32(b)
}
