// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cilium

// app is the label that policies select pods by.
const app = "app"

// Labels are those of a pod that policies know by a name.
func Labels(name string) map[string]string { return map[string]string{app: name} }

// Policy lets only the pods of some names, at least one, connect to the pods of one, in
// Cilium's own words.
func Policy(name, to string, from ...string) map[string]any {
	var peers []any
	for _, f := range from {
		peers = append(peers, map[string]any{"matchLabels": Labels(f)})
	}
	return map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumNetworkPolicy",
		"metadata": map[string]any{"name": name, "namespace": "default"},
		"spec": map[string]any{
			"endpointSelector": map[string]any{"matchLabels": Labels(to)},
			"ingress":          []any{map[string]any{"fromEndpoints": peers}},
		},
	}
}

// NetworkPolicy is Policy in those of Kubernetes.
func NetworkPolicy(name, to string, from ...string) map[string]any {
	var peers []any
	for _, f := range from {
		peers = append(peers, map[string]any{"podSelector": map[string]any{"matchLabels": Labels(f)}})
	}
	return map[string]any{
		"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
		"metadata": map[string]any{"name": name, "namespace": "default"},
		"spec": map[string]any{
			"podSelector": map[string]any{"matchLabels": Labels(to)},
			"policyTypes": []any{"Ingress"},
			"ingress":     []any{map[string]any{"from": peers}},
		},
	}
}
