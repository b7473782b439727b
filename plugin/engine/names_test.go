// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine

import (
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/pins"
)

// A record whose names cannot be a path of pins is an error, not the end of the agent.
func TestNamesThatAreNoPath(t *testing.T) {
	k := &kernel{store: &store{pins: &pins.Store{}}}
	for _, name := range []string{"", strings.Repeat("/", 200)} {
		r := &apply.Record{ID: attach.ID{Network: "net", ContainerID: "c", IfName: "eth0"}, Interface: attach.Interface{PodName: name}}
		if _, err := k.Observe(r); err == nil {
			t.Errorf("Observe of device %q = nil, want an error", name)
		}
		if err := k.Do(r, attach.Action{Kind: attach.TearDown}); err == nil {
			t.Errorf("Do on device %q = nil, want an error", name)
		}
	}
}
