// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cnis

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"github.com/podweir/podweir/e2e/k8s/cilium"
	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/e2e/matrix/row"
)

// ciliumCNI is a real Cilium, installed by its own chart. Words of the variant
// change its settings.
type ciliumCNI struct {
	cilium.Release

	settings cilium.Settings
	policy   func(name, to string, from ...string) map[string]any
}

func newCilium(r *row.Row) CNI {
	m := &ciliumCNI{settings: cilium.Legacy, policy: cilium.Policy}
	switch {
	case variantHas(r, "kubeProxyReplacement=true"):
		m.settings = cilium.KubeProxyReplacement
	case variantHas(r, "BPF"):
		m.settings = cilium.BPF
	}
	m.settings.Exclusive = !variantHas(r, "cni.exclusive=false")
	if r.Policy == "NetworkPolicy" {
		m.policy = cilium.NetworkPolicy
	}
	return m
}

// Images builds Cilium.
func (m *ciliumCNI) Images(ctx context.Context, here string) ([]string, error) {
	var err error
	m.Made, err = cilium.Prepare(ctx, filepath.Join(here, "../cilium-agent"))
	return []string{m.Archive()}, err
}

// Shares says that Cilium leaves nothing else.
func (m *ciliumCNI) Shares() {}

// Install returns when Cilium is ready.
func (m *ciliumCNI) Install(ctx context.Context, c *cluster.Cluster) error {
	m.Cluster = c
	return m.Release.Install(ctx, m.settings)
}

// Ready looks once and returns what is missing.
func (m *ciliumCNI) Ready(ctx context.Context, _ *cluster.Cluster) error { return m.Look(ctx) }

// Booted has nothing to do: the kubelet starts Cilium's agent.
func (m *ciliumCNI) Booted(context.Context, *cluster.Node) error { return nil }

// Conflist returns the name of the file that Cilium writes.
func (m *ciliumCNI) Conflist() string { return cilium.Conflist }

// Uninstall removes the Helm release and the conflist.
func (m *ciliumCNI) Uninstall(ctx context.Context, _ *cluster.Cluster) error {
	return m.Release.Uninstall(ctx)
}

// KillAgent returns when the kubelet has started the agent again.
func (m *ciliumCNI) KillAgent(ctx context.Context, _ *cluster.Cluster, n *cluster.Node) error {
	return m.Release.KillAgent(ctx, n)
}

// Restrict gives the pods labels, by which the policy knows them.
func (m *ciliumCNI) Restrict(ctx context.Context, c *cluster.Cluster, server *workload.Pod, friends ...*workload.Pod) error {
	var names []string
	for _, p := range friends {
		names = append(names, p.Name)
	}
	for _, name := range append(slices.Clone(names), server.Name) {
		for key, value := range cilium.Labels(name) {
			if _, err := c.Kubectl(ctx, "", "label", "--overwrite", "pod", name, key+"="+value); err != nil {
				return err
			}
		}
	}
	_, err := c.Kubectl(ctx, m.manifest(server.Name, names...), "apply", "-f", "-")
	return err
}

// Lift deletes the policy that [ciliumCNI.Restrict] made.
func (m *ciliumCNI) Lift(ctx context.Context, c *cluster.Cluster, server *workload.Pod) error {
	_, err := c.Kubectl(ctx, m.manifest(server.Name), "delete", "--ignore-not-found", "-f", "-")
	return err
}

func (m *ciliumCNI) manifest(server string, friends ...string) string {
	text, err := json.Marshal(m.policy("matrix-"+server, server, friends...))
	if err != nil {
		panic(err) // maps of texts
	}
	return string(text)
}

// Logs are the last words of Cilium's agent.
func (m *ciliumCNI) Logs(ctx context.Context, n *cluster.Node) string {
	text, err := m.Release.Logs(ctx, n)
	return strings.TrimSpace(text + "\n" + errorText(err))
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Own says whether a line is of Cilium's state, which changes with every pod and
// every start of its agent.
func (m *ciliumCNI) Own(line string) bool {
	return slices.ContainsFunc([]string{
		"/run/cilium", "/sys/fs/bpf/cilium", "/sys/fs/bpf/tc/globals", "cil_from_", "cil_to_",
	}, func(part string) bool { return strings.Contains(line, part) })
}
