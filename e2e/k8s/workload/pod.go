// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package workload makes pods in a cluster of package cluster, loads them and
// measures what they get.
package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/step"
)

// The standard annotations.
const (
	IngressKey = "kubernetes.io/ingress-bandwidth"
	EgressKey  = "kubernetes.io/egress-bandwidth"
)

// Limits are annotations that request a cap in each direction.
func Limits(ingress, egress string) map[string]string {
	return map[string]string{IngressKey: ingress, EgressKey: egress}
}

// Pod is a pod that runs.
type Pod struct {
	Name string
	Node *cluster.Node
	IP   netip.Addr
	NS   cluster.Netns

	cluster *cluster.Cluster
}

// Manifest is a pod with the program of e2e/k8s/work; it serves.
func Manifest(name string, node *cluster.Node, annotations map[string]string) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": name, "namespace": "default", "annotations": annotations},
		"spec": map[string]any{
			"nodeName":                      node.Name,
			"terminationGracePeriodSeconds": 1,
			"dnsPolicy":                     "Default", // there is no DNS
			"enableServiceLinks":            false,
			"containers": []any{map[string]any{
				"name": "work", "image": "localhost/podweir/work:1", "imagePullPolicy": "Never", "args": []string{"serve"},
			}},
		},
	}
}

// Create makes pods and does not wait for them.
func Create(ctx context.Context, c *cluster.Cluster, manifests ...map[string]any) (err error) {
	defer step.End(&err)
	list := step.Get(json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": manifests}))
	// Namespaces get their service account a moment after they are there.
	return cluster.Eventually(ctx, 20*time.Second+time.Duration(len(manifests))*time.Second, func(ctx context.Context) error {
		return step.Err(c.Kubectl(ctx, string(list), "apply", "-f", "-"))
	})
}

// Delete returns when the pods are gone.
func Delete(ctx context.Context, c *cluster.Cluster, names ...string) error {
	if len(names) == 0 {
		return nil
	}
	limit := 25*time.Second + time.Duration(len(names))*time.Second
	args := append([]string{"delete", "pod", "--ignore-not-found", "--wait", "--timeout=" + limit.String()}, names...)
	return step.Err(c.Kubectl(ctx, "", args...))
}

// Ready waits for a pod that was created.
func Ready(ctx context.Context, c *cluster.Cluster, name string) (_ *Pod, err error) {
	defer step.End(&err)
	return step.Get(AllReady(ctx, c, name))[0], nil
}

// AllReady waits for pods that were created, and returns them in the order of their
// names. One command waits for all: each costs a tenth of a second of a processor.
func AllReady(ctx context.Context, c *cluster.Cluster, names ...string) (_ []*Pod, err error) {
	defer step.End(&err)
	args := []string{"wait", "--for=condition=Ready", "--timeout=110s", "-o", "json"}
	for _, name := range names {
		args = append(args, "pod/"+name)
	}
	out, err := c.Kubectl(ctx, "", args...)
	if err != nil {
		described, _ := c.Kubectl(ctx, "", append([]string{"describe", "pod"}, names...)...)
		return nil, fmt.Errorf("%w\n%s", err, Tail(described, 15))
	}
	pods := make([]*Pod, len(names))
	for d := json.NewDecoder(strings.NewReader(out)); d.More(); {
		var got struct {
			Metadata struct{ Name string }
			Spec     struct {
				NodeName    string
				HostNetwork bool
			}
			Status struct{ PodIP netip.Addr }
		}
		step.Say(d.Decode(&got), "kubectl wait")
		p := &Pod{Name: got.Metadata.Name, IP: got.Status.PodIP, cluster: c}
		p.Node = step.Get(c.Node(got.Spec.NodeName))
		if p.NS = p.Node.Netns(); !got.Spec.HostNetwork {
			p.NS, err = p.Node.PodNetns(p.IP)
		}
		at := slices.Index(names, p.Name)
		if err != nil || at < 0 {
			return nil, errors.Join(err, fmt.Errorf("pod %s: %s", p.Name, out))
		}
		pods[at] = p
	}
	if at := slices.Index(pods, nil); at >= 0 {
		return nil, fmt.Errorf("kubectl wait says nothing of pod %s: %s", names[at], out)
	}
	return pods, nil
}

// Run makes a pod and waits for it.
func Run(ctx context.Context, c *cluster.Cluster, name string, node *cluster.Node, annotations map[string]string) (*Pod, error) {
	if err := Create(ctx, c, Manifest(name, node, annotations)); err != nil {
		return nil, err
	}
	return Ready(ctx, c, name)
}

// OnNode makes a pod that has the node's network.
func OnNode(ctx context.Context, c *cluster.Cluster, name string, node *cluster.Node) (*Pod, error) {
	manifest := Manifest(name, node, nil)
	manifest["spec"].(map[string]any)["hostNetwork"] = true
	if err := Create(ctx, c, manifest); err != nil {
		return nil, err
	}
	return Ready(ctx, c, name)
}

// Annotate changes annotations of a running pod; an empty value removes one.
func (p *Pod) Annotate(ctx context.Context, annotations map[string]string) error {
	args := []string{"annotate", "--overwrite", "pod", p.Name}
	for key, value := range annotations {
		if value == "" {
			args = append(args, key+"-")
		} else {
			args = append(args, key+"="+value)
		}
	}
	return step.Err(p.cluster.Kubectl(ctx, "", args...))
}

// server is where the program of a pod sends back what it gets.
func (p *Pod) server() string { return net.JoinHostPort(p.IP.String(), "7000") }

// Reach tries a connection to the server of another pod. A policy that does not
// allow it drops its packets.
func (p *Pod) Reach(ctx context.Context, server *Pod) (err error) {
	defer step.End(&err)
	c := step.Get(p.NS.Dial(ctx, "tcp", server.server()))
	return c.Close()
}

// Ask asks another pod 200 questions a second on one connection, and returns how long the
// answers took, the shortest first. It gives up 5 s after it would have ended.
func (p *Pod) Ask(ctx context.Context, server *Pod, length time.Duration) (_ []time.Duration, err error) {
	defer step.End(&err)
	c := step.Get(p.NS.Dial(ctx, "tcp", server.server()))
	defer func() { _ = c.Close() }()
	end := time.Now().Add(length)
	step.OK(c.SetDeadline(end.Add(5 * time.Second)))
	var took []time.Duration
	question := make([]byte, 64)
	for next := time.Now(); next.Before(end) && ctx.Err() == nil; next = next.Add(5 * time.Millisecond) {
		<-time.After(time.Until(next))
		began := time.Now()
		step.Get(c.Write(question))
		step.Get(io.ReadFull(c, question))
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took, ctx.Err()
}

// Tail is the end of a long text.
func Tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
