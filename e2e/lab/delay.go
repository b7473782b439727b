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

type delayArgs struct {
	NodeIf      string
	ClientNetns string
	Delay       time.Duration
}

// delayedPair connects a namespace to the node as [Lab.pair] does, but each frame
// arrives later by the lab's delay. The devices have no offloads, so the ends'
// kernels segment what they send. netem would do the same, but small kernels lack
// it.
func (l *Lab) delayedPair(ns *Netns, nodeIf string) error {
	args := delayArgs{NodeIf: nodeIf, ClientNetns: ns.Path(), Delay: l.opts.Delay}
	// The devices live as long as the worker, hence as the lab.
	_, err := l.startWorker(context.Background(), &Host{Name: "node", Netns: l.node}, "delay", args, nil)
	return err
}

// runDelay carries frames between two TAP devices, which disappear when it ends.
func runDelay(raw json.RawMessage, ready func(any) error, quit <-chan struct{}) (any, error) {
	var args delayArgs
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
	go func() { ends <- carry(node, client, args.Delay) }()
	go func() { ends <- carry(client, node, args.Delay) }()
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

// delayedFrame is on its way.
type delayedFrame struct {
	due  time.Duration // of [monotonic]
	data []byte
}

// carry delivers at one end what the other sends, after a delay.
func carry(from, to int, delay time.Duration) error {
	way := make(chan delayedFrame, lineRoom)
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
		case way <- delayedFrame{monotonic() + delay, append([]byte(nil), buf[:n]...)}:
		case err := <-failed:
			return err
		}
	}
}

func deliver(to int, way <-chan delayedFrame) error {
	for f := range way {
		sleepUntil(f.due)
		// A device that is down takes nothing, as the kernel's own would not.
		if _, err := unix.Write(to, f.data); err != nil && !errors.Is(err, unix.EIO) {
			return fmt.Errorf("write a frame: %w", err)
		}
	}
	return nil
}
