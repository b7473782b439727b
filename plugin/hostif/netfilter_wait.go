// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package hostif

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/rtnl"
)

// WaitNetfilterIngress blocks until an nftables base chain at the ingress hook
// is bound to the device called ifname in ns, in the sense of
// [HasNetfilterIngress]; one that is there already counts. The kernel tells of
// a change when it commits it, so the answer comes within the time of a dump.
//
// It returns nil once there is such a chain, the context's error when that
// ends, and another error if it cannot watch: one that wraps [rtnl.ErrPermission]
// without CAP_NET_ADMIN, and one that wraps [errors.ErrUnsupported] on a kernel
// without nfnetlink, where no chain can come. It holds one socket and no thread
// while it waits.
func WaitNetfilterIngress(ctx context.Context, ns *rtnl.NetNS, ifname string) error {
	events, err := nftablesEvents(ns)
	if err != nil {
		return fmt.Errorf("watch nftables in netns %s: %w", ns.Path(), err)
	}
	defer func() { _ = events.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = events.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	buf := make([]byte, 1)
	for {
		// Asked after the subscription, and again after every change: what the
		// events say is not needed, so that they may be cut off, and an overrun
		// of the socket is one more reason to ask.
		found, err := HasNetfilterIngress(ns, ifname)
		if found || err != nil {
			return err
		}
		_, err = events.Read(buf)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return fmt.Errorf("watch nftables in netns %s: %w", ns.Path(), err)
		}
	}
}

// nftablesEvents opens a socket in ns that tells of every change of nftables.
func nftablesEvents(ns *rtnl.NetNS) (*os.File, error) {
	return rtnl.Subscribe(ns, unix.NETLINK_NETFILTER, 1<<(unix.NFNLGRP_NFTABLES-1), "nftables events")
}
