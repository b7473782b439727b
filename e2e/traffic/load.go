// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"context"
	"fmt"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
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

// Load is one kind of load: TCP if Flows is set, else a UDP flood.
type Load struct {
	Name string
	V6   bool

	Flows      int
	Congestion string
	// WriteBytes is the size of each write, 0 for iperf3's own.
	WriteBytes int

	// Payload of a datagram in bytes.
	Payload     int
	TOS         int
	RotatePorts bool
	// Discovery has neighbour discovery in place of datagrams.
	Discovery bool
	// Way is how datagrams leave the pod.
	Way lab.Way
	// Segments is the number of datagrams in a packet; 0 is one, and 16 where
	// one thread cannot send twice the cap otherwise.
	Segments int
	// Times is how many times the cap is offered; 0 is as fast as one thread
	// can, and as TCP does.
	Times uint64
}

// The loads of the promises.
var (
	TCP1     = Load{Name: "TCP 1 cubic", Flows: 1, Congestion: "cubic"}
	TCP1BBR  = Load{Name: "TCP 1 bbr", Flows: 1, Congestion: "bbr"}
	TCP20    = Load{Name: "TCP 20 cubic", Flows: 20, Congestion: "cubic"}
	TCP6     = Load{Name: "TCP 1 cubic IPv6", Flows: 1, Congestion: "cubic", V6: true}
	TCPBig   = Load{Name: "TCP 1 cubic BIG TCP", Flows: 1, Congestion: "cubic", V6: true, WriteBytes: 1 << 20}
	UDP      = Load{Name: "UDP 2x", Payload: fullPayload, Times: 2}
	UDP6     = Load{Name: "UDP 2x IPv6", Payload: fullPayload, Times: 2, V6: true}
	UDPGSO   = Load{Name: "UDP 2x GSO 61 kB", Payload: fullPayload, Times: 2, Segments: 42}
	UDPTiny  = Load{Name: "UDP 60 B", Payload: tinyPayload, Times: 2}
	UDPECT0  = Load{Name: "UDP 2x ECT(0)", Payload: fullPayload, Times: 2, TOS: lab.ECT0}
	UDPPorts = Load{Name: "UDP 2x rotating ports", Payload: fullPayload, Times: 2, RotatePorts: true}
	// Discovery can only be sent by a neighbour, because a router takes a hop off:
	// into a pod it comes from the node.
	Discovery = Load{Name: "neighbour discovery 2x", Payload: fullPayload, Times: 2, V6: true, Discovery: true}
)

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
	if load.Discovery && d == Ingress {
		from = &lab.Host{Name: "node", Netns: t.rig.Lab.Node()}
	}
	o := &Offer{Started: wiremeter.Now()}
	var err error
	if load.Flows > 0 {
		o.bulk, err = t.rig.Lab.StartElephant(ctx, lab.Elephant{
			From: from, To: to, IPv6: load.V6, CongestionControl: load.Congestion,
			Flows: load.Flows, Duration: last, WriteBytes: load.WriteBytes,
			BitsPerSec: load.Times * bitsPerSec / uint64(load.Flows),
		})
	} else {
		segments := max(load.Segments, 1)
		if segments == 1 && bitsPerSec >= gsoFrom && load.Payload == fullPayload && !load.RotatePorts {
			segments = gsoSegments
		}
		o.flood, err = t.rig.Lab.StartFlood(ctx, lab.UDPFlood{
			From: from, To: to, IPv6: load.V6, BitsPerSec: load.Times * bitsPerSec,
			PayloadBytes: load.Payload, Segments: segments, TOS: load.TOS,
			RotatePorts: load.RotatePorts, Discovery: load.Discovery, Way: load.Way,
			Duration: last,
		})
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
func (r *Rig) Carried(ctx context.Context, d Direction, load Load, bitsPerSec uint64) (float64, error) {
	key := fmt.Sprintf("%s %s", load.Name, d)
	if r.SparesOthers && load.Flows > 0 {
		load.Times = sparingTimes
	}
	if load.Times > 0 || load.Flows == 0 {
		key = fmt.Sprintf("%s %d", key, bitsPerSec)
	}
	if rate, ok := r.carried[key]; ok {
		return rate, nil
	}
	const counted = 750 * time.Millisecond
	last := counted + starting
	if err := r.Free.freshMeters(); err != nil {
		return 0, err
	}
	o, err := r.Free.Start(ctx, d, load, bitsPerSec, last)
	if err != nil {
		return 0, err
	}
	if _, _, err := o.Wait(ctx); err != nil {
		return 0, err
	}
	series, err := r.Free.Wire(d, o.Until-counted, min(o.Until, wiremeter.Now()))
	if err != nil {
		return 0, err
	}
	r.carried[key] = series.BitsPerSec()
	return r.carried[key], nil
}
