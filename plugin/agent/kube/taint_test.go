// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package kube_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/agent/kube"
	"github.com/podweir/podweir/plugin/agent/kube/apitest"
)

const startupTaint = "podweir.io/agent-not-ready"

var (
	ours    = apitest.Taint{Key: startupTaint, Effect: "NoSchedule"}
	execute = apitest.Taint{Key: startupTaint, Value: "x", Effect: "NoExecute", TimeAdded: "2026-01-02T03:04:05Z"}
	others  = apitest.Taint{Key: "node.cilium.io/agent-not-ready", Value: "true", Effect: "NoExecute"}
	pool    = apitest.Taint{Key: "gpu", Effect: "NoSchedule"}
)

func TestStartupTaintIsRemovedAlone(t *testing.T) {
	c := newCluster(t)
	taint := kube.NewStartupTaint(c.client, "n1", startupTaint, c.slog())
	for name, tc := range map[string]struct {
		taints, want []apitest.Taint
		removed      int
	}{
		"among others":          {[]apitest.Taint{others, ours, pool}, []apitest.Taint{others, pool}, 1},
		"two effects":           {[]apitest.Taint{ours, others, execute, pool}, []apitest.Taint{others, pool}, 2},
		"alone":                 {[]apitest.Taint{ours}, []apitest.Taint{}, 1},
		"not there":             {[]apitest.Taint{others}, []apitest.Taint{others}, 0},
		"a node without taints": {nil, nil, 0},
	} {
		c.PutNode("n1", tc.taints...)
		_, before := c.Taints("n1")
		removed, err := taint.Remove(t.Context())
		got, patches := c.Taints("n1")
		if err != nil || removed != tc.removed || !cmp.Equal(tc.want, got) {
			t.Errorf("%s: Remove = %d, %v, taints %v, want %d, %v", name, removed, err, got, tc.removed, tc.want)
		}
		if patched := patches > before; patched != (tc.removed > 0) {
			t.Errorf("%s: the node was patched: %v", name, patched)
		}
	}
}

// What others change between the look and the patch is theirs: nothing but our own
// taint may go.
func TestStartupTaintThatMovesMeanwhile(t *testing.T) {
	c := newCluster(t)
	taint := kube.NewStartupTaint(c.client, "n1", startupTaint, c.slog())
	c.PutNode("n1", others, ours)
	c.BeforePatch("n1", func() { c.PutNode("n1", ours, pool) })
	if _, err := taint.Remove(t.Context()); err == nil || !strings.Contains(err.Error(), "node n1") {
		t.Errorf("Remove = %v, want an error that names the node", err)
	}
	if got, _ := c.Taints("n1"); !cmp.Equal(got, []apitest.Taint{ours, pool}) {
		t.Errorf("taints %v, want that nothing was removed", got)
	}
	if removed, err := taint.Remove(t.Context()); err != nil || removed != 1 {
		t.Errorf("Remove once more = %d, %v, want 1", removed, err)
	}
}

// The taint stays as long as the agent is not ready, and while the server refuses; the
// log says what is missing.
func TestStartupTaintWaitsUntilTheAgentIsReady(t *testing.T) {
	c := newCluster(t)
	c.client.Hurry()
	c.PutNode("n1", ours)
	var ready atomic.Bool
	var looks atomic.Int32
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- kube.NewStartupTaint(c.client, "n1", startupTaint, c.slog()).Run(ctx, func() error {
			looks.Add(1)
			if !ready.Load() {
				return errors.New("not ready")
			}
			return nil
		})
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v, want nil at the end of the context", err)
		}
	}()
	eventually(t, "two looks", func() bool { return looks.Load() >= 2 })
	if got, patches := c.Taints("n1"); len(got) != 1 || patches != 0 {
		t.Fatalf("taints %v after %d patches while the agent is not ready", got, patches)
	}
	c.Fail(http.StatusForbidden)
	ready.Store(true)
	eventually(t, "the log says what is missing", func() bool { return strings.Contains(c.log.String(), "get and patch of nodes") })
	c.Fail(0)
	eventually(t, "the taint is removed", func() bool { got, _ := c.Taints("n1"); return len(got) == 0 })
}
