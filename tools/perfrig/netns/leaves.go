// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"context"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/podweir/podweir/e2e/traffic"
)

// leaf is what stands in place of the leaf of podweir's second band: a trial, which the
// rig makes after ADD and which goes with the pod.
type leaf struct {
	// tc has fq_codel's options.
	tc string
	// alone says that fq_codel drops, and podweir's program nothing.
	alone bool
}

var leaves = map[string]leaf{
	// Its defaults, except that nobody but it drops what is heavy.
	"a": {"limit 10240", true},
	// It never drops: what podweir's program lets in is served in turns by flow.
	"c": {"limit 10240 target 60s interval 60s", false},
}

// leafDepth is a depth of the total meter that no load reaches, in 1/64 ns.
const leafDepth = uint64(time.Minute) * 64

// replaceLeaves puts a leaf under the bands of both directions.
func (r *run) replaceLeaves(ctx context.Context, t *traffic.Target, ends map[traffic.Direction]end) error {
	l, ok := leaves[r.cell.Phase.Leaves]
	if !ok {
		return fmt.Errorf("no leaf %q", r.cell.Phase.Leaves)
	}
	for d, e := range ends {
		var band string
		err := e.ns.Do(func() (err error) { band, err = secondBand(e.ifName); return err })
		if err != nil {
			return err
		}
		if err := tc(ctx, e.ns, fmt.Sprintf("qdisc replace dev %s parent %s fq_codel %s", e.ifName, band, l.tc)); err != nil {
			return err
		}
		if l.alone {
			if err := dropNothing(t, d); err != nil {
				return err
			}
		}
	}
	return nil
}

// secondBand is the class of heavy packets of the tree on a device.
func secondBand(ifName string) (string, error) {
	link, err := netlink.LinkByName(ifName)
	if err != nil {
		return "", err
	}
	qdiscs, err := netlink.QdiscList(link)
	if err != nil {
		return "", err
	}
	for _, q := range qdiscs {
		if q.Type() == "prio" {
			major, _ := netlink.MajorMinor(q.Attrs().Handle)
			return fmt.Sprintf("%x:2", major), nil
		}
	}
	return "", fmt.Errorf("podweir made no prio on %s: its leaves cannot be replaced", ifName)
}

// dropNothing leaves the second band to its leaf: the program admits whatever comes,
// and so that it still tells light from heavy, a flow is light below the least estimate
// and not below a share that would never shrink.
func dropNothing(t *traffic.Target, d traffic.Direction) error {
	s, err := openState(t, d)
	if err != nil {
		return err
	}
	defer s.close()
	cfg := s.config()
	cfg.TotalBurst, cfg.LightMost = leafDepth, cfg.LightLeast
	return nil
}
