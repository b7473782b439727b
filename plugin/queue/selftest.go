// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package queue

import (
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/rtnl"
	"github.com/podweir/podweir/plugin/terms"
)

// ProbeIFBIndex is the ifindex of the ifb in the namespace of
// [ProbeRedirect]: the program that it tries must redirect there.
const ProbeIFBIndex = 77

// Of the self-test's own packets.
const (
	probePackets = 8
	// probeBytes is the length of one, with its headers.
	probeBytes = 14 + 20 + 8 + len(probeText)
	// probeWait bounds how long a packet may be under way; it takes
	// microseconds. On a busy machine the first round may be late, so there are
	// several.
	probeWait   = 5 * time.Millisecond
	probeRounds = 40
)

// ProbeRedirect tries whether packets come through an ifb by bpf_redirect: it
// makes a pair and an ifb with the ifindex [ProbeIFBIndex] in a namespace of
// its own, hangs the program progFD on the ingress hook as podweir would, and
// sends packets. With a progFD below 0 it tries the mirred action. False
// without an error means that the packets got lost behind the hook or went past the ifb. It
// leaves nothing. It needs CAP_NET_ADMIN and CAP_SYS_ADMIN, as the agent has
// them in its DaemonSet.
func ProbeRedirect(progFD int) (bool, error) {
	ns, err := rtnl.NewScratchNetNS()
	if err != nil {
		return false, err
	}
	defer func() { _ = ns.Close() }()
	h, err := hostif.NewHandle(ns)
	if err != nil {
		return false, err
	}
	defer h.Close()
	ok := false
	err = ns.Do(func() error {
		var err error
		ok, err = probeRedirect(h, progFD)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("redirect self-test: %w", err)
	}
	return ok, nil
}

func probeRedirect(h *hostif.Handle, progFD int) (bool, error) {
	near, far, err := probePair(h)
	if err != nil {
		return false, err
	}
	return probeBetween(h, near, far, progFD)
}

func probeBetween(h *hostif.Handle, near, far hostif.Interface, progFD int) (bool, error) {
	ifb, err := h.EnsureIFBAt("probe2", ProbeIFBIndex, far)
	if err != nil {
		return false, err
	}
	at := Place{Hook: terms.HookIngress, Pref: RedirectPref, Handle: FilterHandle}
	if progFD < 0 {
		_, err = AttachMirred(h, far.Index, at, ifb.Index)
	} else {
		_, err = AttachClsact(h, far.Index, at, Classifier{ProgramFD: progFD, Name: ProgramPrefix + "redirect"})
	}
	if err != nil {
		return false, err
	}
	delivered, err := deliver(near, far)
	if err == nil && !delivered {
		err = mostLeft(h, near)
	}
	if err != nil || !delivered {
		return false, err
	}
	// They must have come by way of the ifb, whose root qdisc counts them.
	seen, err := rootPackets(h, ifb.Index)
	return seen >= probePackets, err
}

// mostLeft returns an error unless near has sent most of the packets of [deliver]: those
// that never came to the hook at far say nothing of the way behind it.
func mostLeft(h *hostif.Handle, near hostif.Interface) error {
	carried, err := h.Traffic()
	if err != nil {
		return err
	}
	const all = probeRounds * probePackets * probeBytes
	if sent := carried[near.Index].SentBytes; sent < uint64(all/2) {
		return fmt.Errorf("%s has sent %d of %d bytes", near.Name, sent, all)
	}
	return nil
}

// rootPackets counts at the root qdisc, the kernel's default too.
func rootPackets(h *hostif.Handle, ifindex int) (uint64, error) {
	qdiscs, err := listQdiscs(h, ifindex)
	if err != nil {
		return 0, err
	}
	n := uint64(0)
	for _, q := range qdiscs {
		n = max(n, q.Stats.Packets)
	}
	return n, nil
}

// probePair makes a pair of devices that are up.
func probePair(h *hostif.Handle) (near, far hostif.Interface, err error) {
	const nearName, farName = "probe0", "probe1"
	req := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	req.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(nearName)))
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated(string(terms.DeviceVeth)))
	peer := info.AddRtAttr(nl.IFLA_INFO_DATA, nil).AddRtAttr(nl.VETH_INFO_PEER, nil)
	peer.AddChild(nl.NewIfInfomsg(unix.AF_UNSPEC))
	peer.AddRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(farName))
	req.AddData(info)
	if _, err = h.Execute(req, 0); err != nil {
		return near, far, fmt.Errorf("make veth pair: %w", err)
	}
	if near, err = h.InterfaceByName(nearName); err == nil {
		far, err = h.InterfaceByName(farName)
	}
	// The one that sends last: a device that comes up before its peer drops packets
	// until the kernel's link watch has run, which waits for RTNL.
	if err == nil {
		err = h.SetUp(far.Index)
	}
	if err == nil {
		err = h.SetUp(near.Index)
	}
	return near, far, err
}

// deliver sends datagrams into near and says whether the stack hands out a whole
// round of them at far. The calling thread is in the namespace of both.
func deliver(near, far hostif.Interface) (bool, error) {
	p, err := openPath(near, far)
	if err != nil {
		return false, err
	}
	defer p.close()
	for range probeRounds {
		for range probePackets {
			if err := p.send(nil); err != nil && !errors.Is(err, unix.ENOBUFS) {
				return false, err
			}
		}
		for n := 1; ; n++ {
			if err := p.receive(probeWait); errors.Is(err, ErrLost) {
				break
			} else if err != nil || n == probePackets {
				return err == nil, err
			}
		}
	}
	return false, nil
}
