// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni

import (
	"errors"
	"fmt"
	"slices"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/queue"
	"github.com/podweir/podweir/plugin/shaping"
)

// ErrNoState means that nothing was ever attached on this node.
var ErrNoState = errors.New("no podweir state")

// Node is podweir on this node: the engine over the real kernel. It holds
// sockets; Close it.
type Node struct {
	Engine *attach.Engine
	Paths  Paths
	store  *store
	kernel *kernel
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
		Engine: &attach.Engine{Interfaces: k, Store: s, Kernel: k, Random: shaping.RandomMajor},
		Paths:  paths, store: s, kernel: k,
	}, nil
}

// Close releases what Open took; attachments stay.
func (n *Node) Close() { n.kernel.close() }

func (n *Node) leaveIFB() { n.kernel.leaveIFB = true }

// List returns every attachment of the node, of all networks.
func (n *Node) List() ([]attach.ID, error) { return n.store.list() }

// Known returns every attachment, and those that have a failure record only: what
// could not be shaped. With an error about the records the attachments come too.
func (n *Node) Known() ([]attach.ID, error) {
	ids, err := n.List()
	if err != nil {
		return nil, err
	}
	failures, err := n.Paths.Failures()
	for _, f := range failures {
		if !slices.Contains(ids, f.ID) {
			ids = append(ids, f.ID)
		}
	}
	return ids, err
}

// ManualNetwork is the network name of what was attached by hand, which no
// runtime knows of.
const ManualNetwork = "podweir-manual"

// Holder returns another attachment than id that shapes an interface: two would
// take each other's place on the hooks.
func (n *Node) Holder(iface *attach.Interface, id attach.ID) (holder attach.ID, held bool, err error) {
	ids, err := n.List()
	if err != nil {
		return attach.ID{}, false, err
	}
	for _, other := range ids {
		if other == id {
			continue
		}
		records, err := n.Engine.Store.Records(other)
		if err != nil {
			return attach.ID{}, false, err
		}
		for _, r := range records {
			if r.Interface.NetNSInode == iface.NetNSInode && r.Interface.PodIndex == iface.PodIndex {
				return other, true, nil
			}
		}
	}
	return attach.ID{}, false, nil
}

// PinDir is where the pins of one interface are.
func (n *Node) PinDir(r *attach.Record) string { return n.kernel.pins(r) }

// QueueStatistics are the kernel's counters of a pod's queue.
type QueueStatistics struct {
	// Packets and Bytes left the queue; bytes are wire bytes.
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
	// BacklogBytes wait now.
	BacklogBytes uint64 `json:"backlogBytes"`
	// Drops found their band full.
	Drops uint64 `json:"drops"`
}

// Queues reads the counters of queues, of one pod or of many at one time: those
// on the host's side are listed once for all.
type Queues struct {
	kernel *kernel
	host   map[int]queue.Stats
}

// Queues returns a reader of counters as they are now; for later ones, take
// another.
func (n *Node) Queues() *Queues { return &Queues{kernel: n.kernel} }

// Statistics returns the counters of the root qdisc of one side.
func (q *Queues) Statistics(r *attach.Record, s shaping.Side) (*QueueStatistics, error) {
	at, err := q.kernel.mustPlace(r, s)
	if err != nil {
		return nil, err
	}
	root, found := q.host[at.index]
	if s != shaping.SideHost || !found { // a pod may have come since the list was read
		all, err := queue.RootStats(at.handle)
		if err != nil {
			return nil, err
		}
		if s == shaping.SideHost {
			q.host = all
		}
		root, found = all[at.index]
	}
	if !found {
		return nil, fmt.Errorf("no root qdisc on %s", at.name)
	}
	return &QueueStatistics{
		Packets: root.Packets, Bytes: root.Bytes, BacklogBytes: uint64(root.BacklogBytes), Drops: uint64(root.Drops),
	}, nil
}
