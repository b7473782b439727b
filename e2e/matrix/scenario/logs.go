// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/e2e/matrix/cnis"
)

// lastWords is how many lines of a part a failure shows.
const lastWords = 30

// words are the last lines of a part on both nodes.
func (r *Run) words(ctx context.Context, part Part) string {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var b strings.Builder
	for _, n := range r.Cluster.Members {
		text := ""
		switch part {
		case AgentPart:
			text = r.agentLog(ctx, n)
		case CNIPart:
			if l, ok := r.CNI.(cnis.Logs); ok {
				text = l.Logs(ctx, n)
			} else {
				text = nodeLog(ctx, n, "containerd")
			}
		case RuntimePart:
			text = nodeLog(ctx, n, "containerd")
		case KubeletPart:
			text = nodeLog(ctx, n, "kubelet")
		}
		fmt.Fprintf(&b, "[%s]\n%s\n", n.Name, workload.Tail(text, lastWords/len(r.Cluster.Members)))
	}
	return b.String()
}

// keepWords keeps what agents said: their logs go with them.
func (r *Run) keepWords(ctx context.Context) {
	r.said = map[string]string{}
	for _, n := range r.Cluster.Members {
		r.said[n.Name] = r.agentLog(ctx, n)
	}
}

func (r *Run) agentLog(ctx context.Context, n *cluster.Node) string {
	agents, err := r.Cluster.Agents(ctx)
	if err != nil {
		return err.Error()
	}
	if agents[n.Name] == "" {
		return r.said[n.Name]
	}
	out, err := r.Cluster.Kubectl(ctx, "", "-n", cluster.Namespace, "logs", "--tail=100", agents[n.Name])
	if err != nil {
		return err.Error()
	}
	return out
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
	names, err := r.Cluster.Kubectl(ctx, "", "-n", cluster.Namespace, "get", "pods", "-o", "name")
	errs = append(errs, err)
	for name := range strings.FieldsSeq(names) {
		keep(filepath.Base(name)+".log", "-n", cluster.Namespace, "logs", "--all-containers", name)
		keep(filepath.Base(name)+".previous.log", "-n", cluster.Namespace, "logs", "--all-containers", "--previous", name)
	}
	for _, n := range r.Cluster.Members {
		for _, program := range []string{"containerd", "kubelet"} {
			text, err := os.ReadFile(n.Path("/var/log/" + program + ".log"))
			errs = append(errs, err, os.WriteFile(filepath.Join(r.Dir, n.Name+"-"+program+".log"), text, 0o600))
		}
		if l, ok := r.CNI.(cnis.Logs); ok {
			errs = append(errs, os.WriteFile(filepath.Join(r.Dir, n.Name+"-cni.log"), []byte(l.Logs(ctx, n)), 0o600))
		}
	}
	return errors.Join(errs...)
}
