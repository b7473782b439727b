// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
)

// TestPrivilegedDropInWithoutTheAgent stops the agent: what limits a pod, or refuses
// it, is the plugin that the container runtime calls.
func TestPrivilegedDropInWithoutTheAgent(t *testing.T) {
	uninstall(t)
	install(t, "delivery=drop-in", "defaults.onError=closed")
	peer := run(t, "peer", 1, nil)
	green(t, suite.Members[0])
	stopAgent(t, suite.Members[0])
	p := run(t, "alone", 0, limits("20M", "10M"))
	measure(t, p, peer).holds(t, "made while the agent was stopped, with a drop-in", 20_000_000, 10_000_000)

	hideBPFFS(t, suite.Members[0])
	create(t, manifest("refused", suite.Members[0], limits("20M", "10M")))
	eventually(t, 20*time.Second, "refusal", func(ctx context.Context) error {
		list, err := events(ctx, "refused")
		if err != nil {
			return err
		}
		for _, e := range list {
			if e.Reason == "FailedCreatePodSandBox" && strings.Contains(e.Message, "BPF file system") {
				return nil
			}
		}
		return fmt.Errorf("no Event says that podweir refused it: %+v", list)
	})
	if phase := kubectl(t, "get", "pod", "refused", "-o", "jsonpath={.status.phase}"); phase != "Pending" {
		t.Errorf("the pod that cannot be limited is %s, want Pending", phase)
	}
}

// hideBPFFS takes what podweir needs from a node for the rest of the test.
func hideBPFFS(t *testing.T, n *cluster.Node) {
	t.Helper()
	const dir = "/sys/fs/bpf"
	if _, err := n.Exec(t.Context(), "mount", "-t", "tmpfs", "none", dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := n.Exec(context.Background(), "umount", dir); err != nil {
			t.Error(err)
		}
	})
}

// stopAgent stops the agent's process on a node for the rest of the test. The
// kubelet would end it after a minute without an answer.
func stopAgent(t *testing.T, n *cluster.Node) {
	t.Helper()
	signal := func(ctx context.Context, name string) error {
		_, err := n.Exec(ctx, "pkill", "-"+name, "-x", "podweir")
		return err
	}
	if err := signal(t.Context(), "STOP"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context is over by now.
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		err := signal(ctx, "CONT")
		if err == nil {
			err = cluster.Eventually(ctx, 20*time.Second, func(ctx context.Context) error {
				_, err := fetch(ctx, n, "/readyz")
				return err
			})
		}
		if err != nil {
			t.Error(errors.Join(errors.New("the agent does not go on"), err))
		}
	})
}
