// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/e2e/step"
)

const (
	// fullPayload fills a packet of 1,500 bytes with UDP over IPv4 or IPv6.
	fullPayload = 1452
	// tinyPayload makes a frame of 60 bytes: 14 + 20 + 8 + 18.
	tinyPayload = 18
	// gsoFrom is the cap from which a flood sends GSO packets: one thread
	// cannot send twice the cap otherwise.
	gsoFrom     = 1_000_000_000
	gsoSegments = 16
	// sparingTimes is the most that [Rig.SparesOthers] offers by TCP.
	sparingTimes = 2 * carriedEnough
)

// Load is one kind of load: bulk by TCP if that has flows, else a flood. Who sends to whom, how
// much and for how long is a case's.
type Load struct {
	Name  string
	Bulk  lab.Elephant
	Flood lab.UDPFlood
	// Times is how many times the cap is offered; 0 is as fast as one thread
	// can, and as TCP does.
	Times uint64
}

// TCP is a load of so many connections.
func TCP(name string, flows int, congestion string) Load {
	return Load{Name: name, Bulk: lab.Elephant{Flows: flows, CongestionControl: congestion}}
}

// The loads of the promises. A flood is sent in larger packets where one thread cannot send
// twice the cap otherwise.
var (
	TCP1     = TCP("TCP 1 cubic", 1, "cubic")
	TCP1BBR  = TCP("TCP 1 bbr", 1, "bbr")
	TCP20    = TCP("TCP 20 cubic", 20, "cubic")
	TCP6     = Load{Name: "TCP 1 cubic IPv6", Bulk: lab.Elephant{Flows: 1, IPv6: true}}
	TCPBig   = Load{Name: "TCP 1 cubic BIG TCP", Bulk: lab.Elephant{Flows: 1, IPv6: true, WriteBytes: 1 << 20}}
	UDP      = flood("UDP 2x", lab.UDPFlood{})
	UDP6     = flood("UDP 2x IPv6", lab.UDPFlood{IPv6: true})
	UDPGSO   = flood("UDP 2x GSO 61 kB", lab.UDPFlood{Segments: 42})
	UDPTiny  = flood("UDP 60 B", lab.UDPFlood{PayloadBytes: tinyPayload})
	UDPECT0  = flood("UDP 2x ECT(0)", lab.UDPFlood{TOS: lab.ECT0})
	UDPPorts = flood("UDP 2x rotating ports", lab.UDPFlood{RotatePorts: true})
	// Discovery can only be sent by a neighbour, because a router takes a hop off:
	// into a pod it comes from the node.
	Discovery = flood("neighbour discovery 2x", lab.UDPFlood{IPv6: true, Discovery: true})
)

// flood is twice the cap, in full packets if it does not say how large they are.
func flood(name string, f lab.UDPFlood) Load {
	f.PayloadBytes = cmp.Or(f.PayloadBytes, fullPayload)
	return Load{Name: name, Flood: f, Times: 2}
}

// Offer is load in progress.
type Offer struct {
	// Started and Until bound the time in which it is offered.
	Started, Until time.Duration
	bulk           *lab.ElephantRun
	flood          *lab.FloodRun
}

// Start puts a load on a pod.
func (t *Target) Start(ctx context.Context, d Direction, load Load, bitsPerSec uint64, last time.Duration) (*Offer, error) {
	from, to := t.Ends(d)
	if load.Flood.Discovery && d == Ingress {
		from = &lab.Host{Name: "node", Netns: t.rig.Lab.Node()}
	}
	o := &Offer{Started: wiremeter.Now()}
	var err error
	offered := load.Times * bitsPerSec
	if b := load.Bulk; b.Flows > 0 {
		b.From, b.To, b.Duration, b.BitsPerSec = from, to, last, offered/uint64(b.Flows)
		o.bulk, err = t.rig.Lab.StartElephant(ctx, b)
	} else {
		f := load.Flood
		f.From, f.To, f.Duration, f.BitsPerSec = from, to, last, offered
		if f.Segments <= 1 && bitsPerSec >= gsoFrom && f.PayloadBytes == fullPayload && !f.RotatePorts {
			f.Segments = gsoSegments
		}
		o.flood, err = t.rig.Lab.StartFlood(ctx, f)
	}
	if err != nil {
		return nil, fmt.Errorf("%s, %s: %w", load.Name, d, err)
	}
	o.Until = wiremeter.Now() + last
	return o, nil
}

// Wait returns when the load has ended; bulk is nil for a flood, and flood for
// TCP.
func (o *Offer) Wait(ctx context.Context) (bulk *lab.Bulk, flood *lab.FloodResult, err error) {
	if o.bulk != nil {
		bulk, err = o.bulk.Wait(ctx)
		return bulk, nil, err
	}
	flood, err = o.flood.Wait(ctx)
	return nil, flood, err
}

// Carried is what the unlimited pod carries of a load, wire bits per second,
// measured once in a rig for each load, direction and, where that decides what is
// offered, cap.
func (r *Rig) Carried(ctx context.Context, d Direction, load Load, bitsPerSec uint64) (_ float64, err error) {
	defer step.End(&err)
	key := fmt.Sprintf("%s %s", load.Name, d)
	if r.SparesOthers && load.Bulk.Flows > 0 {
		load.Times = sparingTimes
	}
	if load.Times > 0 || load.Bulk.Flows == 0 {
		key = fmt.Sprintf("%s %d", key, bitsPerSec)
	}
	if rate, ok := r.carried[key]; ok {
		return rate, nil
	}
	const counted = 750 * time.Millisecond
	step.OK(r.Free.freshMeters())
	o := step.Get(r.Free.Start(ctx, d, load, bitsPerSec, counted+starting))
	_, _, err = o.Wait(ctx)
	step.OK(err)
	r.carried[key] = step.Get(r.Free.Wire(d, o.Until-counted, min(o.Until, wiremeter.Now()))).BitsPerSec()
	return r.carried[key], nil
}
