// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package engine is podweir on one node: it observes, applies and keeps the records
// of attachments. The CNI verbs, the agent, NRI, status, metrics and the commands of
// the operator call it. It needs CAP_NET_ADMIN, CAP_BPF and CAP_SYS_ADMIN (for network
// namespaces).
package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/act"
	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/pins"
	"github.com/podweir/podweir/plugin/queue"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// ErrNoState means that nothing was ever attached on this node.
var ErrNoState = errors.New("no podweir state")

// Node is podweir on this node: the executor over the real kernel. It holds
// sockets; Close it.
type Node struct {
	*apply.Executor

	Paths  Paths
	store  *store
	kernel *kernel
	// index is for Marks, nil before.
	index *pins.Index
}

// Open opens the node's state. An error that wraps [ErrNoState] means that
// there is no bpffs to keep any on.
func Open(paths Paths) (*Node, error) {
	s, err := openStore(paths.Pins)
	if err != nil {
		return nil, err
	}
	k, err := newKernel(paths, s)
	if err != nil {
		return nil, fmt.Errorf("open the kernel's interfaces: %w", err)
	}
	return &Node{
		Executor: apply.New(k, s, shaping.RandomMajor),
		Paths:    paths, store: s, kernel: k,
	}, nil
}

// Survey returns the node for a look at many interfaces: it has the qdiscs of the host's
// devices as they are now, from one list for all. It is for looking alone, and what
// differs is to be looked at again with n: it may have changed since. Close n, not it.
func (n *Node) Survey() (*Node, error) {
	listed, err := queue.List(n.kernel.host)
	if err != nil {
		return nil, err
	}
	k := *n.kernel
	k.listed, k.found, k.seen = listed, make(map[device]hostif.Interface), make(map[device]*act.Seen)
	return &Node{Executor: apply.New(&k, n.store, shaping.RandomMajor), Paths: n.Paths, store: n.store, kernel: &k}, nil
}

// Writable returns an error if no limit can be made, as nothing can be pinned.
func (n *Node) Writable() error {
	if n.store.pins.ReadOnly {
		return fmt.Errorf("pin directory %s: %w", n.store.pins.Root(), unix.EROFS)
	}
	return nil
}

// Close releases what Open took; attachments stay.
func (n *Node) Close() { n.kernel.close() }

// LeaveIFB leaves each ifb to its namespace, which is about to go: deleting one
// takes 25 ms.
func (n *Node) LeaveIFB() { n.kernel.leaveIFB = true }

// Single has the node read no more with more pods: see [hostif.Handle]. It is for a process
// that looks at one pod.
func (n *Node) Single() { n.kernel.host.Single = true }

// List returns every attachment of the node, of all networks.
func (n *Node) List() ([]attach.ID, error) { return n.store.pins.List() }

// Known returns every attachment, and those that have a failure record only: what
// could not be shaped. With an error about the records the attachments come too.
func (n *Node) Known() ([]attach.ID, error) {
	ids, err := n.List()
	if err != nil {
		return nil, err
	}
	failures, err := n.Paths.Mail().Failures()
	for _, f := range failures {
		if f.ID.Network != "" && !slices.Contains(ids, f.ID) {
			ids = append(ids, f.ID)
		}
	}
	return ids, err
}

// ManualNetwork is the network name of what was attached by hand, which no
// runtime knows of.
const ManualNetwork = "podweir-manual"

// ManualID returns the ID of an attachment that is made by hand to an interface of a namespace.
func ManualID(netnsInode uint64, ifName string) attach.ID {
	return attach.ID{Network: ManualNetwork, ContainerID: fmt.Sprintf("netns-%d", netnsInode), IfName: ifName}
}

// MainIfName is what Kubernetes runtimes call a pod's first interface. The attachments that the
// agent makes have this name, whatever their interfaces.
const MainIfName = "eth0"

// Lives says whether the namespace of a record's interface is still there, and no other attachment has
// the interface. It does not look for the device.
func (n *Node) Lives(r *apply.Record) bool {
	p, err := n.kernel.podOf(&r.Interface)
	if err != nil {
		return true // what cannot be found out is not gone
	}
	other, _ := n.store.Another(r.ID, &r.Interface) // nor is whose record cannot be read
	return p != nil && other == nil
}

// Sweep removes what podweir has on an interface that no record tells of, and names
// it. What belongs to another attachment than id stays. That there is no such
// interface is no error.
func (n *Node) Sweep(ctx context.Context, id attach.ID, netnsPath, ifName string) (removed []string, err error) {
	targets, err := n.Targets(&apply.Want{ID: id, NetNSPath: netnsPath, Names: []string{ifName}})
	if errors.Is(err, apply.ErrGone) || errors.Is(err, apply.ErrStandIn) || errors.Is(err, apply.ErrLoopback) || errors.Is(err, errNodeNS) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	unlock, err := n.Lock(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	for i := range targets {
		of, err := n.sweep(id, &targets[i])
		if err != nil {
			return removed, err
		}
		removed = append(removed, of...)
	}
	return removed, nil
}

func (n *Node) sweep(id attach.ID, iface *attach.Interface) ([]string, error) {
	r := &apply.Record{ID: id, Interface: *iface}
	seen, err := n.kernel.Observe(r)
	if err != nil || len(seen.Own()) == 0 {
		return nil, err
	}
	if other, err := n.store.Another(id, iface); other != nil || err != nil {
		return nil, err
	}
	return seen.Own(), n.kernel.tearDownUnrecorded(r, seen)
}

// Pinned is when a pin of an attachment was last made or removed: now if there are none.
func (n *Node) Pinned(r *apply.Record) time.Time {
	info, err := os.Stat(n.kernel.pins(r))
	if err != nil {
		return time.Now()
	}
	return info.ModTime()
}

// Counters returns what became of the packets of a direction.
func (n *Node) Counters(r *apply.Record, d terms.Direction) ([]datapath.Counter, error) {
	return n.kernel.slab.Counters(n.kernel.pins(r), d)
}

// Carried returns what the pod's own device has carried since it was made, whoever limited it.
func (n *Node) Carried(r *apply.Record) (hostif.Traffic, error) {
	p, err := n.kernel.podOf(&r.Interface)
	if err != nil {
		return hostif.Traffic{}, err
	}
	if p == nil {
		return hostif.Traffic{}, apply.ErrGone
	}
	all, err := p.handle.Traffic()
	t, there := all[r.Interface.PodIndex]
	if err == nil && !there {
		err = apply.ErrGone
	}
	return t, err
}

// Waits returns how long the packets of each band of a direction waited.
func (n *Node) Waits(r *apply.Record, d terms.Direction) ([]datapath.Wait, error) {
	return n.kernel.slab.Waits(n.kernel.pins(r), d)
}

// HeavyFlows returns the current heavy flows of a direction, the largest first.
func (n *Node) HeavyFlows(r *apply.Record, d terms.Direction) ([]terms.Flow, error) {
	return n.kernel.slab.HeavyFlows(n.kernel.pins(r), d)
}

// Dataplane returns what a direction has in the slab, nil if it has nothing.
func (n *Node) Dataplane(r *apply.Record, d terms.Direction) (*attach.Dataplane, error) {
	return n.kernel.slab.Observe(n.kernel.pins(r), d)
}

// CollectSlots gives back the slots of attachments that are gone, and returns how
// many those were. A process that was killed may have left them. It removes what is noted of such attachments, too.
func (n *Node) CollectSlots() (int, error) {
	slots, err := n.kernel.slab.Collect(n.store.dirs)
	return slots, errors.Join(err, n.store.pins.RemoveLeftHolders())
}

// LeftSlots is how many slots CollectSlots would give back now.
func (n *Node) LeftSlots() (int, error) { return n.kernel.slab.Left(n.store.dirs) }

// UnusedLayouts are the directories of what attachments shared under releases with
// another layout of the maps; none as long as a program of another build is attached.
func (n *Node) UnusedLayouts() ([]string, error) {
	dirs, err := n.store.pins.OtherNodeDirs(datapath.ABIVersion)
	if err != nil || len(dirs) == 0 {
		return nil, err
	}
	ids, err := n.List()
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		records, err := n.Records(id)
		if err != nil {
			return nil, err // it may be of the release that uses them
		}
		for _, r := range records {
			if seen, err := n.kernel.Observe(r); err != nil || seen.OtherBuild() {
				return nil, err
			}
		}
	}
	return dirs, nil
}

// RemoveUnusedLayouts removes the directories of [Node.UnusedLayouts] and returns
// them.
func (n *Node) RemoveUnusedLayouts() ([]string, error) {
	dirs, err := n.UnusedLayouts()
	for _, dir := range dirs {
		err = errors.Join(err, datapath.RemoveSlab(dir))
	}
	return dirs, err
}

// QueueStatistics are the kernel's counters of a pod's queue.
type QueueStatistics struct {
	queue.Stats
	// Read is when the kernel was asked.
	Read time.Time `json:"-"`
}

// Queues reads the counters of queues, of one pod or of many at one time: those
// on the host's side are listed once for all.
type Queues struct {
	kernel *kernel
	host   map[int]queue.Stats
	// read is when the list was.
	read time.Time
}

// Queues returns a reader of counters as they are now; for later ones, take
// another.
func (n *Node) Queues() *Queues { return &Queues{kernel: n.kernel} }

// Statistics returns the counters of the root qdisc of one side.
func (q *Queues) Statistics(r *apply.Record, s terms.Side) (*QueueStatistics, error) {
	at, err := q.kernel.recordedPlace(r, s)
	if err == nil && at == nil {
		err = fmt.Errorf("%v side of %s in %s: %w", s, r.Interface.PodName, r.Interface.NetNSPath, apply.ErrGone)
	}
	if err != nil {
		return nil, err
	}
	root, found := q.host[at.index]
	read := q.read
	if s != terms.SideHost || !found { // a pod may have come since the list was read
		all, err := queue.RootStats(at.handle)
		if err != nil {
			return nil, err
		}
		read = time.Now()
		if s == terms.SideHost {
			q.host, q.read = all, read
		}
		root, found = all[at.index]
	}
	if !found {
		return nil, fmt.Errorf("no root qdisc on ifindex %d in %s", at.index, at.handle.Where())
	}
	return &QueueStatistics{Stats: root, Read: read}, nil
}

// Unenforced returns the limits that the agent found not to hold, none if no agent
// watches. Attachments may have gone since it looked.
func (n *Node) Unenforced() ([]mailbox.Unenforced, error) {
	all, err := n.Paths.Mail().Unenforced()
	if err != nil || len(all) == 0 {
		return nil, err
	}
	ids, err := n.List()
	return stillAttached(all, ids), err
}

func stillAttached(all []mailbox.Unenforced, ids []attach.ID) []mailbox.Unenforced {
	return slices.DeleteFunc(all, func(u mailbox.Unenforced) bool { return !slices.Contains(ids, u.ID) })
}
