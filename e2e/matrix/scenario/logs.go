// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/e2e/matrix/cnis"
)

// words are the last lines of every part on both nodes.
func (r *Run) words(ctx context.Context) string {
	const lines = 8
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var b strings.Builder
	for _, n := range r.Cluster.Members {
		for _, part := range [][2]string{
			{"podweir's agent", r.agentLog(ctx, n)},
			{"the primary CNI", r.cniLog(ctx, n)},
			{"containerd", nodeLog(ctx, n, "containerd")},
			{"the kubelet", nodeLog(ctx, n, "kubelet")},
		} {
			fmt.Fprintf(&b, "[%s of %s]\n%s\n", part[0], n.Name, workload.Tail(part[1], lines))
		}
	}
	return b.String()
}

// keepWords keeps what a component said on each node: its logs go with its pods.
func (r *Run) keepWords(ctx context.Context, component string, log func(context.Context, *cluster.Node) string) {
	for _, n := range r.Cluster.Members {
		text := log(ctx, n)
		r.mu.Lock()
		if r.said == nil {
			r.said = map[string]string{}
		}
		r.said[n.Name+"-"+component] = text
		r.mu.Unlock()
	}
}

// kept is what keepWords kept.
func (r *Run) kept() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.said)
}

func (r *Run) agentLog(ctx context.Context, n *cluster.Node) string {
	agents, err := r.Cluster.Agents(ctx)
	if err != nil {
		return err.Error()
	}
	if agents[n.Name] == "" {
		return r.kept()[n.Name+"-podweir"]
	}
	out, err := r.Cluster.Kubectl(ctx, "", "-n", cluster.Namespace, "logs", "--tail=2000", agents[n.Name])
	if err != nil {
		return err.Error()
	}
	return out
}

// cniLog is what the CNI said before it was removed, or says now. One without a process
// speaks through containerd.
func (r *Run) cniLog(ctx context.Context, n *cluster.Node) string {
	if text, removed := r.kept()[n.Name+"-cni"]; removed {
		return text
	}
	if l, ok := r.CNI.(cnis.Logs); ok {
		return l.Logs(ctx, n)
	}
	return nodeLog(ctx, n, "containerd")
}

func nodeLog(ctx context.Context, n *cluster.Node, program string) string {
	out, err := n.Exec(ctx, "tail", "-n", "100", "/var/log/"+program+".log")
	if err != nil {
		return err.Error()
	}
	return out
}

// KeepLogs writes what every component said to the row's directory.
func (r *Run) KeepLogs(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var errs []error
	keep := func(name string, args ...string) {
		out, err := r.Cluster.Kubectl(ctx, "", args...)
		if err != nil {
			out += "\n" + err.Error()
		}
		errs = append(errs, os.WriteFile(filepath.Join(r.Dir, name), []byte(out), 0o600))
	}
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return err
	}
	keep("pods.yaml", "get", "pods", "-A", "-o", "yaml")
	keep("events.txt", "get", "events", "-A", "--sort-by=.lastTimestamp")
	// Pods of the namespace default are the row's own.
	names, err := r.Cluster.Kubectl(ctx, "", "get", "pods", "-A", "--field-selector", "metadata.namespace!=default",
		"-o", `jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}{"\n"}{end}`)
	errs = append(errs, err)
	for name := range strings.FieldsSeq(names) {
		space, pod, _ := strings.Cut(name, "/")
		keep(pod+".log", "-n", space, "logs", "--all-containers", pod)
		keep(pod+".previous.log", "-n", space, "logs", "--all-containers", "--previous", pod)
	}
	for _, n := range r.Cluster.Members {
		for _, program := range []string{"containerd", "kubelet"} {
			text, err := os.ReadFile(n.Path("/var/log/" + program + ".log"))
			errs = append(errs, err, os.WriteFile(filepath.Join(r.Dir, n.Name+"-"+program+".log"), text, 0o600))
		}
	}
	r.keepWords(ctx, "cni", r.cniLog)
	for name, text := range r.kept() {
		errs = append(errs, os.WriteFile(filepath.Join(r.Dir, name+".log"), []byte(text), 0o600))
	}
	return errors.Join(errs...)
}
