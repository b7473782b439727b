// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"testing"

	"github.com/podweir/podweir/e2e/k8s/snapshot"
	"github.com/podweir/podweir/plugin/testutil/mark"
)

// TestPrivilegedUninstall takes the release off while its pods run, and compares
// the nodes with what they were before it came.
func TestPrivilegedUninstall(t *testing.T) {
	for _, delivery := range []string{"chain", "drop-in", "nri"} {
		t.Run(delivery, func(t *testing.T) {
			if delivery != "drop-in" {
				mark.Nightly(t, "auto takes drop-in, and the fast rows of the matrix uninstall from a chain")
			}
			takenOff(t, delivery)
		})
	}
}

func takenOff(t *testing.T, delivery string) {
	t.Helper()
	uninstall(t)
	p := run(t, "staying", 0, limits("20M", "10M"))
	peer := run(t, "peer", 1, nil)
	var before []snapshot.Snapshot
	for _, n := range suite.Members {
		// Of what other tests left nothing may be taken for the node's own.
		if _, err := n.Exec(t.Context(), "rm", "-rf", "/run/podweir", "/var/lib/podweir"); err != nil {
			t.Fatal(err)
		}
		before = append(before, take(t, n))
	}
	install(t, "delivery="+delivery)
	measure(t, p, peer).holds(t, "with podweir", 20_000_000, 10_000_000)
	var changed bool
	for i, n := range suite.Members {
		changed = changed || len(take(t, n)) != len(before[i])
	}
	if !changed {
		t.Error("podweir changed nothing that the snapshots show")
	}
	uninstall(t)
	for i, n := range suite.Members {
		unchanged(t, n, before[i])
	}
	measure(t, p, peer).holds(t, "after the uninstall", 0, 0)
	late := run(t, "late", 0, limits("20M", "10M"))
	measure(t, late, peer).holds(t, "a pod from after the uninstall", 0, 0)
}
