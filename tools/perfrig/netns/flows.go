// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/e2e/traffic"
	"github.com/podweir/podweir/plugin/cni"
	"github.com/podweir/podweir/plugin/status"
)

const (
	// flowShare of the cap is sent altogether: no light flow is heavy by itself,
	// and all together are below lightShare.
	flowShare = 0.3
	// flowPayload makes that 6,000 datagrams per second at 100M.
	flowPayload = 597
)

// flows sends datagrams of many light flows in turns and asks podweir's own
// counters how many of them it took for heavy.
func (r *run) flows(ctx context.Context) error {
	return r.inRig(ctx, func(rig *traffic.Rig, pod *traffic.Target) error {
		d := r.direction()
		from, to := pod.Ends(d)
		before, err := counted(rig.Lab, pod, d)
		if err != nil {
			return err
		}
		began := wiremeter.Now()
		load, err := rig.Lab.StartFlood(ctx, lab.UDPFlood{
			From: from, To: to, RotatePorts: true, Ports: r.cell.Workload.Flows, PayloadBytes: flowPayload,
			BitsPerSec: uint64(flowShare * float64(r.cell.Rate)), Duration: r.bulkDuration(),
		})
		if err != nil {
			return err
		}
		sent, err := load.Wait(ctx)
		if err != nil {
			return err
		}
		after, err := counted(rig.Lab, pod, d)
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
		r.set("flows_requests_per_second", float64(sent.Packets)/sent.Elapsed.Seconds())
		r.set("flows_errors_count", float64(sent.Refused))
		r.set(d.String()+"_wire_bits_per_second", wire.BitsPerSec())
		return nil
	})
}

// packets are what a direction's programs counted.
type packets struct{ light, all uint64 }

// counted reads podweir's own counters of a pod.
func counted(l *lab.Lab, pod *traffic.Target, d traffic.Direction) (out packets, err error) {
	var rep *status.Report
	err = l.Node().Do(func() error {
		node, err := cni.Open(cni.DefaultPaths)
		if err != nil {
			return err
		}
		defer node.Close()
		rep, err = status.Collect(node)
		return err
	})
	if err != nil {
		return out, err
	}
	for i := range rep.Attachments {
		if rep.Attachments[i].ID.ContainerID != pod.ContainerID {
			continue
		}
		for _, one := range rep.Attachments[i].Directions {
			if one.Direction != d.String() {
				continue
			}
			for _, c := range one.Counters {
				out.all += c.Packets
				if c.Disposition == "light" {
					out.light += c.Packets
				}
			}
			return out, nil
		}
	}
	return out, errors.New("podweir's status has nothing of the pod")
}
