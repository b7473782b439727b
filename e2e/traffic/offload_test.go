// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/podweir/podweir/e2e/lab"
)

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
		ways["auto"] = 9
	}
	for _, congestion := range []string{"cubic", "bbr"} {
		load := Load{Name: "TCP 4 " + congestion, Flows: 4, Congestion: congestion}
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
				if got, many := packetSize(t, r, load, last, capacity, keys), 10.0; got < many*segment {
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
	offer, err := pod.Start(t.Context(), Egress, load, bitsPerSec, last)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := offer.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	return bytes, packets
}
