// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/terms"
)

// Prober tries what a look at the node does not show. It makes devices in its own
// network namespaces only, and removes them; of the pods it reads counters.
type Prober interface {
	// Flows reads the counters of every limit.
	Flows(ctx context.Context) ([]Flow, error)
	// Order reads the host-side devices again.
	Order(ctx context.Context) ([]Device, error)
	// Redirect says how packets get through an ifb: "bpf", "mirred", or "" if
	// they do not. It makes two devices and an ifb.
	Redirect(ctx context.Context) (string, error)
}

// Flow are the counters of one limit at one moment.
type Flow struct {
	// Pod, Direction and Device name the limit as [Attachment] does.
	Pod, Device string
	Direction   terms.Named[terms.Direction]
	// Passed is what the pod's own device carried in the direction, Held what
	// podweir's queue or program counted, what it dropped included.
	Passed, Held Count
	// Err says why they could not be read, "" if they could.
	Err string
}

// Count is a pair of counters.
type Count struct{ Packets, Bytes uint64 }

// Probe is what was tried.
type Probe struct {
	// Watched is how long it took from the first look to the second.
	Watched time.Duration
	// Before and After are the flows, OrderBefore and OrderAfter the devices.
	Before, After           []Flow
	FlowsErr                error
	OrderBefore, OrderAfter []Device
	OrderErr                error
	// FilesBefore and FilesAfter are the files in the directory of conflists
	// with their sizes and times.
	FilesBefore, FilesAfter []string
	FilesErr                error

	Redirect    string
	RedirectErr error
}

// probe runs everything once. The watch is the longest of it, so the other
// trials are made meanwhile.
func probe(ctx context.Context, f *Facts, opts *Options) *Probe {
	p, out := opts.Prober, &Probe{}
	files := func() []string {
		list, err := stamps(f.Root, f.Node.ConfDir)
		if err != nil {
			out.FilesErr = err
		}
		return list
	}
	flows := func() []Flow {
		list, err := p.Flows(ctx)
		if err != nil {
			out.FlowsErr = err
		}
		return list
	}
	devices := func() []Device {
		list, err := p.Order(ctx)
		if err != nil {
			out.OrderErr = err
		}
		return list
	}
	start := time.Now()
	end := time.NewTimer(opts.Watch)
	defer end.Stop()
	out.Before, out.OrderBefore, out.FilesBefore = flows(), devices(), files()
	out.Redirect, out.RedirectErr = p.Redirect(ctx)
	select {
	case <-end.C:
	case <-ctx.Done():
	}
	out.After, out.OrderAfter, out.FilesAfter = flows(), devices(), files()
	out.Watched = time.Since(start)
	return out
}

// stamps lists the files of a directory with what changes when one is written.
func stamps(root fs.FS, dir string) ([]string, error) {
	entries, err := fs.ReadDir(root, dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		info, err := fs.Stat(root, path.Join(dir, e.Name()))
		if err != nil {
			continue // gone, or a link to nowhere: by not being listed it differs
		}
		out = append(out, fmt.Sprintf("%s (%d bytes, %s)", e.Name(), info.Size(), info.ModTime().UTC().Format(time.RFC3339Nano)))
	}
	return out, nil
}

// hookOf finds the hook that an attachment has a program on, nil if the device
// was not seen.
func hookOf(devices []Device, a *Attachment) *judge.Chain {
	for i := range devices {
		d := &devices[i]
		switch {
		case d.Name != a.Device:
		case a.Hook == terms.HookEgress:
			return &d.Out
		default:
			return &d.In
		}
	}
	return nil
}
