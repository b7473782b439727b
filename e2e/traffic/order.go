// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/e2e/step"
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
func (t *Target) Sequence(ctx context.Context, d Direction, phases []Phase) (out *Order, err error) {
	defer step.End(&err)
	out = &Order{}
	s := t.sockets(d, 1)
	defer s.close()
	done := make(chan error, 1)
	go func() { done <- out.receive(s.receiver) }()
	step.OK(onOneCPU(func() error { return s.send(ctx, phases) }))
	step.OK(s.receiver.SetReadDeadline(time.Now().Add(drained)))
	step.OK(<-done)
	out.Sent = s.sent
	out.Missing = out.Sent - out.Received
	return out, nil
}

// Spread sends datagrams of many flows, each at the same rate of IP packets in
// bits per second, from one processor, and returns when it began, in
// [wiremeter.Now].
func (t *Target) Spread(ctx context.Context, d Direction, flows int, bitsPerSec uint64, last time.Duration) (began time.Duration, err error) {
	defer step.End(&err)
	s := t.sockets(d, flows)
	defer s.close()
	began = wiremeter.Now()
	step.OK(onOneCPU(func() error { return s.send(ctx, []Phase{{uint64(flows) * bitsPerSec, last}}) }))
	return began, nil
}

// sockets are those of UDP that datagrams go from, in turns, and the one that they go to.
type sockets struct {
	senders  []*net.UDPConn
	receiver *net.UDPConn
	sent     uint64
}

func (t *Target) sockets(d Direction, flows int) *sockets {
	from, to := t.Ends(d)
	s := &sockets{}
	step.OK(to.Netns.Do(func() (err error) {
		s.receiver, err = net.ListenUDP("udp4", &net.UDPAddr{IP: to.V4.AsSlice()})
		return err
	}))
	step.OK(s.receiver.SetReadBuffer(8 << 20))
	step.OK(from.Netns.Do(func() error {
		for range flows {
			sender, err := net.DialUDP("udp4", nil, s.receiver.LocalAddr().(*net.UDPAddr))
			if err != nil {
				return err
			}
			s.senders = append(s.senders, sender)
		}
		return nil
	}))
	return s
}

func (s *sockets) close() {
	for _, c := range append(s.senders, s.receiver) {
		_ = c.Close()
	}
}

// onOneCPU calls fn on a thread that stays on one processor.
func onOneCPU(fn func() error) (err error) {
	defer step.End(&err)
	runtime.LockOSThread()
	var all, one unix.CPUSet
	step.Say(unix.SchedGetaffinity(0, &all), "processors of this thread")
	first := 0
	for !all.IsSet(first) {
		first++
	}
	one.Set(first)
	step.Say(unix.SchedSetaffinity(0, &one), "stay on processor %d", first)
	err = fn()
	if failed := unix.SchedSetaffinity(0, &all); failed != nil {
		// Still locked, the thread ends with its goroutine.
		return errors.Join(err, failed)
	}
	runtime.UnlockOSThread()
	return err
}

// send sends what is due at each tick, and at the end of a phase what is still due: a
// phase is of so many datagrams however busy the machine is. Each has its number.
func (s *sockets) send(ctx context.Context, phases []Phase) error {
	tick := time.NewTicker(sequenceTick)
	defer tick.Stop()
	buf := make([]byte, sequencePayload)
	for _, p := range phases {
		start, sent := time.Now(), 0.0
		for elapsed := time.Duration(0); elapsed < p.Duration; {
			elapsed = min(time.Since(start), p.Duration)
			for due := float64(p.BitsPerSec) / 8 * elapsed.Seconds(); sent < due; sent += sequencePayload + ipUDPHeaders {
				binary.BigEndian.PutUint64(buf, s.sent)
				if _, err := s.senders[s.sent%uint64(len(s.senders))].Write(buf); err != nil {
					return fmt.Errorf("datagram %d: %w", s.sent, err)
				}
				s.sent++
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
			if len(o.Overtaken) < mostOvertaken {
				o.Overtaken = append(o.Overtaken, seq)
			}
			continue
		}
		next = seq + 1
	}
}
