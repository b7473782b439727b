// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// gc is what the command says; it must not fail.
func (c *cli) gc(t *testing.T) string {
	t.Helper()
	root := newRoot()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs([]string{"gc", "--pins", c.pins, "--run", c.run})
	if err := c.node.Do(func() error { return root.ExecuteContext(t.Context()) }); err != nil {
		t.Fatalf("podweir gc: %v\n%s", err, &out)
	}
	return out.String()
}

// A device is gone by what identifies it, and its number is not that alone. status and gc
// judge alike: what status calls gone, gc removes, and what gc leaves, it names.
func TestPrivilegedGoneIsGone(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "ifb")
	unmount := func(t *testing.T, n *noticed) {
		t.Helper()
		must.OK(t, unix.Unmount(n.path, unix.MNT_DETACH))
	}
	for _, tt := range []struct {
		name string
		make func(t *testing.T, n *noticed)
		// status is what it says of the pod, gc what that says; "" if nothing.
		status, gc string
		stays      bool
	}{
		{name: "the pod runs", make: func(*testing.T, *noticed) {}, status: "default/web", stays: true},
		{
			name: "another kind of device has the number of the host end",
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				index := n.node.Interface(t, "veth1").Index
				n.pod.Run(t, "ip", "link", "del", "eth0")
				n.node.Run(t, "ip", "link", "add", "uplink", "index", strconv.Itoa(index), "type", "ifb")
			},
			status: "the pod is gone", gc: "removed",
		},
		{
			name:   "the uplink of a node that is a container has the number, and its peer that of the pod's device",
			make:   func(t *testing.T, n *noticed) { t.Helper(); n.takeNumbers(t) },
			status: "the pod is gone", gc: "removed",
		},
		{
			name: "so it is, and the pod's namespace is gone, too",
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				n.takeNumbers(t)
				unmount(t, n)
			},
			status: "the pod is gone", gc: "removed",
		},
		{
			name: "another kind of device has the number of the pod's device",
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				index := n.pod.Interface(t, "eth0").Index
				n.pod.Run(t, "ip", "link", "del", "eth0")
				n.pod.Run(t, "ip", "link", "add", "eth0", "index", strconv.Itoa(index), "type", "ifb")
			},
			status: "the pod is gone", gc: "removed",
		},
		{
			name: "the pod's namespace has no name any more, and lives", make: unmount,
			status: "not known whether the pod is gone: its host end veth1", gc: "its host end veth1", stays: true,
		},
		{
			name: "the pod's namespace has another name",
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				other := n.path + "-2"
				must.OK(t, os.WriteFile(other, nil, 0o444))
				t.Cleanup(func() { _ = os.Remove(other) })
				must.OK(t, unix.Mount(n.path, other, "none", unix.MS_BIND, ""))
				t.Cleanup(func() { _ = unix.Unmount(other, unix.MNT_DETACH) })
				unmount(t, n)
			},
			status: "the network namespace that is now at", gc: "-2; if the pod has ended, podweir detach --container c1", stays: true,
		},
		{
			name: "an ADD was killed before the record",
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				n.loseRecord(t)
				n.pod.Run(t, "ip", "link", "del", "eth0")
				must.OK(t, os.MkdirAll(filepath.Join(n.pins, "net", "c1,eth0", "eth0"), 0o700))
			},
			gc: "it has no record", stays: true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNoticed(t, nil)
			tt.make(t, n)
			var report status.Report
			if out, _ := n.do(t, "status", "-o", "json"); json.Unmarshal([]byte(out), &report) != nil {
				t.Fatal(out)
			}
			if out, _ := n.do(t, "status"); !strings.Contains(strings.Join(strings.Fields(out), " "), tt.status) {
				t.Errorf("podweir status = %s\nwant %q in it", out, tt.status)
			}
			for i := range report.Attachments {
				if gone := report.Attachments[i].Gone; gone == tt.stays {
					t.Errorf("status says gone %v, and gc removes it: %v", gone, !tt.stays)
				}
			}
			out := n.gc(t)
			if tt.gc == "" && out != "" || !strings.Contains(out, tt.gc) {
				t.Errorf("podweir gc = %q, want %q in it", out, tt.gc)
			}
			kept, err := filepath.Glob(filepath.Join(n.pins, "net", "*", "*"))
			if err != nil || len(kept) > 0 != tt.stays {
				t.Errorf("after gc there is %v (%v), want something: %v", kept, err, tt.stays)
			}
		})
	}
}

// What removes a pod that is gone does not touch the pod whose device has its number now.
func TestPrivilegedAnotherPodHasTheNumber(t *testing.T) {
	testutil.RequireQdisc(t, "tbf")
	n := newNoticed(t, nil)
	next := n.takeNumbers(t)
	gone := n.container
	n.pod, n.path, n.container = next, next.Path(), "c2"
	n.add(t)
	before := n.node.Run(t, "tc", "qdisc", "show", "dev", "uplink") + n.node.Run(t, "tc", "filter", "show", "dev", "uplink", "ingress")
	if !strings.Contains(before, "tbf") {
		t.Fatalf("the next pod has no limit: %s", before)
	}
	if out := n.gc(t); !strings.Contains(out, "removed") || !strings.Contains(out, gone) {
		t.Errorf("podweir gc = %q, want %s removed", out, gone)
	}
	if after := n.node.Run(t, "tc", "qdisc", "show", "dev", "uplink") + n.node.Run(t, "tc", "filter", "show", "dev", "uplink", "ingress"); after != before {
		t.Errorf("the next pod's host end has\n%s\nwant as before\n%s", after, before)
	}
	if err := n.verb(t, "CHECK"); err != nil {
		t.Errorf("CHECK of the next pod: %v", err)
	}
}
