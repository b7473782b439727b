// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package shaping

import (
	"fmt"
	"time"

	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// Senders near the pod make packets of up to 64 KiB whatever the rate, and one takes
// 52 ms at 10 Mbit/s. Nothing can share such a queue well. For receivers that are some
// ms away Linux itself sends at most 1 ms of its rate at once, and at least two segments
// (net/ipv4/tcp_output.c, tcp_tso_autosize). Sysctls of the pod's namespace make it do so
// for those that are near, too. At low rates, and where the kernel lacks them, the pod's device
// is bounded.
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
	// pacedFrom is from which rate on flows pace their packets, of at least twelve segments: each
	// costs a timer, a wake-up and an acknowledgement. Below it twelve take more than 3 ms, and BBR,
	// which begins with packets of 64 KiB all the same, waits three times as long as with a bounded
	// device (measured: docs/contributing/fair-bands.md).
	pacedFrom units.BitRate = 50_000_000
	// pacedTold is what two packets of twelve segments have on the wire. With a sixth more the
	// processor has a tenth less to do, and 2 to 3 % of the responses of 16 web clients at
	// 100 Mbit/s wait for a timer, where 1 % do (measured: docs/contributing/fair-bands.md).
	pacedTold units.Bytes = 36_000
	// pacedSpare is the part of pacedTold that BBR does not need: its packets have at least two segments, and it keeps
	// three packets in flight.
	pacedSpare = pacedTold / 2
)

// Packets says how podweir keeps the packets of TCP in a pod small.
type Packets string

// The ways.
const (
	// PacketsAuto is by the pacing of each flow, or by the device at low rates and where the
	// kernel lacks the sysctls for pacing.
	PacketsAuto Packets = ""
	// PacketsDevice is by the device's largest packet.
	PacketsDevice Packets = "device"
	// PacketsOff leaves them as they are.
	PacketsOff Packets = "off"
)

// ParsePackets reads a way. Accepted are auto, device and off; returns a
// [*units.ValueError] for anything else.
func ParsePackets(s string) (Packets, error) {
	switch s {
	case "auto":
		return PacketsAuto, nil
	case string(PacketsDevice), string(PacketsOff):
		return Packets(s), nil
	}
	return "", &units.ValueError{Value: s, Accepted: "one of auto, device, off"}
}

// Pacing is by what the kernel's TCP in a network namespace sizes its packets: sysctls.
type Pacing struct {
	// RTTLog is net.ipv4.tcp_tso_rtt_log: within 2^RTTLog us of the receiver packets are
	// larger than 1 ms of the flow's rate.
	RTTLog int `json:"rttLog"`
	// MinSegments is net.ipv4.tcp_min_tso_segs: how many segments a packet has in any case.
	MinSegments int `json:"minSegments"`
}

// sysctl is one of them: what the kernel gives a new namespace (net/ipv4/tcp_ipv4.c,
// tcp_sk_init), and what podweir sets in place of that, the same at every rate: so two limits in one
// namespace agree, and any other value is another party's choice.
type sysctl struct{ kernel, own int }

var (
	rttLog      = sysctl{kernel: 9, own: 0}
	minSegments = sysctl{kernel: 2, own: 12}
)

// foreign says that another party chose the value.
func (s sysctl) foreign(now int) bool { return now != s.kernel && now != s.own }

// next is what should be there, and what was there before podweir changed it, 0 if it never
// did. What another party chose stays.
func (s sysctl) next(now, before int, wanted bool) (next, was int) {
	switch {
	case s.foreign(now):
		return now, before
	case wanted && now == s.kernel:
		return s.own, now
	case !wanted && now == s.own && before != 0:
		return before, before
	default:
		return now, before
	}
}

// presumed is what was there before podweir, where podweir's own value is there now and no
// record tells.
func (s sysctl) presumed(now int) int {
	if now == s.own {
		return s.kernel
	}
	return 0
}

// Next is what a namespace that has p should have where TCP is paced or not, and what podweir
// changed and has to give back: before is what earlier looks found, with 0 for what it never
// changed. What another party chose stays.
func (p Pacing) Next(before Pacing, paced bool) (next, was Pacing) {
	next.RTTLog, was.RTTLog = rttLog.next(p.RTTLog, before.RTTLog, paced)
	next.MinSegments, was.MinSegments = minSegments.next(p.MinSegments, before.MinSegments, paced)
	return next, was
}

// Presumed is what podweir has changed in a namespace, where no record tells.
func (p Pacing) Presumed() Pacing {
	return Pacing{RTTLog: rttLog.presumed(p.RTTLog), MinSegments: minSegments.presumed(p.MinSegments)}
}

// Foreign names what another party chose, as name=value.
func (p Pacing) Foreign() []string {
	var all []string
	if rttLog.foreign(p.RTTLog) {
		all = append(all, fmt.Sprintf("net.ipv4.tcp_tso_rtt_log=%d", p.RTTLog))
	}
	if minSegments.foreign(p.MinSegments) {
		all = append(all, fmt.Sprintf("net.ipv4.tcp_min_tso_segs=%d", p.MinSegments))
	}
	return all
}

func (p Pacing) String() string {
	return fmt.Sprintf("tcp_tso_rtt_log=%d tcp_min_tso_segs=%d", p.RTTLog, p.MinSegments)
}

// offload bounds what senders in the pod give the queue at once, where the queue shares
// the cap and they send to the device that has it. A device's bound holds for packets that
// bypass the cap, too, so there is none then: TCP to an exempt network had 5 to 27 % of the
// unlimited rate, and pages of light flows took half as long again (measured).
func (b *builder) offload() {
	p := b.params
	if !b.fair() || p.Direction != terms.Egress || p.Side != terms.SidePod || b.mtu() == 0 ||
		b.limit.Packets == PacketsOff || b.limit.Policy == terms.PolicyElephants {
		return
	}
	segments := max(b.limit.Rate.Bytes(offloadTime)/b.mtu(), offloadSegments)
	most := segments*b.mtu() + senderHeaders
	switch {
	case most > maxOffload:
	case b.facts.Pacing && b.limit.mayPace():
		p.Paced = true
	case !b.bypassed():
		p.OffloadBytes = most
	}
}

// MayPace says that TCP in the pod is to be paced if its namespace has the sysctls.
func (c *Config) MayPace() bool {
	limit := c.Part(terms.Egress)
	return limit != nil && limit.mayPace()
}

func (l *Limit) mayPace() bool { return l.Rate >= pacedFrom && l.Packets != PacketsDevice }

// OwnOffload says that a size is one that podweir gives senders in a pod at this MTU,
// whatever the rate. Nobody else has a reason to choose such a size.
func OwnOffload(size, mtu units.Bytes) bool {
	if mtu == 0 || size <= senderHeaders || size > maxOffload {
		return false
	}
	segments := (size - senderHeaders) / mtu
	return segments >= offloadSegments && segments*mtu+senderHeaders == size
}
