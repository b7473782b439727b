// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor_test

import (
	"context"
	"errors"
	"testing"

	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/terms"
)

// prober answers the first look with before, the second with after.
type prober struct {
	before, after []doctor.Flow
	err           error
	looked        int
}

func (p *prober) Flows(context.Context) ([]doctor.Flow, error) {
	if p.looked++; p.looked == 1 {
		return p.before, p.err
	}
	return p.after, p.err
}

// flows are those of the one limit of a node, some packets later.
func flows(n *node, passed, held uint64) *prober {
	a := n.kernel.attached[0]
	one := doctor.Flow{Pod: a.Pod, Direction: a.Direction, Device: a.Device, Passed: doctor.Count{Packets: 1000, Bytes: 100_000}, Held: doctor.Count{Packets: 7, Bytes: 700}}
	two := one
	two.Passed.Packets += passed
	two.Passed.Bytes += 100 * passed
	two.Held.Packets += held
	two.Held.Bytes += 100 * held
	return &prober{before: []doctor.Flow{one}, after: []doctor.Flow{two}}
}

func probeFindings() []finding {
	watch := func(passed, held uint64) func(*node) {
		return func(n *node) { n.prober = flows(n, passed, held) }
	}
	with := func(change func(n *node, p *prober)) func(*node) {
		return func(n *node) {
			n.prober = flows(n, 100, 100)
			change(n, n.prober)
		}
	}
	broken := with(func(_ *node, p *prober) { p.err = errors.New("no such luck") })
	return []finding{
		{name: "sees all", code: "PW701", node: aws, change: watch(100, 100), want: doctor.OK, seen: "1 of 1 limits had traffic"},
		{name: "sees nothing", code: "PW701", node: aws, change: watch(100, 1), want: doctor.Fail, seen: "default/web ingress: 1 of 100 packets, and no program is ahead", fix: "recreate the pod"},
		{name: "sees nothing, a program ahead", code: "PW701", node: cilium, change: func(n *node) {
			n.kernel.attached[0].Ahead = []judge.Program{{Kind: terms.HookKindTCX, ProgramID: 9, Name: "hostile"}}
			n.prober = flows(n, 100, 0)
		}, want: doctor.Fail, seen: "0 of 100 packets, behind hostile (program 9)", fix: "TCX_NEXT"},
		{name: "a packet socket in the pod", code: "PW701", node: aws, change: with(func(n *node, p *prober) {
			a := &n.kernel.attached[0]
			a.Direction, a.Queue, a.Kind, a.NoCeiling = terms.Name(terms.Egress), terms.Name(terms.QueueTBF), 0, ""
			for _, one := range [][]doctor.Flow{p.before, p.after} {
				one[0].Direction = terms.Name(terms.Egress)
			}
			p.after[0].Held = p.before[0].Held
		}), want: doctor.Warn, seen: "default/web egress: 0 of 100 packets: a process in the pod sends past its queue, with a packet socket; the ceiling", fix: "CAP_NET_RAW"},
		{name: "a packet socket, and no ceiling", code: "PW701", node: aws, change: with(func(n *node, p *prober) {
			a := &n.kernel.attached[0]
			a.Direction, a.Queue, a.Kind, a.NoCeiling = terms.Name(terms.Egress), terms.Name(terms.QueueTBF), 0, "no TCX"
			p.before[0].Direction, p.after[0].Direction = terms.Name(terms.Egress), terms.Name(terms.Egress)
			p.after[0].Held = p.before[0].Held
		}), want: doctor.Fail, seen: "a process in the pod sends past its queue"},
		{name: "drops count", code: "PW701", node: aws, change: with(func(_ *node, p *prober) { p.after[0].Held.Bytes = p.before[0].Held.Bytes }), want: doctor.OK, seen: "1 of 1"},
		{name: "segments count", code: "PW701", node: aws, change: with(func(_ *node, p *prober) { p.after[0].Held.Packets = p.before[0].Held.Packets + 3 }), want: doctor.OK, seen: "1 of 1"},
		{name: "idle", code: "PW701", node: aws, change: watch(5, 0), want: doctor.Skip, seen: "no limit had traffic"},
		{name: "pod gone", code: "PW701", node: aws, change: with(func(_ *node, p *prober) { p.after[0].Err = "no such device" }), want: doctor.Unknown, seen: "no such device"},
		{name: "counters unread", code: "PW701", node: aws, change: broken, want: doctor.Unknown, seen: "no such luck"},
	}
}

// TestProbeIsAskedFor: without a probe its checks are not in the report, with
// one each names what it touches.
func TestProbeIsAskedFor(t *testing.T) {
	n := aws()
	for _, o := range n.report(t).Checks {
		if o.Category == doctor.CategoryProbe {
			t.Errorf("%s is in a report without a probe", o.Code)
		}
	}
	n.prober = flows(n, 100, 100)
	found := 0
	for _, o := range n.report(t).Checks {
		if o.Category != doctor.CategoryProbe {
			continue
		}
		if found++; o.Touches == "" || o.Status != doctor.OK && o.Status != doctor.Skip {
			t.Errorf("%s %s: %s; touches %q", o.Code, o.Status, o.Seen, o.Touches)
		}
	}
	if found != 1 {
		t.Errorf("%d checks of the probe, want one", found)
	}
}
