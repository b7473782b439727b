// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/testutil"
)

func TestPrivilegedRepair(t *testing.T) {
	testutil.RequireRoot(t)
	c := newCLI(t)
	if out := c.must(t, "repair"); !strings.Contains(out, "0 interfaces looked at") {
		t.Errorf("repair of an empty node prints %q", out)
	}
	c.must(t, append(c.netns(), "attach", "--egress", "10M", "--ingress", "20M")...)
	if out := c.must(t, "repair"); out != "1 interfaces looked at, 0 with differences, 0 errors.\n" {
		t.Errorf("repair of what is in order prints %q", out)
	}
	program := c.programs(t)
	c.pod.Run(t, "tc", "qdisc", "del", "dev", "eth0", "root")
	out := c.must(t, "repair", "--dry-run")
	if !strings.Contains(out, "would repair egress build-queue: eth0: no root qdisc, want tbf") {
		t.Errorf("repair --dry-run prints %q", out)
	}
	if c.programs(t) == program {
		t.Error("repair --dry-run has built the queue")
	}
	lines := parse[[]repaired](t, c, "repair")
	if len(lines) != 1 || len(lines[0].Steps) == 0 || lines[0].Error != "" || lines[0].Gone {
		t.Errorf("repair prints %+v", lines)
	}
	if c.programs(t) != program {
		t.Errorf("repair left %s, want %s", c.programs(t), program)
	}
	if rep := parse[status.Report](t, c, "status"); len(rep.Failures) != 0 || len(rep.Attachments) != 1 || len(rep.Attachments[0].Drift) != 0 {
		t.Errorf("status after repair: %+v", rep)
	}
	// An MTU above the bucket of the queue.
	c.pod.Run(t, "ip", "link", "set", "eth0", "mtu", "65000")
	if out = c.must(t, "repair"); !strings.Contains(out, "change-queue: eth0: tbf burst is") {
		t.Errorf("repair after a change of the MTU prints %q", out)
	}
	c.fails(t, []string{"nothing is attached", "default/none"}, "repair", "--pod", "default/none")
	// The device goes under the attachment.
	c.pod.Run(t, "ip", "link", "del", "eth0")
	if lines = parse[[]repaired](t, c, "repair"); len(lines) != 1 || !lines[0].Gone {
		t.Errorf("repair of a pod that is gone prints %+v", lines)
	}
}
