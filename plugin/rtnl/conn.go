// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package rtnl

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

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
