// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package queue

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/hostif"
)

// ErrLost means that a packet did not arrive that should have.
var ErrLost = errors.New("the packet got lost")

// probeText is what a datagram of a probe holds.
const probeText = "podweir"

// probePath takes datagrams from one end of a pair of devices to the other, both
// in the namespace of the calling thread and without addresses. They are
// broadcasts from 0.0.0.0, as of a DHCP client: these need no address, no
// neighbour, and no CAP_NET_RAW, which the agent has not, and the kernel does not
// refuse them for coming from itself.
type probePath struct {
	in, out  int
	near     string
	to       unix.SockaddrInet4
	received []byte
}

// openPath opens the sockets. What the kernel loops back of a broadcast arrives
// at near, so the receiver, bound to far, sees only what came over the wire and
// past the hooks there.
func openPath(near, far hostif.Interface) (*probePath, error) {
	p := &probePath{in: -1, out: -1, near: near.Name, received: make([]byte, 64)}
	p.to.Addr = [4]byte{255, 255, 255, 255}
	if err := p.open(near.Name, far.Name); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *probePath) open(near, far string) (err error) {
	if p.in, err = datagramSocket(far); err != nil {
		return err
	}
	if err := unix.Bind(p.in, &unix.SockaddrInet4{}); err != nil {
		return fmt.Errorf("bind probe socket: %w", err)
	}
	local, err := unix.Getsockname(p.in)
	if err != nil {
		return fmt.Errorf("read the probe socket's port: %w", err)
	}
	p.to.Port = local.(*unix.SockaddrInet4).Port
	if p.out, err = datagramSocket(near); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(p.out, unix.SOL_SOCKET, unix.SO_BROADCAST, 1); err != nil {
		return fmt.Errorf("allow broadcasts on probe socket: %w", err)
	}
	return nil
}

// datagramSocket is a UDP socket on one device. SO_BINDTODEVICE needs no
// capability from Linux 5.7 on.
func datagramSocket(device string) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open probe socket: %w", err)
	}
	if err := unix.BindToDevice(fd, device); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("bind probe socket to %s: %w", device, err)
	}
	return fd, nil
}

func (p *probePath) close() {
	for _, fd := range []int{p.in, p.out} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// send sends one datagram with a control message, which may be nil.
func (p *probePath) send(control []byte) error {
	if err := unix.Sendmsg(p.out, []byte(probeText), control, &p.to, 0); err != nil {
		return fmt.Errorf("send on %s: %w", p.near, err)
	}
	return nil
}

// receive waits for one datagram. It returns [ErrLost] if none came in time.
func (p *probePath) receive(within time.Duration) error {
	tv := unix.NsecToTimeval(within.Nanoseconds())
	if err := unix.SetsockoptTimeval(p.in, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		return fmt.Errorf("set receive timeout: %w", err)
	}
	for {
		switch _, _, err := unix.Recvfrom(p.in, p.received, 0); {
		case errors.Is(err, unix.EAGAIN):
			return ErrLost
		case errors.Is(err, unix.EINTR):
			// The runtime's signals; a receive with a timeout is not restarted.
		case err != nil:
			return fmt.Errorf("receive probe packet: %w", err)
		default:
			return nil
		}
	}
}
