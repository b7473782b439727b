// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package metrics

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"sync"
	"syscall"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/cni"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/status"
)

// Pins implements [Reader] over what is pinned. It needs the privileges of
// podweir status, and works in the network namespace it is called in. It takes
// no lock of an attachment: a scrape never holds up a pod.
type Pins struct {
	paths cni.Paths
	mu    sync.Mutex
	// known is what was found out about a record, for as long as it says the same:
	// working it out takes a look at every device.
	known map[key]known
}

type key struct {
	id     attach.ID
	device string
}

type known struct {
	record *attach.Record
	// directions have everything but the counters; sides are beside them.
	directions []described
}

type described struct {
	status.Direction
	of     shaping.Direction
	side   shaping.Side
	counts bool
	queue  bool
}

// NewPins returns a reader.
func NewPins(paths cni.Paths) *Pins { return &Pins{paths: paths, known: map[key]known{}} }

// Read implements [Reader]. The node is opened anew each time: what it keeps open
// would keep the namespace of a pod that is gone.
func (p *Pins) Read() ([]Interface, int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	node, err := cni.Open(p.paths)
	if errors.Is(err, cni.ErrNoState) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	defer node.Close()
	ids, err := node.List()
	if err != nil {
		return nil, 0, err
	}
	failed := 0
	seen := make(map[key]known, len(ids))
	taken := map[[3]string]int{}
	queues := node.Queues()
	var all []Interface
	for _, id := range ids {
		records, err := node.Engine.Store.Records(id)
		if err != nil {
			failed++
		}
		for _, r := range records {
			if !alive(r) {
				continue
			}
			k := key{id, r.Interface.PodName}
			one, err := p.describe(node, k, r)
			if err != nil {
				failed++
				continue
			}
			seen[k] = one
			i, bad := read(node, queues, r, one)
			failed += bad
			// A sandbox that was replaced may linger: its name is told once.
			at, twice := taken[i.labels()]
			if twice {
				all[at] = i
				continue
			}
			taken[i.labels()] = len(all)
			all = append(all, i)
		}
	}
	p.known = seen
	return all, failed, nil
}

func (i *Interface) labels() [3]string { return [3]string{i.Namespace, i.Pod, i.Name} }

// alive says that the namespace of the record is still there.
func alive(r *attach.Record) bool {
	info, err := os.Stat(r.Interface.NetNSPath)
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Ino == r.Interface.NetNSInode
}

func (p *Pins) describe(node *cni.Node, k key, r *attach.Record) (known, error) {
	if old, ok := p.known[k]; ok && reflect.DeepEqual(old.record, r) {
		return old, nil
	}
	want, _, err := node.Engine.Drift(&r.Config, r.Interface, r)
	if err != nil {
		return known{}, err
	}
	out := known{record: r}
	for _, d := range shaping.Directions {
		s := want.Directions[d]
		if s == nil {
			continue
		}
		params := s.Params
		out.directions = append(out.directions, described{
			of: d, side: params.Side, counts: params.Counts(), queue: params.Tree != nil,
			Direction: status.Direction{
				Direction: d.String(), RateBitsPerSecond: uint64(params.Rate), BurstBytes: uint64(params.BurstBytes),
				Policy: params.Policy.String(), Queue: params.Queue.String(), Mode: params.Mode.String(),
				Side: params.Side.String(),
			},
		})
	}
	return out, nil
}

// read adds the counters. What cannot be read is left out of the answer.
func read(node *cni.Node, queues *cni.Queues, r *attach.Record, k known) (i Interface, failed int) {
	i.Name = r.Interface.PodName
	i.Namespace, i.Pod, _ = strings.Cut(r.Pod, "/")
	if i.Pod == "" {
		i.Namespace, i.Pod = "", r.ID.ContainerID
	}
	dir := node.PinDir(r)
	for _, d := range k.directions {
		var err, queueErr error
		if d.counts {
			d.Counters, err = datapath.Counters(dir, d.of)
		}
		if d.queue {
			d.Qdisc, queueErr = queues.Statistics(r, d.side)
		}
		if errors.Join(err, queueErr) != nil {
			failed++
		}
		i.Directions = append(i.Directions, d.Direction)
	}
	return i, failed
}
