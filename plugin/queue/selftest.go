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
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
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
		ok, err = probeRedirect(h, progFD, func(hostif.Interface) error { return nil })
		return err
	})
	if err != nil {
		return false, fmt.Errorf("redirect self-test: %w", err)
	}
	return ok, nil
}

// probeRedirect is [ProbeRedirect] in the namespace of a handle, which the calling thread is in,
// with a change to the device that sends.
func probeRedirect(h *hostif.Handle, progFD int, change func(near hostif.Interface) error) (bool, error) {
	near, far, err := probePair(h)
	if err == nil {
		err = change(near)
	}
	if err != nil {
		return false, err
	}
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
// round of them at far. The calling thread is in the namespace of both, which have no addresses.
//
// They are broadcasts from 0.0.0.0, as of a DHCP client: these need no address, no
// neighbour, and no CAP_NET_RAW, which the agent has not, and the kernel does not
// refuse them for coming from itself. What it loops back of a broadcast arrives at near,
// so the receiver, bound to far, sees only what came over the wire and past the hooks there.
func deliver(near, far hostif.Interface) (bool, error) {
	in, err := datagramSocket(far)
	if err != nil {
		return false, err
	}
	defer func() { _ = unix.Close(in) }()
	out, err := datagramSocket(near)
	if err != nil {
		return false, err
	}
	defer func() { _ = unix.Close(out) }()
	local, err := unix.Getsockname(in)
	if err != nil {
		return false, fmt.Errorf("read the probe socket's port: %w", err)
	}
	to := &unix.SockaddrInet4{Port: local.(*unix.SockaddrInet4).Port, Addr: [4]byte{255, 255, 255, 255}}
	for range probeRounds {
		for range probePackets {
			if err := unix.Sendto(out, []byte(probeText), 0, to); err != nil && !errors.Is(err, unix.ENOBUFS) {
				return false, fmt.Errorf("send on %s: %w", near.Name, err)
			}
		}
		for n := 1; ; n++ {
			came, err := receive(in)
			if err != nil || came && n == probePackets {
				return came, err
			}
			if !came {
				break
			}
		}
	}
	return false, nil
}

// probeText is what a datagram of a probe holds.
const probeText = "podweir"

// datagramSocket is a UDP socket with a port on one device, that may send broadcasts and waits
// for [probeWait]. SO_BINDTODEVICE needs no capability from Linux 5.7 on.
func datagramSocket(device hostif.Interface) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open probe socket: %w", err)
	}
	within := unix.NsecToTimeval(probeWait.Nanoseconds())
	err = errors.Join(
		unix.BindToDevice(fd, device.Name), unix.Bind(fd, &unix.SockaddrInet4{}),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &within),
	)
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("set up probe socket on %s: %w", device.Name, err)
	}
	return fd, nil
}

// receive waits for one datagram and says whether it came in time.
func receive(fd int) (bool, error) {
	for {
		switch _, _, err := unix.Recvfrom(fd, make([]byte, len(probeText)), 0); {
		case errors.Is(err, unix.EAGAIN):
			return false, nil
		case errors.Is(err, unix.EINTR):
			// The runtime's signals; a receive with a timeout is not restarted.
		case err != nil:
			return false, fmt.Errorf("receive probe packet: %w", err)
		default:
			return true, nil
		}
	}
}

// Features says what the kernel has, each by having tried it.
type Features struct {
	TBF, Prio, HTB, Bfifo, PfifoFast bool
	// FQ is what Cilium's bandwidth manager needs.
	FQ bool
	// Clsact is the qdisc of the legacy hooks, ClsBPF the classifier.
	Clsact, ClsBPF bool
	// Mirred is the redirecting action of tc.
	Mirred bool
	// IFB is the device kind; that packets pass through one is what
	// [ProbeRedirect] tries.
	IFB bool
}

// loopback is the ifindex of lo, the one device of every new namespace.
const loopback = 1

// Probe tries every kind on the loopback device of a namespace of its own and
// leaves nothing. What the kernel can load as a module it loads. Callers keep
// the answer for as long as the node is up.
func Probe() (Features, error) {
	var f Features
	ns, err := rtnl.NewScratchNetNS()
	if err != nil {
		return f, err
	}
	defer func() { _ = ns.Close() }()
	h, err := hostif.NewHandle(ns)
	if err != nil {
		return f, err
	}
	defer h.Close()
	tries := []struct {
		has *bool
		try func(*hostif.Handle) error
	}{
		{&f.TBF, tryRoot(shaping.Qdisc{Kind: shaping.KindTBF, Rate: 1 << 20, Burst: 1 << 17})},
		{&f.Prio, tryRoot(shaping.Qdisc{Kind: shaping.KindPrio, Bands: 2})},
		{&f.HTB, tryRoot(shaping.Qdisc{Kind: shaping.KindHTB})},
		{&f.FQ, tryRoot(shaping.Qdisc{Kind: kindFQ})},
		{&f.Bfifo, tryRoot(shaping.Qdisc{Kind: shaping.KindBfifo, Limit: units.Bytes(1 << 17)})},
		{&f.PfifoFast, tryRoot(shaping.Qdisc{Kind: shaping.KindPfifoFast})},
		{&f.Clsact, func(h *hostif.Handle) error { _, err := ensureClsact(h, loopback, terms.HookEgress); return err }},
		{&f.ClsBPF, func(h *hostif.Handle) error {
			return addFilter(h, loopback, hookEgress, 1, 1, matchAllOptions())
		}},
		{&f.Mirred, func(h *hostif.Handle) error {
			return addFilter(h, loopback, hookEgress, 2, 1, mirredOptions(loopback))
		}},
		{&f.IFB, tryIFB},
	}
	for _, t := range tries {
		if *t.has, err = supported(t.try(h)); err != nil {
			return f, fmt.Errorf("probe: %w", err)
		}
	}
	return f, nil
}

// supported tells "the kernel has none" from "could not be tried".
func supported(err error) (bool, error) {
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL):
		// ENOENT: no such qdisc, class or action kind, after an attempt to
		// load the module. EINVAL: no hook, because there is no clsact.
		return false, nil
	}
	return false, err
}

// kindFQ is a kind that podweir only tries.
const kindFQ shaping.QdiscKind = "fq"

// probeHandle is the handle of the roots that are tried.
const probeHandle shaping.TCHandle = 0x10000

func tryRoot(q shaping.Qdisc) func(*hostif.Handle) error {
	q.Handle, q.Parent = probeHandle, shaping.RootParent
	return func(h *hostif.Handle) error {
		if err := addQdisc(h, loopback, &q); err != nil {
			return err
		}
		return Remove(h, loopback, q.Kind, q.Handle)
	}
}

// tryIFB asks for an ifb with a multicast address. The kernel refuses that
// with EADDRNOTAVAIL if it knows the kind (ifb_validate), which takes
// microseconds where making one takes milliseconds.
func tryIFB(h *hostif.Handle) error {
	req := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	req.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated("probe")))
	req.AddData(nl.NewRtAttr(unix.IFLA_ADDRESS, []byte{0x01, 0, 0x5e, 0, 0, 1}))
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated(string(terms.DeviceIFB)))
	req.AddData(info)
	_, err := h.Execute(req, 0)
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		return nil
	}
	return err
}
