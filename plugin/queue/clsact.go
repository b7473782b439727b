// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package queue

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// ProgramPrefix starts the name of every program of podweir's. A filter of
// another name is never removed; one that has no more than the name is not podweir's,
// see [Ours].
const ProgramPrefix = "pw_"

// Positions of podweir's filters. Nobody else's default preference is near them.
const (
	HookPref    = 49000
	GuardPref   = 49001
	CeilingPref = 49002
	// RedirectPref is behind every other filter (ruling 3), since it is the largest
	// that there is.
	RedirectPref = 65535
	// FilterHandle is the handle of a filter under its preference: "pw". Other software
	// gives its filters low numbers. The AWS Network Policy Agent deletes the first filter
	// with handle 1 of a hook, whoever made it.
	FilterHandle = 0x7077
)

// Place is a position on a clsact hook.
type Place struct {
	Hook terms.Hook
	// Pref is 1 to 65535; the kernel asks filters in this order.
	Pref uint16
	// Handle tells filters at one pref apart.
	Handle uint32
}

func (p Place) parent() shaping.TCHandle {
	if p.Hook == terms.HookEgress {
		return hookEgress
	}
	return hookIngress
}

// holds says that a filter is at the place.
func (p Place) holds(f *Filter) bool {
	return f.Hook == p.Hook && f.Pref == p.Pref && f.FilterHandle == p.Handle
}

// bpfFilter is a direct-action filter on any parent.
type bpfFilter struct {
	parent  shaping.TCHandle
	pref    uint16
	handle  uint32
	program Classifier
	// class of the qdisc whose classes the program answers, 0 on a hook.
	class shaping.TCHandle
}

func (f *bpfFilter) add(h *hostif.Handle, ifindex int) error {
	if !strings.HasPrefix(f.program.Name, ProgramPrefix) {
		return fmt.Errorf("program name %q does not begin with %q", f.program.Name, ProgramPrefix)
	}
	return addFilter(h, ifindex, f.parent, f.pref, f.handle, f.options())
}

// replace gives a filter that is there another program; every packet meets the
// one or the other.
func (f *bpfFilter) replace(h *hostif.Handle, ifindex int) error {
	return setFilter(h, ifindex, 0, f.parent, f.pref, f.handle, f.options())
}

func (f *bpfFilter) options() *nl.RtAttr {
	o := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
	o.AddRtAttr(nl.TCA_BPF_FD, nl.Uint32Attr(uint32(f.program.ProgramFD)))
	o.AddRtAttr(nl.TCA_BPF_NAME, nl.ZeroTerminated(f.program.Name))
	o.AddRtAttr(nl.TCA_BPF_FLAGS, nl.Uint32Attr(nl.TCA_BPF_FLAG_ACT_DIRECT))
	if id := f.class | shaping.TCHandle(f.program.Slot); id != 0 {
		o.AddRtAttr(nl.TCA_BPF_CLASSID, nl.Uint32Attr(uint32(id)))
	}
	return o
}

// addFilter never replaces: the kernel refuses what is there with EEXIST.
func addFilter(h *hostif.Handle, ifindex int, parent shaping.TCHandle, pref uint16, handle uint32, o *nl.RtAttr) error {
	return setFilter(h, ifindex, unix.NLM_F_CREATE|unix.NLM_F_EXCL, parent, pref, handle, o)
}

func setFilter(h *hostif.Handle, ifindex, flags int, parent shaping.TCHandle, pref uint16, handle uint32, o *nl.RtAttr) error {
	req := filterRequest(unix.RTM_NEWTFILTER, flags, ifindex, parent, pref, handle)
	req.AddData(o)
	_, err := h.Execute(req, 0)
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("bpf filter at pref %d handle %#x of %s: %w", pref, handle, parent, ErrFilterExists)
	}
	if err != nil {
		return fmt.Errorf("bpf filter at pref %d handle %#x of %s: %w", pref, handle, parent, err)
	}
	return nil
}

func filterRequest(cmd, flags, ifindex int, parent shaping.TCHandle, pref uint16, handle uint32) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(cmd, flags|unix.NLM_F_ACK)
	req.AddData(&nl.TcMsg{
		Family: unix.AF_UNSPEC, Ifindex: int32(ifindex), Handle: handle, Parent: uint32(parent),
		Info: uint32(pref)<<16 | uint32(bits.ReverseBytes16(unix.ETH_P_ALL)),
	})
	req.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated("bpf")))
	return req
}

// AttachClsact puts a program on a clsact hook and
// makes the clsact qdisc if there is none; made says so, and is what
// [DetachClsact] wants to know. The same program at that place already is
// not told apart from another party's: read [Observe] first.
//
// Returns an error wrapping [ErrFilterExists] if the place is taken, and
// [ErrNoEgressHook] if an ingress qdisc stands where clsact would have to. A
// failure leaves nothing.
func AttachClsact(h *hostif.Handle, ifindex int, at Place, program Classifier) (made bool, err error) {
	return onHook(h, ifindex, at, func() error { return filterAt(at, program).add(h, ifindex) })
}

// AddToClsact is [AttachClsact] for whoever knows that the clsact qdisc is there.
func AddToClsact(h *hostif.Handle, ifindex int, at Place, program Classifier) error {
	if err := filterAt(at, program).add(h, ifindex); err != nil {
		return fmt.Errorf("attach to ifindex %d in %s: %w", ifindex, h.Where(), err)
	}
	return nil
}

func filterAt(at Place, program Classifier) *bpfFilter {
	return &bpfFilter{parent: at.parent(), pref: at.Pref, handle: at.Handle, program: program}
}

// ReplaceClsact gives the filter of podweir's at a place on a clsact hook
// another program in one step. It says whether there was one.
func ReplaceClsact(h *hostif.Handle, ifindex int, at Place, program Classifier) (replaced bool, err error) {
	d, err := Observe(h, ifindex)
	if err != nil {
		return false, err
	}
	if !slices.ContainsFunc(d.HookFilters, func(f Filter) bool { return named(&f) && at.holds(&f) }) {
		return false, nil
	}
	if err := filterAt(at, program).replace(h, ifindex); err != nil {
		return false, fmt.Errorf("replace on ifindex %d in %s: %w", ifindex, h.Where(), err)
	}
	return true, nil
}

// onHook makes sure of the clsact qdisc, runs add and takes the qdisc away
// again if that fails.
func onHook(h *hostif.Handle, ifindex int, at Place, add func() error) (made bool, err error) {
	if made, err = ensureClsact(h, ifindex, at.Hook); err == nil {
		err = add()
	}
	if err == nil {
		return made, nil
	}
	err = fmt.Errorf("attach to ifindex %d in %s: %w", ifindex, h.Where(), err)
	if made {
		err = errors.Join(err, removeUnusedClsact(h, ifindex))
	}
	return false, err
}

func ensureClsact(h *hostif.Handle, ifindex int, hook terms.Hook) (made bool, err error) {
	set := func(flags int) error {
		_, err := h.Execute(newRequest(unix.RTM_NEWQDISC, flags, ifindex, clsactHandle, clsactParent, "clsact"), 0)
		return err
	}
	if err = set(unix.NLM_F_CREATE | unix.NLM_F_EXCL); err == nil {
		return true, nil
	}
	if errors.Is(err, unix.EEXIST) && hook == terms.HookEgress {
		// Filters for clsact's egress hook would land on the hook of an ingress qdisc,
		// which has the same handle. The kernel refuses to change one into a clsact, and
		// has nothing to change in a clsact; a list would be of all qdiscs of the node.
		if err = set(0); errors.Is(err, unix.EINVAL) {
			return false, ErrNoEgressHook
		}
	}
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return false, fmt.Errorf("clsact qdisc: %w", err)
	}
	return false, nil
}

// DetachClsact removes the filter at a place if it is ours, that is a program
// whose name begins with [ProgramPrefix], or a redirect by [AttachMirred]. If
// made says that podweir made the clsact qdisc, that goes too, unless other
// filters hang on it, or one of its hooks has a block: then it is another's. That there is
// nothing, or no device, is not an error.
func DetachClsact(h *hostif.Handle, ifindex int, at Place, made bool) error {
	d, err := observeHooks(h, ifindex)
	if errors.Is(err, hostif.ErrNoDevice) {
		return nil
	}
	if err != nil {
		return err
	}
	for i := range d.HookFilters {
		if f := &d.HookFilters[i]; named(f) && at.holds(f) {
			if err := deleteFilter(h, ifindex, f); err != nil {
				return err
			}
		}
	}
	if made && d.HookQdisc == "clsact" && d.Blocks == (judge.Blocks{}) {
		err = removeUnusedClsact(h, ifindex)
	}
	return err
}

// Ours says whether podweir made a filter, of whatever build: it stands in a place of
// podweir's and is named as its filters are.
func Ours(f *Filter) bool {
	switch f.Pref {
	case HookPref, GuardPref, CeilingPref, RedirectPref:
		return f.FilterHandle == FilterHandle && named(f)
	default:
		return false
	}
}

// named says that a filter has a name as podweir's have, for whoever knows its place.
func named(f *Filter) bool {
	return f.FilterKind == "bpf" && strings.HasPrefix(f.Name, ProgramPrefix)
}

func deleteFilter(h *hostif.Handle, ifindex int, f *Filter) error {
	req := filterRequest(unix.RTM_DELTFILTER, 0, ifindex, f.Parent, f.Pref, f.FilterHandle)
	if _, err := h.Execute(req, 0); err != nil && !gone(err) {
		return fmt.Errorf("remove filter %q at pref %d handle %#x of ifindex %d in %s: %w",
			f.Name, f.Pref, f.FilterHandle, ifindex, h.Where(), err)
	}
	return nil
}

// removeUnusedClsact reads the hooks at the last moment: another party may have
// come meanwhile.
func removeUnusedClsact(h *hostif.Handle, ifindex int) error {
	filters, err := hookFilters(h, ifindex, "clsact")
	if errors.Is(err, hostif.ErrNoDevice) || (err == nil && len(filters) > 0) {
		return nil
	}
	if err != nil {
		return err
	}
	req := newRequest(unix.RTM_DELQDISC, 0, ifindex, clsactHandle, clsactParent, "clsact")
	if _, err := h.Execute(req, 0); err != nil && !gone(err) {
		return fmt.Errorf("remove clsact qdisc of ifindex %d in %s: %w", ifindex, h.Where(), err)
	}
	return nil
}

func gone(err error) bool {
	return errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT)
}

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
