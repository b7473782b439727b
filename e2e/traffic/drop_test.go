// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
)

// A sender in the pod is told of every packet that is dropped on its way out, as by
// a plain queue: then TCP slows down at once, and sends nothing twice over the network.
func TestPrivilegedSenderIsToldOfDrops(t *testing.T) {
	mark.Kernels(t, "it judges counters, and the filter on prio only runs where the kernel has it")
	const (
		capacity = 5 * mbit
		payload  = 1400
		packet   = 14 + 20 + 8 + payload
		last     = 500 * time.Millisecond
	)
	r := newRig(t)
	for name, tc := range map[string]struct {
		keys     map[string]any
		segments uint64
	}{
		"one cap":             {map[string]any{}, 1},
		"offloaded packets":   {map[string]any{}, 10},
		"elephants":           {map[string]any{"policy": "elephants"}, 1},
		"with exempt subnets": {map[string]any{"unshapedSubnets": []string{"198.51.100.0/24"}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			pod := shaped(t, r, capacity, tc.keys)
			fd := floodSocket(t, pod, payload)
			to := &unix.SockaddrInet4{Port: 9, Addr: r.Client.V4.As4()}
			// Nobody is told of what waits for the neighbour's address and finds no room then.
			first := wiremeter.Now()
			_ = wiremeter.Until(t.Context(), first+2*time.Millisecond) // the meter leaves out the first millisecond
			if err := unix.Sendto(fd, make([]byte, payload), 0, to); err != nil {
				t.Fatal(err)
			}
			testutil.Eventually(t, backlogTimeout, "the neighbour is known", func() bool {
				return wire(t, pod, first, wiremeter.Now()) >= packet
			})
			data := make([]byte, tc.segments*payload)
			sent, refused := uint64(1), uint64(0)
			began := wiremeter.Now()
			for wiremeter.Now() < began+last {
				switch err := unix.Sendto(fd, data, unix.MSG_DONTWAIT, to); {
				case err == nil:
					sent += tc.segments
				case errors.Is(err, unix.ENOBUFS):
					refused += tc.segments
				case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ECONNREFUSED): // of an earlier one
					t.Fatal(err)
				}
			}
			testutil.Eventually(t, backlogTimeout, "the queue is empty", func() bool {
				waiting, err := rootBacklog(pod.Netns, pod.IfName)
				return err == nil && waiting == 0
			})
			came := wire(t, pod, first, wiremeter.Now()) / packet
			t.Logf("%d packets came of %d that were sent; %d were refused", came, sent, refused)
			// The kernel sends a frame of its own now and then.
			if refused < sent || came+2 < sent || came > sent+10 {
				t.Errorf("%d packets came of %d that the sender takes for sent, want all; %d were refused, want most", came, sent, refused)
			}
		})
	}
}

// floodSocket is a UDP socket of the pod that is told of drops, whose packets all find
// room in it, and which offloads the segmentation of larger ones.
func floodSocket(t *testing.T, pod *Target, segment int) (fd int) {
	t.Helper()
	err := pod.Netns.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	for _, o := range []struct{ level, name, value int }{
		{unix.SOL_IP, unix.IP_RECVERR, 1},
		{unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 4 << 20},
		{unix.SOL_UDP, unix.UDP_SEGMENT, segment},
	} {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			t.Fatal(err)
		}
	}
	return fd
}
