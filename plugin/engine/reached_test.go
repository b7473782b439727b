// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// What an agent saw is known as long as it looks: neither before, nor after it ended or
// was killed.
func TestReachedIsKnownWhileTheAgentLooks(t *testing.T) {
	paths := engine.Paths{Run: t.TempDir()}
	synctest.Test(t, func(t *testing.T) {
		want := func(when string, want []engine.Reached) {
			t.Helper()
			got, err := paths.Reached()
			must.OK(t, err)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}
		seen := []engine.Reached{{
			ID: attach.ID{Network: "n", ContainerID: "1", IfName: "eth0"}, Interface: "eth0", Direction: terms.Name(terms.Egress), Since: time.Now().UTC(), LastMinute: 0.5,
		}}
		want("before", nil)
		must.OK(t, paths.RecordReached(seen))
		<-time.After(10 * time.Second)
		want("after 10 s", seen)
		must.OK(t, paths.TouchReached())
		<-time.After(10 * time.Second)
		want("10 s after another look", seen)
		<-time.After(10 * time.Second)
		want("20 s after it", nil)
		must.OK(t, paths.RecordReached(seen))
		paths.ForgetReached()
		want("after the agent ended", nil)
	})
}
