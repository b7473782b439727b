// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package queue

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/rtnl"
)

// Of linux/rtnetlink.h, linux/pkt_cls.h, linux/tc_act/tc_gact.h and linux/filter.h.
const (
	tcaChain        = 11
	tcaIngressBlock = 13
	tcaEgressBlock  = 14

	tcaU32ClassID = 1
	tcaU32Sel     = 5
	tcaU32Act     = 7
	tcaU32Flags   = 11
	tcaU32Pcnt    = 9
	tcaU32Hash    = 2

	tcaMatchallClassID = 1
	tcaMatchallAct     = 2
	tcaMatchallFlags   = 3
	tcaMatchallPcnt    = 4

	tcaBasicClassID   = 1
	tcaBasicEmatches  = 2
	tcaBasicAct       = 3
	tcaBasicPcnt      = 5
	tcaEmatchTreeHead = 1

	tcaFlowerClassID   = 1
	tcaFlowerAct       = 3
	tcaFlowerFlags     = 22
	tcaFlowerInHWCount = 86

	tcaGactParms = 2
	tcaGactProb  = 3

	u32Terminal = 1
	u32SelLen   = 16
	u32RootHash = 0x80000000

	bpfReturnConst = 0x06
)

// harmless are the attributes that say nothing of which packets a filter matches.
var harmless = map[string][]uint16{
	"u32":      {tcaU32ClassID, tcaU32Hash, tcaU32Sel, tcaU32Act, tcaU32Pcnt, tcaU32Flags},
	"matchall": {tcaMatchallClassID, tcaMatchallAct, tcaMatchallFlags, tcaMatchallPcnt},
	"basic":    {tcaBasicClassID, tcaBasicEmatches, tcaBasicAct, tcaBasicPcnt},
	"flower":   {tcaFlowerClassID, tcaFlowerAct, tcaFlowerFlags, tcaFlowerInHWCount},
}

// answer says what a filter that is no BPF program does with every packet, if it does the
// same with each. Its actions have been read.
func (f *Filter) answer(m *message) (judge.Answer, error) {
	known := harmless[f.FilterKind]
	if known == nil || f.Protocol != unix.ETH_P_ALL || m.chain != 0 {
		return judge.AnswerUnknown, nil
	}
	all, table := true, f.FilterKind == "u32"
	err := eachAttr(m.options, func(t uint16, v []byte) {
		all = all && slices.Contains(known, t)
		switch {
		case f.FilterKind == "u32" && t == tcaU32Sel:
			table = false
			all = all && m.Handle >= u32RootHash && u32All(v)
		case f.FilterKind == "basic" && t == tcaBasicEmatches:
			all = all && noEmatches(v)
		}
	})
	switch {
	case err != nil:
		return judge.AnswerUnknown, fmt.Errorf("parse filter at pref %d: %w", f.Pref, err)
	case table: // the keys have messages of their own
		return judge.AnswerNext, nil
	case all:
		return f.Match, nil
	}
	return judge.AnswerUnknown, nil
}

// u32All says that a selector (struct tc_u32_sel) matches every packet and leads to no
// other table.
func u32All(sel []byte) bool {
	const keyLen, shortest = 16, 16 // the key has to be within the shortest packet
	if len(sel) < u32SelLen || sel[0]&u32Terminal == 0 {
		return false
	}
	for key := range slices.Chunk(sel[u32SelLen:], keyLen) {
		offset := int32(u32at(key, 8))
		if u32at(key, 0) != 0 || u32at(key, 4) != 0 || u32at(key, 12) != 0 || offset < 0 || offset > shortest {
			return false
		}
	}
	return true
}

// noEmatches says that a tree of matches is empty: the kernel lists it all the same.
func noEmatches(tree []byte) bool {
	none := false
	err := eachAttr(tree, func(t uint16, head []byte) { // struct tcf_ematch_tree_hdr
		if t == tcaEmatchTreeHead && len(head) >= 2 {
			none = binary.NativeEndian.Uint16(head) == 0
		}
	})
	return err == nil && none
}

// classicAll says that a classic BPF program of one instruction matches every packet.
func classicAll(ops []byte) bool {
	const insnLen = 8
	return len(ops) == insnLen && binary.NativeEndian.Uint16(ops) == bpfReturnConst && u32at(ops, 4) != 0
}

// eachAction calls do for each action of a filter, in their order, with its kind, options and
// cookie, until one fails.
func eachAction(actions []byte, do func(kind string, opts []byte, cookie string) error) error {
	return rtnl.EachAttr(actions, func(_ uint16, action []byte) error {
		kind, cookie := "", ""
		var opts []byte
		err := eachAttr(action, func(t uint16, v []byte) {
			switch t {
			case nl.TCA_ACT_KIND:
				kind = unix.ByteSliceToString(v)
			case nl.TCA_ACT_OPTIONS:
				opts = v
			case nl.TCA_ACT_COOKIE:
				cookie = string(v)
			}
		})
		if err != nil {
			return err
		}
		return do(kind, opts, cookie)
	})
}

// matched says what a filter does with a packet that it matches, by the actions in their
// order; without any the packet is accepted.
func matched(actions []byte) (judge.Answer, error) {
	out, ended := judge.AnswerEnds, false
	err := eachAction(actions, func(kind string, opts []byte, _ string) error {
		if ended {
			return nil
		}
		control, prob := int32(-1), false
		err := eachAttr(opts, func(t uint16, v []byte) {
			switch {
			case t == tcaGactParms: // as TCA_MIRRED_PARMS; both begin with struct tc_gen
				control = int32(u32at(v, 8))
			case kind == "gact" && t == tcaGactProb:
				prob = true
			}
		})
		if kind != "gact" && kind != "mirred" || prob {
			out, ended = judge.AnswerUnknown, true
			return err
		}
		out, ended = judge.Control(control)
		return err
	})
	return out, err
}
