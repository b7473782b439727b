// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"testing"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/k8s/snapshot"
)

// take is what a node is made of.
func take(t *testing.T, n *cluster.Node) snapshot.Snapshot {
	t.Helper()
	s, err := snapshot.Take(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// unchanged compares a node with what it was before.
func unchanged(t *testing.T, n *cluster.Node, before snapshot.Snapshot) {
	t.Helper()
	for _, d := range snapshot.Compare(before, take(t, n), nil) {
		t.Errorf("%s: after the uninstall %s", n.Name, d)
	}
	t.Logf("lines of %s compared: %d", n.Name, len(before))
}
