// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package traffic puts real load on shaped pods and holds what passed against
// podweir's promises, always beside an unlimited pod in the same run.
package traffic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/e2e/step"
	"github.com/podweir/podweir/plugin/terms"
)

// Direction is of traffic, from the pod's point of view.
type Direction = terms.Direction

// The directions.
const (
	Egress  = terms.Egress
	Ingress = terms.Ingress
)

// Directions are both.
var Directions = terms.Directions

// Rig is a lab with a client and a pod that nobody limits.
type Rig struct {
	Lab    *lab.Lab
	Client *lab.Host
	// SparesOthers has the unlimited pod show less than it could by TCP, because it
	// would take the processors from rigs beside this one: three times the limit,
	// twice what the use of it is judged from.
	SparesOthers bool
	// Free is a pod of a conflist without a shaper, the control of every
	// measurement.
	Free *Target

	mu       sync.Mutex
	networks int
	carried  map[string]float64 // what an unlimited pod carried, by load
}

// Target is a pod with a wire meter for either direction, each at the
// receiver; that of the pod is behind an ifb too.
type Target struct {
	*lab.Pod
	meters map[Direction]*wiremeter.Meter
	rig    *Rig
}

// NewRig makes the lab; it needs root and the binaries of `make build
// refplugins`. The caller must call Close.
func NewRig(ctx context.Context, opts lab.Options) (_ *Rig, err error) {
	defer step.End(&err)
	r := &Rig{Lab: step.Get(lab.New(ctx, opts)), carried: map[string]float64{}}
	err = step.Run(func() {
		r.Client = step.Get(r.Lab.Client("client"))
		r.Free = step.Get(r.Pod(ctx, nil))
	})
	if err != nil {
		return nil, errors.Join(err, r.Lab.Close())
	}
	return r, nil
}

// starting is how long it takes to start the two processes of a load, at most.
const starting = 250 * time.Millisecond

// Close removes everything.
func (r *Rig) Close() error {
	return errors.Join(r.Free.closeMeters(), r.Lab.Close())
}

// Pod makes a fresh pod of a fresh conflist: ptp, host-local and chained
// plugins. Both directions get the bandwidth. The pod goes by Close or with
// the rig.
func (r *Rig) Pod(ctx context.Context, bw *lab.Bandwidth, chained ...lab.Entry) (_ *Target, err error) {
	defer step.End(&err)
	r.mu.Lock()
	r.networks++
	name := fmt.Sprintf("net%d", r.networks)
	r.mu.Unlock()
	network := step.Get(r.Lab.Network(name, chained...))
	pod := step.Get(network.Pod(ctx, lab.PodOptions{Bandwidth: bw}))
	t := &Target{Pod: pod, rig: r}
	if err := t.freshMeters(); err != nil {
		return nil, errors.Join(err, t.Close(ctx))
	}
	return t, nil
}

// freshMeters replaces the meters: one counts for [wiremeter.Span], and the
// unlimited pod lives longer.
func (t *Target) freshMeters() (err error) {
	defer step.End(&err)
	step.OK(t.closeMeters())
	t.meters = map[Direction]*wiremeter.Meter{}
	for d, host := range map[Direction]*lab.Host{Egress: t.rig.Client, Ingress: &t.Host} {
		t.meters[d] = step.Get(wiremeter.Attach(host.Netns, host.IfName, wiremeter.Delivered))
	}
	return nil
}

// Shaped makes a pod that podweir holds to a cap, in bits per second, in both
// directions; keys are further keys of the conflist entry.
func (r *Rig) Shaped(ctx context.Context, bitsPerSec uint64, keys map[string]any) (*Target, error) {
	return r.Pod(ctx, lab.RuntimeBandwidth(bitsPerSec), lab.PodweirEntry(keys))
}

// Close deletes the pod.
func (t *Target) Close(ctx context.Context) error {
	return errors.Join(t.closeMeters(), t.Delete(context.WithoutCancel(ctx)))
}

func (t *Target) closeMeters() error {
	var errs []error
	for _, m := range t.meters {
		errs = append(errs, m.Close())
	}
	t.meters = nil
	return errors.Join(errs...)
}

// Ends returns the sender and the receiver of a direction.
func (t *Target) Ends(d Direction) (from, to *lab.Host) {
	if d == Ingress {
		return t.rig.Client, &t.Host
	}
	return &t.Host, t.rig.Client
}

// Wire is what the receiver's meter saw between two times of
// [wiremeter.Now].
func (t *Target) Wire(d Direction, from, to time.Duration) (*wiremeter.Series, error) {
	return t.meters[d].Read(from, to)
}
