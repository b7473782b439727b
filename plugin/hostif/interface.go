// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package hostif finds both ends of a pod's interface, of any supported device kind, and
// reads and changes devices; it needs CAP_NET_ADMIN.
package hostif

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/rtnl"
	"github.com/podweir/podweir/plugin/terms"
)

// NoNetNSID is the namespace id of a peer that is in the same namespace.
const NoNetNSID = -1

// NoQueue is the root qdisc that the kernel gives to a device without a queue.
const NoQueue = "noqueue"

// Interface is a device as one namespace sees it.
type Interface struct {
	Name  string
	Index int
	// PeerIndex is the ifindex of the other end in its own namespace; 0 if
	// the device has none.
	PeerIndex int
	// PeerNetNSID is the number by which the device's namespace knows that of
	// the peer; [NoNetNSID] if it is the same.
	PeerNetNSID int
	Kind        terms.DeviceKind
	Up          bool
	// Loopback says that it is the namespace's loopback device.
	Loopback bool
	// MTU is in bytes, without the link layer header.
	MTU int
	// TxQueueLen is in packets.
	TxQueueLen int
	// NumTxQueues is the number of transmit queues.
	NumTxQueues int
	// Qdisc is the kind of the root qdisc.
	Qdisc string
	// L3Only means that packets have no Ethernet header.
	L3Only bool
	// Unseen says that packets come to the device past its ingress hooks.
	Unseen bool
	// XDP is the ID of the XDP program on the device, 0 if there is none.
	XDP          uint32
	HardwareAddr net.HardwareAddr
	// GSOMaxSize, GSOIPv4MaxSize and GROMaxSize are in bytes, GSOMaxSegs in
	// segments; 0 where the kernel does not tell.
	GSOMaxSize, GSOIPv4MaxSize, GROMaxSize, GSOMaxSegs uint32
	// TSOMaxSize bounds the first two, in bytes; 0 where the kernel does not tell (before
	// 5.19).
	TSOMaxSize uint32
}

// IFLA_GSO_IPV4_MAX_SIZE of linux/if_link.h, since 6.3.
const iflaGSOIPv4MaxSize = 0x3f

// skipStats is RTEXT_FILTER_SKIP_STATS of linux/rtnetlink.h: the kernel leaves out the
// counters of a device, for which it adds up those of every processor.
const skipStats = 1 << 3

// linkRequest asks for a device, or for all.
func linkRequest(flags, index int) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(unix.RTM_GETLINK, flags)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	req.AddData(msg)
	req.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(skipStats)))
	return req
}

// InterfaceByName returns the device of that name. Returns an error wrapping
// [ErrNoDevice] if there is none.
func (h *Handle) InterfaceByName(name string) (Interface, error) {
	req := linkRequest(0, 0)
	req.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	return h.getLink(req, fmt.Sprintf("interface %q", name))
}

// InterfaceByIndex returns the device of that ifindex. Returns an error
// wrapping [ErrNoDevice] if there is none.
func (h *Handle) InterfaceByIndex(index int) (Interface, error) {
	return h.getLink(linkRequest(0, index), fmt.Sprintf("interface with ifindex %d", index))
}

func (h *Handle) getLink(req *nl.NetlinkRequest, what string) (Interface, error) {
	msgs, err := h.Execute(req, unix.RTM_NEWLINK)
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ERANGE) ||
		(err == nil && len(msgs) == 0) {
		// EINVAL and ERANGE: a name or number that no device can have.
		return Interface{}, fmt.Errorf("%s in %s: %w", what, h.Where(), ErrNoDevice)
	}
	if err != nil {
		return Interface{}, fmt.Errorf("read %s in %s: %w", what, h.Where(), err)
	}
	return parseLink(msgs[0])
}

// Interfaces returns all devices of the namespace.
func (h *Handle) Interfaces() ([]Interface, error) {
	msgs, err := h.Execute(linkRequest(unix.NLM_F_DUMP, 0), unix.RTM_NEWLINK)
	if err != nil {
		return nil, fmt.Errorf("list interfaces in %s: %w", h.Where(), err)
	}
	out := make([]Interface, 0, len(msgs))
	for _, m := range msgs {
		i, err := parseLink(m)
		if err != nil {
			return nil, err
		}
		out = append(out, i)
	}
	return out, nil
}

func parseLink(m []byte) (Interface, error) {
	if len(m) < unix.SizeofIfInfomsg {
		return Interface{}, fmt.Errorf("link message of %d bytes is too short", len(m))
	}
	msg := nl.DeserializeIfInfomsg(m)
	i := Interface{
		Index:       int(msg.Index),
		PeerNetNSID: NoNetNSID,
		Up:          msg.Flags&unix.IFF_UP != 0,
		Loopback:    msg.Flags&unix.IFF_LOOPBACK != 0,
		L3Only:      msg.Type == unix.ARPHRD_NONE,
	}
	err := rtnl.EachAttr(m[unix.SizeofIfInfomsg:], func(kind uint16, v []byte) error {
		switch kind {
		case unix.IFLA_IFNAME:
			i.Name = unix.ByteSliceToString(v)
		case unix.IFLA_MTU:
			i.MTU = int(rtnl.Uint32(v))
		case unix.IFLA_LINK:
			i.PeerIndex = int(rtnl.Uint32(v))
		case unix.IFLA_LINK_NETNSID:
			i.PeerNetNSID = int(int32(rtnl.Uint32(v)))
		case unix.IFLA_QDISC:
			i.Qdisc = unix.ByteSliceToString(v)
		case unix.IFLA_TXQLEN:
			i.TxQueueLen = int(rtnl.Uint32(v))
		case unix.IFLA_NUM_TX_QUEUES:
			i.NumTxQueues = int(rtnl.Uint32(v))
		case unix.IFLA_ADDRESS:
			i.HardwareAddr = net.HardwareAddr(append([]byte(nil), v...))
		case unix.IFLA_GSO_MAX_SIZE:
			i.GSOMaxSize = rtnl.Uint32(v)
		case unix.IFLA_GSO_MAX_SEGS:
			i.GSOMaxSegs = rtnl.Uint32(v)
		case unix.IFLA_GRO_MAX_SIZE:
			i.GROMaxSize = rtnl.Uint32(v)
		case unix.IFLA_TSO_MAX_SIZE:
			i.TSOMaxSize = rtnl.Uint32(v)
		case iflaGSOIPv4MaxSize:
			i.GSOIPv4MaxSize = rtnl.Uint32(v)
		case unix.IFLA_LINKINFO:
			i.Kind, i.Unseen = linkKind(v)
		case unix.IFLA_XDP:
			return rtnl.EachAttr(v, func(kind uint16, v []byte) error {
				if kind >= unix.IFLA_XDP_PROG_ID && kind <= unix.IFLA_XDP_HW_PROG_ID { // one for each mode
					i.XDP = cmp.Or(i.XDP, rtnl.Uint32(v))
				}
				return nil
			})
		}
		return nil
	})
	if err != nil {
		return Interface{}, fmt.Errorf("parse link message: %w", err)
	}
	return i, nil
}

// linkKind returns the kind of a device, and [Interface.Unseen].
func linkKind(info []byte) (kind terms.DeviceKind, unseen bool) {
	var data []byte
	_ = rtnl.EachAttr(info, func(what uint16, v []byte) error {
		switch what {
		case nl.IFLA_INFO_KIND:
			kind = terms.DeviceKind(unix.ByteSliceToString(v))
		case nl.IFLA_INFO_DATA:
			data = v
		}
		return nil
	})
	if kind == "ipvlan" || kind == "ipvtap" {
		_ = rtnl.EachAttr(data, func(what uint16, v []byte) error {
			unseen = unseen || what == nl.IFLA_IPVLAN_MODE && nl.NativeEndian().Uint16(v) == ipvlanL3S
			return nil
		})
	}
	return kind, unseen
}

// ipvlanL3S is IPVLAN_MODE_L3S of linux/if_link.h: packets get from the lower device to the
// sockets by its netfilter hooks.
const ipvlanL3S = 2

// LeadsOut says whether what is sent on the device leaves its namespace by that alone:
// the other end of a pair, the lower device, or what carries a tunnel is in another namespace,
// or the device is hardware, or made of such. All others carry what is theirs over another
// device, or nowhere.
func (i *Interface) LeadsOut() bool {
	switch {
	case i.Loopback:
		return false
	case i.Kind.IsPair(), i.Kind == "vlan", slices.Contains(onLower, i.Kind), slices.Contains(tunnels, i.Kind):
		return i.PeerNetNSID != NoNetNSID
	default:
		return slices.Contains(hardware, i.Kind)
	}
}

// LeadsOutAlone says whether it leads out and has no other end, and is not made of devices
// that do.
func (i *Interface) LeadsOutAlone() bool {
	return i.LeadsOut() && !i.Kind.IsPair() && i.Kind != "bond" && i.Kind != "team"
}

// Shares says whether two devices of a namespace share one of another namespace, so that
// both reach the same network.
func (i *Interface) Shares(other *Interface) bool {
	return slices.Contains(onLower, i.Kind) && slices.Contains(onLower, other.Kind) &&
		i.PeerNetNSID != NoNetNSID && i.PeerNetNSID == other.PeerNetNSID && i.PeerIndex == other.PeerIndex
}

// NotLimited names a device that does not lead out, with what limits the traffic of one that is a tunnel.
func (i *Interface) NotLimited() string {
	if slices.Contains([]terms.DeviceKind{"wireguard", "gre", "ip6gre", "ipip", "ip6tnl", "sit", "geneve", "vti", "xfrm"}, i.Kind) {
		return string(i.Kind) + " tunnel, which podweir limits only by an interface in the pod that carries it"
	}
	return string(i.Kind) + " device"
}

var (
	// onLower are the kinds of devices that share the network of another device.
	onLower = []terms.DeviceKind{"macvlan", "macvtap", "ipvlan", "ipvtap"}
	// tunnels are those whose packets have an Ethernet header: of others none gets through an ifb.
	tunnels = []terms.DeviceKind{"vxlan", "gretap"}
	// hardware are physical devices, and the kinds that come with one or are made of several.
	hardware = []terms.DeviceKind{"", "ipoib", "bond", "team"}
)

// Pair is both ends of a pod's interface.
type Pair struct {
	// Pod is the end in the pod's namespace, Host the other one.
	Pod, Host Interface
}

// FindPair finds the interface called name in the pod's namespace and its peer
// in the host's. Both ends must name each other, and their namespaces too: an
// ifindex alone says nothing, since every pod has an interface 2.
//
// Returns an error wrapping [ErrNoDevice] if the pod has no such interface and
// [ErrNoPeer] if it has no other end in the host's namespace; Pod is filled in
// the latter case.
func FindPair(pod, host *Handle, podNS, hostNS *rtnl.NetNS, name string) (Pair, error) {
	dev, err := pod.InterfaceByName(name)
	if err != nil {
		return Pair{}, err
	}
	return findPeer(pod, host, podNS, hostNS, dev)
}

// FindPairAt is [FindPair] for the interface with this ifindex in the pod's namespace.
func FindPairAt(pod, host *Handle, podNS, hostNS *rtnl.NetNS, index int) (Pair, error) {
	dev, err := pod.InterfaceByIndex(index)
	if err != nil {
		return Pair{}, err
	}
	return findPeer(pod, host, podNS, hostNS, dev)
}

func findPeer(pod, host *Handle, podNS, hostNS *rtnl.NetNS, dev Interface) (Pair, error) {
	p, name := Pair{Pod: dev}, dev.Name
	what := fmt.Sprintf("interface %s (ifindex %d, %s) in %s", name, p.Pod.Index, p.Pod.Kind, pod.Where())
	if p.Pod.PeerIndex == 0 || !p.Pod.Kind.IsPair() {
		return p, fmt.Errorf("%s is not one end of a pair: %w", what, ErrNoPeer)
	}
	if err := pod.peerIsIn(p.Pod, podNS, hostNS); err != nil {
		return p, fmt.Errorf("%s has peer %d: %w", what, p.Pod.PeerIndex, err)
	}
	peer, err := host.InterfaceByIndex(p.Pod.PeerIndex)
	if errors.Is(err, ErrNoDevice) {
		return p, fmt.Errorf("%s: peer %d is not in %s: %w", what, p.Pod.PeerIndex, host.Where(), ErrNoPeer)
	}
	if err != nil {
		return p, err
	}
	if peer.PeerIndex != p.Pod.Index || peer.Kind != p.Pod.Kind {
		return p, fmt.Errorf("%s: peer %s (ifindex %d, %s) in %s names ifindex %d: %w",
			what, peer.Name, peer.Index, peer.Kind, host.Where(), peer.PeerIndex, ErrNoPeer)
	}
	if err := host.peerIsIn(peer, hostNS, podNS); err != nil {
		return p, fmt.Errorf("%s: peer %s (ifindex %d): %w", what, peer.Name, peer.Index, err)
	}
	p.Host = peer
	return p, nil
}

// PeerIsIn says whether the other end of a device, which h sees in the namespace own, is in
// the namespace want.
func (h *Handle) PeerIsIn(i *Interface, own, want *rtnl.NetNS) (bool, error) {
	err := h.peerIsIn(*i, own, want)
	if errors.Is(err, ErrNoPeer) {
		return false, nil
	}
	return err == nil, err
}

// peerIsIn says whether the other end of i, which h sees in the namespace own,
// is in the namespace want.
func (h *Handle) peerIsIn(i Interface, own, want *rtnl.NetNS) error {
	if i.PeerNetNSID == NoNetNSID {
		if own.Same(want) {
			return nil
		}
		return fmt.Errorf("both ends are in %s: %w", h.Where(), ErrNoPeer)
	}
	id, err := h.NetNSID(want)
	if err != nil {
		return err
	}
	if id != i.PeerNetNSID {
		return fmt.Errorf("the other end is in the namespace with id %d, not in netns %s (id %d): %w",
			i.PeerNetNSID, want.Path(), id, ErrNoPeer)
	}
	return nil
}

// Attributes of RTM_GETNSID, linux/net_namespace.h.
const (
	netnsaNSID = 1
	netnsaFD   = 3
	// genMsgLen is the length of struct rtgenmsg with its padding, in bytes.
	genMsgLen = 4
)

// NetNSID returns the number by which the handle's namespace knows ns, and
// [NoNetNSID] if it does not know it.
func (h *Handle) NetNSID(ns *rtnl.NetNS) (int, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETNSID, 0)
	req.AddData(nl.NewRtGenMsg())
	req.AddData(nl.NewRtAttr(netnsaFD, nl.Uint32Attr(uint32(ns.FD()))))
	msgs, err := h.Execute(req, unix.RTM_NEWNSID)
	if err != nil {
		return 0, fmt.Errorf("ask %s for the id of netns %s: %w", h.Where(), ns.Path(), err)
	}
	id := NoNetNSID
	for _, m := range msgs {
		err := rtnl.EachAttr(m[min(len(m), genMsgLen):], func(kind uint16, v []byte) error {
			if kind == netnsaNSID {
				id = int(int32(rtnl.Uint32(v)))
			}
			return nil
		})
		if err != nil {
			return 0, fmt.Errorf("parse the id of netns %s: %w", ns.Path(), err)
		}
	}
	return id, nil
}

// Errors that callers branch on. They are wrapped with the name of the object.
var (
	// ErrNoDevice means that the namespace has no such device.
	ErrNoDevice = errors.New("no such device")
	// ErrNoPeer means that the other end of a pair is not in the host's
	// namespace, or that the device is no pair at all.
	ErrNoPeer = errors.New("no host-side peer")
	// ErrForeignDevice means that a device of our name is not ours.
	ErrForeignDevice = errors.New("a device of this name is not an ifb")
)

// Handle reads and changes the devices of one network namespace. It is safe for
// concurrent use.
type Handle struct {
	*rtnl.Conn

	// Single has the qdiscs of a device read one by one, whatever other devices have. Kernels
	// before 6.7 send them to whoever watches the qdiscs, too, so it is not for a process
	// that looks because of what such a watch told.
	Single bool
}

// NewHandle opens a handle on the devices of ns; nil means the namespace of the calling
// thread: see [rtnl.Dial].
func NewHandle(ns *rtnl.NetNS) (*Handle, error) {
	c, err := rtnl.Dial(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	return &Handle{Conn: c}, nil
}
