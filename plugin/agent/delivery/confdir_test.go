// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery_test

import (
	"errors"
	"sort"
	"strings"

	"github.com/containernetworking/cni/libcni"
)

// load returns the network that containerd takes from a directory: the first file by
// name, with its drop-ins (github.com/containerd/go-cni v1.1.13, opts.go).
func load(dir string) (*libcni.NetworkConfigList, error) {
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

// chainIn returns the types of the plugins in force, nil without a network.
func chainIn(dir string) []string {
	list, err := load(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, p := range list.Plugins {
		out = append(out, p.Network.Type)
	}
	return out
}
