// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/e2e/traffic"
)

// tc runs tc(8) in a namespace.
func tc(t *testing.T, ns *lab.Netns, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "tc", append([]string{"-n", ns.Name()}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tc %v: %v: %s", args, err, out)
	}
}

const (
	stampedSockets = 24
	stampedPayload = 1200
	// together stamps all packets of a fifth of a second for its end.
	together = time.Duration(1 << 62)
	interval = 200 * time.Millisecond
)

// stamped is a flood whose packets carry departure times of their own.
type stamped struct {
	BitsPerSec uint64
	Duration   time.Duration
	// Ahead are the departure times after now, one socket each, in turns.
	Ahead []time.Duration
}

// stampedFlood sends from many sockets of a pod.
func stampedFlood(ctx context.Context, pod *traffic.Target, to *lab.Host, f stamped) error {
	fds := make([]int, stampedSockets)
	err := pod.Netns.Do(func() error {
		for i := range fds {
			var err error
			if fds[i], err = lab.StampingSocket(); err != nil {
				return err
			}
			if err = unix.SetsockoptInt(fds[i], unix.SOL_SOCKET, unix.SO_SNDBUF, 4<<20); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	dest := &unix.SockaddrInet4{Port: 9, Addr: to.V4.As4()}
	payload := make([]byte, stampedPayload)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	start, sent := wiremeter.Now(), 0
	for now := start; now < start+f.Duration; now = wiremeter.Now() {
		due := int(float64(f.BitsPerSec) / 8 / stampedPayload * (now - start).Seconds())
		for ; sent < due; sent++ {
			i := sent % len(fds)
			at := now + f.Ahead[i%len(f.Ahead)]
			if f.Ahead[i%len(f.Ahead)] == together {
				at = now - now%interval + interval
			}
			// A full queue is what a flood meets.
			_ = unix.Sendmsg(fds[i], payload, lab.TxTime(at), dest, unix.MSG_DONTWAIT)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
