// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/containernetworking/cni/libcni"
	"github.com/prometheus/procfs"

	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/e2e/step"
)

// Memory is what the kernel uses, in bytes. Slab, Vmalloc and PerCPU do not
// overlap and are what maps, programs, qdiscs and devices are made of. Chunks are a part of
// them, the maps of podweir's slab, which stay when pods go and serve those that come.
type Memory struct{ Slab, Vmalloc, PerCPU, Chunks int64 }

// Total is what is used altogether, in bytes, but for Chunks: whether an ADD makes one
// depends on what was there before.
func (m Memory) Total() int64 { return m.Slab + m.Vmalloc + m.PerCPU - m.Chunks }

// Sub returns the difference of two readings.
func (m Memory) Sub(o Memory) Memory {
	return Memory{m.Slab - o.Slab, m.Vmalloc - o.Vmalloc, m.PerCPU - o.PerCPU, m.Chunks - o.Chunks}
}

// Div returns the reading per one of n.
func (m Memory) Div(n int64) Memory {
	return Memory{m.Slab / n, m.Vmalloc / n, m.PerCPU / n, m.Chunks / n}
}

// KernelMemory reads the whole machine's use. It needs root for Chunks.
func KernelMemory() (_ Memory, err error) {
	defer step.End(&err)
	fs := step.Get(procfs.NewDefaultFS())
	i := step.Get(fs.Meminfo())
	if i.SlabBytes == nil || i.VmallocUsedBytes == nil || i.PercpuBytes == nil {
		return Memory{}, errors.New("meminfo lacks one of Slab, VmallocUsed and Percpu")
	}
	chunks, err := chunkBytes()
	return Memory{int64(*i.SlabBytes), int64(*i.VmallocUsedBytes), int64(*i.PercpuBytes), chunks}, err
}

// chunk is the name of the maps that podweir's slab is made of.
const chunk = "pw_chunk"

// chunkBytes sums the memlock of those maps. One that goes meanwhile is not counted.
func chunkBytes() (sum int64, err error) {
	for id := ebpf.MapID(0); ; {
		if id, err = ebpf.MapGetNextID(id); errors.Is(err, os.ErrNotExist) {
			return sum, nil
		} else if err != nil {
			return 0, fmt.Errorf("list BPF maps: %w", err)
		}
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			continue
		}
		if info, err := m.Info(); err == nil && info.Name == chunk {
			n, _ := info.Memlock()
			sum += int64(n)
		}
		_ = m.Close()
	}
}

// SettledMemory reads KernelMemory until two readings in a row agree: namespaces,
// slabs and vmalloc areas of the past are freed in the background. What still
// moves after two seconds is noise that the caller has to live with.
func SettledMemory(ctx context.Context) (Memory, error) {
	const (
		pause  = 100 * time.Millisecond
		rounds = 20
		still  = 32 << 10
	)
	last, err := KernelMemory()
	for round, moved := 0, int64(still); err == nil && round < rounds && moved >= still; round++ {
		if err = wiremeter.Until(ctx, wiremeter.Now()+pause); err != nil {
			break
		}
		var now Memory
		now, err = KernelMemory()
		moved = max(now.Sub(last).Total(), last.Sub(now).Total())
		last = now
	}
	return last, err
}

// ChainMemoryBeside returns what the chained plugins of the network cost the kernel
// per pod. It makes pods by ptp alone, reads, runs ADD of the chained plugins
// on each of them, reads again and deletes them; so namespaces and veths are
// not in the difference. One more pod, made before the first reading, pays for
// what the kernel allocates only once. While the pods are there, beside is called.
func (n *Network) ChainMemoryBeside(ctx context.Context, pods int, opts PodOptions, beside func() error) (m Memory, err error) {
	defer step.End(&err)
	made := step.Get(n.plain().Pods(ctx, pods+1, opts))
	defer step.Close(func() error {
		for _, p := range made {
			p.network = n // from now on DEL runs the whole chain
		}
		return DeletePods(context.WithoutCancel(ctx), made)
	})
	step.OK(n.addChain(ctx, made[0]))
	before := step.Get(SettledMemory(ctx))
	for _, pod := range made[1:] {
		step.OK(n.addChain(ctx, pod))
	}
	m = step.Get(SettledMemory(ctx)).Sub(before).Div(int64(pods))
	step.OK(beside())
	return m, nil
}

// plain is the network with ptp alone.
func (n *Network) plain() *Network {
	plain, list := *n, *n.list
	list.Plugins = list.Plugins[:1]
	plain.list = &list
	return &plain
}

// addChain runs ADD of the chained plugins on a pod that ptp has made.
func (n *Network) addChain(ctx context.Context, pod *Pod) (err error) {
	defer step.End(&err)
	result, err := pod.Result.GetAsVersion(n.list.CNIVersion)
	step.Say(err, "pod %s", pod.Name)
	for _, plugin := range n.list.Plugins[1:] {
		conf, err := libcni.InjectConf(plugin, map[string]any{
			"name": n.list.Name, "cniVersion": n.list.CNIVersion, "prevResult": result,
		})
		step.Say(err, "pod %s", pod.Name)
		_, err = n.cni.AddNetwork(ctx, conf, pod.rt)
		step.Say(err, "pod %s: add %s", pod.Name, plugin.Network.Type)
	}
	return nil
}
