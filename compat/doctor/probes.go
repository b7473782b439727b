// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/terms"
)

// probed runs the check only where there was a probe; elsewhere the check is left out of
// the report.
func probed(run func(*Facts, *Probe) Finding) func(*Facts) Finding {
	return func(f *Facts) Finding { return run(f, f.Probe) }
}

// minPassed is the fewest packets that say anything about a limit: ARP and
// neighbour discovery make a few by themselves.
const minPassed = 20

// seesShare is the share of the packets, or of the bytes, below which podweir
// counts as blind. Both are compared: a queue counts the segments of a large
// packet where the device counts one, and drops have no bytes. What it sees is
// nearly all or nearly nothing.
const seesShare = 0.5

func checkFlows(f *Facts, p *Probe) Finding {
	if p.FlowsErr != nil {
		return unknown(p.FlowsErr.Error())
	}
	var blind, unread, pods []string
	held := true // by the ceiling, whatever goes past the queue
	seen := 0
	for i := range p.After {
		after := &p.After[i]
		at := slices.IndexFunc(p.Before, func(b Flow) bool {
			return b.Pod == after.Pod && b.Direction == after.Direction && b.Device == after.Device
		})
		if at < 0 {
			continue // the pod is new
		}
		name := after.Pod + " " + after.Direction.String()
		if text := p.Before[at].Err + after.Err; text != "" {
			unread = append(unread, name+": "+text)
			continue
		}
		passed, queued := after.Passed.since(p.Before[at].Passed), after.Held.since(p.Before[at].Held)
		switch {
		case passed.Packets < minPassed:
		case float64(queued.Packets) < seesShare*float64(passed.Packets) && float64(queued.Bytes) < seesShare*float64(passed.Bytes):
			text := suspects(f, after)
			own, ceiling := f.ownQueue(after)
			if own {
				text = pastQueue
			}
			held = held && own && ceiling
			blind = append(blind, fmt.Sprintf("%s: %d of %d packets%s", name, queued.Packets, passed.Packets, text))
			pods = append(pods, after.Pod)
		default:
			seen++
		}
	}
	switch {
	case len(blind) > 0 && held:
		return warns("podweir saw "+shorten(blind)+"; the ceiling at the host side holds the limit", "every packet",
			"look at what runs in the pod, and drop CAP_NET_RAW from it", blind...).of(pods)
	case len(blind) > 0:
		return breaks("podweir saw "+shorten(blind), "every packet", "have who is named answer TCX_NEXT (-1), or choose another place and recreate the pod", blind...).of(pods)
	case len(unread) > 0:
		return unknown(shorten(unread))
	case seen == 0:
		return skip(fmt.Sprintf("no limit had traffic in %.1f s: start some, and probe again", p.Watched.Seconds()))
	}
	return holds(fmt.Sprintf("%d of %d limits had traffic in %.1f s, and podweir saw it", seen, len(p.After), p.Watched.Seconds()))
}

// pastQueue is who sends past a queue on the pod's own device: no one else can.
const pastQueue = ": a process in the pod sends past its queue, with a packet socket"

// ownQueue says whether the queue of a flow is on the pod's own device, where only the
// pod itself can go past it, and whether the egress ceiling meters what does.
func (f *Facts) ownQueue(flow *Flow) (own, ceiling bool) {
	for i := range f.Attached {
		a := &f.Attached[i]
		if a.Pod == flow.Pod && a.Direction == flow.Direction && a.Device == flow.Device {
			return a.Direction.Is == terms.Egress && a.Queue.Is != terms.QueueNone && a.Queue.Is != 0 && len(a.Ahead) == 0, a.NoCeiling == ""
		}
	}
	return false, false
}

func (c Count) since(before Count) Count {
	return Count{c.Packets - min(c.Packets, before.Packets), c.Bytes - min(c.Bytes, before.Bytes)}
}

// suspects names who may take the packets of a flow.
func suspects(f *Facts, flow *Flow) string {
	var names []string
	for i := range f.Attached {
		a := &f.Attached[i]
		if a.Pod != flow.Pod || a.Direction != flow.Direction || a.Device != flow.Device {
			continue
		}
		for _, p := range a.Ahead {
			names = append(names, p.String())
		}
		if hook := hookOf(f.Devices, a); hook != nil && a.Kind != 0 {
			for _, p := range hook.Stand(a.Program, f.Profile).Ahead {
				names = append(names, p.String())
			}
		}
	}
	if len(names) == 0 {
		return ", and no program is ahead of it: a program redirects past the device"
	}
	return ", behind " + strings.Join(names, ", ")
}

// Prober tries what a look at the node does not show.
type Prober interface {
	// Flows reads the counters of every limit.
	Flows(ctx context.Context) ([]Flow, error)
}

// Flow are the counters of one limit at one moment.
type Flow struct {
	// Pod, Direction and Device name the limit as [Attachment] does.
	Pod, Device string
	Direction   terms.Named[terms.Direction]
	// Passed is what the pod's own device carried in the direction, Held what
	// podweir's queue or program counted, what it dropped included.
	Passed, Held Count
	// Err says why they could not be read, "" if they could.
	Err string
}

// Count is a pair of counters.
type Count struct{ Packets, Bytes uint64 }

// Probe is what was tried.
type Probe struct {
	// Watched is how long it took from the first look to the second.
	Watched time.Duration
	// Before and After are the flows.
	Before, After []Flow
	FlowsErr      error
}

// probe looks twice.
func probe(ctx context.Context, opts *Options) *Probe {
	out, start := &Probe{}, time.Now()
	out.Before, out.FlowsErr = opts.Prober.Flows(ctx)
	select {
	case <-time.After(opts.Watch):
	case <-ctx.Done():
	}
	after, err := opts.Prober.Flows(ctx)
	out.After, out.FlowsErr, out.Watched = after, errors.Join(out.FlowsErr, err), time.Since(start)
	return out
}

// hookOf finds the hook that an attachment has a program on, nil if the device
// was not seen.
func hookOf(devices []Device, a *Attachment) *judge.Chain {
	for i := range devices {
		d := &devices[i]
		switch {
		case d.Name != a.Device:
		case a.Hook == terms.HookEgress:
			return &d.Out
		default:
			return &d.In
		}
	}
	return nil
}
