// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/e2e/traffic"
)

// bench is one group being measured.
type bench struct {
	ctx   context.Context
	group *group
	rig   *traffic.Rig
	cap   uint64
	emit  func(row) error
	began time.Time
}

func measureGroup(ctx context.Context, g *group, emit func(row) error) (err error) {
	rig, err := traffic.NewRig(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rig.Close()) }()
	b := &bench{ctx: ctx, group: g, rig: rig, cap: g.bitsPerSec, emit: emit, began: time.Now()}
	if b.cap == 0 {
		if b.cap, err = b.highest(); err != nil {
			return err
		}
	}
	if g.run != nil {
		return g.run(b)
	}
	return errors.Join(b.unshaped(), b.caps())
}

// unshaped is what the same rate costs without a limit: the unlimited pod's
// TCP, held to the cap by its sender.
func (b *bench) unshaped() error {
	for _, d := range traffic.Directions {
		ns, dev := b.rig.Free.Netns, b.rig.Free.IfName
		if d == traffic.Ingress {
			ns, dev = b.rig.Lab.Node(), b.rig.Free.HostIfName
		}
		carried, err := b.rig.Carried(b.ctx, d, traffic.TCP1, b.cap)
		if err != nil {
			return err
		}
		watching, err := startWatch(ns, dev)
		if err != nil {
			return err
		}
		from, to := b.rig.Free.Ends(d)
		began := wiremeter.Now()
		run, err := b.rig.Lab.StartElephant(b.ctx, lab.Elephant{From: from, To: to, Duration: 4 * time.Second, BitsPerSec: b.cap})
		if err == nil {
			_, err = run.Wait(b.ctx)
		}
		n := &capNumbers{Carried: carried}
		series, readErr := b.rig.Free.Wire(d, began, wiremeter.Now())
		var passed uint64
		if readErr == nil {
			passed = series.Total()
			n.Used = series.BitsPerSec() / float64(b.cap)
		}
		if err := errors.Join(err, readErr, watching.finish(n, b.cap, passed)); err != nil {
			return err
		}
		if err := b.tell(&notShaped, d, row{Load: "TCP 1 cubic, sender held to the cap", Caps: n}); err != nil {
			return err
		}
	}
	return nil
}

// notShaped is the unlimited pod.
var notShaped = way{name: "unshaped", place: "-"}

// highest is the highest cap that counts as offered, with a reserve for what
// the shaper itself costs, in steps of 50 Mbit/s.
func (b *bench) highest() (uint64, error) {
	least := 0.0
	for _, d := range traffic.Directions {
		for _, load := range []traffic.Load{traffic.TCP1} {
			carried, err := b.rig.Carried(b.ctx, d, load, 0)
			if err != nil {
				return 0, err
			}
			if least == 0 || carried < least {
				least = carried
			}
		}
	}
	const step = 50 * mbit
	return max(uint64(least/2)/step*step, 2*step), nil
}

// each calls f for every way and direction of the group's cap and tells what
// could not be measured. A way that fails does not end the others.
func (b *bench) each(f func(*way, traffic.Direction) ([]row, error)) error {
	var errs []error
	for i := range ways {
		w := &ways[i]
		for _, d := range w.directions {
			if b.ctx.Err() != nil {
				return errors.Join(append(errs, b.ctx.Err())...)
			}
			rows, err := []row{{Note: fmt.Sprintf("not made below %d Mbit/s", w.from/mbit)}}, error(nil)
			if b.cap >= w.from {
				rows, err = f(w, d)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s, %s, %s: %w", w.name, w.place, d, err))
				rows = append(rows, row{Note: err.Error()})
			}
			for _, r := range rows {
				if err := b.tell(w, d, r); err != nil {
					return err
				}
			}
		}
	}
	return errors.Join(errs...)
}

func (b *bench) tell(w *way, d traffic.Direction, r row) error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err
	}
	r.Release, r.Date = unix.ByteSliceToString(u.Release[:]), time.Now().UTC().Format(time.DateOnly)
	r.Group, r.Cap = b.group.name, b.cap
	r.Way, r.Place, r.Direction = w.name, w.place, d.String()
	fmt.Fprintf(os.Stderr, "%4.0f s %s %s %s %s %s: %s\n", time.Since(b.began).Seconds(),
		b.group.name, r.Way, r.Place, r.Direction, r.Load, r.brief())
	return b.emit(r)
}

// pod makes a pod of a way.
func (b *bench) pod(w *way) (*traffic.Target, error) {
	if w.keys == nil {
		return b.rig.Reference(b.ctx, b.cap, traffic.TunedBurst)
	}
	return b.rig.Shaped(b.ctx, b.cap, w.keys)
}

// caps puts each cell's load on a pod of each way.
func (b *bench) caps() error {
	return b.each(func(w *way, d traffic.Direction) (rows []row, err error) {
		pod, err := b.pod(w)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, pod.Close(b.ctx)) }()
		for _, c := range b.group.cells {
			n, err := b.cell(pod, w, d, c)
			if err != nil {
				return rows, fmt.Errorf("%s: %w", c.load.Name, err)
			}
			name := c.load.Name
			if c.light {
				name += " +light"
			}
			rows = append(rows, row{Load: name, Caps: n})
		}
		return rows, nil
	})
}

func (b *bench) cell(pod *traffic.Target, w *way, d traffic.Direction, c cell) (*capNumbers, error) {
	// What the unlimited pod carries is measured once, and not in the run.
	if _, err := b.rig.Carried(b.ctx, d, c.load, b.cap); err != nil {
		return nil, err
	}
	ns, dev, err := device(b.rig, pod, w, d)
	if err != nil {
		return nil, err
	}
	watching, err := startWatch(ns, dev)
	if err != nil {
		return nil, err
	}
	tc := traffic.Case{Cap: b.cap, Direction: d, Load: c.load, Light: c.light, Duration: c.last}
	got, err := b.rig.MeasureOn(b.ctx, pod, tc)
	n := &capNumbers{}
	var passed uint64
	if got != nil {
		passed = got.Bytes
	}
	if watchErr := watching.finish(n, b.cap, passed); err != nil || watchErr != nil {
		return nil, errors.Join(err, watchErr)
	}
	n.Worst, n.Limit = got.WorstShare(), float64(tc.Limit())*8/float64(b.cap)
	n.ExcessMillis = got.Excess * 8 / float64(b.cap) * 1000
	n.Used, n.Carried, n.PacketBytes = got.Used, got.Carried, got.PacketBytes
	n.Early, n.Late, n.Segments, n.LateSeconds = got.Early, got.Late, got.Segments, got.LateSeconds
	return n, nil
}

// kept measures a kept connection beside one bulk flow.
func (b *bench) kept() error {
	return b.each(func(w *way, d traffic.Direction) ([]row, error) {
		pod, err := b.pod(w)
		if err != nil {
			return nil, err
		}
		k, err := pod.KeptBeside(b.ctx, d, traffic.TCP1, b.cap, 2, time.Second)
		if err := errors.Join(err, pod.Close(b.ctx)); err != nil {
			return nil, err
		}
		ms := func(l *lab.Latencies, q float64) float64 { return l.Quantile(q).Seconds() * 1000 }
		return []row{{Load: "kept beside TCP 1 cubic", Kept: &keptNumbers{
			P50: ms(k.Pod, 0.5), P99: ms(k.Pod, 0.99),
			BystanderP50: ms(k.Bystander, 0.5), BystanderP99: ms(k.Bystander, 0.99),
			Requests: len(k.Pod.Samples), Failed: k.Pod.Failed(),
		}}}, nil
	})
}

// order sends a flow that turns heavy and light again beside light ones.
func (b *bench) order() error {
	return b.each(func(w *way, d traffic.Direction) ([]row, error) {
		pod, err := b.pod(w)
		if err != nil {
			return nil, err
		}
		o, err := pod.OrderBesideLight(b.ctx, d, b.cap)
		if err := errors.Join(err, pod.Close(b.ctx)); err != nil {
			return nil, err
		}
		return []row{{Load: "one flow, heavy and light in turns", Order: &orderNumbers{o.Sent, o.Received, o.Inversions}}}, nil
	})
}

// memoryPods is few, for an emulated machine: the kernel's own steps of slab
// pages are some KiB of each pod.
const memoryPods = 15

// memory counts both directions of a pod, so once for each way.
func (b *bench) memory() error {
	return b.each(func(w *way, d traffic.Direction) ([]row, error) {
		if d != w.directions[0] {
			return nil, nil
		}
		entry := lab.BandwidthEntry()
		if w.keys != nil {
			entry = lab.PodweirEntry(w.keys)
		}
		network, err := b.rig.Lab.Network(fmt.Sprintf("mem%d", time.Since(b.began).Milliseconds()), entry)
		if err != nil {
			return nil, err
		}
		m, err := network.ChainMemory(b.ctx, memoryPods, lab.PodOptions{Bandwidth: lab.KubeletBandwidth(b.cap)})
		if err != nil {
			return nil, err
		}
		return []row{{Load: "both directions", Memory: &memNumbers{
			Total: m.Total(), Slab: m.Slab, Vmalloc: m.Vmalloc, PerCPU: m.PerCPU, Memlock: m.Memlock, Pods: memoryPods,
		}}}, nil
	})
}
