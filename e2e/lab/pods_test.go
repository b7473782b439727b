// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// received is how many packets came in by the host's interface.
func received(t *testing.T, h *Host) uint64 {
	t.Helper()
	n, err := h.ReceivedPackets()
	must.OK(t, err)
	return n
}

// TestPrivilegedSpreadGoesToAllInTurns: every pod gets as much, the one that is
// left out gets nothing, and a sender that reads memory between sends less.
func TestPrivilegedSpreadGoesToAllInTurns(t *testing.T) {
	mark.Timed(t, "it judges rates or waits")
	l := newTestLab(t)
	network, err := l.Network("spread")
	must.OK(t, err)
	pods, err := network.Pods(t.Context(), 6, PodOptions{})
	must.OK(t, err)
	client, err := l.Client("client")
	must.OK(t, err)
	hosts := make([]*Host, len(pods))
	for i, p := range pods {
		hosts[i] = &p.Host
	}
	sinks, err := OpenSinks(hosts)
	must.OK(t, err)
	defer func() { _ = sinks.Close() }()
	before := make([]uint64, len(hosts))
	for i, h := range hosts {
		before[i] = received(t, h)
	}
	load := Spread{From: client, To: sinks.Rest(1), PayloadBytes: 100, Duration: 300 * time.Millisecond}
	sent, err := l.Spread(t.Context(), load)
	must.OK(t, err)
	if sent.Packets < 10_000 || sent.Refused > 0 || sent.Elapsed < load.Duration {
		t.Errorf("Spread = %+v, want some 100,000 packets and none refused", sent)
	}
	// A handful of packets are the kernel's own.
	const others = 20
	share := sent.Packets / uint64(len(hosts)-1)
	for i, h := range hosts {
		got := received(t, h) - before[i]
		if i == 0 && got > others || i > 0 && (got < share || got > share+others) {
			t.Errorf("host %d got %d packets of %d", i, got, sent.Packets)
		}
	}
	load.EvictBytes = 4 << 20
	slow, err := l.Spread(t.Context(), load)
	must.OK(t, err)
	if slow.Packets == 0 || slow.Packets > sent.Packets/2 {
		t.Errorf("with 4 MiB read between two packets %d are sent, without %d", slow.Packets, sent.Packets)
	}
}

// TestPrivilegedManyPods: they are made, told their names, given another cap and
// deleted, together.
func TestPrivilegedManyPods(t *testing.T) {
	l := newTestLab(t)
	network, err := l.Network("many", PodweirEntry(nil))
	must.OK(t, err)
	pods, err := network.Pods(t.Context(), 5, PodOptions{Bandwidth: RuntimeBandwidth(20_000_000), Namespace: "spaces"})
	must.OK(t, err)
	rate := func(p *Pod) string {
		var out strings.Builder
		err := p.Netns.Do(func() error {
			cmd := exec.CommandContext(t.Context(), "tc", "qdisc", "show", "dev", p.IfName)
			cmd.Stdout = &out
			return cmd.Run()
		})
		must.OK(t, err)
		return out.String()
	}
	for _, p := range pods {
		if got := rate(p); !strings.Contains(got, "rate 20Mbit") {
			t.Errorf("%s has %s, want 20Mbit", p.Name, got)
		}
	}
	must.OK(t, Reshape(t.Context(), pods[1:], RuntimeBandwidth(30_000_000)))
	for i, want := range []string{"rate 20Mbit", "rate 30Mbit", "rate 30Mbit", "rate 30Mbit", "rate 30Mbit"} {
		if got := rate(pods[i]); !strings.Contains(got, want) {
			t.Errorf("%s has %s, want %s", pods[i].Name, got, want)
		}
	}
	must.OK(t, DeletePods(t.Context(), pods))
	err = l.Node().Do(func() error {
		_, err := netlink.LinkByName(pods[4].HostIfName)
		return err
	})
	if !errors.As(err, &netlink.LinkNotFoundError{}) {
		t.Errorf("the device of a pod that is gone: %v", err)
	}
}
