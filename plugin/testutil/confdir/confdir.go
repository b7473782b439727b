// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package confdir reads a directory of conflists as a container runtime does, and has
// doubles of the installers of service meshes that write there.
package confdir

import (
	"errors"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
)

// Podweir is the type of podweir's plugin.
const Podweir = "podweir-cni"

// Load returns the network that containerd takes from a directory: the first file by
// name, with its drop-ins (github.com/containerd/go-cni v1.1.13, opts.go).
func Load(dir string) (*libcni.NetworkConfigList, error) {
	files, err := libcni.ConfFiles(dir, []string{".conf", ".conflist", ".json"})
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errors.New("no network")
	}
	sort.Strings(files)
	if !strings.HasSuffix(files[0], ".conflist") {
		// A list of one, without drop-ins.
		single, err := libcni.ConfFromFile(files[0]) //nolint:staticcheck // what runtimes call for a .conf
		if err != nil {
			return nil, err
		}
		return libcni.ConfListFromConf(single) //nolint:staticcheck // what runtimes call for a .conf
	}
	return libcni.NetworkConfFromFile(files[0])
}

// Chain returns the types of the plugins in force, nil without a network.
func Chain(dir string) []string {
	list, err := Load(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, p := range list.Plugins {
		out = append(out, p.Network.Type)
	}
	return out
}

// Looks counts looks at the chain in force.
type Looks struct {
	// All is how many there were; None of them found no network; Mesh and Podweir found
	// the plugin of the mesh and podweir's.
	All, None, Mesh, Podweir int
	// Without has the last chain that lacked one of both, with its time.
	Without string
}

// Look looks at the chain in force, that often, until done is closed.
func Look(dir, plugin string, every time.Duration, done <-chan struct{}) (l Looks) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return l
		case <-tick.C:
		}
		chain := Chain(dir)
		l.All++
		mesh, podweir := slices.Contains(chain, plugin), slices.Contains(chain, Podweir)
		if chain == nil {
			l.None++
		}
		if mesh {
			l.Mesh++
		}
		if podweir {
			l.Podweir++
		}
		if !mesh || !podweir {
			l.Without = time.Now().Format(time.TimeOnly) + " " + strings.Join(chain, ", ")
		}
	}
}
