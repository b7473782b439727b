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
	"time"

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
	// Inversions counts datagrams that came after one sent later.
	Inversions uint64
	// Missing is the number of gaps' datagrams that never came.
	Missing uint64
}

const (
	sequencePayload = 1000
	sequenceTick    = time.Millisecond
	ipUDPHeaders    = 28
	// drained is how long the receiver waits for more after the sender's end.
	drained = time.Second
)

// Sequence sends numbered datagrams of one flow in phases and reports the
// order in which they came. They come from one thread and one socket.
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
	if err := out.send(ctx, sender, phases); err != nil {
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

func (o *Order) send(ctx context.Context, conn *net.UDPConn, phases []Phase) error {
	tick := time.NewTicker(sequenceTick)
	defer tick.Stop()
	buf := make([]byte, sequencePayload)
	for _, p := range phases {
		start, sent := time.Now(), 0.0
		for elapsed := time.Duration(0); elapsed < p.Duration; elapsed = time.Since(start) {
			for due := float64(p.BitsPerSec) / 8 * elapsed.Seconds(); sent < due; sent += sequencePayload + ipUDPHeaders {
				binary.BigEndian.PutUint64(buf, o.Sent)
				if _, err := conn.Write(buf); err != nil {
					return fmt.Errorf("datagram %d: %w", o.Sent, err)
				}
				o.Sent++
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
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
			continue
		}
		next = seq + 1
	}
}

// Spread sends datagrams of many flows, each at the same rate of IP packets in
// bits per second, and returns when it began, in [wiremeter.Now].
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
	tick := time.NewTicker(sequenceTick)
	defer tick.Stop()
	began, start, sent := wiremeter.Now(), time.Now(), 0
	buf := make([]byte, sequencePayload)
	packets := float64(flows) * float64(bitsPerSec) / 8 / (sequencePayload + ipUDPHeaders)
	for elapsed := time.Duration(0); elapsed < last; elapsed = time.Since(start) {
		for due := int(packets * elapsed.Seconds()); sent < due; sent++ {
			if _, err := conns[sent%flows].Write(buf); err != nil {
				return 0, err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return began, nil
}
