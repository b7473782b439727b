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
)

// Memory is what the kernel uses, in bytes. Slab, Vmalloc and PerCPU do not
// overlap and are what maps, programs, qdiscs and devices are made of. Memlock
// is the kernel's own account of BPF maps and programs, a part of the others, and Chunks
// that of podweir's slab, which stays when pods go and serves those that come.
// PageTables are those of all processes, and from Linux 6.16 on the kernel's
// own; they belong to none of the others.
type Memory struct {
	Slab, Vmalloc, PerCPU int64
	PageTables            int64
	Memlock, Chunks       int64
}

// Total is what is used altogether, in bytes, page tables apart: those follow
// from what runs at the moment. Chunks are apart, too: whether an ADD makes one depends on
// what was there before.
func (m Memory) Total() int64 { return m.Slab + m.Vmalloc + m.PerCPU - m.Chunks }

// Sub returns the difference of two readings.
func (m Memory) Sub(o Memory) Memory {
	return Memory{
		Slab: m.Slab - o.Slab, Vmalloc: m.Vmalloc - o.Vmalloc,
		PerCPU: m.PerCPU - o.PerCPU, PageTables: m.PageTables - o.PageTables,
		Memlock: m.Memlock - o.Memlock, Chunks: m.Chunks - o.Chunks,
	}
}

// Div returns the reading per one of n.
func (m Memory) Div(n int64) Memory {
	return Memory{
		Slab: m.Slab / n, Vmalloc: m.Vmalloc / n, PerCPU: m.PerCPU / n, PageTables: m.PageTables / n,
		Memlock: m.Memlock / n, Chunks: m.Chunks / n,
	}
}

// KernelMemory reads the whole machine's use. It needs root for Memlock.
func KernelMemory() (Memory, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return Memory{}, err
	}
	i, err := fs.Meminfo()
	if err != nil {
		return Memory{}, err
	}
	if i.SlabBytes == nil || i.VmallocUsedBytes == nil || i.PercpuBytes == nil || i.PageTablesBytes == nil {
		return Memory{}, errors.New("meminfo lacks one of Slab, VmallocUsed, Percpu and PageTables")
	}
	m := Memory{
		Slab: int64(*i.SlabBytes), Vmalloc: int64(*i.VmallocUsedBytes), PerCPU: int64(*i.PercpuBytes), PageTables: int64(*i.PageTablesBytes),
	}
	maps, err := memlock(ebpf.MapGetNextID, ebpf.NewMapFromID, func(i *ebpf.MapInfo, bytes int64) {
		if i.Name == chunk {
			m.Chunks += bytes
		}
	})
	if err != nil {
		return m, fmt.Errorf("list BPF maps: %w", err)
	}
	programs, err := memlock(ebpf.ProgramGetNextID, ebpf.NewProgramFromID, func(*ebpf.ProgramInfo, int64) {})
	if err != nil {
		return m, fmt.Errorf("list BPF programs: %w", err)
	}
	m.Memlock = maps + programs
	return m, nil
}

// chunk is the name of the maps that podweir's slab is made of.
const chunk = "pw_chunk"

// memlock sums the memlock of every BPF map or program, and hands each to a function. Objects
// that go while it reads are not counted.
func memlock[ID ~uint32, Info interface{ Memlock() (uint64, bool) }, Object interface {
	Info() (Info, error)
	Close() error
}](after func(ID) (ID, error), open func(ID) (Object, error), each func(Info, int64)) (sum int64, err error) {
	for id := ID(0); ; {
		if id, err = after(id); errors.Is(err, os.ErrNotExist) {
			return sum, nil
		} else if err != nil {
			return 0, err
		}
		if o, err := open(id); err == nil {
			if info, err := o.Info(); err == nil {
				n, _ := info.Memlock()
				sum += int64(n)
				each(info, int64(n))
			}
			_ = o.Close()
		}
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
	for range rounds {
		if err != nil {
			return last, err
		}
		select {
		case <-ctx.Done():
			return last, ctx.Err()
		case <-time.After(pause):
		}
		var now Memory
		now, err = KernelMemory()
		moved := now.Sub(last).Total()
		last = now
		if moved < still && moved > -still {
			break
		}
	}
	return last, err
}

// ChainMemoryBeside returns what the chained plugins of the network cost the kernel
// per pod. It makes pods by ptp alone, reads, runs ADD of the chained plugins
// on each of them, reads again and deletes them; so namespaces and veths are
// not in the difference. One more pod, made before the first reading, pays for
// what the kernel allocates only once. While the pods are there, beside is called.
func (n *Network) ChainMemoryBeside(
	ctx context.Context, pods int, opts PodOptions, beside func() error,
) (m Memory, err error) {
	plain := n.plain()
	made, err := plain.Pods(ctx, pods+1, opts)
	if err != nil {
		return m, err
	}
	defer func() {
		for _, p := range made {
			p.network = n // from now on DEL runs the whole chain
		}
		err = errors.Join(err, DeletePods(context.WithoutCancel(ctx), made))
	}()
	if err := n.addChain(ctx, made[0]); err != nil {
		return m, err
	}
	before, err := SettledMemory(ctx)
	if err != nil {
		return m, err
	}
	for _, pod := range made[1:] {
		if err := n.addChain(ctx, pod); err != nil {
			return m, err
		}
	}
	after, err := SettledMemory(ctx)
	if err == nil {
		err = beside()
	}
	return after.Sub(before).Div(int64(pods)), err
}

// plain is the network with ptp alone.
func (n *Network) plain() *Network {
	plain, list := *n, *n.list
	list.Plugins = list.Plugins[:1]
	plain.list = &list
	return &plain
}

// addChain runs ADD of the chained plugins on a pod that ptp has made.
func (n *Network) addChain(ctx context.Context, pod *Pod) error {
	result, err := pod.Result.GetAsVersion(n.list.CNIVersion)
	if err != nil {
		return fmt.Errorf("pod %s: %w", pod.Name, err)
	}
	for _, plugin := range n.list.Plugins[1:] {
		conf, err := libcni.InjectConf(plugin, map[string]any{
			"name": n.list.Name, "cniVersion": n.list.CNIVersion, "prevResult": result,
		})
		if err != nil {
			return fmt.Errorf("pod %s: %w", pod.Name, err)
		}
		if _, err := n.cni.AddNetwork(ctx, conf, pod.rt); err != nil {
			return fmt.Errorf("pod %s: add %s: %w", pod.Name, plugin.Network.Type, err)
		}
	}
	return nil
}
