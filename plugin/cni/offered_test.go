// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni_test

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/testutil"
)

// What offer sends: eight tenths of a megabyte at once, in as many packets as
// the backlog of a processor holds (netdev_max_backlog is 1000).
const (
	offered        = 800
	offeredPayload = 1000
	// offeredFrame is one of them on the wire: Ethernet, IPv4 and UDP headers.
	offeredFrame = 14 + 20 + 8 + offeredPayload
)

// slow is the cap of these tests: 1 Mbit/s, which passes so little of what is
// offered that no machine is too slow to tell it from no cap at all.
const (
	slow            = "1M"
	slowBytesPerSec = 1_000_000 / 8
	// slowAtOnce is more than what may come back to back after idle: the credit
	// of a policer, 250 ms of the cap, its horizon of 50 ms, and some packets.
	slowAtOnce = slowBytesPerSec*300/1000 + 4*offeredFrame
)

// arrival is what came of what was offered.
type arrival struct {
	packets int
	// within is the time from the first packet sent to the last received.
	within time.Duration
}

// cap is what the slow cap lets through in that time.
func (a arrival) cap() int { return int(a.within.Seconds()*slowBytesPerSec) + slowAtOnce }

func (a arrival) bytes() int { return a.packets * offeredFrame }

func (a arrival) wantCapped(t *testing.T, what string) {
	t.Helper()
	if a.bytes() > a.cap() || a.packets == 0 {
		t.Errorf("%s: %d of %d packets in %v, %d bytes, want 1 to %d bytes", what, a.packets, offered, a.within, a.bytes(), a.cap())
	}
}

func (a arrival) wantPast(t *testing.T, what string) {
	t.Helper()
	if a.bytes() <= 2*a.cap() {
		t.Errorf("%s: %d of %d packets in %v, %d bytes, want more than twice the cap's %d", what, a.packets, offered, a.within, a.bytes(), a.cap())
	}
}

// offer sends to an address in a namespace, all packets of one flow and as fast
// as they go, and waits until nothing arrives any more.
func offer(t *testing.T, from, to *testutil.NetNS, addr string) arrival {
	t.Helper()
	var receiver net.PacketConn
	var sender net.Conn
	big := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20)
		}), err)
	}}
	if err := to.Do(func() (err error) {
		receiver, err = big.ListenPacket(t.Context(), "udp4", addr+":0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = receiver.Close() }()
	if err := from.Do(func() (err error) {
		sender, err = (&net.Dialer{}).DialContext(t.Context(), "udp4", receiver.LocalAddr().String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sender.Close() }()
	start := time.Now()
	go send(sender, start.Add(time.Second/2))
	return receive(t, receiver, start)
}

// send gives up at the deadline: a queue in its own namespace makes it wait.
func send(conn net.Conn, deadline time.Time) {
	_ = conn.SetWriteDeadline(deadline)
	packet := make([]byte, offeredPayload)
	for range offered {
		// A packet that a queue or a policer refused is a drop.
		_, _ = conn.Write(packet)
	}
}

func receive(t *testing.T, conn net.PacketConn, start time.Time) arrival {
	t.Helper()
	// At the cap a packet takes 8 ms.
	const quiet = 200 * time.Millisecond
	var a arrival
	buf := make([]byte, 2*offeredPayload)
	for end := start.Add(10 * time.Second); time.Now().Before(end); {
		if err := conn.SetReadDeadline(time.Now().Add(quiet)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := conn.ReadFrom(buf); err != nil {
			break
		}
		a.packets++
		a.within = time.Since(start)
	}
	return a
}
