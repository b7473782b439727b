// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package snapshot_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/e2e/k8s/snapshot"
)

func TestCompare(t *testing.T) {
	before := snapshot.Snapshot{"a", "b", "last 1"}
	after := snapshot.Snapshot{"/run/podweir d 755 root", "b", "c", "last 2"}
	got := snapshot.Compare(before, after, func(line string) bool { return strings.HasPrefix(line, "last ") })
	want := []snapshot.Difference{{Line: "a", Missing: true}, {Line: "c"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Compare (-want +got):\n%s", diff)
	}
}
