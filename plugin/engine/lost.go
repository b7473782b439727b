// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/rtnl"
	"github.com/podweir/podweir/plugin/terms"
)

// Lost is what podweir has on an interface that no record tells of: its pins were
// removed, or another bpffs was mounted over them.
type Lost struct {
	Interface attach.Interface `json:"interface"`
	// What names queues, programs and devices.
	What []string `json:"what"`
}

// Name is the device that people know it by.
func (l *Lost) Name() string {
	if l.Interface.PodName == "" {
		return l.Interface.HostName
	}
	return fmt.Sprintf("%s in %s", l.Interface.PodName, l.Interface.NetNSPath)
}

// Lost looks for such interfaces: in every namespace that has a name or a process, and
// at every device of the host's. An ADD writes its record first, so that what it makes
// meanwhile is not among them. Beside 250 pods without a limit it takes 0.17 s of the
// processor. One namespace is open at a time: what n has open stays open.
func (n *Node) Lost() ([]Lost, error) {
	held, err := n.held()
	if err != nil {
		return nil, err
	}
	survey, err := n.Survey()
	if err != nil {
		return nil, err
	}
	s := search{node: n, survey: survey, held: held, hostEnds: make(map[int]bool)}
	for _, path := range rtnl.NetNSPaths() {
		if err := s.namespace(path); err != nil {
			return nil, err
		}
	}
	if err := s.host(); err != nil || len(s.found) == 0 {
		return nil, err
	}
	held, err = n.held()
	return slices.DeleteFunc(s.found, func(l Lost) bool { return n.holds(held, &l.Interface) }), err
}

// search is one run of [Node.Lost].
type search struct {
	node, survey *Node
	held         []attach.Interface
	// hostEnds are the devices of the host's whose other ends were looked at.
	hostEnds map[int]bool
	found    []Lost
}

// namespace looks at the interfaces of one namespace.
func (s *search) namespace(path string) error {
	k := s.node.kernel
	return k.visit(path, func(p *podNS) error {
		if p.ns.Same(k.hostNS) {
			return nil
		}
		all, err := k.Outward(path)
		if err != nil {
			return err
		}
		for i := range all {
			if all[i].HostIndex == 0 {
				continue
			}
			s.hostEnds[all[i].HostIndex] = true
			if err := s.look(&all[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// host looks at the devices of the host's whose other ends are out of sight.
func (s *search) host() error {
	devices, err := s.node.kernel.host.Interfaces()
	if err != nil {
		return err
	}
	for i := range devices {
		d := &devices[i]
		if !isPair(d) || s.hostEnds[d.Index] {
			continue
		}
		if err := s.look(&attach.Interface{HostName: d.Name, HostIndex: d.Index}); err != nil {
			return err
		}
	}
	return nil
}

func (s *search) look(i *attach.Interface) error {
	if s.node.holds(s.held, i) {
		return nil
	}
	what, err := s.survey.own(i)
	if len(what) > 0 {
		what, err = s.node.own(i) // the list of the survey may be too old
	}
	if len(what) > 0 && err == nil {
		s.found = append(s.found, Lost{Interface: *i, What: what})
	}
	return err
}

// holds says whether a record tells of an interface, or of a device of the host's whose
// other end is out of sight.
func (n *Node) holds(held []attach.Interface, i *attach.Interface) bool {
	return slices.ContainsFunc(held, func(h attach.Interface) bool {
		if h.HostIndex != i.HostIndex || i.PodIndex != 0 && (i.PodIndex != h.PodIndex || i.HostName != h.HostName) {
			return h.Same(i)
		}
		dev, err := n.kernel.hostEnd(&h)
		return dev != nil || err != nil // what cannot be found out is not lost
	})
}

// isPair says that a device may be one end of a pod's interface.
func isPair(d *hostif.Interface) bool {
	return d.Kind.IsPair() && d.PeerNetNSID != hostif.NoNetNSID
}

// held are the interfaces that records tell of. What a record of another release says
// is not known: its interface is not held.
func (n *Node) held() ([]attach.Interface, error) {
	records, err := n.records()
	if usual := n.store.usual; usual != nil && err == nil {
		var more []*apply.Record
		more, err = usual.all()
		records = append(records, more...)
	}
	all := make([]attach.Interface, len(records))
	for i, r := range records {
		all[i] = r.Interface
	}
	return all, err
}

// own names what podweir has on an interface. One that goes meanwhile has nothing.
func (n *Node) own(i *attach.Interface) ([]string, error) {
	seen, err := n.kernel.Observe(lostRecord(i))
	if errors.Is(err, hostif.ErrNoDevice) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return seen.Own(), nil
}

// lostRecord is a record that no attachment has, and whose pins are not there.
func lostRecord(i *attach.Interface) *apply.Record {
	r := &apply.Record{Interface: *i}
	r.ID = attach.ID{Network: "podweir-lost", ContainerID: fmt.Sprintf("%d-%d", i.NetNSInode, i.HostIndex), IfName: "lost"}
	r.Interface.PodName, r.Interface.NowName = "lost", i.Name()
	return r
}

// RemoveLost takes off what Lost finds, and returns what it removed.
func (n *Node) RemoveLost(ctx context.Context) ([]Lost, error) {
	lost, err := n.Lost()
	if err != nil {
		return nil, err
	}
	return n.RemoveFound(ctx, lost)
}

// RemoveFound takes off what Lost found, unless a record tells of it by now, and returns
// what it removed.
func (n *Node) RemoveFound(ctx context.Context, lost []Lost) ([]Lost, error) {
	var removed []Lost
	var all error
	for i := range lost {
		l := &lost[i]
		if err := ctx.Err(); err != nil {
			return removed, errors.Join(all, err)
		}
		held, err := n.held()
		if err != nil {
			return removed, errors.Join(all, err)
		}
		if n.holds(held, &l.Interface) {
			continue
		}
		if err := n.tearDownLost(&l.Interface); err != nil {
			all = errors.Join(all, fmt.Errorf("%s: %w", l.Name(), err))
			continue
		}
		removed = append(removed, *l)
	}
	return removed, all
}

func (n *Node) tearDownLost(i *attach.Interface) error {
	r := lostRecord(i)
	seen, err := n.kernel.Observe(r)
	if err != nil {
		return err
	}
	return n.kernel.tearDownUnrecorded(r, seen)
}

// tearDownUnrecorded takes off what was seen on an interface that has no record, and gives
// its devices back what they presumably had before.
func (k *kernel) tearDownUnrecorded(r *apply.Record, seen *attach.Observed) error {
	r.Choices = attach.Presume(seen)
	i, err := k.reach(r)
	if err != nil {
		return err
	}
	for _, d := range terms.Directions {
		err = errors.Join(err, i.TearDown(d))
	}
	return err
}
