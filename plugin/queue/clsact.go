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
	"github.com/podweir/podweir/plugin/shaping"
)

// ProgramPrefix starts the name of every program of podweir's. A filter of
// another name is never removed.
const ProgramPrefix = "pw_"

// RedirectPref is the position of the redirect: behind every other filter
// (ruling 3), since it is the largest that there is.
const RedirectPref = 65535

// Place is a position on a clsact hook.
type Place struct {
	Hook Hook
	// Pref is 1 to 65535; the kernel asks filters in this order.
	Pref uint16
	// Handle tells filters at one pref apart; it must not be 0.
	Handle uint32
}

func (p Place) parent() shaping.TCHandle {
	if p.Hook == HookEgress {
		return hookEgress
	}
	return hookIngress
}

func (p Place) String() string {
	return fmt.Sprintf("pref %d handle %#x of the %s hook", p.Pref, p.Handle, p.Hook)
}

func (p Place) check() error {
	if (p.Hook != HookIngress && p.Hook != HookEgress) || p.Pref == 0 || p.Handle == 0 {
		return fmt.Errorf("%s is not a position", p)
	}
	return nil
}

// bpfFilter is a direct-action filter on any parent.
type bpfFilter struct {
	parent  shaping.TCHandle
	pref    uint16
	handle  uint32
	progFD  int
	name    string
	classID shaping.TCHandle
}

func (f *bpfFilter) add(h *hostif.Handle, ifindex int) error {
	return addFilter(h, ifindex, f.parent, f.pref, f.handle, f.options())
}

// replace gives a filter that is there another program; every packet meets the
// one or the other.
func (f *bpfFilter) replace(h *hostif.Handle, ifindex int) error {
	return setFilter(h, ifindex, 0, f.parent, f.pref, f.handle, f.options())
}

func (f *bpfFilter) options() *nl.RtAttr {
	o := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
	o.AddRtAttr(nl.TCA_BPF_FD, nl.Uint32Attr(uint32(f.progFD)))
	o.AddRtAttr(nl.TCA_BPF_NAME, nl.ZeroTerminated(f.name))
	o.AddRtAttr(nl.TCA_BPF_FLAGS, nl.Uint32Attr(nl.TCA_BPF_FLAG_ACT_DIRECT))
	if f.classID != 0 {
		o.AddRtAttr(nl.TCA_BPF_CLASSID, nl.Uint32Attr(uint32(f.classID)))
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
		return fmt.Errorf("bpf filter at pref %d handle %#x of %s: %w", pref, handle, handleString(parent), ErrFilterExists)
	}
	if err != nil {
		return fmt.Errorf("bpf filter at pref %d handle %#x of %s: %w", pref, handle, handleString(parent), err)
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

// AttachClsact puts the program progFD, called name, on a clsact hook and
// makes the clsact qdisc if there is none; made says so, and is what
// [DetachClsact] wants to know. The same program at that place already is
// not told apart from another party's: read [Observe] first.
//
// Returns an error wrapping [ErrFilterExists] if the place is taken, and
// [ErrNoEgressHook] if an ingress qdisc stands where clsact would have to. A
// failure leaves nothing.
func AttachClsact(h *hostif.Handle, ifindex int, at Place, progFD int, name string) (made bool, err error) {
	if !strings.HasPrefix(name, ProgramPrefix) {
		return false, fmt.Errorf("program name %q does not begin with %q", name, ProgramPrefix)
	}
	return onHook(h, ifindex, at, func() error {
		f := bpfFilter{parent: at.parent(), pref: at.Pref, handle: at.Handle, progFD: progFD, name: name}
		return f.add(h, ifindex)
	})
}

// ReplaceClsact gives the filter of podweir's at a place on a clsact hook the
// program progFD, called name, in one step. It says whether there was one.
func ReplaceClsact(h *hostif.Handle, ifindex int, at Place, progFD int, name string) (replaced bool, err error) {
	if err := at.check(); err != nil {
		return false, err
	}
	d, err := Observe(h, ifindex)
	if err != nil {
		return false, err
	}
	there := slices.ContainsFunc(d.HookFilters, func(f Filter) bool {
		return Ours(&f) && f.Hook == at.Hook && f.Pref == at.Pref && f.Handle == at.Handle
	})
	if !there {
		return false, nil
	}
	f := bpfFilter{parent: at.parent(), pref: at.Pref, handle: at.Handle, progFD: progFD, name: name}
	if err := f.replace(h, ifindex); err != nil {
		return false, fmt.Errorf("replace on ifindex %d in %s: %w", ifindex, h.Where(), err)
	}
	return true, nil
}

// onHook makes sure of the clsact qdisc, runs add and takes the qdisc away
// again if that fails.
func onHook(h *hostif.Handle, ifindex int, at Place, add func() error) (made bool, err error) {
	if err := at.check(); err != nil {
		return false, err
	}
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

func ensureClsact(h *hostif.Handle, ifindex int, hook Hook) (made bool, err error) {
	req := newRequest(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_EXCL, ifindex, clsactHandle, clsactParent, "clsact")
	if _, err = h.Execute(req, 0); err == nil {
		return true, nil
	}
	if !errors.Is(err, unix.EEXIST) {
		return false, fmt.Errorf("clsact qdisc: %w", err)
	}
	if hook == HookIngress {
		// An ingress qdisc has that hook too.
		return false, nil
	}
	qdiscs, err := listQdiscs(h, ifindex)
	if err != nil {
		return false, err
	}
	for _, q := range qdiscs {
		// Filters for clsact's egress hook would land on the ingress hook.
		if q.Parent == clsactParent && q.Kind == "ingress" {
			return false, ErrNoEgressHook
		}
	}
	return false, nil
}

// DetachClsact removes the filter at a place if it is ours, that is a program
// whose name begins with [ProgramPrefix], or a redirect by [AttachMirred]. If
// made says that podweir made the clsact qdisc, that goes too, unless other
// filters hang on it. It returns the filters of others that are on the device's
// hooks. That there is nothing, or no device, is not an error.
func DetachClsact(h *hostif.Handle, ifindex int, at Place, made bool) (foreign []Filter, err error) {
	if err := at.check(); err != nil {
		return nil, err
	}
	d, err := Observe(h, ifindex)
	if errors.Is(err, hostif.ErrNoDevice) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if d.HookQdisc == "" {
		return nil, nil
	}
	for i := range d.HookFilters {
		f := &d.HookFilters[i]
		mine := Ours(f)
		if mine && f.Hook == at.Hook && f.Pref == at.Pref && f.Handle == at.Handle {
			if err := deleteFilter(h, ifindex, f); err != nil {
				return nil, err
			}
			continue
		}
		if !mine {
			foreign = append(foreign, *f)
		}
	}
	if made && d.HookQdisc == "clsact" {
		err = removeUnusedClsact(h, ifindex)
	}
	return foreign, err
}

// Ours says whether podweir made a filter.
func Ours(f *Filter) bool {
	return f.Kind == "bpf" && strings.HasPrefix(f.Name, ProgramPrefix)
}

func deleteFilter(h *hostif.Handle, ifindex int, f *Filter) error {
	req := filterRequest(unix.RTM_DELTFILTER, 0, ifindex, f.Parent, f.Pref, f.Handle)
	if _, err := h.Execute(req, 0); err != nil && !gone(err) {
		return fmt.Errorf("remove filter %q at pref %d handle %#x of ifindex %d in %s: %w",
			f.Name, f.Pref, f.Handle, ifindex, h.Where(), err)
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
