// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package queue

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/shaping"
)

// ErrLost means that a packet did not arrive that should have.
var ErrLost = errors.New("the packet got lost")

// ProbeDeparture sends a packet that is to depart ahead from now (SO_TXTIME)
// through an fq on a pair of devices in a namespace of its own, and returns how
// long it took to arrive: an fq that obeys holds it for as long. ok is false on
// a kernel without fq. Returns an error wrapping [ErrLost] if it did not
// arrive within ahead and a second. It needs CAP_NET_ADMIN and CAP_NET_RAW and
// leaves nothing.
func ProbeDeparture(ahead time.Duration) (took time.Duration, ok bool, err error) {
	ns, err := hostif.NewScratchNetNS()
	if err != nil {
		return 0, false, err
	}
	defer func() { _ = ns.Close() }()
	h, err := hostif.NewHandle(ns)
	if err != nil {
		return 0, false, err
	}
	defer h.Close()
	err = ns.Do(func() error {
		var err error
		took, ok, err = probeDeparture(h, ahead)
		return err
	})
	if err != nil {
		return 0, false, fmt.Errorf("departure self-test: %w", err)
	}
	return took, ok, nil
}

func probeDeparture(h *hostif.Handle, ahead time.Duration) (time.Duration, bool, error) {
	near, far, err := probePair(h)
	if err != nil {
		return 0, false, err
	}
	q := shaping.Qdisc{Kind: shaping.KindFQ, Handle: probeHandle, Parent: shaping.RootParent, PacketLimit: 10_000}
	if has, err := supported(addQdisc(h, near.Index, &q)); err != nil || !has {
		return 0, false, err
	}
	// A new pair drops packets until the kernel's link watch has run.
	if up, err := deliver(near, far); err != nil {
		return 0, false, err
	} else if !up {
		return 0, false, fmt.Errorf("from %s to %s: %w", near.Name, far.Name, ErrLost)
	}
	took, err := sendLater(near, far, ahead)
	return took, err == nil, err
}

// sendLater sends one frame with a departure time.
func sendLater(near, far hostif.Interface, ahead time.Duration) (time.Duration, error) {
	proto := bits.ReverseBytes16(probeEtherType)
	in, err := packetSocket(proto, far.Index)
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(in) }()
	out, err := packetSocket(0, near.Index)
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(out) }()
	// struct sock_txtime of linux/net_tstamp.h: clock and flags.
	txtime := make([]byte, 8)
	binary.NativeEndian.PutUint32(txtime, unix.CLOCK_MONOTONIC)
	if err := unix.SetsockoptString(out, unix.SOL_SOCKET, unix.SO_TXTIME, string(txtime)); err != nil {
		return 0, fmt.Errorf("set SO_TXTIME: %w", err)
	}
	tv := unix.NsecToTimeval((ahead + time.Second).Nanoseconds())
	if err := unix.SetsockoptTimeval(in, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		return 0, fmt.Errorf("set receive timeout: %w", err)
	}
	start, err := monotonic()
	if err != nil {
		return 0, err
	}
	frame := make([]byte, 60)
	copy(frame, far.HardwareAddr)
	copy(frame[6:], near.HardwareAddr)
	frame[12], frame[13] = probeEtherType>>8, probeEtherType&0xff
	to := &unix.SockaddrLinklayer{Protocol: proto, Ifindex: near.Index}
	if err := unix.Sendmsg(out, frame, departAt(start+ahead), to, 0); err != nil {
		return 0, fmt.Errorf("send on %s: %w", near.Name, err)
	}
	if err := await(in); err != nil {
		return 0, err
	}
	end, err := monotonic()
	return end - start, err
}

// await receives one frame.
func await(fd int) error {
	buf := make([]byte, 2048)
	for {
		_, _, err := unix.Recvfrom(fd, buf, 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return ErrLost
		case !errors.Is(err, unix.EINTR):
			return err
		}
	}
}

// departAt is the control message SCM_TXTIME.
func departAt(at time.Duration) []byte {
	const payload = 8
	b := make([]byte, unix.CmsgSpace(payload))
	e := binary.NativeEndian
	e.PutUint64(b, uint64(unix.CmsgLen(payload)))
	e.PutUint32(b[8:], unix.SOL_SOCKET)
	e.PutUint32(b[12:], unix.SCM_TXTIME)
	e.PutUint64(b[16:], uint64(at.Nanoseconds()))
	return b
}

// monotonic is the clock of departure times.
func monotonic() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}
