// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/agent/reconcile"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/status/cluster"
	"github.com/podweir/podweir/plugin/status/view"
)

// A node without a BPF file system, where nothing can be limited, tells of the pods that
// should be.
func TestAnswerWithoutBPFFS(t *testing.T) {
	t.Parallel()
	o := newOptions()
	o.v.Set("pins", filepath.Join(t.TempDir(), "podweir"))
	o.v.Set("run", t.TempDir())
	o.paths().RecordUnshaped(slog.New(slog.DiscardHandler), &engine.Unshaped{
		Pod: "default/web", UID: "u", Reason: "failed", Since: time.Now(), Error: "no bpffs",
	})
	a := &agentParts{o: o, reconciler: reconcile.New(reconcile.Config{})}
	a.waiting, a.node = &waiting{agentParts: a}, newNodeCheck(a)
	answer := a.answer(t.Context(), nil)
	if answer.Status == nil || len(answer.Status.Pods) != 1 || answer.Status.Pods[0].State != view.NotLimited || answer.Status.Pods[0].Cause != "no bpffs" {
		t.Fatalf("answer %+v with status %+v, want the pod that is not limited", answer, answer.Status)
	}
	all := &cluster.Nodes{Nodes: []cluster.Node{{Name: "n1", Answer: answer}}}
	if status, why := all.StatusExit(); status != cluster.ExitBroken {
		t.Errorf("exit status %d (%s), want %d", status, why, cluster.ExitBroken)
	}
}
