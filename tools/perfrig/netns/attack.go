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
)

// attacks are floods of twice the cap that were made to pass one.
var attacks = map[string]traffic.Load{
	// One flow, full packets.
	"udp": traffic.UDP,
	// Neighbours must find each other, whatever else is sent.
	"discovery": traffic.Discovery,
	// A mark is a request that UDP need not heed.
	"ect0": traffic.UDPECT0,
	// Every packet is a flow of its own, and none is heavy.
	"ports": traffic.UDPPorts,
	// The cost is in packets.
	"tiny": traffic.UDPTiny,
	// Only the first fragment has ports.
	"fragments": {Name: "UDP 2x fragments", Payload: fragmented, Times: 2},
	// A heavy flow, and beside it light ones that collide with the victim in the
	// sketch, if they can (collide.go).
	collides:      traffic.UDP,
	collidesKnown: traffic.UDP,
}

const (
	// fragmented is the payload of a datagram of three fragments at an MTU of
	// 1,500 bytes.
	fragmented = 4000
	// attackHead is how long the attack lasts before latency counts.
	attackHead = time.Second
	// attackLast resolves the 99th percentile at 200 requests per second.
	attackLast = 6 * time.Second
	// The ports of the kept connection, which is the victim.
	victimClient, victimServer = 40000, 5000
)

// attack floods the pod, or from it, and measures what passes, and kept
// connections of the pod and of an unlimited bystander meanwhile.
func (r *run) attack(ctx context.Context) error {
	load, ok := attacks[r.cell.Workload.Variant]
	if !ok {
		return fmt.Errorf("no attack %q", r.cell.Workload.Variant)
	}
	return r.inRig(ctx, func(rig *traffic.Rig, pod *traffic.Target) error {
		// The bystander's bytes are not to be counted as the pod's.
		onlooker, err := r.onlooker(rig)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		d := r.direction()
		crafted, err := r.craft(rig, pod, d)
		if err != nil {
			return err
		}
		echo := lab.EchoLoad{
			From: rig.Client, To: &pod.Host, FromPort: victimClient, ToPort: victimServer,
			PerSecond: perSecond, Delay: attackHead, Duration: attackLast, Timeout: giveUp,
		}
		kept, err := rig.Lab.StartEcho(ctx, echo)
		if err != nil {
			return err
		}
		echo.From, echo.To = onlooker, &rig.Free.Host
		bystander, err := rig.Lab.StartEcho(ctx, echo)
		if err != nil {
			return err
		}
		offer, err := pod.Start(ctx, d, load, r.cell.Rate, attackHead+attackLast)
		if err != nil {
			return err
		}
		beside, err := r.startCrafted(ctx, rig, crafted)
		if err != nil {
			return err
		}
		if err := r.lookAtVictim(ctx, rig, pod, offer.Started+attackHead); err != nil {
			return err
		}
		_, flood, err := offer.Wait(ctx)
		if err != nil {
			return err
		}
		answers, err := kept.Wait(ctx)
		others, otherErr := bystander.Wait(ctx)
		craftedBits, craftErr := waitCrafted(ctx, beside)
		if err := errors.Join(err, otherErr, craftErr); err != nil {
			return err
		}
		r.against("kept", r.answers("kept", answers), r.answers("kept_bystander", others))
		r.set("offered_bits_per_second", offered(flood)+craftedBits)
		return r.attackWire(pod, d, offer)
	})
}

func (r *run) attackWire(pod *traffic.Target, d traffic.Direction, offer *traffic.Offer) error {
	whole, err := pod.Wire(d, offer.Started, min(offer.Until, wiremeter.Now()))
	if err != nil {
		return err
	}
	steady, err := pod.Wire(d, offer.Started+attackHead, min(offer.Until, wiremeter.Now()))
	if err != nil {
		return err
	}
	r.promise(d, whole)
	r.rates(d.String(), whole)
	r.set(d.String()+"_wire_bits_per_second", steady.BitsPerSec())
	if r.cell.Rate > 0 {
		r.set(d.String()+"_used_share", steady.BitsPerSec()/float64(r.cell.Rate))
	}
	return nil
}

// offered is what a flood sent, accepted by its socket or not, in bits of IP
// packets and their Ethernet headers. A fragment's own headers are not in it.
func offered(f *lab.FloodResult) float64 {
	if f.Packets == 0 || f.Elapsed <= 0 {
		return 0
	}
	const ethernet = 14
	frame := float64(f.Bytes)/float64(f.Packets) + ethernet
	return float64(f.Packets+f.Refused) * frame * 8 / f.Elapsed.Seconds()
}
