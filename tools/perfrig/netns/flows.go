// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/podweir/podweir/bpf/model"
	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/e2e/traffic"
)

// crowd are the addresses of the remote ends of many flows: of the networks for
// benchmarks (RFC 2544), which a lab gives to nobody.
var crowd = netip.MustParsePrefix("198.19.0.0/17")

const (
	// flowShare of the cap is sent altogether: a tenth of it is no heavy flow,
	// and all together are below lightShare.
	flowShare = 0.3
	// liveFor is how long a flow counts as live after a packet: the longest that a
	// sketch holds a sixteenth of it, four half-lives of 2^10 ticks.
	liveFor = 4 << (10 + model.TickShift) * time.Nanosecond
)

// flows sends datagrams of many light flows in turns, and asks podweir's own
// counters how many of them it took for heavy, and the kernel what the programs
// took for a packet.
func (r *run) flows(ctx context.Context) error {
	return r.inRig(ctx, func(rig *traffic.Rig, pod *traffic.Target) (err error) {
		d := r.direction()
		ofPod := func(container string) bool { return container == pod.ContainerID }
		if err := rig.Lab.Behind(rig.Client, crowd); err != nil {
			return err
		}
		meter, err := meterPath(rig, pod, d)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, meter.Close()) }()
		before, err := counted(rig.Lab, d.String(), ofPod)
		if err != nil {
			return err
		}
		from, to := pod.Ends(d)
		load := r.crowded(from, to)
		began := wiremeter.Now()
		run, err := rig.Lab.StartCrowd(ctx, load)
		if err != nil {
			return err
		}
		sent, err := run.Wait(ctx)
		if err != nil {
			return err
		}
		after, err := counted(rig.Lab, d.String(), ofPod)
		if err != nil {
			return err
		}
		// One meter counts for two minutes.
		wire, err := pod.Wire(d, began, min(wiremeter.Now(), began+time.Minute))
		if err != nil {
			return err
		}
		all := after.all - before.all
		if all < sent.Packets {
			return fmt.Errorf("the programs counted %d packets of %d", all, sent.Packets)
		}
		r.set("light_errors_share", 1-float64(after.light-before.light)/float64(all))
		r.set(d.String()+"_wire_bits_per_second", wire.BitsPerSec())
		r.crowdSent(sent)
		cost, statistics, err := meter.end(all)
		r.set("packet_cost_ns", cost)
		r.set("statistics_cost_ns", statistics)
		return err
	})
}

// crowded is the load of the workload.
func (r *run) crowded(from, to *lab.Host) lab.Crowd {
	w := &r.cell.Workload
	return lab.Crowd{
		From: from, To: to, Remote: crowd, Inwards: r.direction() == traffic.Ingress, Flows: w.Flows,
		PacketBytes: int(flowShare * float64(r.cell.Rate) / 8 / w.PacketsPerSecond),
		PerSecond:   w.PacketsPerSecond, Duration: r.bulkDuration(),
	}
}

// crowdSent records how many flows there were and what each of them sent.
func (r *run) crowdSent(sent *lab.FloodResult) {
	perSecond := float64(sent.Packets) / sent.Elapsed.Seconds()
	flows := min(float64(r.cell.Workload.Flows), float64(sent.Packets))
	r.set("flows_count", flows)
	r.set("flows_live_count", min(flows, perSecond*liveFor.Seconds()))
	r.set("flows_sent_per_second", perSecond)
	r.set("flows_errors_count", float64(sent.Refused))
	// A flow that sends once in the run sends once in the time of a turn.
	each := sent.BitsPerSec() / float64(r.cell.Workload.Flows)
	r.set("each_offered_bits_per_second", each)
	r.set("each_offered_share", each/float64(r.cell.Rate))
}

// packets are what a direction's programs counted.
type packets struct{ light, all uint64 }

// counted sums up podweir's own counters of a direction of some attachments. Of
// none is an error.
func counted(l *lab.Lab, direction string, of func(containerID string) bool) (sum packets, err error) {
	rep, err := nodeStatus(l)
	if err != nil {
		return sum, err
	}
	found := false
	for i := range rep.Attachments {
		if !of(rep.Attachments[i].ID.ContainerID) {
			continue
		}
		for _, d := range rep.Attachments[i].Directions {
			if d.Direction.String() != direction {
				continue
			}
			found = true
			for _, c := range d.Counters {
				sum.all += c.Packets
				if c.Disposition == "light" {
					sum.light += c.Packets
				}
			}
		}
	}
	if !found {
		return sum, fmt.Errorf("podweir's status has nothing of the %s of these pods", direction)
	}
	return sum, nil
}
