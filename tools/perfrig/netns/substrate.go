// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package netns makes and loads pods in network namespaces of this machine: a
// node, clients, and pods that a real conflist connects (package e2e/lab). It
// needs root, and the binaries of `make build refplugins` below the working
// directory. The host's own namespace is not touched.
package netns

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/step"
	"github.com/podweir/podweir/e2e/traffic"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

// Directories of plugins, below the checkout.
const (
	ownPlugins       = "bin"
	referencePlugins = "bin/ref"
)

// Substrate is this machine.
type Substrate struct {
	root string
}

// New returns the substrate of a checkout; root is its directory.
func New(root string) *Substrate {
	return &Substrate{root: root}
}

// Machine describes the machine, and the plugin that is measured.
func (s *Substrate) Machine(ctx context.Context) (_ *record.Machine, err error) {
	defer step.End(&err)
	var u unix.Utsname
	step.OK(unix.Uname(&u))
	m := &record.Machine{
		Substrate: "netns", Kernel: unix.ByteSliceToString(u.Release[:]), CPU: lab.Processor(),
		CPUs: runtime.NumCPU(), Commit: "unknown",
	}
	plugin, err := os.ReadFile(filepath.Join(s.root, ownPlugins, "podweir-cni"))
	step.Say(err, "run make build, and this in the root of the checkout")
	sum := sha256.Sum256(plugin)
	m.Plugin = hex.EncodeToString(sum[:6])
	// Without git the numbers are still numbers.
	cmd := exec.CommandContext(ctx, "tools/version.sh")
	cmd.Dir = s.root
	if out, err := cmd.Output(); err == nil {
		m.Commit = strings.TrimSpace(string(out))
	}
	return m, nil
}

// workloads are what this substrate can do.
var workloads = map[spec.WorkloadKind]func(*run, context.Context){
	spec.Latency: (*run).latency,
	spec.Mixed:   (*run).mixed,
	spec.Sweep:   (*run).sweep,
	spec.Memory:  (*run).memory,
	spec.Add:     (*run).add,
	spec.Packet:  (*run).packet,
	spec.Cost:    (*run).processor,
	spec.Pods:    (*run).pods,

	spec.Ordinary: (*run).ordinary,
}

// run is one sample being taken.
type run struct {
	root string
	cell *spec.Cell
	into *record.Sample
	opts lab.Options
	said *pluginLog
}

// Run takes one sample in a lab of its own, or says in it why it cannot.
func (s *Substrate) Run(ctx context.Context, r *spec.Run, into *record.Sample) error {
	work, ok := workloads[r.Cell.Workload.Kind]
	if !ok {
		return fmt.Errorf("workload %s is not one of this substrate", r.Cell.Workload.Kind)
	}
	// The build that the cell is of may be missing.
	if own := filepath.Join(ownPlugins, r.Cell.Phase.Keys["type"]); own != ownPlugins {
		if _, err := os.Stat(filepath.Join(s.root, own)); errors.Is(err, fs.ErrNotExist) {
			into.Unavailable = "no " + own + `: "make before" builds it`
			return nil
		}
	}
	into.Metrics = map[string]float64{}
	one := &run{root: s.root, cell: &r.Cell, into: into, said: &pluginLog{}}
	one.opts = lab.Options{
		PluginDirs: []string{filepath.Join(s.root, ownPlugins), filepath.Join(s.root, referencePlugins)}, PluginLog: one.said,
	}
	return step.Run(func() { work(one, ctx) })
}

// inRig makes a rig and the pod of the phase, gives them to f and removes them.
func (r *run) inRig(ctx context.Context, f func(*traffic.Rig, *traffic.Target)) {
	rig := step.Get(traffic.NewRig(ctx, r.opts))
	defer step.Close(rig.Close)
	pod := r.pod(ctx, rig)
	defer step.Close(func() error { return pod.Close(ctx) })
	f(rig, pod)
}
