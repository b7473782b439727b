// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cnis

import (
	"context"
	"errors"
	"path/filepath"
	"strings"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/matrix/row"
	"github.com/podweir/podweir/e2e/step"
)

const (
	// flannelSpace is the namespace of flannel's chart.
	flannelSpace = "kube-flannel"
	// flannelKey begins the keys of flanneld's annotations.
	flannelKey = "flannel.alpha.coreos.com/"
)

// flannel is flannel's own chart with the real flanneld. e2e/flannel/plugin
// stands in for its CNI binary.
type flannel struct {
	lines
	daemonSet

	backend, chart, version string
}

func newFlannel(r *row.Row) CNI {
	f := &flannel{
		lines:     lines{lastAddress},
		daemonSet: daemonSet{flannelSpace, "kube-flannel-ds", "10-flannel.conflist", "^/opt/bin/flanneld", ""},
		backend:   "host-gw", version: strings.TrimPrefix(r.Version, "flannel "),
	}
	if variantHas(r, "vxlan") {
		f.backend = "vxlan"
	}
	return f
}

// Images builds flannel.
func (f *flannel) Images(ctx context.Context, here string) (_ []string, err error) {
	defer step.End(&err)
	made := step.Get(cluster.Setup(ctx, filepath.Join(here, "../flannel"), 2))
	f.chart = made[1]
	return made[:1], nil
}

// Install installs flannel's chart.
func (f *flannel) Install(ctx context.Context, c *cluster.Cluster) error {
	image := "localhost/flannel/flannel"
	_, err := c.Helm(ctx, "upgrade", "--install", "flannel", f.chart, "-n", flannelSpace, "--create-namespace",
		"--set", "podCidr="+cluster.PodCIDR, "--set", "flannel.backend="+f.backend,
		// flanneld answers a moment after the kubelet's first question, and the chart's
		// next ones are 10 s apart.
		"--set", "flannel.healthz.readinessProbe.initialDelaySeconds=0", "--set", "flannel.healthz.readinessProbe.periodSeconds=1",
		"--set", "flannel.image.repository="+image, "--set", "flannel.image.tag="+f.version,
		"--set", "flannel.flannel_cni.image.repository="+image, "--set", "flannel.flannel_cni.image.tag="+f.version)
	return err
}

// Uninstall removes the release and what it leaves on nodes, as flannel's own
// documentation has it.
func (f *flannel) Uninstall(ctx context.Context, c *cluster.Cluster) error {
	_, err := c.Helm(ctx, "uninstall", "flannel", "-n", flannelSpace, "--wait")
	return errors.Join(err, forgetFlannel(ctx, c), onEach(ctx, c, "rm -rf "+f.Conflist()+" /var/lib/cni"))
}

// forgetFlannel removes what flanneld says of a node to the others, and what it made there.
func forgetFlannel(ctx context.Context, c *cluster.Cluster) error {
	_, err := c.Kubectl(ctx, "", "annotate", "node", "--all", flannelKey+"backend-type-", flannelKey+"backend-data-", flannelKey+"kube-subnet-manager-", flannelKey+"public-ip-")
	return errors.Join(err, onEach(ctx, c, "rm -rf /run/flannel; for d in cni0 flannel.1; do [ ! -e /sys/class/net/$d ] || ip link delete $d; done"))
}
