// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"errors"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/e2e/traffic"
	"github.com/podweir/podweir/plugin/hostif"
)

const (
	// samplePause is between two readings of a qdisc's counter: a hundredth of
	// a second's error at most, and little work for one emulated processor.
	samplePause = 25 * time.Millisecond
	stallPause  = 5 * time.Millisecond
)

type sample struct {
	before, after time.Duration
	bytes         uint64
}

// watch reads what the kernel says about a run while it lasts.
type watch struct {
	quit    chan struct{}
	done    chan error
	stalls  chan time.Duration
	samples []sample
	start   time.Duration
	busy    float64
}

// device is where the root qdisc of a way is.
func device(r *traffic.Rig, t *traffic.Target, w *way, d traffic.Direction) (*lab.Netns, string, error) {
	if w.keys == nil && d == traffic.Ingress || w.place == "host side" && d == traffic.Ingress {
		return r.Lab.Node(), t.HostIfName, nil
	}
	if w.place != "ifb" {
		return t.Netns, t.IfName, nil
	}
	var name string
	err := t.Netns.Do(func() error {
		dev, err := netlink.LinkByName(t.IfName)
		if err == nil {
			name = hostif.IFBName(dev.Attrs().Index)
		}
		return err
	})
	return t.Netns, name, err
}

func startWatch(ns *lab.Netns, dev string) (*watch, error) {
	w := &watch{
		quit: make(chan struct{}), done: make(chan error, 1), stalls: make(chan time.Duration, 1),
		start: wiremeter.Now(),
	}
	var err error
	if w.busy, err = lab.BusySeconds(); err != nil {
		return nil, err
	}
	go func() { w.done <- w.sample(ns, dev) }()
	go func() { w.stalls <- longestStall(w.quit) }()
	return w, nil
}

func (w *watch) sample(ns *lab.Netns, dev string) error {
	tick := time.NewTicker(samplePause)
	defer tick.Stop()
	for {
		s := sample{before: wiremeter.Now()}
		err := ns.Do(func() error {
			var err error
			s.bytes, err = rootBytes(dev)
			return err
		})
		if err != nil {
			return err
		}
		s.after = wiremeter.Now()
		w.samples = append(w.samples, s)
		select {
		case <-tick.C:
		case <-w.quit:
			return nil
		}
	}
}

// rootBytes is what the root qdisc of a device has sent. tbf, htb, prio, fq
// and the fifos count when a packet leaves them.
func rootBytes(dev string) (uint64, error) {
	link, err := netlink.LinkByName(dev)
	if err != nil {
		return 0, err
	}
	qdiscs, err := netlink.QdiscList(link)
	if err != nil {
		return 0, err
	}
	for _, q := range qdiscs {
		if a := q.Attrs(); a.Parent == netlink.HANDLE_ROOT && a.Statistics != nil && a.Statistics.Basic != nil {
			return a.Statistics.Basic.Bytes, nil
		}
	}
	return 0, nil
}

// longestStall is how late the latest of short sleeps was: what emulation, or
// other work of the machine, takes away at once.
func longestStall(quit <-chan struct{}) time.Duration {
	var worst time.Duration
	tick := time.NewTicker(stallPause)
	defer tick.Stop()
	last := wiremeter.Now()
	for {
		select {
		case <-quit:
			return worst
		case <-tick.C:
		}
		now := wiremeter.Now()
		worst, last = max(worst, now-last-stallPause), now
	}
}

// finish ends the watch and fills in what it saw; bytes are those that passed.
func (w *watch) finish(n *capNumbers, bitsPerSec, bytes uint64) error {
	elapsed := wiremeter.Now() - w.start
	close(w.quit)
	err := <-w.done
	n.StallMillis = (<-w.stalls).Seconds() * 1000
	busy, busyErr := lab.BusySeconds()
	n.CPU = (busy - w.busy) / elapsed.Seconds()
	if bytes > 0 {
		n.BusyPerGbit = (busy - w.busy) / (float64(bytes) * 8 / 1e9)
	}
	n.Counter = worstByCounter(w.samples) * 8 / float64(bitsPerSec)
	return errors.Join(err, busyErr)
}

// worstByCounter is the highest rate, in bytes per second, over a second or
// the little more that lies between two samples. The counter was read
// somewhere between before and after: the longer time is taken, so that a
// late process cannot make the rate too high.
func worstByCounter(samples []sample) float64 {
	worst, first := 0.0, 0
	for _, s := range samples {
		for samples[first].after <= s.before-time.Second && s.before-samples[first+1].after >= time.Second {
			first++
		}
		if s.before-samples[first].after >= time.Second {
			worst = max(worst, float64(s.bytes-samples[first].bytes)/(s.after-samples[first].before).Seconds())
		}
	}
	return worst
}
