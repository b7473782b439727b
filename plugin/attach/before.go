// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package attach

import (
	"cmp"

	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// What the kernel gives a new device (net/core/dev.c: GSO_LEGACY_MAX_SIZE, and
// DEFAULT_TX_QUEUE_LEN).
const (
	kernelGSO        = 65_536 // bytes
	kernelTxQueueLen = 1_000  // packets
)

// Presume says what the devices of an interface had before podweir, where no record tells:
// the record was lost, or there never was one. A value that podweir itself sets is never
// what was there before. In its place is the value of the other end of the pair, or the
// kernel's default if podweir has changed that end, too, or there is none.
func Presume(obs *Observed) Choices {
	made := obs.ownClsact()
	all := make(Choices)
	for _, d := range terms.Directions {
		c := Choice{MadeClsact: made}
		dev, peer := obs.Device(QueueSide(d)), obs.Device(otherEnd(QueueSide(d)))
		if d == terms.Egress && dev.ownOffload() {
			c.Offload = presumedOffload(dev, peer)
		}
		// The pod's author may have chosen the same values: they are podweir's if its queue is
		// there, too.
		if d == terms.Egress && dev.OwnTree && obs.Pacing != nil {
			c.Pacing = given(obs.Pacing.Presumed())
		}
		if shaping.OwnBandPackets(dev.TxQueueLen) {
			c.TxQueueLen = new(kernelTxQueueLen)
			if peer.Exists && !shaping.OwnBandPackets(peer.TxQueueLen) {
				c.TxQueueLen = new(peer.TxQueueLen)
			}
		}
		all[d] = c
	}
	return all
}

func otherEnd(s terms.Side) terms.Side {
	if s == terms.SidePod {
		return terms.SideHost
	}
	return terms.SidePod
}

// ownOffload says that another party gave the device sizes that podweir gives.
func (d *Device) ownOffload() bool { return shaping.OwnOffload(d.Offload.GSO, d.MTU) }

// presumedOffload is at least what the device has now: podweir only makes it less.
func presumedOffload(dev, peer *Device) *Offload {
	before := Offload{GSO: cmp.Or(peer.Offload.GSO, kernelGSO), GSOIPv4: cmp.Or(peer.Offload.GSOIPv4, kernelGSO)}
	before.GSO = max(before.GSO, dev.Offload.GSO)
	before.GSOIPv4 = max(before.GSOIPv4, dev.Offload.GSOIPv4)
	if most := dev.MostOffload; most != 0 {
		before = before.atMost(most)
	}
	if dev.Offload.GSOIPv4 == 0 {
		before.GSOIPv4 = 0 // the kernel has one for both
	}
	return &before
}

// ownClsact are the sides whose clsact qdisc holds programs of podweir's, and nobody
// else's.
func (o *Observed) ownClsact() []terms.Side {
	var all []terms.Side
	for _, s := range []terms.Side{terms.SidePod, terms.SideHost} {
		ours, others := 0, 0
		for i := range o.Device(s).Hooks {
			switch h := &o.Device(s).Hooks[i]; {
			case h.Kind != terms.HookKindClsact:
			case h.Ours:
				ours++
			default:
				others++
			}
		}
		if ours > 0 && others == 0 && !o.Device(s).IngressOnly {
			all = append(all, s)
		}
	}
	return all
}
