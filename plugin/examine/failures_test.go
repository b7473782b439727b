// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package examine

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/status"
)

// What podweir-cni and the agent say of one pod in the same words is told once.
func TestFailuresAreToldOnce(t *testing.T) {
	t.Parallel()
	got := failures(&status.Report{
		Failures: []engine.Failure{{ID: attach.ID{ContainerID: "c1"}, Pod: "ns/both", Error: "no rate"}},
		Unshaped: []engine.Unshaped{{Pod: "ns/both", Error: "no rate"}, {Pod: "ns/both", Error: "no sandbox"}, {Pod: "ns/agent", Error: "no rate"}},
	})
	want := []doctor.Attachment{
		{Pod: "ns/both", ContainerID: "c1", Failure: "no rate"}, {Pod: "ns/both", Failure: "no sandbox"}, {Pod: "ns/agent", Failure: "no rate"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
}
