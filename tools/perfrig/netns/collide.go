// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/podweir/podweir/bpf/model"
	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/e2e/traffic"
	"github.com/podweir/podweir/tools/perfrig/collide"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

// The attacks with flows that were made to collide: on a pod as it is, and on
// one whose key is that in which the attacker believes, as the control.
const (
	collides      = "collide"
	collidesKnown = "collide-known"
)

const (
	// craftedMost is how many flows are enough, craftedLeast how many it takes
	// to make the victim heavy for sure: twice the threshold of 5 % of the cap.
	craftedMost, craftedLeast = 12, 4
	// craftedShare of the cap is what each sends: no heavy flow by itself.
	craftedShare = 0.03
	// craftedBytes is the size of a packet.
	craftedBytes = 1000
	// craftedPort is where they are sent to.
	craftedPort = 6000
	// The attacker's own ports.
	craftedFirst, craftedLast = 1024, 65535
)

// victim is the flow of the kept connection in a direction of the pod.
func victim(rig *traffic.Rig, pod *traffic.Target, d traffic.Direction) model.Flow {
	client := netip.AddrPortFrom(rig.Client.V4, victimClient)
	server := netip.AddrPortFrom(pod.V4, victimServer)
	if d == traffic.Ingress {
		return collide.TCP(client, server)
	}
	return collide.TCP(server, client)
}

// craft finds the flows of the attack; nil if it is another one. For the control
// it gives the pod the key.
func (r *run) craft(rig *traffic.Rig, pod *traffic.Target, d traffic.Direction) (*lab.Crowd, error) {
	variant := r.cell.Workload.Variant
	if variant != collides && variant != collidesKnown {
		return nil, nil
	}
	if err := rig.Lab.Behind(rig.Client, crowd); err != nil {
		return nil, err
	}
	search := &collide.Search{
		Victim: victim(rig, pod, d), Keys: collide.Assumed(), Pod: pod.V4, Inwards: d == traffic.Ingress, Remote: crowd,
		FirstPort: craftedFirst, LastPort: craftedLast, ToPort: craftedPort, Most: craftedMost,
	}
	found := search.Run()
	if len(found) < craftedLeast {
		return nil, fmt.Errorf("only %d flows collide with the victim, at least %d are needed", len(found), craftedLeast)
	}
	if variant == collidesKnown {
		if err := assume(pod, d); err != nil {
			return nil, err
		}
	}
	r.set("crafted_flows_count", float64(len(found)))
	from, to := pod.Ends(d)
	return &lab.Crowd{
		From: from, To: to, Remote: crowd, Inwards: d == traffic.Ingress, Only: found, ToPort: craftedPort,
		PacketBytes: craftedBytes, Duration: attackHead + attackLast,
		PerSecond: craftedShare * float64(len(found)) * float64(r.cell.Rate) / 8 / craftedBytes,
	}, nil
}

// assume gives a pod the key in which the attacker believes.
func assume(pod *traffic.Target, d traffic.Direction) error {
	s, err := openState(pod, d)
	if err != nil {
		return err
	}
	s.setKeys(collide.Assumed())
	s.close()
	return nil
}

func (*run) startCrafted(ctx context.Context, rig *traffic.Rig, load *lab.Crowd) (*lab.FloodRun, error) {
	if load == nil {
		return nil, nil
	}
	return rig.Lab.StartCrowd(ctx, *load)
}

// waitCrafted returns what they sent, in bits of IP packets and their Ethernet
// headers per second.
func waitCrafted(ctx context.Context, run *lab.FloodRun) (float64, error) {
	if run == nil {
		return 0, nil
	}
	sent, err := run.Wait(ctx)
	return offered(sent), err
}

// lookAtVictim records how often the kept connection counted as heavy during
// the attack, if podweir tells flows apart.
func (r *run) lookAtVictim(ctx context.Context, rig *traffic.Rig, pod *traffic.Target, from time.Duration) error {
	p := &r.cell.Phase
	if p.Kind != spec.Podweir || p.Keys["policy"] == "flat" {
		return nil
	}
	d := r.direction()
	flow := victim(rig, pod, d)
	l, err := newLooks(pod, d, &flow)
	if err != nil {
		return err
	}
	err = wiremeter.Until(ctx, from)
	if err == nil {
		err = l.watch(ctx, from+attackLast)
	}
	l.close()
	if err != nil {
		return err
	}
	r.set("victim_heavy_share", float64(l.heavy)/float64(l.all))
	return nil
}
