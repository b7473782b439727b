// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"context"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
)

// backlog returns when packets wait in the root qdisc of a direction.
func (t *Target) backlog(ctx context.Context, d Direction) error {
	ns, ifName := t.Netns, t.IfName
	if d == Ingress {
		ns, ifName = t.rig.Lab.Node(), t.HostIfName
	}
	for end := time.Now().Add(backlogTimeout); time.Now().Before(end); {
		waiting, err := rootBacklog(ns, ifName)
		if err != nil || waiting > 0 {
			return err
		}
		if err := wiremeter.Until(ctx, wiremeter.Now()+time.Millisecond); err != nil {
			return err
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
