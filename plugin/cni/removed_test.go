// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/testutil"
)

// drift is what `podweir status` says of the one attachment of a node.
func (p *pod) drift(t *testing.T) []string {
	t.Helper()
	var rep *status.Report
	if err := p.node.Do(func() error {
		n, err := engine.Open(p.node.paths)
		if err != nil {
			return err
		}
		defer n.Close()
		rep, err = status.Collect(n)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if len(rep.Attachments) != 1 || rep.Attachments[0].Error != "" {
		t.Fatalf("status tells of %+v, want one attachment", rep.Attachments)
	}
	return rep.Attachments[0].Drift
}

// Which way packets are redirected to the ifb is what the self-test found,
// whatever the kernel's version. The way by mirred works on every kernel; the
// one by bpf_redirect loses everything on those where the self-test says so.
func TestPrivilegedWayToTheIFBIsTheOneThatWorks(t *testing.T) {
	testutil.RequireRoot(t)
	testutil.RequireQdisc(t, "tbf", "ifb", "clsact", "mirred")
	found := newNode(t)
	cache := func(n *node) string { return filepath.Join(n.paths.Run, "features.json") }
	b, err := os.ReadFile(cache(found))
	if err != nil {
		t.Fatal(err)
	}
	bpfWorks := strings.Contains(string(b), `"redirect":"bpf"`)
	if !bpfWorks && !strings.Contains(string(b), `"redirect":"mirred"`) {
		t.Fatalf("the self-test found no way to the ifb: %s", b)
	}
	for _, way := range []string{"bpf", "mirred"} {
		t.Run(way, func(t *testing.T) {
			n := newNode(t)
			forced := regexp.MustCompile(`"redirect":"\w+"`).ReplaceAllString(string(b), fmt.Sprintf(`"redirect":%q`, way))
			if err := os.WriteFile(cache(n), []byte(forced), 0o600); err != nil {
				t.Fatal(err)
			}
			p := n.newPod(t)
			before := p.raw(t)
			c := p.conf(inIFB(nil))
			p.must(t, "ADD", c)
			filters := p.ns.Run(t, "tc", "filter", "show", "dev", "eth0", "ingress")
			if got := strings.Contains(filters, "mirred"); got != (way == "mirred") {
				t.Errorf("redirected by %q, want %s", filters, way)
			}
			p.must(t, "CHECK", c)
			if way == "mirred" || bpfWorks {
				p.crosses(t)
			} else if p.reached(t) {
				t.Error("packets pass by bpf_redirect, although the self-test says that they do not")
			}
			p.must(t, "DEL", c)
			wantClean(t, p.afterIFB(t), "DEL")
			if after := p.raw(t); after != before {
				t.Errorf("DEL leaves\n%s\nwhere ADD found\n%s", after, before)
			}
		})
	}
}

// reached says whether the pod gets an answer from its node.
func (p *pod) reached(t *testing.T) bool {
	t.Helper()
	return p.ns.Command(t, "ping", "-c3", "-i0.1", "-W1", p.gateway).Run() == nil
}
