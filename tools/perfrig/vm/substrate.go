// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package vm takes samples on kernels that this machine does not run, in
// emulated machines of tools/vmrig: everything on one kernel, or the pods on
// one and the clients on another, joined by a virtual wire. It needs root, the
// kernels of `make setup-kernels` and the binaries of `make build refplugins`
// below the working directory. What is done there is what package netns does.
//
// Emulation makes every packet and every process some ten times as dear, and
// not all of them alike: of what is measured, ratios within one run say
// something, and absolute times and rates do not.
package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/podweir/podweir/tools/perfrig/netns"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
	rig "github.com/podweir/podweir/tools/vmrig/vm"
)

const (
	// Name is that of the substrate.
	Name = record.SubstrateVM
	// processors of a machine: one keeps time best where the host has few.
	processors = 1
	// patience bounds a run, by its estimate, and graceTime is what a busy host
	// may take besides.
	patience  = 4
	graceTime = 2 * time.Minute
)

// Kernels are those of the machines, by their names in vmrig.
type Kernels struct {
	// Pods is the node's, Clients that of the other machine; "" if there is
	// one machine for both.
	Pods, Clients string
}

// ParseKernels reads "6.12", one kernel for everything, or "6.12/6.1": pods on
// the first and clients on the second.
func ParseKernels(text string) (Kernels, error) {
	var k Kernels
	var two bool
	k.Pods, k.Clients, two = strings.Cut(text, "/")
	if k.Pods == "" || two && k.Clients == "" {
		return Kernels{}, fmt.Errorf("kernels %q: want one, as in 6.12, or two, as in 6.12/6.1", text)
	}
	for _, name := range []string{k.Pods, k.Clients} {
		if name == "" {
			continue
		}
		if _, err := rig.Named(name); err != nil {
			return Kernels{}, err
		}
	}
	return k, nil
}

// Substrate is one or two emulated machines. They are booted for the first run
// and serve all that follow; Close ends them.
type Substrate struct {
	root    string
	kernels Kernels
	cache   *rig.Cache
	// Niceness is the priority of the emulators, for the record.
	Niceness int

	now *machines // nil before the first run and after one that went wrong
}

// New returns the substrate of a checkout; root is its directory. Nothing is
// booted yet.
func New(root string, k Kernels) (*Substrate, error) {
	cache, err := rig.OpenCache()
	if err != nil {
		return nil, err
	}
	if root, err = filepath.Abs(root); err != nil {
		return nil, err
	}
	return &Substrate{root: root, kernels: k, cache: cache}, nil
}

// Machine describes the host, as netns does, and the machines that it emulates.
func (s *Substrate) Machine(ctx context.Context) (*record.Machine, error) {
	host := netns.New(s.root)
	host.Niceness = s.Niceness
	m, err := host.Machine(ctx)
	if err != nil {
		return nil, err
	}
	m.Substrate, m.CPUs = Name, processors
	m.CPU = "emulated by QEMU without KVM on " + m.CPU
	if m.Kernel, err = s.cache.Release(s.kernels.Pods); err != nil {
		return nil, err
	}
	if s.kernels.Clients != "" {
		if m.PeerKernel, err = s.cache.Release(s.kernels.Clients); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// apart are the workloads whose clients can be on another kernel: those of TCP,
// and of no processes in the pods' machine but servers and bulk.
func apart(w *spec.Workload) bool {
	switch w.Kind {
	case spec.Latency, spec.Mixed:
		return true
	case spec.Sweep:
		return w.Streams > 0
	default:
		return false
	}
}

// Unavailable asks the kernel of the pods.
func (s *Substrate) Unavailable(ctx context.Context, c *spec.Cell) (string, error) {
	if s.kernels.Clients != "" && !apart(&c.Workload) {
		return c.Workload.Name + " is measured on one kernel only", nil
	}
	m, err := s.machines(ctx)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, graceTime)
	defer cancel()
	why, err := call[string](ctx, m, "Unavailable", c)
	if err != nil {
		return "", errors.Join(err, s.Close())
	}
	return why, nil
}

// Run has one sample taken there. A machine on which a run went wrong is not
// used again.
func (s *Substrate) Run(ctx context.Context, r *spec.Run, into *record.Sample) error {
	m, err := s.machines(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit(r))
	defer cancel()
	got, err := call[record.Sample](ctx, m, "Run", r)
	if err != nil {
		interrupted := ctx.Err() != nil
		err = errors.Join(err, s.Close())
		// All of it is here only when they have ended.
		if said := m.said.last(); said != "" && !interrupted {
			err = fmt.Errorf("%w; the guests said: %s", err, said)
		}
		return err
	}
	into.Metrics, into.Latencies, into.Series, into.Errors = got.Metrics, got.Latencies, got.Series, got.Errors
	return nil
}

// limit is how long a run may take.
func limit(r *spec.Run) time.Duration {
	return time.Duration(patience*r.Cell.Workload.Seconds*float64(time.Second)) + graceTime
}

// Close ends the machines; nothing of them is left. The substrate can be used
// again.
func (s *Substrate) Close() error {
	m := s.now
	s.now = nil
	if m == nil {
		return nil
	}
	return m.end()
}

// machines boots them if need be.
func (s *Substrate) machines(ctx context.Context) (*machines, error) {
	if s.now != nil {
		return s.now, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s.now, err = boot(ctx, s.cache, s.kernels, s.root, self)
	return s.now, err
}
