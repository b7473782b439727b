// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package cilium brings a real Cilium into the cluster of e2e/k8s: agent,
// operator, cilium-cni and Helm chart of a version that e2e/cilium
// builds.
package cilium

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/step"
)

// namespace of Cilium's release.
const namespace = "kube-system"

// Conflist is the file that Cilium's agent writes on each node.
const Conflist = "/etc/cni/net.d/05-cilium.conflist"

// Release is Cilium in a cluster that was started with [cluster.Options.NoCNI]
// and the image of a [Made].
type Release struct {
	Made
	Cluster *cluster.Cluster
	// Settings are those of the last [Release.Install].
	Settings Settings

	installed bool
}

// Install brings Cilium to these settings, from nothing or from others, and
// returns when every node is ready and every agent routes as it should.
func (r *Release) Install(ctx context.Context, s Settings) (err error) {
	defer step.End(&err)
	if !r.installed {
		step.OK(r.endpoints(ctx))
	}
	for _, n := range r.Cluster.Members {
		if !s.BandwidthManager {
			break
		}
		step.Get(n.Exec(ctx, "bash", "-c", managerFiles))
	}
	values := filepath.Join(r.Cluster.Dir, "cilium.yaml")
	text := s.values(r.Image, r.Cluster.API(), cluster.PodCIDR)
	step.OK(os.WriteFile(values, []byte(text), 0o600))
	step.Get(r.Cluster.Helm(ctx, "upgrade", "--install", "cilium", r.Chart(), "-n", namespace, "-f", values))
	r.Settings = s
	if !r.installed {
		r.installed = true
		return r.Ready(ctx)
	}
	// Agents read their settings when they start.
	return r.Restart(ctx)
}

// managerFiles gives a node files of its own for what Cilium's bandwidth manager reads and
// writes: a network namespace other than the first lacks them or refuses the values. They go when
// the node does.
const managerFiles = `
set -e
own=/run/sysctl/net-core
[ ! -d $own ] || exit 0
mkdir -p $own
for f in /proc/sys/net/core/*; do cat $f >$own/${f##*/} || true; done 2>/dev/null
echo pfifo_fast >$own/default_qdisc
echo 1000 >$own/netdev_max_backlog
echo cubic >/run/sysctl/congestion
mount --bind $own /proc/sys/net/core
mount --bind /run/sysctl/congestion /proc/sys/net/ipv4/tcp_congestion_control`

// endpoints makes those of the Service kubernetes, which the API server of the
// cluster does not make: Cilium and the pods reach it by them.
func (r *Release) endpoints(ctx context.Context) error {
	api := r.Cluster.API()
	manifest, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Endpoints",
		"metadata": map[string]any{"name": "kubernetes", "namespace": "default"},
		"subsets": []any{map[string]any{
			"addresses": []any{map[string]any{"ip": api.Addr()}},
			"ports":     []any{map[string]any{"name": "https", "port": api.Port(), "protocol": "TCP"}},
		}},
	})
	if err != nil {
		return err
	}
	return step.Err(r.Cluster.Kubectl(ctx, string(manifest), "apply", "-f", "-"))
}

// Ready waits until Cilium and every node are ready.
func (r *Release) Ready(ctx context.Context) error {
	return cluster.Eventually(ctx, 4*time.Minute, r.Look)
}

// Look looks once and returns what is missing.
func (r *Release) Look(ctx context.Context) (err error) {
	defer step.End(&err)
	for _, what := range []string{"daemonset/cilium", "deployment/cilium-operator"} {
		step.OK(r.kubectl(ctx, "rollout", "status", what, "--timeout=2s"))
	}
	step.OK(r.kubectl(ctx, "wait", "--for=condition=Ready", "node", "--all", "--timeout=2s"))
	for _, n := range r.Cluster.Members {
		got, err := r.HostRouting(ctx, n)
		if want := r.Settings.HostRouting(); err == nil && got != want {
			err = fmt.Errorf("host routing is %s, want %s", got, want)
		}
		if err = errors.Join(err, r.regenerated(ctx, n)); err != nil {
			return fmt.Errorf("cilium on %s: %w", n.Name, err)
		}
	}
	return nil
}

// regenerated returns an error while a pod of a node lacks the programs of the running agent.
// The agent is ready earlier: it makes them one by one, and traffic may pause meanwhile.
func (r *Release) regenerated(ctx context.Context, n *cluster.Node) (err error) {
	defer step.End(&err)
	out := step.Get(r.Exec(ctx, n, "cilium-dbg", "endpoint", "list", "-o", "json"))
	var endpoints []struct {
		ID     int
		Status struct{ State string }
	}
	step.OK(json.Unmarshal([]byte(out), &endpoints))
	for _, e := range endpoints {
		if e.Status.State != "ready" {
			return fmt.Errorf("endpoint %d is %s", e.ID, e.Status.State)
		}
	}
	return nil
}

// HostRouting is how the agent of a node says that packets get to its pods: BPF
// or Legacy.
func (r *Release) HostRouting(ctx context.Context, n *cluster.Node) (_ string, err error) {
	defer step.End(&err)
	out := step.Get(r.Exec(ctx, n, "cilium-dbg", "status", "-o", "json"))
	// Until 1.15 it was the first of them.
	var status struct {
		HostRouting struct {
			Mode string `json:"mode"`
		} `json:"host-routing"`
		Routing struct {
			IntraHost string `json:"intra-host-routing-mode"`
		} `json:"routing"`
	}
	err = json.Unmarshal([]byte(out), &status)
	return cmp.Or(status.Routing.IntraHost, status.HostRouting.Mode), err
}

// agent is the pod of the agent of a node that is not on its way out.
func (r *Release) agent(ctx context.Context, n *cluster.Node) (_ string, err error) {
	defer step.End(&err)
	var list struct {
		Items []struct {
			Metadata struct {
				Name              string
				DeletionTimestamp *time.Time
			}
		}
	}
	step.OK(r.Cluster.Get(ctx, &list, "pods", "-n", namespace, "-l", "k8s-app=cilium", "--field-selector", "spec.nodeName="+n.Name))
	for _, a := range list.Items {
		if a.Metadata.DeletionTimestamp == nil {
			return a.Metadata.Name, nil
		}
	}
	return "", errors.New("cilium has no agent on " + n.Name)
}

// Exec runs a program in the agent of a node.
func (r *Release) Exec(ctx context.Context, n *cluster.Node, args ...string) (_ string, err error) {
	defer step.End(&err)
	a := step.Get(r.agent(ctx, n))
	return r.Cluster.Kubectl(ctx, "", append([]string{"-n", namespace, "exec", a, "-c", "cilium-agent", "--"}, args...)...)
}

// Logs are the last words of the agent of a node.
func (r *Release) Logs(ctx context.Context, n *cluster.Node) (_ string, err error) {
	defer step.End(&err)
	a := step.Get(r.agent(ctx, n))
	return r.Cluster.Kubectl(ctx, "", "-n", namespace, "logs", a, "-c", "cilium-agent", "--tail=100")
}

// DeleteAgent deletes the agent of a node and returns when the next one is
// ready.
func (r *Release) DeleteAgent(ctx context.Context, n *cluster.Node) error {
	a, err := r.agent(ctx, n)
	if err == nil {
		err = r.kubectl(ctx, "delete", "pod", a, "--wait", "--timeout=60s")
	}
	if err != nil {
		return err
	}
	return r.Ready(ctx)
}

// KillAgent kills the agent of a node and returns when the kubelet has started
// it again and it is ready. What Kubernetes says may be of the time before.
func (r *Release) KillAgent(ctx context.Context, n *cluster.Node) error {
	_, err := n.Exec(ctx, "timeout", "180", "bash", "-c", `
old=$(pgrep -x cilium-agent) && kill -KILL $old || exit
until new=$(pgrep -x cilium-agent) && [ "$new" != "$old" ]; do sleep 0.1; done`)
	if err != nil {
		return err
	}
	return r.Ready(ctx)
}

// Restart replaces every agent.
func (r *Release) Restart(ctx context.Context) error {
	if err := r.kubectl(ctx, "rollout", "restart", "daemonset/cilium"); err != nil {
		return err
	}
	return r.Ready(ctx)
}

// Uninstall removes the release, and the conflist that Cilium leaves so that
// pods can still start while it is upgraded.
func (r *Release) Uninstall(ctx context.Context) error {
	_, err := r.Cluster.Helm(ctx, "uninstall", "cilium", "-n", namespace, "--wait")
	errs := []error{err}
	for _, n := range r.Cluster.Members {
		_, err := n.Exec(ctx, "rm", "-f", Conflist)
		errs = append(errs, err)
	}
	r.installed = false
	return errors.Join(errs...)
}

func (r *Release) kubectl(ctx context.Context, args ...string) error {
	return step.Err(r.Cluster.Kubectl(ctx, "", append([]string{"-n", namespace}, args...)...))
}
