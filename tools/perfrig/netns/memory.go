// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"context"
	"errors"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/step"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

// memory is what the phase's plugin costs the kernel for each pod, by
// difference over many; namespaces and veths are not in it. A slot of podweir's slab is
// counted by its size, whether the slab had a free one or grew. While the pods are there,
// an ADD is weighed.
func (r *run) memory(ctx context.Context) {
	l := step.Get(lab.New(ctx, r.opts))
	defer step.Close(l.Close)
	bw, chain := r.chain()
	network := step.Get(l.Network("memory", chain...))
	m, err := network.ChainMemoryBeside(ctx, r.cell.Workload.Pods, lab.PodOptions{Bandwidth: bw}, func() error { return step.Run(func() { r.addMemory(ctx, l) }) })
	step.OK(errors.Join(err, r.said.err()))
	slots := r.slotsBytes()
	for name, n := range map[string]int64{
		"total": m.Total() + slots, "slots": slots, "slab": m.Slab, "vmalloc": m.Vmalloc, "percpu": m.PerCPU,
	} {
		r.set("memory_"+name+"_bytes", float64(n))
	}
}

// slotsBytes is what the slots of a pod take that is limited in both directions.
func (r *run) slotsBytes() int64 {
	if r.cell.Phase.Kind != spec.Podweir {
		return 0
	}
	chunk := step.Get(image.MapByName("pw_chunk"))
	return int64(len(terms.Directions)) * int64(chunk.ValueBytes)
}
