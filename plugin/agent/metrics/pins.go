// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package metrics

import (
	"errors"
	"reflect"
	"strings"
	"sync"

	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/terms"
)

// Pins reads what is pinned. It needs the privileges of
// podweir status, and works in the network namespace it is called in. It takes
// no lock of an attachment: a scrape never holds up a pod.
type Pins struct {
	paths engine.Paths
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
	record *apply.Record
	// directions have everything but the counters.
	directions []status.Direction
}

// NewPins returns a reader.
func NewPins(paths engine.Paths) *Pins { return &Pins{paths: paths, known: map[key]known{}} }

// Read is [Config.Pods]. The node is opened again each time: what it keeps open
// would keep the namespace of a pod that is gone.
func (p *Pins) Read() (all Shaped, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	node, err := engine.Open(p.paths)
	if errors.Is(err, engine.ErrNoState) {
		return all, nil
	}
	if err != nil {
		return all, err
	}
	defer node.Close()
	ids, err := node.List()
	if err != nil {
		return all, err
	}
	seen := make(map[key]known, len(ids))
	taken := map[[3]string]int{}
	queues := node.Queues()
	describe := p.describer(node)
	for _, id := range ids {
		records, err := node.Records(id)
		if err != nil {
			all.Failed++
		}
		for _, r := range records {
			if !node.Lives(r) {
				continue
			}
			k := key{id, r.Interface.PodName}
			one, err := describe(k, r)
			if err != nil {
				all.Failed++
				continue
			}
			seen[k] = one
			i, bad := read(node, queues, r, one)
			all.Failed += bad
			// A sandbox that was replaced may linger: its name is told once, of the new one.
			at, twice := taken[i.labels()]
			switch {
			case !twice:
				taken[i.labels()] = len(all.Interfaces)
				all.Interfaces = append(all.Interfaces, i)
			case i.attached.After(all.Interfaces[at].attached):
				all.Interfaces[at] = i
			}
		}
	}
	p.known = seen
	return all, nil
}

// describer returns what describes the interfaces of one scrape. The qdiscs of the node
// are listed once, if there is anything new.
func (p *Pins) describer(node *engine.Node) func(key, *apply.Record) (known, error) {
	survey := sync.OnceValues(node.Survey)
	return func(k key, r *apply.Record) (known, error) {
		if old, ok := p.known[k]; ok && reflect.DeepEqual(old.record, r) {
			return old, nil
		}
		node, err := survey()
		if err != nil {
			return known{}, err
		}
		return describe(node, r)
	}
}

func describe(node *engine.Node, r *apply.Record) (known, error) {
	in, err := node.Inspect(r)
	if err != nil {
		return known{}, err
	}
	out := known{record: r}
	for _, d := range terms.Directions {
		if s := in.Want.Directions[d]; s != nil {
			out.directions = append(out.directions, status.Describe(s))
		}
	}
	return out, nil
}

// read adds the counters. What cannot be read is left out of the answer.
func read(node *engine.Node, queues *engine.Queues, r *apply.Record, k known) (i Interface, failed int) {
	i.Name, i.attached = r.Interface.PodName, r.Attached
	i.Namespace, i.Pod, _ = strings.Cut(r.Pod, "/")
	if i.Pod == "" {
		i.Namespace, i.Pod = "", r.ID.ContainerID
	}
	for _, d := range k.directions {
		if d.Measure(node, queues, r) != nil {
			failed++
		}
		i.Directions = append(i.Directions, d)
	}
	return i, failed
}

func (i *Interface) labels() [3]string { return [3]string{i.Namespace, i.Pod, i.Name} }
