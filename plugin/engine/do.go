// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine

import (
	"github.com/podweir/podweir/plugin/act"
	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/terms"
)

// Do implements [apply.Kernel].
func (k *kernel) Do(r *apply.Record, a attach.Action) error {
	i, err := k.reach(r)
	if err != nil {
		return err
	}
	return i.Do(a)
}

// reach returns the interface of a record for the steps on it.
func (k *kernel) reach(r *apply.Record) (*act.Interface, error) {
	dir, err := k.store.dir(r)
	if err != nil {
		return nil, err
	}
	return &act.Interface{Devices: k, Slab: k.slab, Record: r, Pins: dir, NodeNS: k.hostNS, LeaveIFB: k.leaveIFB}, nil
}

// Device implements [act.Devices].
func (k *kernel) Device(r *apply.Record, s terms.Side) (*act.Device, error) {
	p, err := k.recordedPlace(r, s)
	return k.reached(p), err
}

// Present implements [act.Devices].
func (k *kernel) Present(r *apply.Record, s terms.Side) (*act.Device, error) {
	p, err := k.placeOf(r, s)
	return k.reached(p), err
}

func (k *kernel) reached(p *place) *act.Device {
	if p == nil {
		return nil
	}
	return &act.Device{
		Handle: p.handle, Index: p.index, NS: p.ns, Side: p.side, Seen: k.seenOf(p.device),
		Look: func() (*attach.Device, error) { return k.observeDevice(p, nil) },
	}
}

// Mirred implements [act.Devices].
func (k *kernel) Mirred() (bool, error) {
	f, err := k.features()
	return err == nil && f.Redirect == redirectMirred, err
}

// Write implements [act.Devices].
func (k *kernel) Write(r *apply.Record) error { return k.store.Write(r) }

// seenOf is what the last look at a device found, nothing if there was none.
func (k *kernel) seenOf(d device) *act.Seen {
	if k.seen[d] == nil {
		k.seen[d] = new(act.Seen)
	}
	return k.seen[d]
}
