// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package attach_test

import (
	"testing"

	"github.com/podweir/podweir/plugin/shaping"
)

// What `set` changed lasts until what is requested changes; how a mistake in it is
// told is no change.
func TestSetOutlivesNotes(t *testing.T) {
	w := newWorld()
	cfg := func(notes ...string) *shaping.Config { return &shaping.Config{Egress: limit(10_000_000), Notes: notes} }
	ensure(t, w, cfg("told by ADD"))
	if _, err := w.engine().Set(t.Context(), podID, func(c *shaping.Config) error { c.Egress.Rate = 5_000_000; return nil }); err != nil {
		t.Fatal(err)
	}
	ensure(t, w, cfg("told by the agent"))
	if got := record(t, w).Config.Egress.Rate; got != 5_000_000 {
		t.Errorf("after another note the rate is %v, want what was set", got)
	}
	changed := cfg("told by the agent")
	changed.Egress.Rate = 20_000_000
	ensure(t, w, changed)
	if got := record(t, w).Config.Egress.Rate; got != 20_000_000 {
		t.Errorf("after another wish the rate is %v, want that", got)
	}
}
