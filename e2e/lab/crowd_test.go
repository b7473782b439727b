// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

var remotes = netip.MustParsePrefix("198.19.0.0/17")

// No two flows of ten minutes at 6,000 a second are the same.
func TestCrowdFlowsAreDistinct(t *testing.T) {
	mark.Slow(t, "it compares 3.6 million flows")
	const flows = 3_600_000
	c := Crowd{Remote: remotes, Flows: flows, PacketBytes: 100}
	must.OK(t, c.check())
	seen := make([]uint64, flows)
	for i := range flows {
		f := c.Flow(i)
		if !remotes.Contains(f.Addr()) || f.Port() < firstRotatingPort {
			t.Fatalf("flow %d is %s, want an address of %s and a port from %d", i, f, remotes, firstRotatingPort)
		}
		address := f.Addr().As4()
		seen[i] = uint64(binary.BigEndian.Uint32(address[:]))<<16 | uint64(f.Port())
	}
	slices.Sort(seen)
	if different := len(slices.Compact(seen)); different != flows {
		t.Errorf("%d of %d flows are another's, too", flows-different, flows)
	}
}

func TestCrowdThatCannotBe(t *testing.T) {
	for name, tc := range map[string]struct {
		c    Crowd
		want string
	}{
		"nobody":            {Crowd{Remote: remotes, PacketBytes: 100}, "without flows"},
		"packets too small": {Crowd{Remote: remotes, Flows: 1, PacketBytes: 27}, "at least 28"},
		"too many":          {Crowd{Remote: netip.MustParsePrefix("198.19.0.0/31"), Flows: 2 * PortsPerRemote, PacketBytes: 28}, "do not fit"},
		"as many as fit":    {Crowd{Remote: netip.MustParsePrefix("198.19.0.0/31"), Flows: PortsPerRemote, PacketBytes: 28}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.c.check()
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("check() = %v, want nil", err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("check() = %v, want %q in it", err, tc.want)
			}
		})
	}
}

// Every flow of a crowd arrives, in either direction, and no other: more flows
// than one remote address has ports.
func TestPrivilegedCrowdArrives(t *testing.T) {
	mark.Nightly(t, "a load of the rig; no test of podweir has it")
	mark.Timed(t, "it judges rates or waits")
	const flows, last = PortsPerRemote + 5000, 4 * time.Second
	for name, inwards := range map[string]bool{"inwards": true, "outwards": false} {
		t.Run(name, func(t *testing.T) {
			l := newTestLab(t)
			pod, client := mustPod(t, l)
			must.OK(t, l.Behind(client, remotes))
			c := Crowd{
				From: client, To: &pod.Host, Remote: remotes, Inwards: inwards, Flows: flows,
				PacketBytes: 60, PerSecond: flows / (last - time.Second).Seconds(), Duration: last,
			}
			if !inwards {
				c.From, c.To = c.To, c.From
			}
			heard := hear(t, c.To.Netns, inwards)
			run, err := l.StartCrowd(t.Context(), c)
			must.OK(t, err)
			sent, err := run.Wait(t.Context())
			must.OK(t, err)
			got := heard()
			if sent.Packets < flows || sent.Refused > 0 {
				t.Fatalf("%d packets sent, %d refused, want at least one of each of %d flows", sent.Packets, sent.Refused, flows)
			}
			missing := 0
			for i := range flows {
				if !got[c.Flow(i)] {
					missing++
				}
			}
			if missing > 0 || len(got) != flows {
				t.Errorf("%d flows arrived, %d of %d are missing", len(got), missing, flows)
			}
		})
	}
}

// hear collects the flows of all UDP datagrams that come to a namespace, until
// the function that it returns is called.
func hear(t *testing.T, ns *Netns, inwards bool) func() map[netip.AddrPort]bool {
	t.Helper()
	fd := -1
	err := ns.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
		return err
	})
	must.OK(t, err)
	timeout := unix.NsecToTimeval(int64(200 * time.Millisecond))
	must.OK(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout))
	must.OK(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20))
	address := ipv4Dest
	if inwards {
		address = ipv4Source
	}
	quit, out := make(chan struct{}), make(chan map[netip.AddrPort]bool, 1)
	go func() {
		seen := map[netip.AddrPort]bool{}
		buf := make([]byte, 128)
		for {
			n, err := unix.Read(fd, buf)
			if err != nil && closed(quit) {
				out <- seen
				return
			}
			if err != nil || n < ipv4HeaderBytes+udpHeaderBytes {
				continue
			}
			addr := netip.AddrFrom4([4]byte(buf[address:]))
			seen[netip.AddrPortFrom(addr, binary.BigEndian.Uint16(buf[udpSourcePort:]))] = true
		}
	}()
	return func() map[netip.AddrPort]bool {
		close(quit)
		got := <-out
		if err := unix.Close(fd); err != nil {
			t.Error(err)
		}
		return got
	}
}
