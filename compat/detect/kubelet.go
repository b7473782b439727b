// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package detect

import (
	"cmp"
	"io/fs"
	"regexp"
	"slices"
	"strings"
)

const kubeletFile = "var/lib/kubelet/config.yaml"

// endpointLine finds the kubelet's containerRuntimeEndpoint in YAML or JSON.
var endpointLine = regexp.MustCompile(`(?m)(?:^|[{,])\s*"?containerRuntimeEndpoint"?:\s*["']?([^"',\s}]+)`)

// KubeletSocket is the socket of the container runtime that the kubelet of a node uses,
// below the root; "" if it is not known.
func KubeletSocket(root fs.FS) string {
	r := &reader{root: root, node: &Node{}}
	return kubeletSocket(root, r.processes())
}

// kubelets are the processes that contain a kubelet, each with its default socket: "" if only
// its configuration names a socket.
var kubelets = []struct{ process, socket string }{
	{"kubelet", ""}, {"k3s-server", k3sSocket}, {"k3s-agent", k3sSocket}, {"kubelite", "var/snap/microk8s/common/run/containerd.sock"},
}

const k3sSocket = "run/k3s/containerd/containerd.sock"

func kubeletSocket(root fs.FS, processes []Process) string {
	for _, k := range kubelets {
		if args, seen := argsOf(processes, k.process); seen {
			return cmp.Or(configuredSocket(root, args), k.socket)
		}
	}
	return ""
}

// serving removes container runtimes that the kubelet does not use, such as dockerd's
// containerd. If the kubelet's runtime is not known, it removes none.
func serving(root fs.FS, processes []Process) []Process {
	socket := kubeletSocket(root, processes)
	if socket == "" {
		return processes
	}
	others, found := map[string]bool{}, false
	for i := range processes {
		if at := listensOn(root, &processes[i]); at != "" {
			other := socketPath(at) != socket
			others[processes[i].PID], found = other, found || !other
		}
	}
	if !found {
		return processes
	}
	return slices.DeleteFunc(processes, func(p Process) bool { return others[p.PID] })
}

// listensOn returns the socket of a container runtime, "" for another process.
func listensOn(root fs.FS, p *Process) string {
	switch p.Name {
	case "containerd":
		if set := flagOf(p.Args, "--address", "-a"); set != "" {
			return set
		}
		c, all := RuntimeConfig{}, map[string]any{}
		c.imports(root, flagFile(p.Args, containerdFile, "--config", "-c"), all)
		return cmp.Or(text(at(all, "grpc", "address")), "/run/containerd/containerd.sock")
	case "crio":
		return cmp.Or(flagOf(p.Args, "--listen"), "/run/crio/crio.sock")
	case "cri-dockerd":
		return "/run/cri-dockerd.sock"
	}
	return ""
}

// configuredSocket returns the socket that a kubelet's arguments or files name, "" if none does.
func configuredSocket(root fs.FS, args []string) string {
	// The flag has precedence over the files, and a later file over an earlier one.
	endpoint := flagOf(args, "--container-runtime-endpoint")
	if endpoint == "" {
		files := []string{flagFile(args, kubeletFile, "--config")}
		if dir := flagFile(args, "", "--config-dir"); dir != "" {
			files = append(files, matches(root, dir+"/*.conf")...)
		}
		for _, name := range files {
			// A file that cannot be read counts as one without the key.
			b, _ := fs.ReadFile(root, name)
			if m := endpointLine.FindSubmatch(b); m != nil {
				endpoint = string(m[1])
			}
		}
	}
	return socketPath(strings.TrimPrefix(endpoint, "unix://"))
}

// socketPath is the path of a socket below the root, "" if it is not absolute.
func socketPath(socket string) string {
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
