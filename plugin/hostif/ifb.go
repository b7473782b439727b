// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package hostif

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/terms"
)

// IFBPrefix starts the name of every ifb that podweir makes; the ifindex of
// the device it serves follows (ruling 9).
const IFBPrefix = "podweir"

// IFBTxQueueLen is the least queue of an ifb in packets. The driver's own 32
// loses bursts between the redirect and the qdisc.
const IFBTxQueueLen = 1000

// IFBMTU is the MTU of an ifb in bytes, one less than IPV6_MIN_MTU of
// linux/ipv6.h: the kernel makes no IPv6 state for such a device, 20 KiB on 6.18
// (slab and per-CPU, by difference over 100 of them). Neither the redirect to an
// ifb nor its driver looks at the MTU, so packets of any size pass.
const IFBMTU = 1279

// IFLA_INET6_ADDR_GEN_MODE and IN6_ADDR_GEN_MODE_NONE of linux/if_link.h: no
// link-local address, so the ifb never speaks.
const (
	iflaInet6AddrGenMode = 8
	in6AddrGenModeNone   = 1
)

// IFBName returns the name of the ifb that serves the device with this
// ifindex. A name has room for eight decimal digits: larger numbers have letters, too.
func IFBName(ifindex int) string {
	if ifindex >= 100_000_000 {
		return IFBPrefix + "-" + strconv.FormatInt(int64(ifindex), 36)
	}
	return IFBPrefix + strconv.Itoa(ifindex)
}

// IFB returns the ifb that serves the device with this ifindex. Returns an
// error wrapping [ErrNoDevice] if there is none, and [ErrForeignDevice] if
// something else has its name.
func (h *Handle) IFB(ifindex int) (Interface, error) { return h.ifbCalled(IFBName(ifindex)) }

func (h *Handle) ifbCalled(name string) (Interface, error) {
	i, err := h.InterfaceByName(name)
	if err == nil && i.Kind != terms.DeviceIFB {
		return Interface{}, fmt.Errorf("interface %s (ifindex %d, %q) in %s: %w",
			i.Name, i.Index, i.Kind, h.Where(), ErrForeignDevice)
	}
	return i, err
}

// EnsureIFB makes the ifb that serves the device dev, or takes the one that is
// there, and brings it up with [IFBMTU] and the offload limits of dev, as far as
// the kernel lets an ifb have them. IPv6 address generation is off before the
// device comes up, should another party raise the MTU later.
//
// A failure leaves no new device. The ifb goes with its namespace, which is
// cheaper than to delete it.
func (h *Handle) EnsureIFB(dev Interface) (Interface, error) {
	return h.EnsureIFBAt(IFBName(dev.Index), 0, dev)
}

// legacyGSOMaxSize is GSO_LEGACY_MAX_SIZE of linux/netdevice.h, in bytes.
const legacyGSOMaxSize = 65536

// EnsureIFBAt is [Handle.EnsureIFB] with a name and an ifindex of the caller's
// choice, as self-tests in a scratch namespace need it. It gives the ifb at most 64 KiB
// where the kernel refuses it more, as 6.12 does and 6.18 does not: it then segments
// larger packets itself.
func (h *Handle) EnsureIFBAt(name string, ifindex int, dev Interface) (Interface, error) {
	i, err := h.ensureIFBWith(name, ifindex, dev)
	if errors.Is(err, unix.EINVAL) && max(dev.GSOMaxSize, dev.GSOIPv4MaxSize) > legacyGSOMaxSize {
		dev.GSOMaxSize = min(dev.GSOMaxSize, legacyGSOMaxSize)
		dev.GSOIPv4MaxSize = min(dev.GSOIPv4MaxSize, legacyGSOMaxSize)
		return h.ensureIFBWith(name, ifindex, dev)
	}
	return i, err
}

func (h *Handle) ensureIFBWith(name string, ifindex int, dev Interface) (Interface, error) {
	made, err := h.newIFB(name, ifindex, dev)
	if err != nil {
		return Interface{}, err
	}
	i, err := h.ifbCalled(name)
	if err == nil {
		err = h.setUpIFB(i, dev, made)
	}
	if err == nil {
		i, err = h.InterfaceByIndex(i.Index)
	}
	if err != nil {
		if made {
			err = errors.Join(err, h.deleteLink(i.Index))
		}
		return Interface{}, err
	}
	return i, nil
}

// newIFB makes the device and says whether it was not there before.
func (h *Handle) newIFB(name string, ifindex int, dev Interface) (bool, error) {
	req := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(ifindex)
	req.AddData(msg)
	req.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	req.AddData(nl.NewRtAttr(unix.IFLA_TXQLEN, nl.Uint32Attr(uint32(max(dev.TxQueueLen, IFBTxQueueLen)))))
	addLimits(req, Interface{}, dev)
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated(string(terms.DeviceIFB)))
	req.AddData(info)
	_, err := h.Execute(req, 0)
	switch {
	case errors.Is(err, unix.EEXIST):
		return false, nil
	case errors.Is(err, unix.EOPNOTSUPP):
		return false, fmt.Errorf("make ifb %s in %s: the kernel has no ifb: %w", name, h.Where(), err)
	case err != nil:
		return false, fmt.Errorf("make ifb %s in %s: %w", name, h.Where(), err)
	}
	return true, nil
}

// addLimits adds the MTU of an ifb and those limits of dev that the device does
// not have. Some kernels
// refuse to set what they gave at first.
func addLimits(req *nl.NetlinkRequest, has, dev Interface) {
	add := func(attr int, has, v uint32) {
		if v != 0 && v != has {
			req.AddData(nl.NewRtAttr(attr, nl.Uint32Attr(v)))
		}
	}
	add(unix.IFLA_MTU, uint32(has.MTU), IFBMTU)
	add(unix.IFLA_GSO_MAX_SIZE, has.GSOMaxSize, dev.GSOMaxSize)
	add(unix.IFLA_GSO_MAX_SEGS, has.GSOMaxSegs, dev.GSOMaxSegs)
	add(unix.IFLA_GRO_MAX_SIZE, has.GROMaxSize, dev.GROMaxSize)
	add(iflaGSOIPv4MaxSize, has.GSOIPv4MaxSize, dev.GSOIPv4MaxSize)
}

// setUpIFB turns address generation off and then brings the device up. That is
// two requests: the kernel applies the flags of a request first (do_setlink).
func (h *Handle) setUpIFB(i, dev Interface, made bool) error {
	req := setLink(i.Index, 0)
	spec := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
	spec.AddRtAttr(unix.AF_INET6, nil).AddRtAttr(iflaInet6AddrGenMode, []byte{in6AddrGenModeNone})
	req.AddData(spec)
	if _, err := h.Execute(req, 0); err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
		// EAFNOSUPPORT: no IPv6 on the device, and nothing to turn off.
		return fmt.Errorf("turn IPv6 address generation of %s in %s off: %w", i.Name, h.Where(), err)
	}
	if !made {
		req = setLink(i.Index, 0)
		addLimits(req, i, dev)
		if _, err := h.Execute(req, 0); err != nil {
			return fmt.Errorf("set MTU %d and offload limits of %s in %s: %w", IFBMTU, i.Name, h.Where(), err)
		}
	}
	return h.SetUp(i.Index)
}

// DeleteIFB deletes the ifb that serves the device with this ifindex. That
// there is none is not an error; something else of that name stays, and the
// error wraps [ErrForeignDevice]. It takes about 25 ms under RTNL.
func (h *Handle) DeleteIFB(ifindex int) error {
	i, err := h.IFB(ifindex)
	if errors.Is(err, ErrNoDevice) {
		return nil
	}
	if err != nil {
		return err
	}
	return h.deleteLink(i.Index)
}

func (h *Handle) deleteLink(index int) error {
	req := nl.NewNetlinkRequest(unix.RTM_DELLINK, unix.NLM_F_ACK)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	req.AddData(msg)
	if _, err := h.Execute(req, 0); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("delete interface with ifindex %d in %s: %w", index, h.Where(), err)
	}
	return nil
}

// SetUp brings a device up. One that is up stays so.
func (h *Handle) SetUp(index int) error {
	if _, err := h.Execute(setLink(index, unix.IFF_UP), 0); err != nil {
		return fmt.Errorf("bring ifindex %d in %s up: %w", index, h.Where(), err)
	}
	return nil
}

// setLink changes a device, and sets the flags.
func setLink(index int, flags uint32) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index, msg.Flags, msg.Change = int32(index), flags, flags
	req.AddData(msg)
	return req
}

// SetTxQueueLen sets the queue length of a device in packets, the depth of
// pfifo_fast on it. A running pfifo_fast takes the new length and keeps its
// packets as far as they fit.
func (h *Handle) SetTxQueueLen(index, packets int) error {
	req := setLink(index, 0)
	req.AddData(nl.NewRtAttr(unix.IFLA_TXQLEN, nl.Uint32Attr(uint32(packets))))
	if _, err := h.Execute(req, 0); err != nil {
		return fmt.Errorf("set txqueuelen %d of ifindex %d in %s: %w", packets, index, h.Where(), err)
	}
	return nil
}

// SetGSOMaxSize sets the largest packets in bytes that TCP on a device makes, and that
// the kernel hands the device whole: those that are larger it cuts into segments after the
// queue. ipv4 is 0 where the kernel has one limit for both (before 6.3).
func (h *Handle) SetGSOMaxSize(index int, size, ipv4 uint32) error {
	req := setLink(index, 0)
	req.AddData(nl.NewRtAttr(unix.IFLA_GSO_MAX_SIZE, nl.Uint32Attr(size)))
	if ipv4 != 0 {
		req.AddData(nl.NewRtAttr(iflaGSOIPv4MaxSize, nl.Uint32Attr(ipv4)))
	}
	if _, err := h.Execute(req, 0); err != nil {
		return fmt.Errorf("set gso_max_size %d of ifindex %d in %s: %w", size, index, h.Where(), err)
	}
	return nil
}
