// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cluster_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/status/cluster"
	"github.com/podweir/podweir/plugin/status/view"
)

// Of two agents on a node the one that knows its pods is heard.
func TestNewHearsWhoKnowsMost(t *testing.T) {
	knows := &cluster.Answer{Status: &view.Node{}}
	waits := &cluster.Answer{Error: "another agent manages this node"}
	got := cluster.New([]cluster.Node{
		{Name: "n2", Error: "no answer"}, {Name: "n1", Error: "no answer"}, {Name: "n1", Answer: waits}, {Name: "n1", Answer: knows},
	}, 1)
	want := &cluster.Nodes{Schema: 1, Missing: 1, Nodes: []cluster.Node{{Name: "n1", Answer: knows}, {Name: "n2", Error: "no answer"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("New (-want +got):\n%s", diff)
	}
}
