// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package aws

import (
	"context"
	"encoding/json"
	"net/netip"

	"github.com/podweir/podweir/e2e/k8s/workload"
)

// Policy lets friends, or nobody, talk to some pods of the namespace default, and
// them to their friends; the same as a NetworkPolicy with both policyTypes.
type Policy struct {
	Name string
	Pods []*workload.Pod
	// Friends are the others that may talk to them; Everybody lets all.
	Friends   []*workload.Pod
	Everybody bool
}

// Apply gives the Network Policy Agents a policy as EKS's policy controller does.
func (v *VPC) Apply(ctx context.Context, p Policy) error {
	text, err := json.Marshal(v.endpoint(&p))
	if err != nil {
		return err
	}
	_, err = v.cluster.Kubectl(ctx, string(text), "apply", "-f", "-")
	return err
}

// Withdraw takes a policy back.
func (v *VPC) Withdraw(ctx context.Context, name string) error {
	_, err := v.cluster.Kubectl(ctx, "", "delete", "policyendpoint", object(name), "--ignore-not-found")
	return err
}

// endpoint is what the policy controller makes of a NetworkPolicy and the pods that
// are there.
func (v *VPC) endpoint(p *Policy) map[string]any {
	pods, peers := []any{}, []any{}
	for _, pod := range p.Pods {
		pods = append(pods, map[string]any{
			"hostIP": v.HostIP(pod.Node), "podIP": pod.IP, "name": pod.Name, "namespace": "default",
		})
	}
	for _, friend := range p.Friends {
		peers = append(peers, map[string]any{"cidr": netip.PrefixFrom(friend.IP, friend.IP.BitLen())})
	}
	if p.Everybody {
		peers = append(peers, map[string]any{"cidr": "0.0.0.0/0"})
	}
	return map[string]any{
		"apiVersion": "networking.k8s.aws/v1alpha1", "kind": "PolicyEndpoint",
		"metadata": map[string]any{"name": object(p.Name), "namespace": "default"},
		"spec": map[string]any{
			"policyRef":            map[string]any{"name": p.Name, "namespace": "default"},
			"podSelector":          map[string]any{"matchLabels": map[string]any{"policy": p.Name}},
			"podIsolation":         []string{"Ingress", "Egress"},
			"podSelectorEndpoints": pods, "ingress": peers, "egress": peers,
		},
	}
}

// object is the name of a policy's PolicyEndpoint. The controller's end in a hyphen
// and something random; the agent panics at names without a hyphen.
func object(policy string) string { return policy + "-0" }
