// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/lab/wiremeter"
)

const (
	// offered is what a load sends at most, in bits per second: 20 times the
	// largest cap that the scenarios ask for, and little enough for two
	// processors to carry beside a cluster.
	offered = 800_000_000
	// burst is the time of the cap that may leave at once, and maxPacket the
	// least bucket, which counts as one packet (design: rulings 1 and 6).
	burst     = 10 * time.Millisecond
	maxPacket = 9_100
	// stall is how late packets may come that wait for a processor behind the
	// queue: the cluster, the load and the meter share two. What was late comes at
	// once. Narrower bars are those of e2e/traffic, on a machine that is idle.
	stall = 20 * time.Millisecond
	// leastUse is loose: the machine has the cluster to run as well.
	leastUse = 0.9
	// settle is how long TCP gets to find the cap.
	settle = 1500 * time.Millisecond
	// measured is how long a load runs.
	measured = 4 * time.Second
)

// traffic is what passed a pod, in wire bytes at the receivers.
type traffic struct {
	in, out *wiremeter.Series
}

// load sends to a pod and lets it send, at the same time, from and to a peer on
// the other node, and counts what arrives while f runs.
func load(t *testing.T, p, peer *pod, f func(ctx context.Context) error) traffic {
	t.Helper()
	in, err := wiremeter.Attach(p.ns, "eth0", wiremeter.Received)
	if err != nil {
		t.Fatal(err)
	}
	out, err := wiremeter.Attach(peer.ns, "eth0", wiremeter.Received)
	if err != nil {
		t.Fatal(errors.Join(err, in.Close()))
	}
	defer func() {
		if err := errors.Join(in.Close(), out.Close()); err != nil {
			t.Error(err)
		}
	}()
	failed := make(chan error, 2)
	for _, way := range []string{"up", "down"} {
		go func() {
			// Longer than f: it is stopped.
			err := peer.work(t.Context(), "load", p.ip.String(), way, strconv.Itoa(offered), "2m")
			failed <- fmt.Errorf("%s: %w", way, err)
		}()
	}
	// Both are connected when more has come than a handshake.
	begun := wiremeter.Now()
	eventually(t, 20*time.Second, "load", func(context.Context) error {
		select {
		case err := <-failed:
			failed <- err
			return err
		default:
		}
		a, errA := in.Read(begun, wiremeter.Now())
		b, errB := out.Read(begun, wiremeter.Now())
		if errA == nil && errB == nil && min(a.Total(), b.Total()) < 50_000 {
			errA = fmt.Errorf("%d and %d bytes", a.Total(), b.Total())
		}
		return errors.Join(errA, errB)
	})
	defer func() {
		if err := peer.work(t.Context(), "stop", p.ip.String()); err != nil {
			t.Error(err)
		}
		_, _ = <-failed, <-failed // they were stopped
	}()
	from := wiremeter.Now()
	if err := f(t.Context()); err != nil {
		t.Fatal(err)
	}
	to := wiremeter.Now()
	select {
	case err := <-failed:
		failed <- err
		t.Fatalf("the load ended: %v", err)
	default:
	}
	res := traffic{}
	var errA, errB error
	res.in, errA = in.Read(from, to)
	res.out, errB = out.Read(from, to)
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	return res
}

// measure loads a pod for a while.
func measure(t *testing.T, p, peer *pod) traffic {
	t.Helper()
	return load(t, p, peer, wait(measured))
}

// wait does nothing for a time.
func wait(length time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(length):
			return nil
		}
	}
}

// direction is one direction of a measurement.
type direction struct {
	name   string
	series *wiremeter.Series
	bits   uint64
}

// holds fails the test unless both directions keep to their caps, in bits per
// second, and use them. 0 is no cap: then at least a quarter of what the load
// offers has to pass.
func (r traffic) holds(t *testing.T, what string, ingress, egress uint64) {
	t.Helper()
	r.judge(t, what, ingress, egress, false)
}

// judge is holds; with series the rate in each 100 ms is kept, too.
func (r traffic) judge(t *testing.T, what string, ingress, egress uint64, series bool) {
	t.Helper()
	for _, d := range []direction{{"ingress", r.in, ingress}, {"egress", r.out, egress}} {
		if err := d.err(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		t.Logf("%s: %s", what, d)
		if series {
			t.Logf("%s, Mbit/s in each 100 ms: %.1f", d.name, tenths(d.series))
		}
		keepCap(t, what, d, series)
	}
}

func (d direction) String() string {
	if d.bits == 0 {
		return fmt.Sprintf("%s without a cap: %.1f Mbit/s", d.name, d.series.BitsPerSec()/1e6)
	}
	return fmt.Sprintf("%s %.0fM: worst second %.4f of the cap, excess %.0f bytes, used %.3f", d.name, float64(d.bits)/1e6,
		float64(d.series.Worst(time.Second))*8/float64(d.bits), d.series.Excess(float64(d.bits)), d.used())
}

// used is the mean after the start, as a share of the cap.
func (d direction) used() float64 {
	late := wiremeter.Series{Bytes: d.series.Bytes[min(int(settle/time.Millisecond), len(d.series.Bytes)):]}
	return late.BitsPerSec() / float64(d.bits)
}

func (d direction) err() error {
	if d.bits == 0 {
		if got := d.series.BitsPerSec(); got < offered/4 {
			return fmt.Errorf("%s without a cap: %.1f Mbit/s of %.0f offered", d.name, got/1e6, offered/1e6)
		}
		return nil
	}
	var errs []error
	bytesPerSec := float64(d.bits) / 8
	if excess, most := d.series.Excess(float64(d.bits)), bytesPerSec*(burst+stall).Seconds()+maxPacket; excess > most {
		errs = append(errs, fmt.Errorf("%s %d bits/s: %.0f bytes above the cap, at most %.0f expected", d.name, d.bits, excess, most))
	}
	if worst := float64(d.series.Worst(time.Second)); worst > (1.01+stall.Seconds())*bytesPerSec {
		errs = append(errs, fmt.Errorf("%s %d bits/s: a second had %.4f of the cap", d.name, d.bits, worst/bytesPerSec))
	}
	if used := d.used(); used < leastUse {
		errs = append(errs, fmt.Errorf("%s %d bits/s: %.3f of the cap used", d.name, d.bits, used))
	}
	return errors.Join(errs...)
}

// tenths are the rates in each 100 ms, in Mbit/s.
func tenths(s *wiremeter.Series) []float64 {
	var rates []float64
	for ms := 100; ms <= len(s.Bytes); ms += 100 {
		part := wiremeter.Series{Bytes: s.Bytes[ms-100 : ms]}
		rates = append(rates, part.BitsPerSec()/1e6)
	}
	return rates
}
