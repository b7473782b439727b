// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package vm takes samples on a kernel that this machine does not run, in an
// emulated machine of tools/vmrig. It needs root, the
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

// Substrate is an emulated machine. It is booted for the first run and serves all that
// follow; Close ends it.
type Substrate struct {
	root   string
	kernel string
	cache  *rig.Cache
	// Niceness is the priority of the emulators, for the record.
	Niceness int

	now *machines // nil before the first run and after one that went wrong
}

// New returns the substrate of a checkout; root is its directory, and kernel a name of
// vmrig's. Nothing is booted yet.
func New(root, kernel string) (*Substrate, error) {
	if _, err := rig.Named(kernel); err != nil {
		return nil, err
	}
	cache, err := rig.OpenCache()
	if err != nil {
		return nil, err
	}
	if root, err = filepath.Abs(root); err != nil {
		return nil, err
	}
	return &Substrate{root: root, kernel: kernel, cache: cache}, nil
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
	if m.Kernel, err = s.cache.Release(s.kernel); err != nil {
		return nil, err
	}
	return m, nil
}

// Unavailable asks the kernel of the pods.
func (s *Substrate) Unavailable(ctx context.Context, c *spec.Cell) (string, error) {
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
	s.now, err = boot(ctx, s.cache, s.kernel, s.root, self)
	return s.now, err
}
