// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cri

import (
	"context"
	"net/netip"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Pod is a pod that runs, as the runtime knows it.
type Pod struct {
	// ID is the container ID that CNI plugins get, Name the pod as namespace/name.
	ID, Name string
	// Annotations are all that the pod had when its sandbox was made.
	Annotations map[string]string
	// Created is when its sandbox was made.
	Created time.Time
	// HostNetwork says that it has the node's network.
	HostNetwork bool
	// NetNSPath is in the host's mount namespace, "" for a pod without a network of its own,
	// or of a runtime that does not tell, as cri-dockerd.
	NetNSPath string
	Addresses []netip.Addr
}

// maxPods bounds the answer about all pods, in bytes: each comes with its annotations.
const maxPods = 64 << 20

// Handlers returns the runtime handlers of the node's ready sandboxes by container ID, "" for
// the default one. It is one call, whose answer has the pods' annotations.
func (c *Client) Handlers(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := c.ready(ctx, nil)
	all := make(map[string]string, len(list))
	for _, s := range list {
		all[s.GetId()] = s.GetRuntimeHandler()
	}
	return all, err
}

// ready lists the ready sandboxes of the node, with these labels if there are any.
func (c *Client) ready(ctx context.Context, labels map[string]string) ([]*runtime.PodSandbox, error) {
	return c.in(ctx, runtime.PodSandboxState_SANDBOX_READY, labels)
}

func (c *Client) in(ctx context.Context, state runtime.PodSandboxState, labels map[string]string) ([]*runtime.PodSandbox, error) {
	return c.list(ctx, &runtime.PodSandboxFilter{State: &runtime.PodSandboxStateValue{State: state}, LabelSelector: labels})
}

// Strangers says whether a pod with one of these UIDs runs, as the kubelet gave them, and if none does,
// how many of the kubelet's pods run. It asks for one pod at a time: an answer has the annotations, which can be 256 kB of each pod.
func (c *Client) Strangers(ctx context.Context, uids []string) (known bool, count int, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for _, uid := range uids {
		if one, err := c.ready(ctx, map[string]string{uidLabel: uid}); err != nil || len(one) > 0 {
			return err == nil, 0, err
		}
	}
	all, err := c.ready(ctx, nil)
	for _, s := range all {
		if s.GetLabels()[uidLabel] != "" {
			count++
		}
	}
	return false, count, err
}

// Pods returns the pods of the node, beside an error those of which the runtime tells. It takes
// one call for each, which together may take a second on a full node: for commands of people,
// not for the agent.
func (c *Client) Pods(ctx context.Context) ([]Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := c.ready(ctx, nil)
	if err != nil {
		return nil, err
	}
	var all []Pod
	var failed error
	for _, s := range list {
		p := Pod{
			ID: s.GetId(), Annotations: s.GetAnnotations(), Created: time.Unix(0, s.GetCreatedAt()),
			Name: s.GetMetadata().GetNamespace() + "/" + s.GetMetadata().GetName(),
		}
		answer, err := c.sandboxStatus(ctx, p.ID)
		if err != nil && ctx.Err() != nil {
			return nil, err
		}
		if err != nil { // runtimes differ in how they say that it ended meanwhile
			if known, listErr := c.Knows(ctx, p.ID); (known || listErr != nil) && failed == nil {
				failed = err
			}
			continue
		}
		if info, err := parseInfo(answer.GetInfo()); err == nil {
			p.NetNSPath = info.NetNSPath
		}
		p.Addresses = addresses(answer.GetStatus().GetNetwork())
		p.HostNetwork = answer.GetStatus().GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtime.NamespaceMode_NODE
		all = append(all, p)
	}
	return all, failed
}

func addresses(n *runtime.PodSandboxNetworkStatus) (all []netip.Addr) {
	texts := []string{n.GetIp()}
	for _, ip := range n.GetAdditionalIps() {
		texts = append(texts, ip.GetIp())
	}
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil {
			all = append(all, a)
		}
	}
	return all
}
