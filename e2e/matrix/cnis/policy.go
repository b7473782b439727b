// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cnis

import (
	"context"
	"encoding/json"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/e2e/step"
)

// byLabels makes policies that know pods by the labels that pods have which stay.
type byLabels struct {
	policy func(name, to string, from ...string) map[string]any
}

// Restrict applies the policy.
func (b byLabels) Restrict(ctx context.Context, c *cluster.Cluster, server *workload.Pod, friends ...*workload.Pod) error {
	var names []string
	for _, p := range friends {
		names = append(names, p.Name)
	}
	return step.Err(c.Kubectl(ctx, b.manifest(server.Name, names...), "apply", "-f", "-"))
}

// Lift deletes the policy that Restrict made.
func (b byLabels) Lift(ctx context.Context, c *cluster.Cluster, server *workload.Pod) error {
	return step.Err(c.Kubectl(ctx, b.manifest(server.Name), "delete", "--ignore-not-found", "-f", "-"))
}

func (b byLabels) manifest(server string, friends ...string) string {
	text, err := json.Marshal(b.policy("matrix-"+server, server, friends...))
	if err != nil {
		panic(err) // maps of texts
	}
	return string(text)
}
