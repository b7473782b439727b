// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// A sender in the pod learns of every packet that is dropped on its way out, as by
// a plain queue: then TCP slows down at once, and sends nothing twice over the network.
func TestPrivilegedSenderIsToldOfDrops(t *testing.T) {
	mark.Kernels(t, "the filter on prio only runs where the kernel has it")
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
			// No sender learns of what waits for the neighbour's address and finds no room then.
			first := wiremeter.Now()
			_ = wiremeter.Until(t.Context(), first+2*time.Millisecond) // the meter leaves out the first millisecond
			must.OK(t, unix.Sendto(fd, make([]byte, payload), 0, to))
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

// floodSocket is a UDP socket of the pod that learns of drops, whose packets all find
// room in it, and which offloads the segmentation of larger ones.
func floodSocket(t *testing.T, pod *Target, segment int) (fd int) {
	t.Helper()
	err := pod.Netns.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	must.OK(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	for _, o := range []struct{ level, name, value int }{
		{unix.SOL_IP, unix.IP_RECVERR, 1},
		{unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 4 << 20},
		{unix.SOL_UDP, unix.UDP_SEGMENT, segment},
	} {
		must.OK(t, unix.SetsockoptInt(fd, o.level, o.name, o.value))
	}
	return fd
}

// A TCP sender in the pod that has nothing under way does not lose what it sends next, though
// its flow has more than its share: no answer would come that makes it try again, and it would
// wait for a timer of at least 200 ms.
func TestPrivilegedIdleSenderWaitsForNoTimer(t *testing.T) {
	const (
		capacity = 100 * mbit
		clients  = 16
		response = 60_000 // bytes: one for each client takes 77 ms of the cap
		timer    = 200 * time.Millisecond
		// A pause of the machine delays a response of each client, 1.3 % of all.
		mostLate = 0.02
	)
	t.Parallel()
	r := newRig(t)
	pod := shaped(t, r, capacity, map[string]any{})
	run := must.Get(r.Lab.StartHTTP(t.Context(), lab.HTTPLoad{
		From: r.Client, To: &pod.Host, ResponseBytes: response, Concurrency: clients,
		Duration: 6 * time.Second, Timeout: 10 * time.Second,
	}))(t)
	got := must.Get(run.Wait(t.Context()))(t)
	took := got.Samples
	if len(took) < clients {
		t.Fatalf("only %d responses came", len(took))
	}
	first, _ := slices.BinarySearch(took, timer)
	late := 1 - float64(first)/float64(len(took))
	t.Logf("%d responses, half of them within %v; %.2f %% took %v or longer", len(took), got.Quantile(0.5), 100*late, timer)
	if late > mostLate {
		t.Errorf("%.2f %% of %d responses took %v or longer, want at most %.0f %%", 100*late, len(took), timer, 100*mostLate)
	}
}

// TCP in a pod with a limit makes small packets, so that no flow takes the queue for itself.
// With one band, which does not share, it makes those that it likes, and so do packets that bypass
// the limit.
func TestPrivilegedPacketsOfThePodAreSmall(t *testing.T) {
	const (
		capacity = 100 * mbit
		segment  = 1514 // bytes, with its Ethernet header
		last     = time.Second
	)
	ways := map[string]float64{"device": 4} // and how many segments the packets have at most
	if _, err := os.Stat("/proc/sys/net/ipv4/tcp_tso_rtt_log"); err == nil {
		ways["auto"] = 13
	}
	for _, congestion := range []string{"cubic", "bbr"} {
		load := TCP("TCP 4 "+congestion, 4, congestion)
		for way, few := range ways {
			t.Run(load.Name+", "+way, func(t *testing.T) {
				beside(t, capacity)
				if got := packetSize(t, newRig(t), load, last, capacity, map[string]any{"smallPackets": way}); got > few*segment {
					t.Errorf("packets of %.0f bytes on average, want at most %.0f segments", got, few)
				}
			})
		}
		for name, keys := range map[string]map[string]any{
			"one band":           {"policy": "flat"},
			"light flows bypass": {"policy": "elephants"},
			"switched off":       {"smallPackets": "off"},
			"an exempt network":  {},
		} {
			t.Run(load.Name+", "+name, func(t *testing.T) {
				exempt := len(keys) == 0
				if !exempt { // whose senders would take the processors from the others
					beside(t, capacity)
				}
				r := newRig(t)
				if exempt {
					keys["unshapedSubnets"] = []string{r.Client.V4.String() + "/32"}
				}
				// The device's bound is 4; what Linux likes varies, 9.6 for 4 cubic flows was the least.
				if got, many := packetSize(t, r, load, last, capacity, keys), 6.0; got < many*segment {
					t.Errorf("packets of %.0f bytes on average, want more than %.0f segments", got, many)
				}
			})
		}
	}
}

// packetSize is the average size in bytes of the packets that leave a pod of its own.
func packetSize(t *testing.T, r *Rig, load Load, last time.Duration, bitsPerSec uint64, keys map[string]any) float64 {
	t.Helper()
	pod := shaped(t, r, bitsPerSec, keys)
	offer := must.Get(pod.Start(t.Context(), Egress, load, bitsPerSec, last))(t)
	must.OK(t, waited(offer.Wait(t.Context())))
	bytes, packets := sentBy(t, pod.Netns, pod.IfName)
	t.Logf("%s, %v: %d bytes in %d packets", load.Name, keys, bytes, packets)
	return float64(bytes) / float64(packets)
}

// sentBy is what a device has sent: an offloaded packet is one.
func sentBy(t *testing.T, ns *lab.Netns, ifName string) (bytes, packets uint64) {
	t.Helper()
	err := ns.Do(func() error {
		link, err := netlink.LinkByName(ifName)
		if err == nil {
			s := link.Attrs().Statistics
			bytes, packets = s.TxBytes, s.TxPackets
		}
		return err
	})
	must.OK(t, err)
	return bytes, packets
}
