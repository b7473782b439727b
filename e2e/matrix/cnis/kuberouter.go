// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cnis

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/podweir/podweir/e2e/k8s/cilium"
	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/matrix/row"
	"github.com/podweir/podweir/e2e/step"
)

// kubeRouter is kube-router's own manifest with the real program, which routes by BGP and
// enforces policy; the reference plugins bridge and host-local make interfaces, as in
// kube-router's own image.
type kubeRouter struct {
	lines
	byLabels
	daemonSet

	manifest string
}

// beforeTheEnd is a file of a node that is as old as the conflist of before.
const beforeTheEnd = "/run/before-the-end"

func newKubeRouter(*row.Row) CNI {
	const file = "10-kuberouter.conflist"
	// Its chains and sets follow pods and policies.
	own := lines{"KUBE-", "kube-router", lastAddress}
	return &kubeRouter{lines: own, byLabels: byLabels{cilium.NetworkPolicy}, daemonSet: daemonSet{
		"kube-system", "kube-router", file, "^kube-router ",
		"[ /etc/cni/net.d/" + file + " -nt " + beforeTheEnd + " ] && " + answers("20244/healthz") + " && rm " + beforeTheEnd,
	}}
}

// Images builds kube-router.
func (k *kubeRouter) Images(ctx context.Context, here string) (_ []string, err error) {
	defer step.End(&err)
	made := step.Get(cluster.Setup(ctx, filepath.Join(here, "../kube-router"), 2))
	k.manifest = made[1]
	return made[:1], nil
}

// Install applies the manifest.
func (k *kubeRouter) Install(ctx context.Context, c *cluster.Cluster) error {
	return step.Err(c.Kubectl(ctx, "", "create", "-f", k.manifest))
}

// Ready wants a kube-router on every node that is ready and has written the node's subnet
// into the conflist.
func (k *kubeRouter) Ready(ctx context.Context, c *cluster.Cluster) error {
	err := k.daemonSet.Ready(ctx, c)
	for _, n := range c.Members {
		_, written := n.Exec(ctx, "grep", "-q", "ranges", k.Conflist())
		err = errors.Join(err, written)
	}
	return err
}

// KillAgent kills kube-router and returns when the next one is healthy and has written the
// conflist in place, as each does at its start.
func (k *kubeRouter) KillAgent(ctx context.Context, c *cluster.Cluster, n *cluster.Node) error {
	if _, err := n.Exec(ctx, "touch", "-d", "1 hour ago", k.Conflist(), beforeTheEnd); err != nil {
		return err
	}
	return k.daemonSet.KillAgent(ctx, c, n)
}

// Uninstall removes what the manifest made, and what kube-router leaves on nodes.
func (k *kubeRouter) Uninstall(ctx context.Context, c *cluster.Cluster) error {
	_, err := c.Kubectl(ctx, "", "delete", "--ignore-not-found", "--timeout=90s", "-f", k.manifest)
	return errors.Join(err, onEach(ctx, c, "rm -rf "+k.Conflist()+" /var/lib/cni; [ ! -e /sys/class/net/kube-bridge ] || ip link delete kube-bridge"))
}
