// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package status_test

import (
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// A limit is an interface's. A further device of the pod has a line with the pod's name, and
// is no failure unless the pod is one.
func TestFurtherDeviceOfAPod(t *testing.T) {
	t.Parallel()
	report := &status.Report{Attachments: []status.Attachment{{Pod: "ns/two", Interface: attach.Interface{PodName: "eth0", NetNSPath: "/run/netns/two"}}}}
	report.AddOthers([]terms.Device{{Name: "veth2", NetNSPath: "/run/netns/two"}, {Name: "veth3", NetNSPath: "/run/netns/one"}}, []status.RuntimePod{
		{Other: view.Other{Pod: "ns/two"}, NetNSPath: "/run/netns/two"},
		{Other: view.Other{Pod: "ns/one", Asks: []terms.Ask{{Direction: terms.Egress, Value: "5M"}}}, NetNSPath: "/run/netns/one"},
	})
	n := report.View(time.Now())
	n.Rates = []view.PodRate{{Pod: "ns/two", Interface: "eth0"}}
	text := n.Summary("this node", false)
	must.Have(t, "status", text, "ns/two veth2             egress       -      -      0      -      -  no limit\n", "ns/one                   egress      5M      -      0      -      -  NOT LIMITED\n")
}
