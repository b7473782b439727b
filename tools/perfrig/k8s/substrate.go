// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package k8s makes and loads pods in a Kubernetes cluster of this machine: real
// kubelets and containerd call the plugins, and podweir comes by its chart. The
// loads and meters are those of package netns, in the network namespaces of the
// pods.
//
// It needs root, and bin/cluster and the image of podweir (make perf-k8s). The
// cluster is started with the substrate and goes with it.
package k8s

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/podweir/podweir/e2e/orders"
	"github.com/podweir/podweir/tools/perfrig/netns"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

// The nodes: one for the clients, one whose chain the substrate writes, and one
// with podweir's agent. So a phase follows another without a new installation.
const (
	clients   = "clients"
	reference = "reference"
	shaped    = "podweir"
)

// Substrate is a cluster.
type Substrate struct {
	driver  *driver
	nodes   map[string]orders.Node
	machine record.Machine

	hosts map[string]*orders.Running // pods that stay, by name
	chain string                     // what the reference node's pods get
	chart string                     // the policy of the release
	pods  int
}

// Start brings a cluster up; the caller must call Close. root is the directory
// of the checkout.
func Start(ctx context.Context, root string, niceness int) (_ *Substrate, err error) {
	here := netns.New(root)
	here.Niceness = niceness
	here.Plugin = filepath.Join("bin/image", runtime.GOARCH, "podweir-cni")
	machine, err := here.Machine(ctx)
	if err != nil {
		return nil, err
	}
	d, cluster, err := startDriver(ctx, root, clients, reference, shaped)
	if err != nil {
		return nil, fmt.Errorf("start the cluster: %w", err)
	}
	s := &Substrate{
		driver: d, nodes: map[string]orders.Node{}, machine: *machine, hosts: map[string]*orders.Running{}, chain: none,
	}
	s.machine.Substrate, s.machine.Software = "k8s", cluster.Software
	for _, n := range cluster.Nodes {
		s.nodes[n.Name] = n
	}
	return s, nil
}

// Close ends the cluster. Nothing of it is left.
func (s *Substrate) Close() error { return s.driver.close() }

// Machine implements [executor.Substrate].
//
// [executor.Substrate]: https://pkg.go.dev/github.com/podweir/podweir/tools/perfrig/executor#Substrate
func (s *Substrate) Machine(context.Context) (*record.Machine, error) {
	m := s.machine
	return &m, nil
}

// Unavailable says what a kubelet cannot bring about, and what needs more than
// pods with IPv4 and a chart.
func (*Substrate) Unavailable(_ context.Context, c *spec.Cell) (string, error) {
	return unavailable(c), nil
}

// runtimeBurst is what containerd hands down with every limit, in bits.
const runtimeBurst = 4294967295

func unavailable(c *spec.Cell) string {
	switch p := &c.Phase; {
	case !netns.MeasurableAt(&c.Workload):
		return "not measured in a cluster"
	case p.Kind == spec.Unshaped:
		return ""
	case p.Kind != spec.Bandwidth && p.Kind != spec.Podweir:
		return "not one of the cluster's plugins"
	case p.BurstBits != runtimeBurst:
		return "the runtime hands down its own burst"
	case p.Kind == spec.Podweir && (p.Elsewhere > 0 || len(p.Keys) != 1 || p.Keys["policy"] == ""):
		return "the cluster's release has policies alone"
	}
	return ""
}

// Run takes one sample.
func (s *Substrate) Run(ctx context.Context, r *spec.Run, into *record.Sample) error {
	watch := watchMemory(s.nodes[shaped].PID)
	err := netns.MeasureAt(ctx, s, &r.Cell, into)
	peaks := watch()
	if err == nil && r.Cell.Phase.Kind == spec.Podweir {
		peaks.into(into.Metrics)
	}
	return err
}

// Processes are the first processes of the nodes: what they started is the
// cluster's.
func (s *Substrate) Processes() []int {
	var out []int
	for _, n := range s.nodes {
		out = append(out, n.PID)
	}
	return out
}

// limits are the annotations of a cap, in bits per second.
func limits(bitsPerSec uint64) map[string]string {
	if bitsPerSec == 0 {
		return nil
	}
	rate := strconv.FormatUint(bitsPerSec, 10)
	return map[string]string{"kubernetes.io/ingress-bandwidth": rate, "kubernetes.io/egress-bandwidth": rate}
}
