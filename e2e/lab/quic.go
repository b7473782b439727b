// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/step"
)

// QUIC is the congestion control of [Elephant] for UDP that is paced, and backs off when it loses
// packets, as RFC 9002 has it for QUIC: a window that is halved once in a round trip with a loss.
// Packets are full, and each is acknowledged by itself.
const QUIC = "quic"

const (
	// The constants of RFC 9002, sections 6.1.1, 7.2 and 7.7, in packets.
	quicReorder   = 3
	quicFirst     = 10
	quicLeast     = 2
	quicPaceAhead = 1.25
	// quicSilence is after how long without an answer all packets count as lost, at least.
	quicSilence = 200 * time.Millisecond
	// quicBurst is how far a sender that was late may catch up.
	quicBurst = time.Millisecond
	// quicPayload fills a packet of 1,500 bytes.
	quicPayload = 1500 - ipv4HeaderBytes - udpHeaderBytes
)

// startQUIC starts who acknowledges, and the senders.
func (l *Lab) startQUIC(ctx context.Context, e *Elephant) (*ElephantRun, error) {
	args := callsArgs{Calls: Calls{Flows: max(e.Flows, 1), Duration: e.Duration}, Addr: netip.AddrPortFrom(e.To.V4, 0)}
	run, err := startBoth[Bulk](ctx, l, end{e.To, "call-server", &args}, &args.Addr, end{e.From, "quic-client", &args})
	return &ElephantRun{Started: monotonic(), quic: run}, err
}

// runQUICClient has each flow on a thread of its own.
func runQUICClient(args callsArgs, ready func(any), quit <-chan struct{}) any {
	ready(nil)
	start := monotonic()
	flows, errs := make([]*quicFlow, args.Flows), make([]error, args.Flows)
	var all sync.WaitGroup
	for i := range flows {
		flows[i] = &quicFlow{window: quicFirst, threshold: 1e9}
		all.Go(func() { errs[i] = flows[i].run(args.Addr, start, start+args.Duration, quit) })
	}
	all.Wait()
	step.OK(errors.Join(errs...))
	return quicReport(flows)
}

// quicReport is as iperf3's of TCP: half seconds, those that all flows have.
func quicReport(flows []*quicFlow) *Bulk {
	out := &Bulk{MSS: quicPayload, HeadBytes: ethernetHeaderBytes + ipv4HeaderBytes + udpHeaderBytes}
	least := slices.MinFunc(flows, func(a, b *quicFlow) int { return len(a.halves) - len(b.halves) })
	for n := range len(least.halves) - 1 { // the last is not over
		i := BulkInterval{Start: float64(n) * iperfInterval, End: float64(n+1) * iperfInterval}
		for _, f := range flows {
			h := &f.halves[n]
			i.Flows = append(i.Flows, float64(h.arrived)*quicPayload)
			i.Bytes += float64(h.arrived) * quicPayload
			i.Retransmits += float64(h.lost)
			i.RoundTrips = append(i.RoundTrips, h.roundTrip)
		}
		out.Received = append(out.Received, i)
	}
	out.Sent = out.Received
	return out
}

// quicHalf is what became of packets in half a second.
type quicHalf struct {
	arrived, lost int
	roundTrip     time.Duration // the smoothed one, at the last answer
}

// quicPacket is one under way.
type quicPacket struct {
	number  uint64
	at      time.Duration
	arrived bool
}

// quicFlow is one sender's congestion control. Times are since its start.
type quicFlow struct {
	window, threshold float64 // packets
	under             []quicPacket
	flying            int // of under: neither arrived nor lost
	next, cut         uint64
	roundTrip, heard  time.Duration
	halves            []quicHalf
}

func (f *quicFlow) half(now time.Duration) *quicHalf {
	for n := int(now.Seconds() / iperfInterval); len(f.halves) <= n; {
		f.halves = append(f.halves, quicHalf{roundTrip: f.roundTrip})
	}
	return &f.halves[len(f.halves)-1]
}

// arrived takes an acknowledgement.
func (f *quicFlow) arrived(number uint64, now time.Duration) {
	at, ok := slices.BinarySearchFunc(f.under, number, func(p quicPacket, n uint64) int {
		return int(int64(p.number - n))
	})
	if !ok || f.under[at].arrived {
		return
	}
	f.under[at].arrived, f.heard = true, now
	f.flying--
	took := now - f.under[at].at
	if f.roundTrip == 0 {
		f.roundTrip = took
	}
	f.roundTrip += (took - f.roundTrip) / 8
	h := f.half(now)
	h.arrived++
	h.roundTrip = f.roundTrip
	switch {
	case number < f.cut: // sent before the window was last cut
	case f.window < f.threshold:
		f.window++
	default:
		f.window += 1 / f.window
	}
	for len(f.under) > 0 && (f.under[0].arrived || f.under[0].number+quicReorder <= number) {
		f.gone(now)
	}
}

// gone forgets the first packet under way, which is lost if it has not arrived.
func (f *quicFlow) gone(now time.Duration) {
	p := f.under[0]
	f.under = f.under[1:]
	if p.arrived {
		return
	}
	f.flying--
	f.half(now).lost++
	if p.number >= f.cut {
		f.window = max(f.window/2, quicLeast)
		f.threshold, f.cut = f.window, f.next
	}
}

// silent gives up what is under way if nothing has answered for long.
func (f *quicFlow) silent(now time.Duration) {
	if f.flying == 0 || now-f.heard < max(quicSilence, 4*f.roundTrip) {
		return
	}
	for len(f.under) > 0 {
		f.gone(now)
	}
	f.window, f.heard = quicLeast, now
}

// pace is the time from one packet to the next.
func (f *quicFlow) pace() time.Duration {
	return time.Duration(float64(f.roundTrip) / (quicPaceAhead * f.window))
}

// run sends from now on until a time, or quit.
func (f *quicFlow) run(to netip.AddrPort, start, until time.Duration, quit <-chan struct{}) (err error) {
	defer step.End(&err)
	step.OK(preciseThread())
	fd := step.Get(openUDP(to))
	defer func() { _ = unix.Close(fd) }()
	packet, answer := make([]byte, quicPayload), make([]byte, callHead)
	due := time.Duration(0)
	for now := monotonic(); now < until && !closed(quit); now = monotonic() {
		since := now - start
		f.half(since)
		for {
			if n, err := unix.Read(fd, answer); n < callHead || err != nil {
				break // nothing more
			}
			f.arrived(binary.BigEndian.Uint64(answer), since)
		}
		f.silent(since)
		wait := callPoll * time.Millisecond
		if float64(f.flying) < f.window {
			if due <= since {
				// What the socket refuses, or the queue drops at once, is lost on the way.
				binary.BigEndian.PutUint64(packet, f.next)
				_, _ = unix.Write(fd, packet)
				f.under = append(f.under, quicPacket{number: f.next, at: since})
				f.next++
				f.flying++
				due = max(due, since-quicBurst) + f.pace()
			}
			wait = max(due-since, 0)
		}
		ts := unix.NsecToTimespec(int64(wait))
		// It may be interrupted, and tells of errors on the socket by the next read.
		_, _ = unix.Ppoll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, &ts, nil)
	}
	return nil
}
