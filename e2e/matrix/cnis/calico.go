// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cnis

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/podweir/podweir/e2e/k8s/cilium"
	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/e2e/matrix/row"
	"github.com/podweir/podweir/e2e/step"
)

// calico is a manifest of Calico's own with its real agent and CNI plugin. Words of the
// variant change Felix's settings.
type calico struct {
	byLabels
	daemonSet

	env map[string]string
	// made is what e2e/calico/setup.sh made.
	made string
	// manifest is a file of it.
	manifest string
	// flannel brings packets to other nodes, as Canal has it; else it is nil.
	flannel *flannel
}

func newCalico(r *row.Row) CNI {
	c := &calico{
		byLabels: byLabels{cilium.NetworkPolicy}, manifest: "calico-vxlan.yaml",
		daemonSet: daemonSet{"kube-system", "calico-node", "10-calico.conflist", "^calico-node -felix", answers("9099/readiness")},
		env: map[string]string{
			// It is built without cgo, so that it has no libbpf.
			"FELIX_DebugSkipCTLBCleanup": "true", "FELIX_XDPENABLED": "false",
			"FELIX_USAGEREPORTINGENABLED": "false",
		},
	}
	if variantHas(r, "nftables") {
		c.env["FELIX_NFTABLESMODE"] = "Enabled"
	}
	if variantHas(r, "Canal") {
		c.manifest, c.name, c.file, c.flannel = "canal.yaml", "canal", "10-canal.conflist", &flannel{}
	}
	return c
}

// Images builds Calico, and flannel where it is a part.
func (c *calico) Images(ctx context.Context, here string) (_ []string, err error) {
	defer step.End(&err)
	made := step.Get(cluster.Setup(ctx, filepath.Join(here, "../calico"), 1))
	c.made = made[0]
	images := []string{filepath.Join(c.made, "image.tar")}
	if c.flannel != nil {
		more, err := c.flannel.Images(ctx, here)
		return append(images, more...), err
	}
	return images, nil
}

// Install applies the manifest.
func (c *calico) Install(ctx context.Context, k *cluster.Cluster) (err error) {
	defer step.End(&err)
	manifest := step.Get(c.objects())
	return step.Err(k.Kubectl(ctx, manifest, "create", "-f", "-"))
}

// objects are those of Calico's manifest, but for calico-kube-controllers, which collects
// what nodes and pods leave that are gone.
func (c *calico) objects() (_ string, err error) {
	defer step.End(&err)
	text := step.Get(os.ReadFile(filepath.Join(c.made, c.manifest)))
	// The network of Canal's flanneld.
	text = bytes.ReplaceAll(text, []byte("10.244.0.0/16"), []byte(cluster.PodCIDR))
	var items []map[string]any
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var object map[string]any
		if err := d.Decode(&object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return "", err
		}
		switch object["kind"] {
		case nil, "Deployment", "PodDisruptionBudget":
			continue
		case "DaemonSet":
			step.OK(c.adapt(object))
		}
		items = append(items, object)
	}
	list, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	return string(list), err
}

// adapt gives calico-node its settings.
func (c *calico) adapt(set map[string]any) error {
	spec, _ := at(set, "spec", "template", "spec").(map[string]any)
	containers, _ := spec["containers"].([]any)
	if len(containers) == 0 {
		return fmt.Errorf("%s: the DaemonSet has no container", c.manifest)
	}
	node, _ := containers[0].(map[string]any)
	env, _ := node["env"].([]any)
	values := maps.Clone(c.env)
	values["CALICO_IPV4POOL_CIDR"] = cluster.PodCIDR
	env = slices.DeleteFunc(env, func(e any) bool {
		entry, _ := e.(map[string]any)
		name, _ := entry["name"].(string)
		return values[name] != ""
	})
	for name, value := range values {
		env = append(env, map[string]any{"name": name, "value": value})
	}
	node["env"] = env
	// The agent is ready a few seconds after its start; Calico's manifest asks every 10.
	startup := map[string]any{}
	ready, _ := node["readinessProbe"].(map[string]any)
	maps.Copy(startup, ready)
	startup["periodSeconds"], startup["failureThreshold"] = 1, 120
	node["startupProbe"] = startup
	return nil
}

// at is what a path of keys leads to, nil where there is nothing.
func at(object any, path ...string) any {
	for _, key := range path {
		m, _ := object.(map[string]any)
		object = m[key]
	}
	return object
}

// Batch is small: each address is a write to the one block of the node, so that 25 pods at
// once start and go for more than a minute on a busy machine.
func (c *calico) Batch() int { return 8 }

// Uninstall removes what the manifest made, and what calico-node leaves in files.
func (c *calico) Uninstall(ctx context.Context, k *cluster.Cluster) (err error) {
	defer step.End(&err)
	manifest := step.Get(c.objects())
	_, err = k.Kubectl(ctx, manifest, "delete", "--ignore-not-found", "--timeout=90s", "-f", "-")
	err = errors.Join(err, onEach(ctx, k, "rm -rf "+c.Conflist()+" /etc/cni/net.d/calico-kubeconfig /var/lib/calico /var/lib/cni /opt/cni/bin/{calico,calico-ipam,install}"))
	if c.flannel != nil {
		err = errors.Join(err, forgetFlannel(ctx, k))
	}
	return err
}

// Own says whether a line is of Calico's: its rules follow each endpoint, its queues and
// filters the annotations of a pod, and its routes (protocol 80) the blocks of addresses.
func (c *calico) Own(line string) bool {
	return strings.Contains(line, "cali") && !strings.Contains(line, "podweir") && !strings.Contains(line, "pw_") || strings.Contains(line, " proto 80 ") || strings.Contains(line, lastAddress)
}

// Shaper is the name by which podweir knows Calico as a shaper.
func (c *calico) Shaper() string { return "calico" }

// OwnLimits reads the buckets of the pod's host side and of the ifb that it sends to.
func (c *calico) OwnLimits(ctx context.Context, p *workload.Pod) (in, out uint64, err error) {
	text, err := p.Node.Exec(ctx, "bash", "-c", `
set -e
device=$(ip -o route show `+p.IP.String()+` | sed -nE 's/.* dev (cali[^ ]*).*/\1/p')
[ -n "$device" ]
ifb=$(tc filter show dev "$device" ingress | sed -nE 's/.*[Rr]edirect to device (bwcali[^)]*)\).*/\1/p')
tc -j qdisc show dev "$device" root
[ -z "$ifb" ] || tc -j qdisc show dev "$ifb" root`)
	if err != nil {
		return 0, 0, fmt.Errorf("%w: %s", err, text)
	}
	limits := make([]uint64, 0, 2)
	for d := json.NewDecoder(strings.NewReader(text)); d.More(); {
		var qdiscs []struct {
			Kind    string
			Options struct {
				// Rate is in bytes per second.
				Rate uint64
			}
		}
		if err := d.Decode(&qdiscs); err != nil {
			return 0, 0, fmt.Errorf("tc: %w: %s", err, text)
		}
		limit := uint64(0)
		for _, q := range qdiscs {
			if q.Kind == "tbf" {
				limit = q.Options.Rate * 8
			}
		}
		limits = append(limits, limit)
	}
	limits = append(limits, 0, 0)
	return limits[0], limits[1], nil
}
