// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"errors"
	"strings"
	"testing"
)

// TestPrivilegedInstall holds a release with the chart's values for any cluster to
// what its NOTES promise.
func TestPrivilegedInstall(t *testing.T) {
	uninstall(t)
	// Both ran before podweir came.
	early := run(t, "early", 0, limits("20M", "10M"))
	free := run(t, "free", 0, nil)
	peer := run(t, "peer", 1, nil)
	measure(t, early, peer).holds(t, "before podweir", 0, 0)

	install(t)
	t.Logf("from nothing to two ready nodes: %.1f s", suite.Took.Seconds())
	page, err := fetch(t.Context(), early.Node, "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("delivery that auto chose: `%s`", strings.TrimSpace(grep(page, "podweir_delivery_info{")))
	measure(t, early, peer).holds(t, "a pod from before", 20_000_000, 10_000_000)
	late := run(t, "late", 0, limits("10M", "20M"))
	measure(t, late, peer).holds(t, "a pod from after", 10_000_000, 20_000_000)
	measure(t, free, peer).holds(t, "a pod without annotations", 0, 0)

	for _, n := range suite.Members {
		green(t, n)
	}
	small(t, early.Node)
	early.limited(t, 20_000_000, 10_000_000)
	late.limited(t, 10_000_000, 20_000_000)
	metrics(t, early.Node, func(page string) error {
		if !strings.Contains(page, "\npodweir_shaped_pods 2\n") {
			return errors.New(grep(page, "podweir_shaped_pods"))
		}
		return nil
	})
	if out, err := podweir(t, early.Node, "status"); err != nil || !strings.Contains(out, "early") || !strings.Contains(out, "late") {
		t.Errorf("status does not name both pods: %v\n%s", err, out)
	}
}
