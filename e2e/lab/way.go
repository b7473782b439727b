// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"encoding/binary"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/step"
)

// Way is how the datagrams of a flood leave their sender.
type Way string

// The ways. Those past the queue go past every qdisc of the sender's device and
// every program on its hooks; they need CAP_NET_RAW, which containers have.
const (
	// BySocket is a UDP socket, or a raw one where the flood needs it.
	BySocket Way = ""
	// Prioritised is a UDP socket that asks for the first band (SO_PRIORITY).
	Prioritised Way = "priority"
	// Stamped is a UDP socket that says when its packets shall leave (SO_TXTIME): now.
	Stamped Way = "stamped"
	// Past is a packet socket past the queue (packet(7), PACKET_QDISC_BYPASS). AF_XDP in
	// copy mode, which is all that a veth has, sends by the same function of the kernel
	// (__dev_direct_xmit).
	Past Way = "past"
	// PastSpoofed is Past from a MAC address that is not the sender's.
	PastSpoofed Way = "past spoofed"
	// PastTagged is Past with an 802.1Q tag. Its VLAN is 0, which is none but a
	// priority, so that a receiver without VLAN devices takes the packets.
	PastTagged Way = "past tagged"
)

// firstBand is a priority that any process may ask for, and that queues with
// priorities serve first (tc-prio(8)).
const firstBand = 6

// txTime is a control message with a departure time of CLOCK_MONOTONIC.
func txTime(at time.Duration) []byte {
	b := make([]byte, unix.CmsgSpace(8))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0])) //nolint:gosec // how golang.org/x/sys/unix itself makes one
	h.Level, h.Type = unix.SOL_SOCKET, unix.SCM_TXTIME
	h.SetLen(unix.CmsgLen(8))
	binary.NativeEndian.PutUint64(b[unix.CmsgLen(0):], uint64(at))
	return b
}

// goes makes a UDP socket send in the flood's way.
func (f *flooder) goes() {
	switch f.args.Way {
	case Prioritised:
		f.set("SO_PRIORITY", unix.SOL_SOCKET, unix.SO_PRIORITY, firstBand)
	case Stamped:
		option := binary.NativeEndian.AppendUint32(nil, unix.CLOCK_MONOTONIC)
		step.OK(unix.SetsockoptString(f.fd, unix.SOL_SOCKET, unix.SO_TXTIME, string(append(option, 0, 0, 0, 0))))
		f.offer = func() error {
			return unix.Sendmsg(f.fd, f.packet, txTime(monotonic()), f.dest, unix.MSG_DONTWAIT)
		}
	case BySocket, Past, PastSpoofed, PastTagged:
	}
}
