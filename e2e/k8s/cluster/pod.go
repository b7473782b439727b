// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
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
	all, err := c.AllReady(ctx, name)
	if err != nil {
		return nil, netip.Addr{}, err
	}
	return all[0].Node, all[0].IP, nil
}

// Place is where a pod runs.
type Place struct {
	Node *Node
	IP   netip.Addr
}

// AllReady waits for pods and says where they are, in the order of the names. One
// command waits for all: each costs a tenth of a second of a processor.
func (c *Cluster) AllReady(ctx context.Context, names ...string) ([]Place, error) {
	args := []string{"wait", "--for=condition=Ready", "--timeout=110s", "-o", "json"}
	for _, name := range names {
		args = append(args, "pod/"+name)
	}
	out, err := c.Kubectl(ctx, "", args...)
	if err != nil {
		return nil, err
	}
	found := map[string]Place{}
	for d := json.NewDecoder(strings.NewReader(out)); d.More(); {
		var got struct {
			Metadata struct{ Name string }
			Spec     struct{ NodeName string }
			Status   struct{ PodIP netip.Addr }
		}
		if err := d.Decode(&got); err != nil {
			return nil, fmt.Errorf("kubectl wait: %w", err)
		}
		n, err := c.Node(got.Spec.NodeName)
		if err != nil {
			return nil, err
		}
		found[got.Metadata.Name] = Place{n, got.Status.PodIP}
	}
	places := make([]Place, len(names))
	for i, name := range names {
		place, ok := found[name]
		if !ok {
			return nil, fmt.Errorf("kubectl wait says nothing of pod %s: %s", name, out)
		}
		places[i] = place
	}
	return places, nil
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
