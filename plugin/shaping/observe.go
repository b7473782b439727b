// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package shaping

import "github.com/podweir/podweir/plugin/terms"

// observe puts a meter in the place of what would enforce the limit: the policer's
// program, which counts and lets every packet pass. The meter is as wide as the queue
// that the limit would have, so that what it counts is what that queue would do.
func (b *builder) observe() {
	p := b.params
	p.Program = ProgramPolice // the meters know the cap's clock by it
	b.meters()
	where := "be policed"
	if p.Queue != terms.QueueNone {
		where = "have the queue " + p.Queue.String() + " on the " + p.Side.String() + " side"
	}
	if p.Mode == terms.ModeQdisc { // the other modes have a hook by name
		b.atOwnHook()
	}
	p.Queue, p.DepthBytes, p.MaxWait = terms.QueueNone, 0, 0
	p.Redirect, p.CapHolds, p.Declined = false, false, nil
	p.Datapath.Observe = true
	b.note("observed: nothing is held; with enforce: %v it would %s", terms.EnforceLimit, where)
}
