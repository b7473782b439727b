// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/lab/wiremeter"
)

// monotonic is CLOCK_MONOTONIC, the clock of bpf_ktime_get_ns.
var monotonic = wiremeter.Now

// preciseThread binds the goroutine to its thread, and makes clock_nanosleep of that precise:
// Linux lets it oversleep by 50 µs otherwise.
func preciseThread() error {
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set timer slack: %w", err)
	}
	return nil
}

// sleepUntil blocks the thread until a time of [monotonic]. Go's own timers
// are late by up to a millisecond in an idle process, which is ten times the
// latency that the lab measures.
func sleepUntil(t time.Duration) {
	ts := unix.NsecToTimespec(int64(t))
	for errors.Is(unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &ts, nil), unix.EINTR) {
	}
}
