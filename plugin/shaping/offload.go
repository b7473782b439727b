// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package shaping

import (
	"time"

	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// Senders near the pod make packets of up to 64 KiB whatever the rate, and one takes
// 52 ms at 10 Mbit/s. Nothing can share such a queue well. For receivers that are some
// ms away Linux itself sends at most 1 ms of its rate at once, and at least two segments
// (net/ipv4/tcp_output.c, tcp_tso_autosize).
const (
	// offloadTime is how long the cap takes for the largest packet of a sender in the
	// pod, which has offloadSegments in any case. BBR keeps three of them under way for
	// each flow: 8 flows wait 8 ms at 100 Mbit/s (measured).
	offloadTime                 = 500 * time.Microsecond
	offloadSegments units.Bytes = 2
	// senderHeaders is what TCP leaves free of a device's limit: MAX_TCP_HEADER and one
	// (net/core/sock.c, sk_setup_caps), 321 bytes on x86 and arm64.
	senderHeaders units.Bytes = 400
	// maxOffload bounds what that is good for: from some 500 Mbit/s on, packets of 64 KiB
	// do no harm (measured), and UDP that is larger would be cut at a high rate.
	maxOffload units.Bytes = 32_768
)

// offload bounds what senders in the pod give the queue at once, where the queue shares
// the cap and they send to the device that has it. The bound is the device's, so there is none
// where packets bypass the cap: TCP to an exempt network had 5 to 27 % of the unlimited rate, and
// pages of light flows took half as long again (measured).
func (b *builder) offload() {
	p := b.params
	if !b.fair() || b.bypassed() || p.Direction != terms.Egress || p.Side != terms.SidePod || b.mtu() == 0 {
		return
	}
	segments := max(b.limit.Rate.Bytes(offloadTime)/b.mtu(), offloadSegments)
	if most := segments*b.mtu() + senderHeaders; most <= maxOffload {
		p.OffloadBytes = most
	}
}

// OwnOffload says that a size is one that podweir gives senders in a pod at this MTU,
// whatever the rate. Nobody else has a reason to choose such a size.
func OwnOffload(size, mtu units.Bytes) bool {
	if mtu == 0 || size <= senderHeaders || size > maxOffload {
		return false
	}
	segments := (size - senderHeaders) / mtu
	return segments >= offloadSegments && segments*mtu+senderHeaders == size
}
