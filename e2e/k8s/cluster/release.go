// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cluster

import "context"

// Namespace is that of podweir's release.
const Namespace = "kube-system"

// Upgrade brings podweir's release to these values, from whatever it is; chart
// is the directory of the chart. It does not wait for agents.
func (c *Cluster) Upgrade(ctx context.Context, chart string, set ...string) error {
	args := []string{
		"upgrade", "--install", "podweir", chart, "-n", Namespace, "-f", chart + "/values/generic.yaml",
		// What the nodes have imported is all there is.
		"--set", "image.pullPolicy=Never",
	}
	for _, s := range set {
		args = append(args, "--set", s)
	}
	_, err := c.Helm(ctx, args...)
	return err
}

// Rollout waits until every agent is ready and has the values of the last
// upgrade.
func (c *Cluster) Rollout(ctx context.Context) error {
	_, err := c.Kubectl(ctx, "", "-n", Namespace, "rollout", "status", "daemonset/podweir", "--timeout=80s")
	return err
}

// Agents are the names of the agents' pods by their nodes.
func (c *Cluster) Agents(ctx context.Context) (map[string]string, error) {
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct{ NodeName string }
		}
	}
	err := c.Get(ctx, &list, "pods", "-n", Namespace, "-l", "app.kubernetes.io/name=podweir")
	found := map[string]string{}
	for _, p := range list.Items {
		found[p.Spec.NodeName] = p.Metadata.Name
	}
	return found, err
}
