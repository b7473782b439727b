// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package wiremeter

import (
	"slices"
	"time"
)

// Series is what a meter counted in consecutive milliseconds.
type Series struct {
	// Bytes are wire bytes per millisecond.
	Bytes []uint64
	// Packets is the number of packets in the whole range; a GSO packet is
	// one.
	Packets uint64
}

// Total is the sum of all bytes.
func (s *Series) Total() uint64 {
	var sum uint64
	for _, b := range s.Bytes {
		sum += b
	}
	return sum
}

// Duration is the length of the range.
func (s *Series) Duration() time.Duration {
	return time.Duration(len(s.Bytes)) * time.Millisecond
}

// BitsPerSec is the mean rate over the range, in bits per second.
func (s *Series) BitsPerSec() float64 {
	if len(s.Bytes) == 0 {
		return 0
	}
	return float64(s.Total()) * 8 / s.Duration().Seconds()
}

// Windows returns the bytes of every window of a length, one starting in each
// millisecond, ascending by size. The length is cut to whole milliseconds; a
// range shorter than it has no window.
func (s *Series) Windows(length time.Duration) []uint64 {
	n := int(length / time.Millisecond)
	if n <= 0 || len(s.Bytes) < n {
		return nil
	}
	out := make([]uint64, 0, len(s.Bytes)-n+1)
	var sum uint64
	for i, b := range s.Bytes {
		sum += b
		if i >= n {
			sum -= s.Bytes[i-n]
		}
		if i >= n-1 {
			out = append(out, sum)
		}
	}
	slices.Sort(out)
	return out
}

// Worst is the largest number of bytes in any window of a length; 0 if the
// range is shorter.
func (s *Series) Worst(length time.Duration) uint64 {
	windows := s.Windows(length)
	if len(windows) == 0 {
		return 0
	}
	return windows[len(windows)-1]
}

// Excess is the largest number of bytes by which any window, of whatever
// length, holds more than the cap lets through in its time: the smallest burst
// for which bytes ≤ cap × t + burst holds everywhere. bitsPerSec is the cap.
//
// Windows are made of whole milliseconds, so the result may be too small by
// what the cap lets through in two of them, and is never too large.
func (s *Series) Excess(bitsPerSec float64) float64 {
	perBucket := bitsPerSec / 8 / 1000
	var running, worst float64
	for _, b := range s.Bytes {
		running = max(0, running+float64(b)-perBucket)
		worst = max(worst, running)
	}
	return worst
}
