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
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

const (
	nanosPerBucket = int32(time.Millisecond)
	// bucketCount is 2^17, 131 s: a whole run of one case.
	bucketCount = 1 << 17
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
	buckets *ebpf.Map
	prog    *ebpf.Program
	detach  func() error  // nil if it is not attached
	start   time.Duration // CLOCK_MONOTONIC
}

// Attach starts counting on a device of a namespace. It needs CAP_BPF,
// CAP_NET_ADMIN and, for Delivered, CAP_NET_RAW. On the hook the program
// stands last; its verdict is always "next". Close
// ends it, and must come before the end of the namespace.
func Attach(ns Namespace, ifName string, dir Direction) (*Meter, error) {
	buckets, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "pwlab_wire", Type: ebpf.Array,
		KeySize: 4, ValueSize: sizeofBucket, MaxEntries: bucketCount,
	})
	if err != nil {
		return nil, fmt.Errorf("make the wire meter's map: %w", err)
	}
	m := &Meter{buckets: buckets}
	if err := m.attach(ns, ifName, dir); err != nil {
		return nil, errors.Join(fmt.Errorf("attach the wire meter to %s: %w", ifName, err), m.Close())
	}
	m.start = Now()
	return m, nil
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
	if m.prog != nil {
		errs = append(errs, m.prog.Close())
	}
	return errors.Join(append(errs, m.buckets.Close())...)
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
		if err := m.buckets.Lookup(key, &raw); err != nil {
			return nil, fmt.Errorf("read the wire meter: %w", err)
		}
		s.Bytes = append(s.Bytes, binary.NativeEndian.Uint64(raw))
		s.Packets += binary.NativeEndian.Uint64(raw[8:])
	}
	return s, nil
}
