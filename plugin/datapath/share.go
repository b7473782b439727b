// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath

import (
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/terms"
)

// Share is the slot of a direction that has a share of its group's limit, for a loop that
// changes the share many times a second. Its memory is mapped as long as the node is open.
type Share struct {
	slot
	whose uint64
	wrote uint32
}

// Share returns that of a direction. dir is where the interface's pins are.
func (n *Slab) Share(dir string, d terms.Direction) (*Share, error) {
	s, err := n.mustFind(dir, d)
	if err != nil {
		return nil, err
	}
	return &Share{slot: s, whose: n.owner(dir, d)}, nil
}

// Bytes is what the programs let into the queue, or past it where there is none, in wire bytes.
func (s *Share) Bytes() uint64 {
	sum := uint64(0)
	for _, d := range [...]image.Disposition{image.Light, image.Conforming, image.Paced, image.Marked, image.FailopenConfig} {
		sum += atomic.LoadUint64(&s.State.Counts[d].Bytes)
	}
	return sum
}

// Lost says that the slot is another direction's by now, or nobody's.
func (s *Share) Lost() bool { return atomic.LoadUint64(&s.Owner) != s.whose }

// Changed says that another process wrote another configuration since [Share.Set].
func (s *Share) Changed() bool { return atomic.LoadUint32(&s.Active) != s.wrote }

// Set writes what the direction has at another share, and makes the meters those of that:
// what waits takes more or less time now. What flows sent is an estimate in parts of the
// share and stays as it is: within 100 ms it matches the new share without a conversion.
//
// It is for one writer at a time, who holds the lock of the attachment.
func (s *Share) Set(dp *image.Config) {
	before := *s.config()
	to := Config(dp, int(before.RedirectIfindex))
	s.configure(&to)
	s.scale(speedUp(before.TotalRate, to.TotalRate), speedUp(before.LightRate, to.LightRate))
	s.wrote = atomic.LoadUint32(&s.Active)
}

// meterShift is PW_METER_SHIFT: meters count in 1/64 ns.
const meterShift = 6

// rescale makes the meters, which count time, those of a higher rate: what they have
// counted takes less time now. Heavy packets would be dropped otherwise for as long as
// it took at the rate before. At a lower rate nothing is changed: a credit that was used
// at the higher one is not owed again.
//
// It comes after the new configuration. A packet that is under way with the one before
// adds itself at the old rate, one for each processor.
func (s slot) rescale(from, to *image.Config) {
	s.scale(min(speedUp(from.TotalRate, to.TotalRate), 1), min(speedUp(from.LightRate, to.LightRate), 1))
}

// scale gives the meters these parts of what they have counted.
func (s slot) scale(total, light float64) {
	now := monotonic() << meterShift
	for _, m := range [...]struct {
		tat  *uint64
		part float64
	}{
		{&s.State.TotalTat, total},
		{&s.State.ControlTat, total},
		{&s.State.WaitClock, total},
		{&s.State.LightTat, light},
		{&s.State.EstablishedTat, light},
	} {
		if m.part != 1 {
			stretch(m.tat, now, m.part)
		}
	}
}

// speedUp is what one rate's cost of a byte is of the other's, 1 if there was none.
func speedUp(from, to image.Rate) float64 {
	if from.Mult == 0 {
		return 1
	}
	return float64(to.Mult) / float64(from.Mult) * math.Exp2(float64(from.Shift)-float64(to.Shift))
}

// stretch multiplies how far a meter is ahead of now. Packets change it meanwhile.
func stretch(tat *uint64, now uint64, part float64) {
	for {
		was := atomic.LoadUint64(tat)
		level := int64(was - now)
		if level <= 0 || atomic.CompareAndSwapUint64(tat, was, now+uint64(float64(level)*part)) {
			return
		}
	}
}

// monotonic is CLOCK_MONOTONIC in nanoseconds, which meters go by.
func monotonic() uint64 {
	return started.ns + uint64(time.Since(started.time))
}

// started is one moment by CLOCK_MONOTONIC, in nanoseconds, and by the clock of package time. Both clocks advance alike,
// and reading the second one takes no system call.
var started = func() (at struct {
	ns   uint64
	time time.Time
},
) {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	at.ns, at.time = uint64(ts.Nano()), time.Now()
	return at
}()
