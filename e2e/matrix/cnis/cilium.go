// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cnis

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/podweir/podweir/e2e/k8s/cilium"
	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/matrix/row"
)

// ciliumCNI is a real Cilium, installed by its own chart. Words of the variant
// change its settings.
type ciliumCNI struct {
	cilium.Release
	lines
	byLabels

	settings cilium.Settings
	// release is one that [cilium.Prepare] knows.
	release string
	// changes are other settings, which follow one another while pods run.
	changes []Change
}

func newCilium(r *row.Row) CNI {
	// What changes with every pod and every start of its agent.
	own := lines{"/run/cilium", "/sys/fs/bpf/cilium", "/sys/fs/bpf/tc/globals", "cil_from_", "cil_to_"}
	m := &ciliumCNI{settings: cilium.Legacy, lines: own, byLabels: byLabels{cilium.Policy}, release: cilium.Newest}
	if strings.Contains(r.Version, " v1.15.") {
		m.release = cilium.Old
	}
	switch {
	case variantHas(r, "kubeProxyReplacement=true"):
		m.settings = cilium.KubeProxyReplacement
	case strings.HasPrefix(r.Variant, "BPF"):
		m.settings = cilium.BPF
	}
	m.settings.Exclusive = !variantHas(r, "cni.exclusive=false")
	m.settings.BandwidthManager = variantHas(r, "bandwidthManager.enabled=true")
	m.settings.EndpointRoutes = variantHas(r, "endpointRoutes.enabled=true")
	if r.Policy == "NetworkPolicy" {
		m.policy = cilium.NetworkPolicy
	}
	first := m.settings
	switch {
	case variantHas(r, "bpf.enableTCX=false"):
		m.settings.WithoutTCX = true
		m.changes = []Change{m.to("TCX on", first), m.to("TCX off", m.settings)}
	case variantHas(r, "bpf.datapathMode=auto"):
		auto := cilium.BPF
		auto.DatapathMode = "auto"
		m.changes = []Change{m.to("BPF host routing", cilium.BPF), m.to("bpf.datapathMode=auto", auto), m.to("legacy host routing", first)}
	}
	if m.changes != nil {
		m.lines = append(m.lines, "/volumes/kubernetes.io~projected/") // of an agent that other settings replaced
	}
	return m
}

// Images builds Cilium.
func (m *ciliumCNI) Images(ctx context.Context, here string) ([]string, error) {
	var err error
	m.Made, err = cilium.Prepare(ctx, filepath.Join(here, "../cilium"), m.release)
	return []string{m.Archive()}, err
}

// to gives Cilium other settings. Meanwhile it denies what it denied before.
func (m *ciliumCNI) to(what string, s cilium.Settings) Change {
	return Change{what, func(ctx context.Context) error { return m.Release.Install(ctx, s) }, true}
}

// Changes follow one another while pods run.
func (m *ciliumCNI) Changes() []Change { return m.changes }

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
