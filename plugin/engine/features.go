// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/queue"
	"github.com/podweir/podweir/plugin/rtnl"
)

// features are what the kernel was found to have.
type features struct {
	// Boot tells the probe's boot from a later one, which may be of another
	// kernel.
	Boot string `json:"boot"`
	queue.Features
	TCX bool `json:"tcx"`
	// Redirect is how packets reach an ifb, empty if they do not.
	Redirect string `json:"redirect"`
	// untried says why the self-test could not find out.
	untried error
}

// noIFB says why no queue can stand on an ifb where the kernel has that kind of
// device.
func (f *features) noIFB() string {
	switch {
	case f.untried != nil:
		return "the self-test of the way through an ifb failed: " + f.untried.Error()
	case f.IFB && f.Redirect == "":
		return "on this kernel packets get lost on the way through an ifb"
	}
	return ""
}

// The ways to an ifb, by self-test and never by version: on Linux 6.1
// bpf_redirect to an ifb loses every packet.
const (
	redirectBPF    = "bpf"
	redirectMirred = "mirred"
)

const bootIDPath = "/proc/sys/kernel/random/boot_id"

// features returns what this kernel has: probed once per boot and kept in
// the run directory, where deleting it is always safe. Only answers are kept: what
// could not be found out by one process, for lack of a right or of memory, is
// tried again by the next.
func (p Paths) features() (*features, error) { return p.featuresBy(probeRedirect) }

func (p Paths) featuresBy(probeRedirect func() (string, error)) (*features, error) {
	boot, err := rtnl.ReadFile(bootIDPath)
	if err != nil {
		return nil, fmt.Errorf("read boot id: %w", err)
	}
	id := string(bytes.TrimSpace(boot))
	path := filepath.Join(p.Run, "features.json")
	if kept := keptFeatures(path, id); kept != nil {
		return kept, nil
	}
	f := features{Boot: id}
	if f.Features, err = queue.Probe(); err != nil {
		return nil, fmt.Errorf("probe the kernel: %w", err)
	}
	if f.TCX, err = datapath.ProbeTCX(); err != nil {
		return nil, fmt.Errorf("probe the kernel for TCX: %w", err)
	}
	if f.IFB {
		f.Redirect, f.untried = probeRedirect()
	}
	if kept := keptFeatures(path, id); f.Redirect == "" && kept != nil && kept.Redirect != "" {
		// Packets that came through for another process have come through.
		return kept, nil
	}
	if f.untried == nil {
		// A cache that cannot be written costs the next ADD a probe, no more.
		_ = mailbox.Write(path, f)
	}
	return &f, nil
}

// keptFeatures reads what was found out during this boot, nil if nothing is kept.
func keptFeatures(path, boot string) *features {
	var f features
	if b, err := rtnl.ReadFile(path); err == nil && json.Unmarshal(b, &f) == nil && f.Boot == boot {
		return &f
	}
	return nil
}

// probeRedirect tries, in a namespace of its own, how packets reach an ifb: bpf or
// mirred, "" if in neither way. It needs CAP_SYS_ADMIN.
func probeRedirect() (string, error) {
	program, err := datapath.LoadRedirect(queue.ProbeIFBIndex)
	if err != nil {
		return "", err
	}
	defer func() { _ = program.Close() }()
	for _, way := range []struct {
		name   string
		progFD int
	}{{redirectBPF, program.FD()}, {redirectMirred, -1}} {
		if ok, err := queue.ProbeRedirect(way.progFD); err != nil {
			return "", err
		} else if ok {
			return way.name, nil
		}
	}
	return "", nil
}
