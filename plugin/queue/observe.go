// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package queue

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// The handles of clsact and its hooks, linux/pkt_sched.h.
const (
	clsactParent shaping.TCHandle = 0xFFFFFFF1
	clsactHandle shaping.TCHandle = 0xFFFF0000
	hookIngress  shaping.TCHandle = 0xFFFFFFF2
	hookEgress   shaping.TCHandle = 0xFFFFFFF3

	majorMask = 0xFFFF0000
)

// Observe reads everything of tc on a device. Returns an error wrapping
// [hostif.ErrNoDevice] if there is no such device.
func Observe(h *hostif.Handle, ifindex int) (*Device, error) {
	qdiscs, err := wholeList(
		func() ([]Qdisc, error) {
			if h.Single {
				return walkQdiscs(h, ifindex)
			}
			return listQdiscs(h, ifindex)
		},
		func() error { _, err := h.InterfaceByIndex(ifindex); return err },
	)
	if err != nil {
		return nil, err
	}
	return observe(h, ifindex, qdiscs)
}

// listAttempts bounds how often the qdiscs of one device are listed again. Each time
// another device would have to go at the same place of the list.
const listAttempts = 3

// wholeList lists the qdiscs of a device until the list has no hole that shows. The
// kernel dumps those of a namespace in parts and goes on by counting devices
// (tc_dump_qdisc): if one of them goes between two parts, those at the border are left
// out, wholly or in part, and the dump is not marked as interrupted. exists returns an
// error if there is no such device, which has no qdisc either.
func wholeList(list func() ([]Qdisc, error), exists func() error) (qdiscs []Qdisc, err error) {
	for range listAttempts {
		if qdiscs, err = list(); err != nil {
			return nil, err
		}
		if len(qdiscs) == 0 {
			// One that was never up has none, and is listed some times for nothing.
			if err := exists(); err != nil {
				return nil, err
			}
			continue
		}
		if !cut(qdiscs) {
			break
		}
	}
	return qdiscs, nil
}

// cut says that something is missing among the qdiscs of a device: the parent of one, or
// what is below a token bucket, where podweir always has something.
func cut(qdiscs []Qdisc) bool {
	has := func(is func(q *Qdisc) bool) bool {
		return slices.ContainsFunc(qdiscs, func(q Qdisc) bool { return is(&q) })
	}
	return has(func(q *Qdisc) bool {
		at, below := q.Parent&majorMask, q.Handle&majorMask
		if q.Parent != shaping.RootParent && q.Parent != clsactParent && at != 0 && !has(func(p *Qdisc) bool { return p.Handle&majorMask == at }) {
			return true
		}
		return q.Kind == shaping.KindTBF && !has(func(c *Qdisc) bool { return c.Parent != shaping.RootParent && c.Parent&majorMask == below })
	})
}

// ObserveBare is [Observe] for a device whose root qdisc is noqueue: there the kernel
// keeps no other qdisc than that of the hooks, and can be asked for one without a list of
// all qdiscs of the node. Kernels before 6.7 send it to whoever watches the qdiscs, too,
// so that who looks because of what such a watch told uses Observe.
func ObserveBare(h *hostif.Handle, ifindex int) (*Device, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETQDISC, unix.NLM_F_ACK)
	req.AddData(&nl.TcMsg{Family: unix.AF_UNSPEC, Ifindex: int32(ifindex), Parent: uint32(clsactParent)})
	if _, err := h.Execute(req, 0); errors.Is(err, unix.ENOENT) {
		return &Device{Index: ifindex}, nil
	}
	return Observe(h, ifindex)
}

// walkQdiscs is [listQdiscs] without a list of all qdiscs of the node: it asks for the root, for
// that of the hooks, and for what is below the classes.
func walkQdiscs(h *hostif.Handle, ifindex int) ([]Qdisc, error) {
	classes, err := dump(h, unix.RTM_GETTCLASS, unix.RTM_NEWTCLASS, ifindex, 0)
	if err != nil {
		return nil, err
	}
	below := []shaping.TCHandle{shaping.RootParent, clsactParent}
	for i := range classes {
		if classes[i].Info != 0 { // the handle of what is below
			below = append(below, shaping.TCHandle(classes[i].Handle))
		}
	}
	return askQdiscs(h, ifindex, below...)
}

// askQdiscs asks for what is below each of some parents.
func askQdiscs(h *hostif.Handle, ifindex int, below ...shaping.TCHandle) ([]Qdisc, error) {
	var out []Qdisc
	for _, parent := range below {
		// Kernels before 6.7 answer who asks only if it wants what all watches get.
		req := nl.NewNetlinkRequest(unix.RTM_GETQDISC, unix.NLM_F_ACK|unix.NLM_F_ECHO)
		req.AddData(&nl.TcMsg{Family: unix.AF_UNSPEC, Ifindex: int32(ifindex), Parent: uint32(parent)})
		msgs, err := dumpFor(h, req, unix.RTM_NEWQDISC, everything)
		if errors.Is(err, unix.ENOENT) {
			continue // there is none, or it has gone
		}
		if err != nil {
			return nil, unread(h, ifindex, err)
		}
		found, err := parseQdiscs(msgs)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// observeHooks is [Observe] for whoever needs to know of the hooks alone.
func observeHooks(h *hostif.Handle, ifindex int) (*Device, error) {
	if !h.Single {
		return Observe(h, ifindex)
	}
	qdiscs, err := askQdiscs(h, ifindex, clsactParent)
	if err != nil {
		return nil, err
	}
	return observe(h, ifindex, qdiscs)
}

// Listing is every qdisc of a namespace as it was at one time. The kernel lists those
// of all devices or none: whoever looks at many devices reads the list once.
type Listing struct {
	handle   *hostif.Handle
	byDevice map[int][]Qdisc
}

// List reads all qdiscs in the handle's namespace.
func List(h *hostif.Handle) (*Listing, error) {
	msgs, err := listAll(h, everything)
	if err != nil {
		return nil, err
	}
	qdiscs, err := parseQdiscs(msgs)
	l := &Listing{handle: h, byDevice: make(map[int][]Qdisc)}
	for i := range qdiscs {
		at := int(msgs[i].Ifindex)
		l.byDevice[at] = append(l.byDevice[at], qdiscs[i])
	}
	return l, err
}

// Kinds are the kinds of all qdiscs of a device, the kernel's defaults too, each once.
func (l *Listing) Kinds(ifindex int) []string {
	var kinds []string
	for i := range l.byDevice[ifindex] {
		if kind := string(l.byDevice[ifindex][i].Kind); !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// Observe is [Observe] with the qdiscs of the listing; classes and filters are those of
// now. A device that has come since, or that the listing has in part, is read by itself.
func (l *Listing) Observe(ifindex int) (*Device, error) {
	qdiscs, listed := l.byDevice[ifindex]
	if !listed || cut(qdiscs) {
		return Observe(l.handle, ifindex)
	}
	return observe(l.handle, ifindex, qdiscs)
}

func observe(h *hostif.Handle, ifindex int, qdiscs []Qdisc) (*Device, error) {
	d := &Device{Index: ifindex}
	var err error
	for _, q := range qdiscs {
		switch {
		case q.Parent == clsactParent:
			d.HookQdisc, d.Blocks = string(q.Kind), q.blocks
		case q.Kind == hostif.NoQueue, q.Handle == 0 && q.Parent&majorMask == 0, q.Handle == 0 && q.Parent == shaping.RootParent:
			// No queue, the kernel's default, or a leaf of it.
		default:
			d.Qdiscs = append(d.Qdiscs, q)
		}
	}
	sortTree(d.Qdiscs)
	for _, q := range d.Qdiscs {
		d.Tree.Qdiscs = append(d.Tree.Qdiscs, q.Qdisc)
	}
	if len(d.Qdiscs) > 0 {
		err = d.observeClasses(h)
	}
	if err == nil && d.HookQdisc != "" {
		d.HookFilters, err = hookFilters(h, ifindex, d.HookQdisc)
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}

// RootStats reads the counters of all root qdiscs in the handle's namespace, by
// the index of their device; the kernel's defaults have none. Where many devices
// are requested, one list of all takes as long as [Observe] of one of them.
func RootStats(h *hostif.Handle) (map[int]Stats, error) {
	msgs, err := listAll(h, isRoot)
	if err != nil {
		return nil, err
	}
	all := make(map[int]Stats, len(msgs))
	for i := range msgs {
		all[int(msgs[i].Ifindex)] = msgs[i].stats
	}
	return all, nil
}

// isRoot says that a message is of a root qdisc that was set; one that is
// too short to tell is for the parser to refuse.
func isRoot(m []byte) bool {
	const handleAt, parentAt = 8, 12
	return len(m) < nl.SizeofTcMsg || binary.NativeEndian.Uint32(m[handleAt:]) != 0 &&
		shaping.TCHandle(binary.NativeEndian.Uint32(m[parentAt:])) == shaping.RootParent
}

// sortTree puts parents before children; the kernel lists in hash order.
func sortTree(qs []Qdisc) {
	depth := func(q *Qdisc) int {
		n := 0
		for parent := q.Parent; parent != shaping.RootParent && n <= len(qs); n++ {
			i := slices.IndexFunc(qs, func(p Qdisc) bool { return p.Handle&majorMask == parent&majorMask })
			if i < 0 {
				break
			}
			parent = qs[i].Parent
		}
		return n
	}
	slices.SortStableFunc(qs, func(a, b Qdisc) int {
		if d := depth(&a) - depth(&b); d != 0 {
			return d
		}
		return int(int64(a.Parent) - int64(b.Parent))
	})
}

func (d *Device) observeClasses(h *hostif.Handle) error {
	msgs, err := dump(h, unix.RTM_GETTCLASS, unix.RTM_NEWTCLASS, d.Index, 0)
	if err != nil {
		return err
	}
	for i := range msgs {
		if msgs[i].kind != string(shaping.KindHTB) {
			continue
		}
		c, err := parseClass(&msgs[i])
		if err != nil {
			return err
		}
		d.Tree.Classes = append(d.Tree.Classes, c)
	}
	slices.SortFunc(d.Tree.Classes, func(a, b shaping.Class) int { return int(int64(a.Handle) - int64(b.Handle)) })
	for _, q := range d.Qdiscs {
		if q.Kind != shaping.KindPrio && q.Kind != shaping.KindHTB {
			continue
		}
		filters, err := listFilters(h, d.Index, q.Handle)
		if err != nil {
			return err
		}
		for i := range filters {
			f := &filters[i]
			if !f.Direct || d.Classifier != nil {
				d.Tree.Others = append(d.Tree.Others, fmt.Sprintf("%s filter at preference %d", f.FilterKind, f.Pref))
				continue
			}
			// The minor number is a slot's, see Classifier.
			d.Tree.Filter = &shaping.Filter{Parent: f.Parent, ClassID: f.ClassID & majorMask}
			d.Classifier = f
		}
	}
	return nil
}

func listQdiscs(h *hostif.Handle, ifindex int) ([]Qdisc, error) {
	msgs, err := listAll(h, func(msg []byte) bool { return ofDevice(msg, ifindex) })
	if err != nil {
		return nil, err
	}
	return parseQdiscs(msgs)
}

// listAll lists the qdiscs that are wanted. The kernel has no list of those of one
// device, only of all: of more than a thousand, on a node full of pods.
func listAll(h *hostif.Handle, wanted func(msg []byte) bool) ([]message, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETQDISC, unix.NLM_F_DUMP)
	req.AddData(&nl.TcMsg{Family: unix.AF_UNSPEC})
	msgs, err := dumpFor(h, req, unix.RTM_NEWQDISC, wanted)
	if err != nil {
		return nil, fmt.Errorf("list qdiscs in %s: %w", h.Where(), err)
	}
	return msgs, nil
}

func parseQdiscs(msgs []message) ([]Qdisc, error) {
	out := make([]Qdisc, len(msgs))
	for i := range msgs {
		var err error
		if out[i], err = parseQdisc(&msgs[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// hookFilters lists the filters of both hooks, or of the only one.
func hookFilters(h *hostif.Handle, ifindex int, kind string) ([]Filter, error) {
	out, err := listFilters(h, ifindex, hookIngress)
	if err != nil || kind != "clsact" {
		return out, err
	}
	egress, err := listFilters(h, ifindex, hookEgress)
	return append(out, egress...), err
}

func listFilters(h *hostif.Handle, ifindex int, parent shaping.TCHandle) ([]Filter, error) {
	msgs, err := dump(h, unix.RTM_GETTFILTER, unix.RTM_NEWTFILTER, ifindex, parent)
	if err != nil {
		return nil, err
	}
	var out []Filter
	for i := range msgs {
		f, ok, err := parseFilter(&msgs[i])
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		// The kernel may answer with a parent of its own.
		f.Parent = parent
		switch parent {
		case hookIngress:
			f.Hook = terms.HookIngress
		case hookEgress:
			f.Hook = terms.HookEgress
		default:
		}
		out = append(out, f)
	}
	return out, nil
}

func dump(h *hostif.Handle, get, answer uint16, ifindex int, parent shaping.TCHandle) ([]message, error) {
	req := nl.NewNetlinkRequest(int(get), unix.NLM_F_DUMP)
	req.AddData(&nl.TcMsg{Family: unix.AF_UNSPEC, Ifindex: int32(ifindex), Parent: uint32(parent)})
	msgs, err := dumpFor(h, req, answer, everything)
	if err != nil {
		return nil, unread(h, ifindex, err)
	}
	return msgs, nil
}

func unread(h *hostif.Handle, ifindex int, err error) error {
	if errors.Is(err, unix.ENODEV) {
		err = hostif.ErrNoDevice
	}
	return fmt.Errorf("read tc objects of ifindex %d in %s: %w", ifindex, h.Where(), err)
}

func everything([]byte) bool { return true }

func dumpFor(h *hostif.Handle, req *nl.NetlinkRequest, answer uint16, wanted func(msg []byte) bool) ([]message, error) {
	msgs, err := h.ExecuteFor(req, answer, wanted)
	if err != nil {
		return nil, err
	}
	out := make([]message, len(msgs))
	for i, m := range msgs {
		if out[i], err = parseMessage(m); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ofDevice says that a message, a struct tcmsg at first, is of a device; one
// that is too short for that is for the parser to refuse.
func ofDevice(m []byte, ifindex int) bool {
	const indexAt = 4
	return len(m) < nl.SizeofTcMsg || int32(binary.NativeEndian.Uint32(m[indexAt:])) == int32(ifindex)
}
