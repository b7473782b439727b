// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cnis

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/podweir/podweir/e2e/k8s/cilium"
	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/matrix/row"
)

// ciliumCNI is a real Cilium, installed by its own chart. Words of the variant
// change its settings.
type ciliumCNI struct {
	cilium.Release
	byLabels

	settings cilium.Settings
	// releases are those of the row, which begins with the first, by the names that
	// [cilium.Prepare] knows; made is what each is installed from.
	releases []string
	made     []cilium.Made
}

func newCilium(r *row.Row) CNI {
	m := &ciliumCNI{settings: cilium.Legacy, byLabels: byLabels{cilium.Policy}, releases: []string{cilium.Newest}}
	switch {
	case variantHas(r, "upgraded"):
		m.releases = []string{cilium.Old, cilium.Newest}
	case strings.Contains(r.Version, " v1.15."):
		m.releases = []string{cilium.Old}
	}
	switch {
	case variantHas(r, "kubeProxyReplacement=true"):
		m.settings = cilium.KubeProxyReplacement
	case variantHas(r, "BPF"):
		m.settings = cilium.BPF
	}
	m.settings.Exclusive = !variantHas(r, "cni.exclusive=false")
	m.settings.EndpointRoutes = variantHas(r, "endpointRoutes.enabled=true")
	if r.Policy == "NetworkPolicy" {
		m.policy = cilium.NetworkPolicy
	}
	return m
}

// Images builds Cilium.
func (m *ciliumCNI) Images(ctx context.Context, here string) (images []string, err error) {
	for _, release := range m.releases {
		made, err := cilium.Prepare(ctx, filepath.Join(here, "../cilium"), release)
		if err != nil {
			return nil, err
		}
		m.made, images = append(m.made, made), append(images, made.Archive())
	}
	m.Made = m.made[0]
	return images, nil
}

// Changes upgrade Cilium and go back. Cilium before 1.16 knows no TCX and would leave its
// successor's programs where they are, so they go first.
func (m *ciliumCNI) Changes() []Change {
	if len(m.releases) < 2 {
		return nil
	}
	change := func(what string, release int, withoutTCX bool) Change {
		return Change{what, func(ctx context.Context) error {
			m.Made, m.settings.WithoutTCX = m.made[release], withoutTCX
			return m.Release.Install(ctx, m.settings)
		}, true}
	}
	return []Change{
		change("upgraded", 1, false), change("TCX off", 1, true), change("downgraded", 0, false),
	}
}

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
