// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"context"
	"fmt"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/traffic"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

// Place is where somebody else makes the pods, so that the same is done to them
// as to those of this substrate.
type Place interface {
	// InRig makes the pod of a cell's phase, gives it and a rig with a client
	// and an unlimited pod to f, and removes what it made.
	InRig(ctx context.Context, c *spec.Cell, f func(*traffic.Rig, *traffic.Target) error) error
	// Onlooker is another client, for the unlimited pod alone.
	Onlooker(rig *traffic.Rig) (*lab.Host, error)
}

// elsewhere are the workloads that need no more than a [Place] has.
var elsewhere = map[spec.WorkloadKind]bool{
	spec.Latency: true, spec.Mixed: true, spec.Sweep: true,
}

// MeasurableAt says whether a workload can be measured at a [Place]: without looking
// into what shapes the pod.
func MeasurableAt(w *spec.Workload) bool { return elsewhere[w.Kind] }

// MeasureAt takes a sample of a cell at a place.
func MeasureAt(ctx context.Context, at Place, c *spec.Cell, into *record.Sample) error {
	if !MeasurableAt(&c.Workload) {
		return fmt.Errorf("workload %s is not one that can be measured elsewhere", c.Workload.Name)
	}
	into.Metrics = map[string]float64{}
	return workloads[c.Workload.Kind](&run{cell: c, into: into, said: &pluginLog{}, at: at}, ctx)
}

// onlooker is a client for the unlimited pod alone.
func (r *run) onlooker(rig *traffic.Rig) (*lab.Host, error) {
	if r.at != nil {
		return r.at.Onlooker(rig)
	}
	return rig.Lab.Client("onlooker")
}
