// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/testutil/mark"
)

// full is how many pods a kubelet takes by default, less the agent's own.
const full = 109

// TestPrivilegedFullNode fills a node with pods that have limits, under the
// delivery with which the agent has the most connections.
func TestPrivilegedFullNode(t *testing.T) {
	mark.Nightly(t, "it fills a node with pods")
	uninstall(t)
	install(t, "delivery=nri")
	node := suite.Members[0]
	var made []map[string]any
	names := []string{"wait", "--for=condition=Ready", "--timeout=5m"}
	for i := range full {
		name := fmt.Sprintf("full-%d", i)
		made = append(made, manifest(name, node, limits("20M", "10M")))
		names = append(names, "pod/"+name)
	}
	began := time.Now()
	create(t, made...)
	kubectl(t, names...)
	t.Logf("from nothing to ready: %d pods in %.0f s", full, time.Since(began).Seconds())

	metrics(t, node, func(page string) error {
		got := strings.Count(grep(page, "podweir_pod_limit_bits_per_second{"), `pod="full-`)
		if got != 2*full {
			return fmt.Errorf("%d caps are in force, want %d", got, 2*full)
		}
		return nil
	})
	small(t, node)
	took := func(what string, f func(ctx context.Context) error) {
		began := time.Now()
		if err := f(t.Context()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		t.Logf("%s: %.2f s", what, time.Since(began).Seconds())
	}
	took("a scrape", func(ctx context.Context) error {
		_, err := fetch(ctx, node, "/metrics")
		return err
	})
	took("podweir version, by kubectl exec", func(context.Context) error {
		_, err := podweir(t, node, "version")
		return err
	})
	took("podweir doctor, by kubectl exec", func(context.Context) error {
		_, err := podweir(t, node, "doctor")
		return err
	})
	last := ready(t, fmt.Sprintf("full-%d", full-1))
	peer := run(t, "peer", 1, nil)
	measure(t, last, peer).holds(t, "the last pod of a full node", 20_000_000, 10_000_000)
}
