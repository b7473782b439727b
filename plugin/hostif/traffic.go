// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package hostif

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/rtnl"
)

// Traffic is what a device has carried since it was made, bytes with the link layer
// header. A packet of many segments (GSO, GRO) is one, with one header: on the wire it
// is more.
type Traffic struct {
	ReceivedBytes, SentBytes uint64
	// ReceivedDropped and SentDropped are packets that the device lost.
	ReceivedDropped, SentDropped uint64
}

// Of linux/if_link.h.
const (
	iflaStatsLink64    = 1
	iflaTargetNetNSID  = 46
	iflaStats64        = 23
	statsMsgBytes      = 12
	statsFilterLink64  = 1 << (iflaStatsLink64 - 1)
	stats64RxBytesAt   = 16
	stats64TxBytesAt   = 24
	stats64RxDropAt    = 48
	stats64TxDropAt    = 56
	stats64LeastLength = 64
)

// statsMsg is struct if_stats_msg.
type statsMsg struct{ index, filter uint32 }

// Len implements nl.NetlinkRequestData.
func (*statsMsg) Len() int { return statsMsgBytes }

// Serialize implements nl.NetlinkRequestData.
func (m *statsMsg) Serialize() []byte {
	b := make([]byte, statsMsgBytes)
	nl.NativeEndian().PutUint32(b[4:], m.index)
	nl.NativeEndian().PutUint32(b[8:], m.filter)
	return b
}

// Traffic returns the counters of all devices of the namespace by their ifindexes, in
// one dump of some 230 bytes for each.
func (h *Handle) Traffic() (map[int]Traffic, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETSTATS, unix.NLM_F_DUMP)
	req.AddData(&statsMsg{filter: statsFilterLink64})
	all := make(map[int]Traffic)
	_, err := h.ExecuteFor(req, unix.RTM_NEWSTATS, func(msg []byte) bool {
		if len(msg) < statsMsgBytes {
			return false
		}
		_ = rtnl.EachAttr(msg[statsMsgBytes:], func(kind uint16, v []byte) error {
			if kind == iflaStatsLink64 && len(v) >= stats64LeastLength {
				all[int(rtnl.Uint32(msg[4:]))] = parseTraffic(v)
			}
			return nil
		})
		return false
	})
	if err != nil {
		return nil, fmt.Errorf("read the counters of devices in %s: %w", h.Where(), err)
	}
	return all, nil
}

// TrafficIn returns the counters of one device of another namespace, by the number that
// the handle's namespace knows that one by (see [Interface.PeerNetNSID]), and the
// device's ifindex. Nobody enters that namespace. Returns an error wrapping
// [ErrNoDevice] if there is no such device or namespace.
//
// Needs CAP_NET_ADMIN over that namespace, and Linux 4.20.
func (h *Handle) TrafficIn(netnsID int, name string) (Traffic, int, error) {
	what := fmt.Sprintf("interface %q in the namespace with id %d of %s", name, netnsID, h.Where())
	req := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	req.AddData(nl.NewRtAttr(iflaTargetNetNSID, nl.Uint32Attr(uint32(int32(netnsID)))))
	req.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	msgs, err := h.Execute(req, unix.RTM_NEWLINK)
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL) || err == nil && len(msgs) == 0 {
		return Traffic{}, 0, fmt.Errorf("%s: %w", what, ErrNoDevice)
	}
	if err != nil {
		return Traffic{}, 0, fmt.Errorf("read the counters of %s: %w", what, err)
	}
	m := msgs[0]
	if len(m) < unix.SizeofIfInfomsg {
		return Traffic{}, 0, fmt.Errorf("link message of %d bytes is too short", len(m))
	}
	var found *Traffic
	err = rtnl.EachAttr(m[unix.SizeofIfInfomsg:], func(kind uint16, v []byte) error {
		if kind == iflaStats64 && len(v) >= stats64LeastLength {
			t := parseTraffic(v)
			found = &t
		}
		return nil
	})
	if err != nil || found == nil {
		return Traffic{}, 0, errors.Join(err, fmt.Errorf("%s: the kernel tells no counters", what))
	}
	return *found, int(nl.DeserializeIfInfomsg(m).Index), nil
}

// parseTraffic reads struct rtnl_link_stats64.
func parseTraffic(v []byte) Traffic {
	e := nl.NativeEndian()
	return Traffic{
		ReceivedBytes: e.Uint64(v[stats64RxBytesAt:]), SentBytes: e.Uint64(v[stats64TxBytesAt:]),
		ReceivedDropped: e.Uint64(v[stats64RxDropAt:]), SentDropped: e.Uint64(v[stats64TxDropAt:]),
	}
}
