// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package hostif

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/rtnl"
)

// Of linux/netfilter/nf_tables.h; golang.org/x/sys lacks the two on devices.
const (
	nftaHookDevs     = 4
	nftaDeviceName   = 1
	nftaDevicePrefix = 2
	// NF_INET_INGRESS of linux/netfilter.h.
	nfInetIngress = 5
)

// nfgenmsgLen is the length of struct nfgenmsg.
const nfgenmsgLen = 4

// HasNetfilterIngress says whether an nftables base chain at the ingress hook
// is bound to the device called ifname in ns; such a chain stands behind a
// redirect and would not see the packets.
//
// An error means that it could not be found out, which is not the same as no:
// it wraps [rtnl.ErrPermission] if CAP_NET_ADMIN is missing. Where one is found, it does not matter
// that another chain cannot be read. A kernel without nf_tables has no such chains.
func HasNetfilterIngress(ns *rtnl.NetNS, ifname string) (bool, error) {
	return ingressOn(ifname, func(do chainReader) error { return nftables(ns, unix.NFT_MSG_GETCHAIN, unix.NFT_MSG_NEWCHAIN, do) })
}

// chainReader takes the family and the attributes of a chain or rule.
type chainReader func(family byte, attrs []byte) error

// ingressOn is HasNetfilterIngress for the chains that each gives.
func ingressOn(ifname string, each func(do chainReader) error) (bool, error) {
	found := false
	err := each(func(family byte, attrs []byte) error {
		bound, err := isIngressChain(family, attrs, ifname)
		found = found || bound
		return err
	})
	if found {
		return true, nil
	}
	return false, err
}

// nftables calls do with each chain or rule of a namespace, whatever do made of those before. A kernel without nf_tables has none. It needs CAP_NET_ADMIN.
func nftables(ns *rtnl.NetNS, get, answer uint16, do chainReader) error {
	h, err := rtnl.Dial(ns, unix.NETLINK_NETFILTER)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer h.Close()
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|int(get), unix.NLM_F_DUMP)
	req.AddRawData([]byte{unix.NFPROTO_UNSPEC, unix.NFNETLINK_V0, 0, 0})
	msgs, err := h.Execute(req, unix.NFNL_SUBSYS_NFTABLES<<8|answer)
	if errors.Is(err, unix.EINVAL) {
		return nil // nfnetlink knows no such subsystem, and no module could be loaded
	}
	if err != nil {
		return fmt.Errorf("list nftables in %s: %w", h.Where(), err)
	}
	if err := eachMessage(msgs, do); err != nil {
		return fmt.Errorf("parse nftables in %s: %w", h.Where(), err)
	}
	return nil
}

// eachMessage is nftables for the messages of the answer; its error is that of the first one that cannot be read.
func eachMessage(msgs [][]byte, do chainReader) (unread error) {
	for _, m := range msgs {
		err := errShort
		if len(m) >= nfgenmsgLen {
			err = do(m[0], m[nfgenmsgLen:])
		}
		unread = cmp.Or(unread, err)
	}
	return unread
}

var errShort = fmt.Errorf("message of less than %d bytes", nfgenmsgLen)

// isIngressChain parses a chain's attributes. Chains at ingress exist in the
// families netdev and, since 5.10, inet.
func isIngressChain(family byte, attrs []byte, ifname string) (bool, error) {
	hook := uint32(0)
	switch family {
	case unix.NFPROTO_NETDEV:
		hook = unix.NF_NETDEV_INGRESS
	case unix.NFPROTO_INET:
		hook = nfInetIngress
	default:
		return false, nil
	}
	bound := false
	err := within(attrs, unix.NFTA_CHAIN_HOOK, func(v []byte) (err error) {
		bound, err = hookMatches(v, hook, ifname)
		return err
	})
	return bound, err
}

func hookMatches(b []byte, want uint32, ifname string) (bool, error) {
	hook, onDevice := uint32(0), false
	err := rtnl.EachAttr(b, func(kind uint16, v []byte) error {
		switch kind {
		case unix.NFTA_HOOK_HOOKNUM:
			if len(v) < 4 {
				return fmt.Errorf("hook number of %d bytes", len(v))
			}
			hook = binary.BigEndian.Uint32(v)
		case unix.NFTA_HOOK_DEV:
			onDevice = onDevice || unix.ByteSliceToString(v) == ifname
		case nftaHookDevs:
			return rtnl.EachAttr(v, func(kind uint16, v []byte) error {
				name := unix.ByteSliceToString(v)
				switch kind {
				case nftaDeviceName:
					onDevice = onDevice || name == ifname
				case nftaDevicePrefix:
					onDevice = onDevice || strings.HasPrefix(ifname, name)
				}
				return nil
			})
		}
		return nil
	})
	return onDevice && hook == want, err
}

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
	events, err := rtnl.Subscribe(ns, unix.NETLINK_NETFILTER, 1<<(unix.NFNLGRP_NFTABLES-1), "nftables events")
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
