// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package detect

import (
	"io/fs"
	"regexp"
	"strings"
)

const kubeletFile = "var/lib/kubelet/config.yaml"

var endpointLine = regexp.MustCompile(`(?m)^containerRuntimeEndpoint:\s*["']?([^"'\s]+)`)

// KubeletSocket is the socket of the container runtime that the kubelet of a node uses,
// below the root; "" if it is not known.
func KubeletSocket(root fs.FS) string {
	r := &reader{root: root, node: &Node{}}
	args, seen := argsOf(r.processes(), "kubelet")
	if !seen {
		return ""
	}
	// The flag is the older way and still counts more.
	endpoint := flagOf(args, "--container-runtime-endpoint")
	if b, err := fs.ReadFile(root, flagFile(args, kubeletFile, "--config")); err == nil && endpoint == "" {
		if m := endpointLine.FindSubmatch(b); m != nil {
			endpoint = string(m[1])
		}
	}
	socket := strings.TrimPrefix(endpoint, "unix://")
	if !strings.HasPrefix(socket, "/") {
		return ""
	}
	// /var/run is a link to /run, which does not lead below another root.
	socket = clean(socket)
	if rest, ok := strings.CutPrefix(socket, "var/run/"); ok {
		return "run/" + rest
	}
	return socket
}

// argsOf are the arguments of the first process with this name, and whether there is one.
func argsOf(processes []Process, name string) (args []string, seen bool) {
	for _, p := range processes {
		if p.Name == name {
			return p.Args, true
		}
	}
	return nil, false
}

// flagOf returns the value of a flag, given as --name=value or --name value, by any of
// its names.
func flagOf(args []string, names ...string) string {
	for i, a := range args {
		for _, name := range names {
			if value, ok := strings.CutPrefix(a, name+"="); ok {
				return value
			}
			if a == name && i+1 < len(args) {
				return args[i+1]
			}
		}
	}
	return ""
}

// flagFile is the file that a flag names, below the root.
func flagFile(args []string, otherwise string, names ...string) string {
	if value := flagOf(args, names...); value != "" {
		return clean(value)
	}
	return otherwise
}
