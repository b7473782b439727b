// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package queue

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/units"
)

// Position of the classifier on our own qdisc, where nobody else is.
const (
	ownPref   = 1
	ownHandle = 1
)

// interimLimit is the depth in bytes of the queue that a TBF has until its
// child is there: large enough for the packets of the fraction of a
// millisecond in between.
const interimLimit units.Bytes = 1 << 20

// Build makes a tree on a device whose root qdisc is the kernel's default, and
// hangs the program on it if the tree has a filter. A
// root of the same kind and handle is one that an earlier Build left, perhaps
// half made: it is rebuilt, and what waits in it is lost.
//
// The device keeps the txqueuelen that the tree's bands need: to set it back under a
// queue makes the kernel wait for RCU with RTNL held, and the queue does not use it.
//
// Returns an error wrapping [ErrForeignRoot] if another party's root is there. After any other failure
// the device has the kernel's default.
func Build(h *hostif.Handle, ifindex int, tree *shaping.Tree, program Classifier) error {
	return build(h, ifindex, tree, program, unix.NLM_F_EXCL)
}

// Replace is Build where a root of another handle may be: the kernel puts the new one in its place in one
// step, and what waits is lost. Where the tree's root is a TBF no packet goes past it meanwhile.
func Replace(h *hostif.Handle, ifindex int, tree *shaping.Tree, program Classifier) error {
	return build(h, ifindex, tree, program, unix.NLM_F_REPLACE)
}

// build gives the flag with which the root is made.
func build(h *hostif.Handle, ifindex int, tree *shaping.Tree, program Classifier, flag int) error {
	if err := checkTree(tree); err != nil {
		return err
	}
	if packets := tree.BandPackets(); packets != 0 {
		// pfifo_fast sizes its bands by it when it is made, and below another qdisc
		// never again (net/core/dev.c, dev_qdisc_change_tx_queue_len, goes to root
		// qdiscs only); one made at 0 is refused.
		if err := h.SetTxQueueLen(ifindex, packets); err != nil {
			return fmt.Errorf("build queue on ifindex %d in %s: %w", ifindex, h.Where(), err)
		}
	}
	root := &tree.Qdiscs[0]
	err := setQdisc(h, ifindex, root, interimLimit, unix.NLM_F_CREATE|flag)
	if errors.Is(err, unix.EEXIST) {
		if err = clearRoot(h, ifindex, root); err == nil {
			err = addQdisc(h, ifindex, root)
		}
	}
	if err != nil {
		return fmt.Errorf("build queue on ifindex %d in %s: %w", ifindex, h.Where(), err)
	}
	if err := buildBelow(h, ifindex, tree, program); err != nil {
		err = fmt.Errorf("build queue on ifindex %d in %s: %w", ifindex, h.Where(), err)
		if flag == unix.NLM_F_REPLACE && root.Kind == shaping.KindTBF {
			return err // it limits by itself, and what it replaced is gone
		}
		return errors.Join(err, Remove(h, ifindex, root.Kind, root.Handle))
	}
	return nil
}

func checkTree(tree *shaping.Tree) error {
	if len(tree.Qdiscs) == 0 || tree.Qdiscs[0].Parent != shaping.RootParent {
		return errors.New("a tree must begin with its root qdisc")
	}
	if tree.Qdiscs[0].Handle&majorMask == 0 {
		return errors.New("a root qdisc must have a handle")
	}
	return nil
}

// clearRoot removes the root that stands in the way of want if an earlier
// Build left it, or if it is none that queues.
func clearRoot(h *hostif.Handle, ifindex int, want *shaping.Qdisc) error {
	qdiscs, err := listQdiscs(h, ifindex)
	if err != nil {
		return err
	}
	for _, q := range qdiscs {
		if q.Parent != shaping.RootParent {
			continue
		}
		if q.Kind != hostif.NoQueue && (q.Kind != want.Kind || q.Handle != want.Handle) {
			return fmt.Errorf("%w: %s %s", ErrForeignRoot, q.Kind, q.Handle)
		}
		return Remove(h, ifindex, q.Kind, q.Handle)
	}
	return nil
}

// buildBelow makes what is under the root, parents first. A root that shapes
// does so from its first packet on; HTB and prio pass packets until the filter
// comes, which is last, so that a class that it answers is there.
func buildBelow(h *hostif.Handle, ifindex int, tree *shaping.Tree, program Classifier) error {
	for i := range tree.Qdiscs {
		q := &tree.Qdiscs[i]
		if i > 0 {
			if err := addQdisc(h, ifindex, q); err != nil {
				return err
			}
		}
		for j := range tree.Classes {
			c := &tree.Classes[j]
			if c.Parent&majorMask != q.Handle&majorMask {
				continue
			}
			if err := setClass(h, ifindex, c, unix.NLM_F_CREATE|unix.NLM_F_EXCL); err != nil {
				return err
			}
		}
	}
	if tree.Filter == nil {
		return nil
	}
	return classifier(tree.Filter, program).add(h, ifindex)
}

func classifier(f *shaping.Filter, program Classifier) *bpfFilter {
	return &bpfFilter{parent: f.Parent, pref: ownPref, handle: ownHandle, program: program, class: f.ClassID}
}

// ReplaceClassifier gives the filter of a tree that [Build] made another program;
// packets in the queues stay where they are, and every other meets the old program
// or the new one.
func ReplaceClassifier(h *hostif.Handle, ifindex int, f *shaping.Filter, program Classifier) error {
	if err := classifier(f, program).replace(h, ifindex); err != nil {
		return fmt.Errorf("replace classifier on ifindex %d in %s: %w", ifindex, h.Where(), err)
	}
	return nil
}

func addQdisc(h *hostif.Handle, ifindex int, q *shaping.Qdisc) error {
	return setQdisc(h, ifindex, q, interimLimit, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
}

func setQdisc(h *hostif.Handle, ifindex int, q *shaping.Qdisc, tbfLimit units.Bytes, flags int) error {
	opts, err := options(q, tbfLimit)
	if err != nil {
		return err
	}
	req := newRequest(unix.RTM_NEWQDISC, flags, ifindex, q.Handle, q.Parent, string(q.Kind))
	if opts != nil {
		req.AddData(opts)
	}
	if _, err := h.Execute(req, 0); err != nil {
		return fmt.Errorf("%s %s under %s: %w", q.Kind, q.Handle, q.Parent, err)
	}
	return nil
}

func setClass(h *hostif.Handle, ifindex int, c *shaping.Class, flags int) error {
	opts, err := classOptions(c)
	if err != nil {
		return err
	}
	req := newRequest(unix.RTM_NEWTCLASS, flags, ifindex, c.Handle, c.Parent, string(shaping.KindHTB))
	req.AddData(opts)
	if _, err := h.Execute(req, 0); err != nil {
		return fmt.Errorf("htb class %s under %s: %w", c.Handle, c.Parent, err)
	}
	return nil
}

func newRequest(cmd, flags, ifindex int, handle, parent shaping.TCHandle, kind string) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(cmd, flags|unix.NLM_F_ACK)
	req.AddData(&nl.TcMsg{
		Family: unix.AF_UNSPEC, Ifindex: int32(ifindex), Handle: uint32(handle), Parent: uint32(parent),
	})
	req.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(kind)))
	return req
}

// Remove removes the root qdisc of this kind and handle with all below it, and
// the device is back at the kernel's default. Another root stays, and that
// ours is gone, or the device, is not an error.
func Remove(h *hostif.Handle, ifindex int, kind shaping.QdiscKind, handle shaping.TCHandle) error {
	req := newRequest(unix.RTM_DELQDISC, 0, ifindex, handle, shaping.RootParent, string(kind))
	_, err := h.Execute(req, 0)
	// The kernel compares both itself: EINVAL says that they do not match,
	// ENOENT that the root is its own default.
	if err == nil || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return fmt.Errorf("remove root %s %s of ifindex %d in %s: %w", kind, handle, ifindex, h.Where(), err)
}

// Change brings a running tree from one set of parameters to another without
// touching the packets in it. A TBF that is changed starts with a full bucket,
// and what waits leaves at the new rate from the next packet on that comes or
// was due at the old rate. from may be what was observed.
//
// Returns an error wrapping [ErrRebuild], and changes nothing, if a qdisc or
// class of to is not in from, a kind differs, or a parameter does that the
// kernel cannot change in place.
func Change(h *hostif.Handle, ifindex int, from, to *shaping.Tree) error {
	qdiscs, classes, err := changes(from, to)
	if err != nil {
		return fmt.Errorf("change queue on ifindex %d: %w", ifindex, err)
	}
	for i := range qdiscs {
		q := &qdiscs[i]
		if err := setQdisc(h, ifindex, q, childLimit(to, q.Handle), 0); err != nil {
			return fmt.Errorf("change queue on ifindex %d in %s: %w", ifindex, h.Where(), err)
		}
	}
	for i := range classes {
		if err := setClass(h, ifindex, &classes[i], 0); err != nil {
			return fmt.Errorf("change queue on ifindex %d in %s: %w", ifindex, h.Where(), err)
		}
	}
	return nil
}

// changes returns the qdiscs and classes of to whose parameters differ.
func changes(from, to *shaping.Tree) (qdiscs []shaping.Qdisc, classes []shaping.Class, err error) {
	if len(from.Qdiscs) != len(to.Qdiscs) || len(from.Classes) != len(to.Classes) ||
		(from.Filter == nil) != (to.Filter == nil) {
		return nil, nil, ErrRebuild
	}
	for _, want := range to.Qdiscs {
		i := slices.IndexFunc(from.Qdiscs, func(q shaping.Qdisc) bool {
			return q.Parent == want.Parent && q.Kind == want.Kind && (want.Handle == 0 || q.Handle == want.Handle)
		})
		if i < 0 {
			return nil, nil, fmt.Errorf("no %s %s under %s: %w",
				want.Kind, want.Handle, want.Parent, ErrRebuild)
		}
		want.Handle = from.Qdiscs[i].Handle
		switch {
		case want == from.Qdiscs[i]:
		case want.Kind == shaping.KindPfifoFast:
			// The kernel tells nothing of its length, and keeps it.
		case want.Kind == shaping.KindTBF || want.Kind == shaping.KindBfifo:
			qdiscs = append(qdiscs, want)
		default:
			// HTB's default is fixed, and prio would drop what is in a band that
			// goes.
			return nil, nil, fmt.Errorf("%s %s has other parameters: %w",
				want.Kind, want.Handle, ErrRebuild)
		}
	}
	for _, want := range to.Classes {
		i := slices.IndexFunc(from.Classes, func(c shaping.Class) bool {
			return c.Handle == want.Handle && c.Parent == want.Parent
		})
		if i < 0 {
			return nil, nil, fmt.Errorf("no class %s: %w", want.Handle, ErrRebuild)
		}
		if want != from.Classes[i] {
			classes = append(classes, want)
		}
	}
	return qdiscs, classes, nil
}

// childLimit is the limit to give to a TBF that has a child: the kernel hands
// it on to a fifo (fifo_set_limit), and 0 would make it drop everything.
func childLimit(t *shaping.Tree, tbf shaping.TCHandle) units.Bytes {
	for _, q := range t.Qdiscs {
		if q.Parent&majorMask == tbf&majorMask && q.Kind == shaping.KindBfifo {
			return q.Limit
		}
	}
	return interimLimit
}
