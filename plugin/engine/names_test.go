// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine

import (
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/pins"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// A record whose names cannot be a path of pins is an error, not the end of the agent.
func TestNamesThatAreNoPath(t *testing.T) {
	k := &kernel{store: &store{pins: &pins.Store{}}}
	for _, name := range []string{"", strings.Repeat("/", 200)} {
		r := &apply.Record{ID: attach.ID{Network: "net", ContainerID: "c", IfName: "eth0"}, Interface: attach.Interface{PodName: name}}
		must.Fail(t, "Observe of device "+name, must.Err(k.Observe(r)))
		must.Fail(t, "Do on device "+name, k.Do(r, attach.Action{Kind: attach.TearDown}))
	}
}
