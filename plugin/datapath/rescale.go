// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath

import (
	"math"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/bpf/image"
)

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
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return uint64(ts.Nano())
}
