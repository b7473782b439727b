// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// lineRoom is how many frames are on their way at most, 0.4 s of 2 Gbit/s.
	lineRoom = 1 << 16
	// lineFrame is the largest frame, with room for a VLAN tag.
	lineFrame = 1518
	// lineQueue is the length of the queue of an end's device, in frames: a TCP
	// window may come at once.
	lineQueue = 10_000
)

type distanceArgs struct {
	NodeIf      string
	ClientNetns string
	Distance    time.Duration
}

// stretch connects a namespace to the node as [Lab.pair] does, but each frame
// arrives later by the lab's distance. There are no offloads on such a line, as on
// a wire: the ends' kernels cut what they send into frames. netem would do the same,
// but small kernels have none.
func (l *Lab) stretch(ns *Netns, nodeIf string) error {
	args := distanceArgs{NodeIf: nodeIf, ClientNetns: ns.Path(), Distance: l.opts.Distance}
	// The line lives as long as the lab.
	_, err := l.startWorker(context.Background(), &Host{Name: "node", Netns: l.node}, "distance", args, nil)
	return err
}

// runDistance is a line between two devices of kind TAP, which go with it.
func runDistance(raw json.RawMessage, ready func(any) error, quit <-chan struct{}) (any, error) {
	var args distanceArgs
	if err := json.Unmarshal(raw, &args); err != nil {
		return nil, err
	}
	node, err := openTAP(args.NodeIf)
	if err != nil {
		return nil, err
	}
	ns, err := openNetns(args.ClientNetns)
	if err != nil {
		return nil, err
	}
	client := -1
	err = ns.Do(func() error {
		client, err = openTAP(podIfName)
		return err
	})
	if err != nil {
		return nil, err
	}
	ends := make(chan error)
	go func() { ends <- carry(node, client, args.Distance) }()
	go func() { ends <- carry(client, node, args.Distance) }()
	if err := ready(nil); err != nil {
		return nil, err
	}
	select {
	case err := <-ends:
		return nil, err
	case <-quit:
		return nil, nil
	}
}

// openTAP makes a device in the current namespace.
func openTAP(name string) (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	req, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return 0, fmt.Errorf("make device %s: %w", name, err)
	}
	dev, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetTxQLen(dev, lineQueue)
	}
	return fd, err
}

type frameOnItsWay struct {
	due  time.Duration // of [monotonic]
	data []byte
}

// carry takes what one end sends to the other, after the time that it takes.
func carry(from, to int, distance time.Duration) error {
	way := make(chan frameOnItsWay, lineRoom)
	failed := make(chan error, 1)
	go func() { failed <- deliver(to, way) }()
	buf := make([]byte, lineFrame)
	for {
		n, err := unix.Read(from, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read a frame: %w", err)
		}
		select {
		case way <- frameOnItsWay{monotonic() + distance, append([]byte(nil), buf[:n]...)}:
		case err := <-failed:
			return err
		}
	}
}

func deliver(to int, way <-chan frameOnItsWay) error {
	for f := range way {
		sleepUntil(f.due)
		// A device that is down takes nothing, as the kernel's own would not.
		if _, err := unix.Write(to, f.data); err != nil && !errors.Is(err, unix.EIO) {
			return fmt.Errorf("write a frame: %w", err)
		}
	}
	return nil
}
