// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package hostif finds both ends of a pod's interface, of any supported device kind, and
// reads and changes devices; it needs CAP_NET_ADMIN.
package hostif

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/rtnl"
)

// Errors that callers branch on. They are wrapped with the name of the object.
var (
	// ErrNoDevice means that the namespace has no such device.
	ErrNoDevice = errors.New("no such device")
	// ErrNoPeer means that the other end of a pair is not in the host's
	// namespace, or that the device is no pair at all.
	ErrNoPeer = errors.New("no host-side peer")
	// ErrForeignDevice means that a device of our name is not ours.
	ErrForeignDevice = errors.New("a device of this name is not an ifb")
)

// Handle reads and changes the devices of one network namespace. It is safe for
// concurrent use.
type Handle struct{ *rtnl.Conn }

// NewHandle opens a handle on the devices of ns; nil means the namespace of the calling
// thread: see [rtnl.Dial].
func NewHandle(ns *rtnl.NetNS) (*Handle, error) {
	c, err := rtnl.Dial(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	return &Handle{c}, nil
}
