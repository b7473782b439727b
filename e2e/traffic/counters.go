// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/lab"
)

// ethernet is the size of the header that IP counters leave out.
const ethernet = 14

// ipReceived is what IPv4 of a namespace has received since it exists.
type ipReceived struct{ packets, octets uint64 }

// ipReceived reads the counters of the pod's namespace.
func (t *Target) ipReceived() (*ipReceived, error) {
	var raw []byte
	err := t.Netns.Do(func() error {
		var err error
		raw, err = os.ReadFile(fmt.Sprintf("/proc/self/task/%d/net/netstat", unix.Gettid()))
		return err
	})
	if err != nil {
		return nil, err
	}
	// Two lines for each group: names, then values.
	var names []string
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != "IpExt:" {
			continue
		}
		if names == nil {
			names = f
			continue
		}
		out := &ipReceived{}
		for i, name := range names {
			var to *uint64
			switch name {
			case "InOctets":
				to = &out.octets
			case "InNoECTPkts":
				to = &out.packets
			default:
				continue
			}
			if *to, err = strconv.ParseUint(f[i], 10, 64); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		return out, nil
	}
	return nil, fmt.Errorf("pod %s: no IpExt in its counters", t.Name)
}

// backlog returns when packets wait in the root qdisc of a direction.
func (t *Target) backlog(ctx context.Context, d Direction) error {
	ns, ifName := t.Netns, t.IfName
	if d == Ingress {
		ns, ifName = t.rig.Lab.Node(), t.HostIfName
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(backlogTimeout); time.Now().Before(end); {
		waiting, err := rootBacklog(ns, ifName)
		if err != nil || waiting > 0 {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return fmt.Errorf("nothing waits on %s", ifName)
}

const backlogTimeout = 5 * time.Second

// rootBacklog is the number of packets in the root qdisc of a device.
func rootBacklog(ns *lab.Netns, ifName string) (waiting uint32, err error) {
	err = ns.Do(func() error {
		link, err := netlink.LinkByName(ifName)
		if err != nil {
			return err
		}
		qdiscs, err := netlink.QdiscList(link)
		if err != nil {
			return err
		}
		for _, q := range qdiscs {
			if a := q.Attrs(); a.Parent == netlink.HANDLE_ROOT && a.Statistics != nil && a.Statistics.Queue != nil {
				waiting = a.Statistics.Queue.Qlen
			}
		}
		return nil
	})
	return waiting, err
}
