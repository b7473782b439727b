// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package wiremeter counts the bytes that arrive on a device, as they would
// be on a wire, in buckets of one millisecond.
//
// It is attached behind the shaper, at the receiver's device, and shares no
// code with podweir's dataplane. A GSO packet counts its headers once per
// segment.
package wiremeter

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/step"
)

//go:generate go tool bpf2go -go-package wiremeter -tags linux -target bpfel -cc clang-19 -no-global-types -cflags "-O2 -mcpu=v3 -std=gnu11 -nostdinc -Wall -Wextra -Werror -Wshadow -Wimplicit-int-conversion -Wenum-conversion -Wimplicit-fallthrough" wire wire.bpf.c -- -I../../../bpf/headers
//go:generate rm wire_bpfel.go

//go:embed wire_bpfel.o
var object []byte

const (
	// bucketCount is 2^17, 131 s: a whole run of one case.
	bucketCount = 1 << 17
	// sizeofBucket is that of struct bucket of wire.bpf.c.
	sizeofBucket = 16
	// Span is how long a meter can count after its start or a Reset.
	Span = (bucketCount - 1) * time.Millisecond
)

// Namespace runs a function inside a network namespace.
type Namespace interface {
	Do(f func() error) error
}

// Direction is which way packets pass the device that the meter is on.
type Direction int

// The places of a meter.
const (
	// Received counts what arrives from the device, at its ingress hook, which needs TCX.
	Received Direction = iota
	// Delivered counts the IPv4 and IPv6 packets that a namespace's own stack
	// gets from the device, behind every hook and behind an ifb that they are
	// redirected to.
	Delivered
)

// Meter is a running count on one device.
type Meter struct {
	objects *ebpf.Collection
	detach  func() error  // nil if it is not attached
	start   time.Duration // CLOCK_MONOTONIC
}

// Attach starts counting on a device of a namespace. It needs CAP_BPF,
// CAP_NET_ADMIN and, for Delivered, CAP_NET_RAW. On the hook the program
// stands last; its verdict is always "next". Close
// ends it, and must come before the end of the namespace.
func Attach(ns Namespace, ifName string, dir Direction) (*Meter, error) {
	m := &Meter{}
	err := ns.Do(func() error {
		dev, err := netlink.LinkByName(ifName)
		if err != nil {
			return err
		}
		if m.objects, err = load(dev.Attrs().Index); err != nil {
			return err
		}
		if dir == Delivered {
			return m.attachSockets()
		}
		l, err := link.AttachTCX(link.TCXOptions{
			Interface: dev.Attrs().Index, Program: m.objects.Programs["received"], Attach: ebpf.AttachTCXIngress, Anchor: link.Tail(),
		})
		if err == nil {
			m.detach = l.Close
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("attach the wire meter to %s: %w", ifName, err), m.Close())
	}
	m.start = Now()
	return m, nil
}

// load loads the programs; the socket filter counts what arrives on one device.
func load(ifindex int) (_ *ebpf.Collection, err error) {
	defer step.End(&err)
	spec := step.Get(ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object)))
	step.OK(spec.Variables["ifindex"].Set(uint32(ifindex)))
	return ebpf.NewCollection(spec)
}

// attachSockets opens packet sockets that count and take nothing. One for all
// protocols would see packets before the ingress hook; one for each stands
// behind it (net/core/dev.c, __netif_receive_skb_core). They are not bound to
// the device, because the stack would have to clone every packet for them.
func (m *Meter) attachSockets() (err error) {
	defer step.End(&err)
	var fds []int
	m.detach = func() error {
		var errs []error
		for _, fd := range fds {
			errs = append(errs, unix.Close(fd))
		}
		return errors.Join(errs...)
	}
	for _, proto := range []uint16{unix.ETH_P_IP, unix.ETH_P_IPV6} {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		step.Say(err, "packet socket")
		fds = append(fds, fd)
		step.Say(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ATTACH_BPF, m.objects.Programs["delivered"].FD()), "attach to packet socket")
		// In network order.
		step.Say(unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: proto<<8 | proto>>8}), "bind packet socket")
	}
	return nil
}

// Now is the clock of the meter, CLOCK_MONOTONIC.
func Now() time.Duration {
	var ts unix.Timespec
	// A valid pointer and clock cannot be refused.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return time.Duration(ts.Nano())
}

// Until returns at a time of [Now], or early with the context's error.
func Until(ctx context.Context, at time.Duration) error {
	timer := time.NewTimer(at - Now())
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close detaches the meter.
func (m *Meter) Close() error {
	var errs []error
	if m.detach != nil {
		errs = append(errs, m.detach())
	}
	if m.objects != nil {
		m.objects.Close()
	}
	return errors.Join(errs...)
}

// Read returns the whole milliseconds between two times of [Now]. It returns
// an error if the range is not within [Span] of the start of the meter.
func (m *Meter) Read(from, to time.Duration) (*Series, error) {
	if from < m.start || to < from || to > m.start+Span || to > Now() {
		return nil, fmt.Errorf("range %v to %v is outside %v to %v", from, to, m.start,
			min(m.start+Span, Now()))
	}
	// The bucket of from is partly before it.
	first := from/time.Millisecond + 1
	last := to / time.Millisecond // exclusive
	s := &Series{}
	raw := make([]byte, sizeofBucket)
	for ms := first; ms < last; ms++ {
		key := uint32(ms) % bucketCount
		if err := m.objects.Maps["pwlab_wire"].Lookup(key, &raw); err != nil {
			return nil, fmt.Errorf("read the wire meter: %w", err)
		}
		s.Bytes = append(s.Bytes, binary.NativeEndian.Uint64(raw))
		s.Packets += binary.NativeEndian.Uint64(raw[8:])
	}
	return s, nil
}
