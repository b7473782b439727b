// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/testutil/must"
)

// heard are the sizes of the IPv4 packets that a socket has of each kind: the
// protocol, and the ports if it is UDP.
func heard(t *testing.T, fd int) map[[3]uint16][]int {
	t.Helper()
	out := map[[3]uint16][]int{}
	for buf := make([]byte, 1<<16); ; {
		n, err := unix.Read(fd, buf)
		if errors.Is(err, unix.EAGAIN) {
			return out
		}
		must.OK(t, err)
		if n < ipv4HeaderBytes+udpHeaderBytes {
			t.Fatalf("a packet of %d bytes", n)
		}
		kind := [3]uint16{uint16(buf[9])}
		if kind[0] == unix.IPPROTO_UDP {
			kind[1], kind[2] = binary.BigEndian.Uint16(buf[ipv4HeaderBytes:]), binary.BigEndian.Uint16(buf[ipv4HeaderBytes+2:])
		}
		out[kind] = append(out[kind], n)
	}
}

// TestPrivilegedTunnelIsOneFlow: TCP bulk and calls inside, and outside one UDP
// flow of packets that each fit the link.
func TestPrivilegedTunnelIsOneFlow(t *testing.T) {
	l := newTestLab(t)
	pod, client := mustPod(t, l)
	innerPod, innerClient, err := l.Tunnel(&pod.Host, client)
	must.OK(t, err)
	var fd int
	err = client.Netns.Do(func() error {
		var err error
		const all = uint16(unix.ETH_P_IP>>8 | unix.ETH_P_IP&0xff<<8) // in the order of the network
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(all))
		if err != nil {
			return err
		}
		link, err := unix.NewIfreq(podIfName)
		if err != nil {
			return err
		}
		if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, link); err != nil {
			return err
		}
		return errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20),
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: int(link.Uint32())}),
		)
	})
	must.OK(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	const last = 300 * time.Millisecond
	stream, err := l.StartEcho(t.Context(), EchoLoad{
		From: innerClient, To: innerPod, PerSecond: 100, Duration: last, Timeout: time.Second, FrameBytes: 1 << 14,
	})
	must.OK(t, err)
	calls, err := l.StartCalls(t.Context(), Calls{
		From: innerPod, To: innerClient, Flows: 2, PacketBytes: 200, PerSecond: 100, Duration: last,
	})
	must.OK(t, err)
	for name, run := range map[string]*RequestsRun{"stream": stream, "calls": calls} {
		got, err := run.Wait(t.Context())
		must.OK(t, err)
		if len(got.Samples) != 30 || got.Failed() != 0 {
			t.Errorf("%s: %d samples, errors %v, want 30 and none", name, len(got.Samples), got.Errors)
		}
	}
	tunnel := [3]uint16{unix.IPPROTO_UDP, tunnelPort, tunnelPort}
	packets := heard(t, fd)
	full := 0
	for _, n := range packets[tunnel] {
		if n > 1500 {
			t.Fatalf("a packet of %d bytes, want at most 1,500", n)
		}
		if n == 1500 {
			full++
		}
	}
	if n := len(packets[tunnel]); n < 100 || full < 50 {
		t.Errorf("%d packets, %d of them full, want at least 100 and 50", n, full)
	}
	delete(packets, tunnel)
	for kind, sizes := range packets {
		t.Errorf("%d packets of protocol %d, ports %d to %d, want only the tunnel's", len(sizes), kind[0], kind[1], kind[2])
	}
}
