// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package queue

import (
	"github.com/vishvananda/netlink/nl"

	"github.com/podweir/podweir/plugin/hostif"
)

// mirredCookie marks our redirect; the kernel keeps up to 16 bytes with an
// action (TC_COOKIE_MAX_SIZE).
const mirredCookie = "podweir-redirect"

// MirredName is what [Observe] calls our redirect, so that whoever tells
// podweir's filters by [ProgramPrefix] knows it.
const MirredName = ProgramPrefix + "mirred"

// Of linux/pkt_cls.h and linux/tc_act/tc_mirred.h.
const (
	tcActStolen     = 4
	tcaEgressRedir  = 1
	tcaIngressRedir = 3
)

// matchAll is the classic BPF program "return -1", which cls_bpf reads as a
// match: one struct sock_filter of code BPF_RET|BPF_K.
var matchAll = []byte{0x06, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}

// AttachMirred puts a redirect of everything to the device with the ifindex
// target on a hook, for kernels where bpf_redirect to an ifb loses packets. It
// makes the clsact qdisc like [AttachClsact], with the same errors, and
// [DetachClsact] removes it.
func AttachMirred(h *hostif.Handle, ifindex int, at Place, target int) (made bool, err error) {
	return onHook(h, ifindex, at, func() error {
		return addFilter(h, ifindex, at.parent(), at.Pref, at.Handle, mirredOptions(target))
	})
}

func mirredOptions(target int) *nl.RtAttr {
	e := nl.NativeEndian()
	parms := make([]byte, 28)
	e.PutUint32(parms[8:], tcActStolen)
	e.PutUint32(parms[20:], tcaEgressRedir)
	e.PutUint32(parms[24:], uint32(target))

	o := matchAllOptions()
	action := o.AddRtAttr(nl.TCA_BPF_ACT, nil).AddRtAttr(1, nil)
	action.AddRtAttr(nl.TCA_ACT_KIND, nl.ZeroTerminated("mirred"))
	action.AddRtAttr(nl.TCA_ACT_OPTIONS, nil).AddRtAttr(nl.TCA_MIRRED_PARMS, parms)
	action.AddRtAttr(nl.TCA_ACT_COOKIE, []byte(mirredCookie))
	return o
}

func matchAllOptions() *nl.RtAttr {
	o := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
	o.AddRtAttr(nl.TCA_BPF_OPS_LEN, nl.Uint16Attr(1))
	o.AddRtAttr(nl.TCA_BPF_OPS, matchAll)
	return o
}
