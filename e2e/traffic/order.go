// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
)

// Phase is a rate that a sequence of datagrams is sent at.
type Phase struct {
	BitsPerSec uint64 // of IP packets
	Duration   time.Duration
}

// Order is what arrived of a sequence.
type Order struct {
	Sent, Received uint64
	// Inversions counts datagrams that came after one sent later, and Overtaken
	// are the numbers of the first of them.
	Inversions uint64
	Overtaken  []uint64
	// Missing is the number of gaps' datagrams that never came.
	Missing uint64
}

const (
	sequencePayload = 1000
	sequenceTick    = time.Millisecond
	ipUDPHeaders    = 28
	// mostOvertaken is how many of them are named.
	mostOvertaken = 8
	// drained is how long the receiver waits for more after the sender's end.
	drained = time.Second
)

// OrderBesideLight sends a flow that turns heavy and light again beside light
// flows, under a cap in bits per second. What it sends at once is a little more
// than makes it heavy, and the others leave a fifth of the cap to it: without a
// hold it would be light after 0.1 s, before its packets are gone.
func (t *Target) OrderBesideLight(ctx context.Context, d Direction, capacity uint64) (*Order, error) {
	const flows, share, head, last = 40, 0.8, 200 * time.Millisecond, 1500 * time.Millisecond
	done := make(chan error, 1)
	go func() {
		_, err := t.Spread(ctx, d, flows, uint64(share*float64(capacity)/flows), last)
		done <- err
	}()
	if err := wiremeter.Until(ctx, wiremeter.Now()+head); err != nil {
		return nil, errors.Join(err, <-done)
	}
	out, err := t.Sequence(ctx, d, []Phase{
		{10 * capacity, 8 * time.Millisecond},
		{capacity / 50, 900 * time.Millisecond},
	})
	return out, errors.Join(err, <-done)
}

// Sequence sends numbered datagrams of one flow in phases and reports the
// order in which they came. They come from one socket and one processor, which
// then also runs the queue: the kernel's stack may swap the packets of a flow
// that moves to another processor, with or without podweir.
func (t *Target) Sequence(ctx context.Context, d Direction, phases []Phase) (*Order, error) {
	from, to := t.Ends(d)
	receiver, err := listenIn(to)
	if err != nil {
		return nil, err
	}
	defer func() { _ = receiver.Close() }()
	sender, err := dialFrom(from, receiver.LocalAddr().(*net.UDPAddr).AddrPort())
	if err != nil {
		return nil, err
	}
	defer func() { _ = sender.Close() }()
	out := &Order{}
	done := make(chan error, 1)
	go func() { done <- out.receive(receiver) }()
	if err := onOneCPU(func() error { return out.send(ctx, sender, phases) }); err != nil {
		return nil, err
	}
	if err := receiver.SetReadDeadline(time.Now().Add(drained)); err != nil {
		return nil, err
	}
	if err := <-done; err != nil {
		return nil, err
	}
	out.Missing = out.Sent - out.Received
	return out, nil
}

func listenIn(h *lab.Host) (*net.UDPConn, error) {
	var conn *net.UDPConn
	err := h.Netns.Do(func() error {
		var err error
		conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: h.V4.AsSlice()})
		if err != nil {
			return err
		}
		return conn.SetReadBuffer(8 << 20)
	})
	if err != nil {
		return nil, fmt.Errorf("listen in %s: %w", h.Name, err)
	}
	return conn, nil
}

func dialFrom(h *lab.Host, addr netip.AddrPort) (*net.UDPConn, error) {
	var conn *net.UDPConn
	err := h.Netns.Do(func() error {
		var err error
		conn, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(addr))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("dial %s from %s: %w", addr, h.Name, err)
	}
	return conn, nil
}

// onOneCPU calls fn on a thread that stays on one processor.
func onOneCPU(fn func() error) error {
	runtime.LockOSThread()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return fmt.Errorf("processors of this thread: %w", err)
	}
	first := 0
	for !all.IsSet(first) {
		first++
	}
	one.Set(first)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("stay on processor %d: %w", first, err)
	}
	err := fn()
	if failed := unix.SchedSetaffinity(0, &all); failed != nil {
		// Still locked, the thread ends with its goroutine.
		return errors.Join(err, failed)
	}
	runtime.UnlockOSThread()
	return err
}

func (o *Order) send(ctx context.Context, conn *net.UDPConn, phases []Phase) error {
	tick := time.NewTicker(sequenceTick)
	defer tick.Stop()
	buf := make([]byte, sequencePayload)
	for _, p := range phases {
		if err := o.sendPhase(ctx, conn, p, tick.C, buf); err != nil {
			return err
		}
	}
	return nil
}

// sendPhase sends what is due at each tick, and at the end what is still due: a
// phase is of so many datagrams however busy the machine is.
func (o *Order) sendPhase(ctx context.Context, conn *net.UDPConn, p Phase, tick <-chan time.Time, buf []byte) error {
	start, sent := time.Now(), 0.0
	for {
		elapsed := min(time.Since(start), p.Duration)
		for due := float64(p.BitsPerSec) / 8 * elapsed.Seconds(); sent < due; sent += sequencePayload + ipUDPHeaders {
			binary.BigEndian.PutUint64(buf, o.Sent)
			if _, err := conn.Write(buf); err != nil {
				return fmt.Errorf("datagram %d: %w", o.Sent, err)
			}
			o.Sent++
		}
		if elapsed == p.Duration {
			return nil
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (o *Order) receive(conn *net.UDPConn) error {
	buf := make([]byte, sequencePayload)
	var next uint64
	for {
		n, err := conn.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return err
		}
		if n != sequencePayload {
			return fmt.Errorf("datagram of %d bytes, want %d", n, sequencePayload)
		}
		o.Received++
		seq := binary.BigEndian.Uint64(buf)
		if seq < next {
			o.Inversions++
			if len(o.Overtaken) < mostOvertaken {
				o.Overtaken = append(o.Overtaken, seq)
			}
			continue
		}
		next = seq + 1
	}
}

// Spread sends datagrams of many flows, each at the same rate of IP packets in
// bits per second, from one processor, and returns when it began, in
// [wiremeter.Now].
func (t *Target) Spread(ctx context.Context, d Direction, flows int, bitsPerSec uint64, last time.Duration) (time.Duration, error) {
	from, to := t.Ends(d)
	sink, err := listenIn(to)
	if err != nil {
		return 0, err
	}
	defer func() { _ = sink.Close() }()
	conns := make([]*net.UDPConn, flows)
	for i := range conns {
		if conns[i], err = dialFrom(from, sink.LocalAddr().(*net.UDPAddr).AddrPort()); err != nil {
			return 0, err
		}
		defer func() { _ = conns[i].Close() }()
	}
	began := wiremeter.Now()
	return began, onOneCPU(func() error { return spread(ctx, conns, bitsPerSec, last) })
}

func spread(ctx context.Context, conns []*net.UDPConn, bitsPerSec uint64, last time.Duration) error {
	tick := time.NewTicker(sequenceTick)
	defer tick.Stop()
	start, sent, buf := time.Now(), 0, make([]byte, sequencePayload)
	packets := float64(len(conns)) * float64(bitsPerSec) / 8 / (sequencePayload + ipUDPHeaders)
	for elapsed := time.Duration(0); elapsed < last; elapsed = time.Since(start) {
		for due := int(packets * elapsed.Seconds()); sent < due; sent++ {
			if _, err := conns[sent%len(conns)].Write(buf); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
