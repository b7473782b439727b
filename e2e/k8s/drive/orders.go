// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/orders"
)

// driver carries out orders.
type driver struct {
	cluster *cluster.Cluster
	chart   string
	lines   <-chan []byte
	out     *json.Encoder
}

// serve answers orders until ctx ends.
func (d *driver) serve(ctx context.Context) error {
	about, err := d.about(ctx)
	if err != nil {
		return err
	}
	if err := d.out.Encode(orders.Reply{Cluster: about}); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case line := <-d.lines:
			reply, err := d.answer(ctx, line)
			if err != nil {
				reply = &orders.Reply{Error: err.Error()}
			}
			if err := d.out.Encode(reply); err != nil {
				return err
			}
		}
	}
}

func (d *driver) answer(ctx context.Context, line []byte) (*orders.Reply, error) {
	var o orders.Order
	if err := json.Unmarshal(line, &o); err != nil {
		return nil, err
	}
	switch reply := (&orders.Reply{}); {
	case o.Chain != nil:
		n, err := d.cluster.Node(o.Chain.Node)
		if err != nil {
			return nil, err
		}
		return reply, n.WriteFile(cluster.Conflist, n.Conflist(o.Chain.Plugins...))
	case o.Chart != nil:
		return reply, d.install(ctx, o.Chart)
	case o.Pod != nil:
		var err error
		reply.Pod, err = d.pod(ctx, o.Pod)
		return reply, err
	case o.Delete != "":
		return reply, d.remove(ctx, o.Delete)
	case o.Status != "":
		text, err := d.agent(ctx, o.Status, "status", "-o", "json")
		reply.Status = json.RawMessage(text)
		return reply, err
	}
	return nil, fmt.Errorf("no order in %s", line)
}

// about says what runs.
func (d *driver) about(ctx context.Context) (*orders.Cluster, error) {
	var out orders.Cluster
	for _, n := range d.cluster.Members {
		out.Nodes = append(out.Nodes, orders.Node{Name: n.Name, PID: n.PID(), Netns: n.Netns().Path()})
	}
	var list struct {
		Items []struct {
			Status struct {
				NodeInfo struct{ KubeletVersion, ContainerRuntimeVersion string }
			}
		}
	}
	if err := d.cluster.Get(ctx, &list, "nodes"); err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, errors.New("the cluster has no node")
	}
	plugins, err := version(filepath.Join(d.cluster.Components, "cni", "ptp"))
	if err != nil {
		return nil, err
	}
	info := list.Items[0].Status.NodeInfo
	out.Software = fmt.Sprintf("kubelet %s, %s, %s", info.KubeletVersion, info.ContainerRuntimeVersion, plugins)
	return &out, nil
}

// version is that of the module of a program.
func version(file string) (string, error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return "", err
	}
	return info.Main.Path + " " + info.Main.Version, nil
}

func (d *driver) install(ctx context.Context, o *orders.Chart) error {
	set := append([]string{`nodeSelector.kubernetes\.io/hostname=` + o.Node}, o.Set...)
	if err := d.cluster.Upgrade(ctx, d.chart, set...); err != nil {
		return err
	}
	return d.cluster.Rollout(ctx)
}

func (d *driver) pod(ctx context.Context, o *orders.Pod) (*orders.Running, error) {
	manifest, err := json.Marshal(cluster.Manifest(o.Name, o.Node, o.Annotations, "pause"))
	if err != nil {
		return nil, err
	}
	// Namespaces get their service account a moment after they are there.
	err = cluster.Eventually(ctx, 20*time.Second, func(ctx context.Context) error {
		_, err := d.cluster.Kubectl(ctx, string(manifest), "apply", "-f", "-")
		return err
	})
	if err != nil {
		return nil, err
	}
	n, ip, err := d.cluster.Ready(ctx, o.Name)
	if err != nil {
		return nil, err
	}
	ns, err := n.PodNetns(ip)
	if err != nil {
		return nil, err
	}
	return &orders.Running{Address: ip.String(), Netns: ns.Path()}, nil
}

func (d *driver) remove(ctx context.Context, name string) error {
	_, err := d.cluster.Kubectl(ctx, "", "delete", "pod", "--ignore-not-found", "--wait", "--timeout=30s", name)
	return err
}

// agent runs podweir in the agent of a node.
func (d *driver) agent(ctx context.Context, node string, args ...string) (string, error) {
	agents, err := d.cluster.Agents(ctx)
	if err != nil {
		return "", err
	}
	if agents[node] == "" {
		return "", fmt.Errorf("no agent on %s: %v", node, agents)
	}
	return d.cluster.Kubectl(ctx, "", append([]string{"-n", cluster.Namespace, "exec", agents[node], "--", "podweir"}, args...)...)
}
