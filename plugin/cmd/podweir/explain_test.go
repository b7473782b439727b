// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"net"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/testutil"
)

// sendUDP sends packets of a size out of the pod, as fast as they go.
func (c *cli) sendUDP(t *testing.T, packets, size int) {
	t.Helper()
	var conn net.Conn
	if err := c.pod.Do(func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(t.Context(), "udp", "10.78.0.1:9")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for range packets {
		_, _ = conn.Write(make([]byte, size)) // nobody listens: the next write may say so
	}
}

// explain says on the node, too, what the limits of a pod do, and what a code means.
func TestPrivilegedExplain(t *testing.T) {
	testutil.RequireRoot(t)
	c := newCLI(t)
	c.must(t, append(c.netns(), "attach", "--egress", "10M")...)
	name := strings.Fields(c.must(t, "status", "-o", "wide"))[0]
	out := c.must(t, "explain", name)
	for _, part := range []string{"egress carries next to nothing of its limit of 10 Mbit/s", "egress of eth0 on this node, limit 10 Mbit/s, policy strict"} {
		if !strings.Contains(out, part) {
			t.Errorf("explain %s has no %q:\n%s", name, part, out)
		}
	}
	if out := c.must(t, "explain", "PW602"); !strings.HasPrefix(out, "# PW602: ") {
		t.Errorf("explain PW602 prints %q", out)
	}
	c.fails(t, []string{"no limit for pod ns/none on this node", "podweir status"}, "explain", "ns/none")
	c.fails(t, []string{"want NAMESPACE/POD or a code"}, "explain", "PW999")
	c.pod.Run(t, "tc", "qdisc", "del", "dev", "eth0", "root")
	out, err := c.do(t, "explain", name)
	if err == nil || !strings.Contains(out, "DIFFERS") {
		t.Errorf("explain of a pod without its queue = %v:\n%s", err, out)
	}
}
