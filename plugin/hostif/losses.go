// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package hostif

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/rtnl"
	"github.com/podweir/podweir/plugin/terms"
)

// Losses returns the places of the handle's namespace that lost packets: devices, and rules and policies of
// nftables that drop or reject and count (iptables-nft counts in each). Those without a counter of their own are among
// them, queues are not. It needs CAP_NET_ADMIN. Beside an error it returns what could be read.
func Losses(ns *rtnl.NetNS, h *Handle) ([]terms.Loss, error) {
	devices, err := h.Interfaces()
	if err != nil {
		return nil, err
	}
	traffic, err := h.Traffic()
	if err != nil {
		return nil, err
	}
	var all []terms.Loss
	for i := range devices {
		t := traffic[devices[i].Index]
		all = lost(all, devices[i].Name+" dropped received packets", t.ReceivedDropped)
		all = lost(all, devices[i].Name+" dropped packets to send", t.SentDropped)
	}
	rules, err := dropping(ns)
	return append(all, rules...), err
}

func lost(all []terms.Loss, where string, packets uint64) []terms.Loss {
	if packets == 0 {
		return all
	}
	return append(all, terms.Loss{Where: where, Packets: packets})
}

// Of linux/netfilter/nf_tables.h.
const (
	nftaListElem                               = 1
	nftaRuleTable, nftaRuleChain               = 1, 2
	nftaRuleHandle, nftaRuleExpressions        = 3, 4
	nftaChainTable, nftaChainName              = 1, 3
	nftaChainPolicy, nftaChainCounters         = 5, 8
	nftaExprName, nftaExprData                 = 1, 2
	nftaCounterPackets                         = 2
	nftaImmediateData, nftaDataVerdict         = 2, 2
	nftaVerdictCode                     uint16 = 1
	nfDrop                                     = 0
)

var nftFamilies = map[byte]string{
	unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6", unix.NFPROTO_NETDEV: "netdev", unix.NFPROTO_BRIDGE: "bridge", unix.NFPROTO_ARP: "arp",
}

// dropping are the rules and the policies of chains that drop or reject, and lost packets or do not count them. A
// kernel without nf_tables has none.
func dropping(ns *rtnl.NetNS) (all []terms.Loss, err error) {
	with := func(parse func([]byte) (nftRule, error)) chainReader {
		return func(family byte, attrs []byte) error {
			rule, err := parse(attrs)
			if rule.drops && (rule.packets > 0 || !rule.counts) {
				all = append(all, terms.Loss{
					Where:   fmt.Sprintf("nftables %s of chain %s in table %s %s", rule.what, rule.chain, nftFamilies[family], rule.table),
					Packets: rule.packets, Uncounted: !rule.counts,
				})
			}
			return err
		}
	}
	return all, errors.Join(
		nftables(ns, unix.NFT_MSG_GETRULE, unix.NFT_MSG_NEWRULE, with(parseRule)),
		nftables(ns, unix.NFT_MSG_GETCHAIN, unix.NFT_MSG_NEWCHAIN, with(parseChain)))
}

// nftRule is a rule, or the policy of a chain.
type nftRule struct {
	what, table, chain string
	packets            uint64
	drops, counts      bool
}

func parseChain(attrs []byte) (r nftRule, err error) {
	r.what = "policy"
	err = rtnl.EachAttr(attrs, func(kind uint16, v []byte) error {
		switch kind {
		case nftaChainTable:
			r.table = unix.ByteSliceToString(v)
		case nftaChainName:
			r.chain = unix.ByteSliceToString(v)
		case nftaChainPolicy:
			r.drops = len(v) == 4 && binary.BigEndian.Uint32(v) == nfDrop
		case nftaChainCounters:
			return r.counter(v)
		}
		return nil
	})
	return r, err
}

func parseRule(attrs []byte) (r nftRule, err error) {
	err = rtnl.EachAttr(attrs, func(kind uint16, v []byte) error {
		switch kind {
		case nftaRuleTable:
			r.table = unix.ByteSliceToString(v)
		case nftaRuleChain:
			r.chain = unix.ByteSliceToString(v)
		case nftaRuleHandle:
			r.what = fmt.Sprintf("rule %d", be64(v))
		case nftaRuleExpressions:
			return rtnl.EachAttr(v, func(kind uint16, v []byte) error {
				if kind != nftaListElem {
					return nil
				}
				return r.expression(v)
			})
		}
		return nil
	})
	return r, err
}

// expression takes one: a counter, a verdict, or something else.
func (r *nftRule) expression(b []byte) error {
	name := ""
	var data []byte
	if err := rtnl.EachAttr(b, func(kind uint16, v []byte) error {
		switch kind {
		case nftaExprName:
			name = unix.ByteSliceToString(v)
		case nftaExprData:
			data = v
		}
		return nil
	}); err != nil {
		return err
	}
	switch name {
	case "reject":
		r.drops = true
	case "counter":
		return r.counter(data)
	case "immediate":
		return within(data, nftaImmediateData, func(v []byte) error {
			return within(v, nftaDataVerdict, func(v []byte) error {
				return within(v, nftaVerdictCode, func(v []byte) error {
					r.drops = r.drops || len(v) == 4 && binary.BigEndian.Uint32(v) == nfDrop
					return nil
				})
			})
		})
	}
	return nil
}

func (r *nftRule) counter(data []byte) error {
	r.counts = true
	return within(data, nftaCounterPackets, func(v []byte) error { r.packets += be64(v); return nil })
}

// within calls f with the attributes of a kind.
func within(b []byte, want uint16, f func(v []byte) error) error {
	return rtnl.EachAttr(b, func(kind uint16, v []byte) error {
		if kind == want {
			return f(v)
		}
		return nil
	})
}

func be64(b []byte) uint64 {
	if len(b) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}
