// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package queue

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/rtnl"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

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
