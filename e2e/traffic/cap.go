// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/e2e/step"
)

const (
	// offeredEnough is the share of the cap that the generator must be able
	// to send unshaped, for the cap to be tested at all, and carriedEnough that for the use of the cap.
	offeredEnough = 1.2
	carriedEnough = 1.5
	// LeastUse is the share of the cap that one TCP flow must get.
	LeastUse = 0.97
	// leastFlood is for a flood, which must not be dropped to less
	// either. The depth is pfifo_fast's, in packets: 1,000 small ones are
	// a few milliseconds, and a stall of the machine costs what they hold.
	leastFlood = 0.9
	// strictFrom is the cap from which a second may exceed it by 1 % at most,
	// whatever the burst.
	strictFrom = 10_000_000
	// maxPacket is the least bucket (ruling 6), which counts as one packet
	// where it is more than the burst.
	maxPacket = 9_100
	// longestAway is the most that is forgiven to a machine: 2 % of a second.
	longestAway = 20 * time.Millisecond
	// settle is how long TCP gets to find the cap before its use counts.
	settle = 1500 * time.Millisecond
)

// Case is one measurement of a cap.
type Case struct {
	Cap       uint64 // bits per second
	Direction Direction
	Load      Load
	// Light adds HTTP requests on fresh connections in the middle third.
	Light    bool
	Duration time.Duration
	// Keys are further keys of the conflist entry.
	Keys map[string]any
}

// CapResult is what passed, in wire bytes.
type CapResult struct {
	Case
	// Carried is what the unlimited pod carried, bits per second; or what a
	// flood offered in the run itself, if that was less.
	Carried float64
	// Wire is what the receiver's meter saw from the load's start until after its end.
	Wire *wiremeter.Series
	// Worst is the largest number of bytes in any window of 1 s.
	Worst uint64
	// Excess is the largest number of bytes above the cap in any window.
	Excess float64
	// Used is the mean after the start, as a share of the cap.
	Used float64
	// Goodput is payload by iperf3's receiver after the start, in bits per
	// second; 0 for a flood.
	Goodput float64
	// PacketBytes is the mean size of a packet, in wire bytes; one of many
	// segments is one.
	PacketBytes float64
	// Early and Late are retransmitted segments in the first 3 s and after.
	Early, Late float64
	// Segments is the number of segments after the first 3 s.
	Segments float64
	// Away is the longest time for which a processor was away meanwhile, and Lost the sum of
	// such times as a share of the duration.
	Away time.Duration
	Lost float64
}

// WorstShare is the worst second as a share of the cap.
func (r *CapResult) WorstShare() float64 { return float64(r.Worst) * 8 / float64(r.Cap) }

// Limit is the number of bytes that any second may hold: cap, burst of 10 ms
// and one packet, and from 10 Mbit/s up at most 1.01 of the cap.
func (c *Case) Limit() uint64 {
	second := c.Cap / 8
	limit := second + second/100 + maxPacket
	if c.Cap >= strictFrom {
		limit = min(limit, second+second/100)
	}
	return limit
}

// Allowed is the number of bytes that the meter may see in a second: what the
// cap lets through, and what a processor held up on the way to the meter.
func (r *CapResult) Allowed() uint64 { return r.Limit() + r.heldUp(r.Away) }

func (c *Case) heldUp(away time.Duration) uint64 {
	return uint64(float64(c.Cap) / 8 * min(away, longestAway).Seconds())
}

// Offered says whether the generator could send enough to test the cap.
func (r *CapResult) Offered() bool { return r.Carried >= offeredEnough*float64(r.Cap) }

func (r *CapResult) leastUse() float64 {
	if r.Load.Bulk.Flows == 0 {
		return leastFlood
	}
	return LeastUse
}

// Err says what of the promise did not hold.
func (r *CapResult) Err() error {
	var errs []error
	if allowed := r.Allowed(); r.Worst > allowed {
		errs = append(errs, fmt.Errorf("%d bytes in a second, at most %d expected (%.4f of the cap, a processor was away for %v at most)",
			r.Worst, allowed, r.WorstShare(), r.Away))
	}
	if least := r.leastUse() - r.Lost; r.Carried >= carriedEnough*float64(r.Cap) && r.Used < least {
		errs = append(errs, fmt.Errorf("%.3f of the cap used, at least %.2f expected (unshaped %.0f Mbit/s, a processor was away for %.2f of the time)",
			r.Used, least, r.Carried/1e6, r.Lost))
	}
	return errors.Join(errs...)
}

// Measure puts the load of a case on a fresh pod.
func (r *Rig) Measure(ctx context.Context, c Case) (res *CapResult, err error) {
	defer step.End(&err)
	t := step.Get(r.Shaped(ctx, c.Cap, c.Keys))
	defer step.Close(func() error { return t.Close(ctx) })
	return r.MeasureOn(ctx, t, c)
}

// MeasureOn is Measure on a pod that exists.
func (r *Rig) MeasureOn(ctx context.Context, t *Target, c Case) (res *CapResult, err error) {
	defer step.End(&err)
	res = &CapResult{Case: c}
	res.Carried = step.Get(r.Carried(ctx, c.Direction, c.Load, c.Cap))
	processors := step.Get(lab.WatchProcessors())
	defer step.Close(func() error {
		away, sum := processors.StopSum()
		res.Away, res.Lost = away, sum.Seconds()/c.Duration.Seconds()
		return nil
	})
	t.measure(ctx, res)
	return res, nil
}

// measure puts the load on the pod and fills in what passed.
func (t *Target) measure(ctx context.Context, res *CapResult) {
	c := res.Case
	o := step.Get(t.Start(ctx, c.Direction, c.Load, c.Cap, c.Duration))
	var light <-chan error
	if c.Light {
		light = t.lightMiddle(ctx, c.Cap, c.Duration)
	}
	bulk, flood, err := o.Wait(ctx)
	step.OK(err)
	if c.Light {
		step.OK(<-light)
	}
	all := step.Get(t.Wire(c.Direction, o.Started, wiremeter.Now()))
	steady := step.Get(t.Wire(c.Direction, o.Started+settle, o.Until-200*time.Millisecond))
	res.Wire, res.Worst, res.Excess = all, all.Worst(time.Second), all.Excess(float64(c.Cap))
	res.Used = steady.BitsPerSec() / float64(c.Cap)
	if all.Packets > 0 {
		res.PacketBytes = float64(all.Total()) / float64(all.Packets)
	}
	if bulk != nil {
		res.reports(bulk)
	}
	if flood != nil {
		res.Carried = min(res.Carried, OfferedBits(flood))
	}
}

// ethernet is the size of the header that a flood's count leaves out.
const ethernet = 14

// lightBytes is the body of a light response.
const lightBytes = 6000

// OfferedBits is what a flood sent, in wire bits per second, but for the headers of a
// datagram's further fragments. Refused datagrams were offered to a queue that was full.
func OfferedBits(f *lab.FloodResult) float64 {
	if f.Packets == 0 {
		return 0
	}
	frame := float64(f.Bytes)/float64(f.Packets) + ethernet
	return float64(f.Packets+f.Refused) * frame * 8 / f.Elapsed.Seconds()
}

// slowStart is the time whose losses are reported apart (ruling 17).
const slowStart = 3.0

func (r *CapResult) reports(bulk *lab.Bulk) {
	last := r.Duration.Seconds()
	r.Goodput = lab.Between(bulk.Received, settle.Seconds(), last+0.5).BitsPerSec()
	r.Early = lab.Between(bulk.Sent, 0, slowStart).Retransmits
	late := lab.Between(bulk.Sent, slowStart, last+0.5)
	r.Late = late.Retransmits
	if bulk.MSS > 0 {
		r.Segments = late.Bytes / float64(bulk.MSS)
	}
}

// lightMiddle starts light flows after a third of the time and stops them
// after two. They ask for a quarter of the cap at most: what answers to the
// elephant's other direction is not to be starved by them.
func (t *Target) lightMiddle(ctx context.Context, bitsPerSec uint64, last time.Duration) <-chan error {
	done := make(chan error, 1)
	go func() {
		if err := wiremeter.Until(ctx, wiremeter.Now()+last/3); err != nil {
			done <- err
			return
		}
		run, err := t.rig.Lab.StartHTTP(ctx, lab.HTTPLoad{
			From: t.rig.Client, To: &t.Host, ResponseBytes: lightBytes,
			PerSecond: min(100, float64(bitsPerSec)/4/8/lightBytes),
			Duration:  last / 3, Timeout: 2 * time.Second,
		})
		if err == nil {
			_, err = run.Wait(ctx)
		}
		done <- err
	}()
	return done
}
