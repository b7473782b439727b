// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/rivals"
	"github.com/podweir/podweir/e2e/step"
	"github.com/podweir/podweir/e2e/traffic"
	"github.com/podweir/podweir/plugin/testutil/logged"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

// pluginLog keeps what plugins write to stderr.
type pluginLog struct{ logged.Log }

// err is what podweir said of a pod that it could not shape: ADD succeeds all
// the same, and the pod would be measured as if it were.
func (l *pluginLog) err() error {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, "level=ERROR") {
			return fmt.Errorf("the plugin said: %s", strings.TrimSpace(line))
		}
	}
	return nil
}

// pod makes the pod of the phase.
func (r *run) pod(ctx context.Context, rig *traffic.Rig) *traffic.Target {
	bw, chain := r.chain()
	t := step.Get(rig.Pod(ctx, bw, chain...))
	var err error
	if r.cell.Phase.Kind == spec.Qdisc {
		err = doubles[r.cell.Phase.Discipline](rig.Lab.Node(), t.HostIfName, r.cell.Rate)
	}
	if err := errors.Join(err, r.said.err()); err != nil {
		step.OK(errors.Join(err, t.Close(ctx)))
	}
	return t
}

// chain is what the conflist of the phase has behind ptp, and what kubelet
// would hand down.
func (r *run) chain() (*lab.Bandwidth, []lab.Entry) {
	p, rate := &r.cell.Phase, r.cell.Rate
	bw := &lab.Bandwidth{IngressRate: rate, IngressBurst: p.BurstBits, EgressRate: rate, EgressBurst: p.BurstBits}
	switch p.Kind {
	case spec.Bandwidth:
		return bw, []lab.Entry{lab.BandwidthEntry()}
	case spec.Podweir:
		if rate == 0 {
			bw = nil // the pod has no annotation
		}
		return bw, []lab.Entry{podweirEntry(p.Keys)}
	default:
		return nil, nil
	}
}

func podweirEntry(keys map[string]string) lab.Entry {
	e := lab.PodweirEntry(nil)
	for k, v := range keys {
		e[k] = v
	}
	return e
}

// doubles are the disciplines, by what they do with the node's end of the pod's veth.
var doubles = map[string]func(node *lab.Netns, ifName string, bitsPerSec uint64) error{
	"cilium": rivals.CiliumIngress,
	"calico": rivals.Calico,
}
