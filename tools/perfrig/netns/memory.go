// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"context"
	"errors"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

// memory is what the phase's plugin costs the kernel for each pod, by
// difference over many; namespaces and veths are not in it. While they are
// there, an ADD is weighed, and podweir's agent.
func (r *run) memory(ctx context.Context) (err error) {
	l, err := lab.New(ctx, r.opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	bw, chain := r.chain()
	network, err := l.Network("memory", chain...)
	if err != nil {
		return err
	}
	opts := lab.PodOptions{Bandwidth: bw, Namespace: podsNamespace}
	m, err := network.ChainMemoryBeside(ctx, r.cell.Workload.Pods, opts, func(pods []*lab.Pod) error {
		if r.cell.Phase.Kind == spec.Podweir {
			if err := r.agentMemory(ctx, l, network.Conflist, pods); err != nil {
				return err
			}
		}
		return r.addMemory(ctx, l)
	})
	if err := errors.Join(err, r.said.err()); err != nil {
		return err
	}
	for name, n := range map[string]int64{
		"total": m.Total(), "slab": m.Slab, "vmalloc": m.Vmalloc, "percpu": m.PerCPU, "memlock": m.Memlock,
		"pagetables": m.PageTables,
	} {
		r.set("memory_"+name+"_bytes", float64(n))
	}
	return nil
}
