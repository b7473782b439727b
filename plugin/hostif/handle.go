// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package hostif

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

// Handle is a netlink socket that lives in one network namespace, so that
// requests need no thread switch. It is safe for concurrent use.
type Handle struct {
	where  string
	mu     sync.Mutex
	socket *socket
}

// NewHandle opens a route netlink socket in ns; nil means the namespace of the
// calling thread. The handle does not need ns to stay open, but the namespace
// lives at least as long as the handle.
func NewHandle(ns *NetNS) (*Handle, error) { return newHandle(ns, unix.NETLINK_ROUTE) }

func newHandle(ns *NetNS, proto int) (*Handle, error) {
	h := &Handle{where: "the current netns"}
	open := func() (err error) {
		h.socket, err = openSocket(proto)
		return err
	}
	var err error
	if ns == nil {
		err = open()
	} else {
		h.where = "netns " + ns.path
		err = ns.Do(open)
	}
	if err != nil {
		return nil, fmt.Errorf("open netlink socket in %s: %w", h.where, err)
	}
	return h, nil
}

// Where names the namespace in error messages.
func (h *Handle) Where() string { return h.where }

// SetDeadline ends every request at t: one that begins later fails with [ErrLate], one
// that is under way with [ErrNoAnswer]. The zero time means that there is no deadline.
func (h *Handle) SetDeadline(t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.socket.deadline = t
}

// Close closes the socket.
func (h *Handle) Close() {
	quiet.Delete(h.sender())
	_ = h.socket.close()
}

// sender is a socket as its changes name it: ports are of a network namespace.
type sender struct {
	netns uint64
	port  uint32
}

// quiet has the sockets whose changes this process ignores.
var quiet sync.Map

func (h *Handle) sender() sender { return sender{h.Cookie(), h.socket.port} }

// Quiet has [DeviceEvents] of this process leave out what the handle changes of queues: who
// does that many times a second knows of it.
func (h *Handle) Quiet() { quiet.Store(h.sender(), true) }

// Execute sends a request and returns the messages of type resType that answer
// it. A dump that the kernel calls inconsistent is read again. Other errors
// carry the kernel's own words where it has any; EPERM is [ErrPermission].
func (h *Handle) Execute(req *nl.NetlinkRequest, resType uint16) ([][]byte, error) {
	return h.ExecuteFor(req, resType, func([]byte) bool { return true })
}

// ExecuteFor is [Handle.Execute] for a dump of which few messages are wanted:
// those that wanted says yes to. The others do not stay in memory, which on a
// node full of pods is a megabyte for each dump.
func (h *Handle) ExecuteFor(req *nl.NetlinkRequest, resType uint16, wanted func(msg []byte) bool) ([][]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var msgs [][]byte
	var err error
	for range dumpAttempts {
		msgs = nil
		err = h.socket.exchange(req, resType, func(msg []byte) {
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
