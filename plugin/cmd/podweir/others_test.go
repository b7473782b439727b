// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/testutil"
)

// Every device of a pod has a line in status, also where podweir has no limit on it: a pod
// that asks for one, or misspelt the annotation, is not limited, unless its limits are
// left to others.
func TestPrivilegedStatusOfPodsWithoutALimit(t *testing.T) {
	testutil.RequireRoot(t)
	n := newTestNode(t)
	n.pod(t, 1, nil)
	n.pod(t, 2, map[string]string{"kubernetes.io/egress-bandwidth": "10M"})
	n.pod(t, 3, map[string]string{"kubernetes.io/egress-bandwdth": "10M"})
	testutil.VethPair(t, testutil.End{NetNS: n.NetNS, Name: "veth9"}, testutil.End{NetNS: testutil.NewNetNS(t), Name: "eth0"})
	c := &cli{node: n.NetNS, pins: n.pins, run: n.run}
	out, err := c.do(t, "status", "--root", n.root)
	if err == nil {
		t.Error("status of two pods without the limits that they ask for: no error")
	}
	for _, part := range []string{
		"0 of 2 pods are limited as they should be; 2 are not:",
		`NOT LIMITED default/pod-2 cause it asks for a limit (kubernetes.io/egress-bandwidth: "10M"), and podweir has none for it cure podweir doctor finds why`,
		"NOT LIMITED default/pod-3 cause misspelt: kubernetes.io/egress-bandwdth, did you mean kubernetes.io/egress-bandwidth? cure correct the annotation",
		"default/pod-1 egress - - NOW - - no limit", "default/pod-2 egress 10M - NOW - - NOT LIMITED", "veth9 ingress - - NOW - - no limit",
	} {
		seen := regexp.MustCompile(`(-|10M) - \S+ - -`).ReplaceAllString(oneLine(out), "$1 - NOW - -") // neighbours are looked for
		if !strings.Contains(seen, part) {
			t.Errorf("status has no %q:\n%s", part, out)
		}
	}
	n.write(t, "etc/cni/net.d/10-net.conflist", `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"ptp"},{"type":"podweir-cni","shaper":"cilium"}]}`)
	out, err = c.do(t, "status", "--root", n.root)
	if err == nil || strings.Contains(out, "NOT LIMITED default/pod-2") {
		t.Errorf("status of a pod whose limit is left to Cilium: %v\n%s", err, out)
	}
}
