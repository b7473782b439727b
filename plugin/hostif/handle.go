// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package hostif

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// dumpAttempts bounds how often a dump is read again when the kernel says that
// the list changed meanwhile. Each attempt takes well under a millisecond, and
// the changes come one RTNL hold after the other.
const dumpAttempts = 20

// socketTimeout is how long an answer may take: an RTNL hold of a busy node is
// tens of milliseconds.
var socketTimeout = unix.Timeval{Sec: 20}

// Handle is a netlink socket that lives in one network namespace, so that
// requests need no thread switch. It is safe for concurrent use.
type Handle struct {
	proto  int
	where  string
	mu     sync.Mutex
	socket *nl.SocketHandle
	raw    *nl.NetlinkSocket
	extAck bool
}

// NewHandle opens a route netlink socket in ns; nil means the namespace of the
// calling thread. The handle does not need ns to stay open, but the namespace
// lives at least as long as the handle.
func NewHandle(ns *NetNS) (*Handle, error) { return newHandle(ns, unix.NETLINK_ROUTE) }

func newHandle(ns *NetNS, proto int) (*Handle, error) {
	h := &Handle{proto: proto, where: "the current netns"}
	open := func() error {
		s, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), proto)
		if err != nil {
			return err
		}
		h.raw = s
		return nil
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
	_ = h.raw.SetSendTimeout(&socketTimeout)
	_ = h.raw.SetReceiveTimeout(&socketTimeout)
	h.socket = &nl.SocketHandle{Socket: h.raw}
	return h, nil
}

// Where names the namespace in error messages.
func (h *Handle) Where() string { return h.where }

// Close closes the socket.
func (h *Handle) Close() { h.raw.Close() }

// Execute sends a request and returns the messages of type resType that answer
// it. A dump that the kernel calls inconsistent is read again. Other errors
// carry the kernel's own words where it has any; EPERM is [ErrPermission].
func (h *Handle) Execute(req *nl.NetlinkRequest, resType uint16) ([][]byte, error) {
	return h.execute(req, resType, func(msg []byte) []byte { return msg })
}

// ExecuteFor is [Handle.Execute] for a dump of which few messages are wanted:
// those that wanted says yes to. The others do not stay in memory, which on a
// node full of pods is a megabyte for each dump.
func (h *Handle) ExecuteFor(req *nl.NetlinkRequest, resType uint16, wanted func(msg []byte) bool) ([][]byte, error) {
	return h.execute(req, resType, func(msg []byte) []byte {
		if !wanted(msg) {
			return nil
		}
		return bytes.Clone(msg) // it is a part of what was read with it
	})
}

// execute returns what take returns for each message, unless that is nil.
func (h *Handle) execute(req *nl.NetlinkRequest, resType uint16, take func(msg []byte) []byte) ([][]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	dump := req.Flags&unix.NLM_F_DUMP == unix.NLM_F_DUMP
	// The library misreads an error with an explanation that ends a dump.
	if h.extAck == dump {
		if err := h.raw.SetExtAck(!dump); err == nil {
			h.extAck = !dump
		}
	}
	req.Sockets = map[int]*nl.SocketHandle{h.proto: h.socket}
	var msgs [][]byte
	var err error
	for range dumpAttempts {
		msgs = nil
		err = req.ExecuteIter(h.proto, resType, func(msg []byte) bool {
			if msg = take(msg); msg != nil {
				msgs = append(msgs, msg)
			}
			return true
		})
		if err == nil || !errors.Is(err, nl.ErrDumpInterrupted) {
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
