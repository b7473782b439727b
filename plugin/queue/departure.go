// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package queue

import (
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/shaping"
)

// ProbeDeparture sends a packet that is to depart ahead from now (SO_TXTIME)
// through an fq on a pair of devices in a namespace of its own, and returns how
// long it took to arrive: an fq that obeys holds it for as long. ok is false on
// a kernel without fq. Returns an error wrapping [ErrLost] if it did not
// arrive within ahead and a second. It needs CAP_NET_ADMIN and CAP_SYS_ADMIN and
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

// sendLater sends one packet with a departure time.
func sendLater(near, far hostif.Interface, ahead time.Duration) (time.Duration, error) {
	p, err := openPath(near, far)
	if err != nil {
		return 0, err
	}
	defer p.close()
	// struct sock_txtime of linux/net_tstamp.h: clock and flags.
	txtime := make([]byte, 8)
	binary.NativeEndian.PutUint32(txtime, unix.CLOCK_MONOTONIC)
	if err := unix.SetsockoptString(p.out, unix.SOL_SOCKET, unix.SO_TXTIME, string(txtime)); err != nil {
		return 0, fmt.Errorf("set SO_TXTIME: %w", err)
	}
	start, err := monotonic()
	if err != nil {
		return 0, err
	}
	if err := p.send(departAt(start + ahead)); err != nil {
		return 0, err
	}
	if err := p.receive(ahead + time.Second); err != nil {
		return 0, err
	}
	end, err := monotonic()
	return end - start, err
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
