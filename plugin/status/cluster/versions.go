// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/podweir/podweir/plugin/status/view"
)

// versions says which nodes have an agent of another release than most, "" if all have
// one. It is no fault by itself: an upgrade goes from node to node.
func (c *Nodes) versions() string {
	g := c.group(func(n *Node) string {
		if n.Answer == nil {
			return ""
		}
		return cmp.Or(n.Answer.Version, "an unknown version")
	})
	if len(g.reasons) < 2 {
		return ""
	}
	slices.SortFunc(g.reasons, func(a, b string) int {
		return cmp.Or(len(g.names[b])-len(g.names[a]), strings.Compare(a, b))
	})
	var parts []string
	for i, version := range g.reasons {
		part := count(len(g.names[version]), "agent") + " of " + version
		if i > 0 {
			part += " on " + view.Names(g.names[version])
		}
		parts = append(parts, part)
	}
	return view.Paragraph(view.Pad("VERSIONS", 12), fmt.Sprintf("%d releases: %s", len(parts), strings.Join(parts, "; ")), 0) +
		view.Paragraph("  cause  ", "an upgrade or a rollback is under way, or has stopped half-way", 0) +
		view.Paragraph("  cure   ", "kubectl rollout status of the agents' DaemonSet; if it does not go on, kubectl describe the agent's pod of a node named above", 0)
}
