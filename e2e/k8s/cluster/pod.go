// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cluster

import (
	"context"
	"fmt"
	"net/netip"
)

// Manifest is a pod with the program of e2e/k8s/work, which is told args.
func Manifest(name, node string, annotations map[string]string, args ...string) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": name, "namespace": "default", "annotations": annotations},
		"spec": map[string]any{
			"nodeName":                      node,
			"terminationGracePeriodSeconds": 1,
			"dnsPolicy":                     "Default", // there is no DNS
			"enableServiceLinks":            false,
			"containers": []any{map[string]any{
				"name": "work", "image": "localhost/podweir/work:1", "imagePullPolicy": "Never", "args": args,
			}},
		},
	}
}

// Ready waits for a pod and says where it is.
func (c *Cluster) Ready(ctx context.Context, name string) (*Node, netip.Addr, error) {
	if _, err := c.Kubectl(ctx, "", "wait", "--for=condition=Ready", "pod/"+name, "--timeout=60s"); err != nil {
		return nil, netip.Addr{}, err
	}
	var got struct {
		Spec   struct{ NodeName string }
		Status struct{ PodIP netip.Addr }
	}
	if err := c.Get(ctx, &got, "pod", name); err != nil {
		return nil, netip.Addr{}, err
	}
	n, err := c.Node(got.Spec.NodeName)
	return n, got.Status.PodIP, err
}

// Node is the node of a name.
func (c *Cluster) Node(name string) (*Node, error) {
	for _, n := range c.Members {
		if n.Name == name {
			return n, nil
		}
	}
	return nil, fmt.Errorf("there is no node %q", name)
}
