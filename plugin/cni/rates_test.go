// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/testutil"
)

// TestPrivilegedBurstOfMinutes: the kernel tells of a bucket in 32 bits of its time. A
// larger one would read back as another one, and differ for ever.
func TestPrivilegedBurstOfMinutes(t *testing.T) {
	testutil.RequireRoot(t)
	testutil.RequireQdisc(t, "tbf")
	p := newNode(t).newPod(t)
	c := p.conf(conf{"egressRate": "1M", "egressBurst": "4G", "ingressRate": "1M", "ingressBurst": "400M"})
	p.must(t, "ADD", c)
	p.must(t, "CHECK", c)
	s := p.status(t)
	if len(s.Drift) != 0 {
		t.Errorf("status differs: %v", s.Drift)
	}
	for _, d := range s.Directions {
		if d.Burst != 274*125_000-1514 {
			t.Errorf("%s has a bucket of %d bytes, want 274 s of 1 Mbit/s less a packet", d.Direction, d.Burst)
		}
		if notes := strings.Join(d.Notes, "\n"); !strings.Contains(notes, "at most 4m34s of the cap") {
			t.Errorf("notes of %s %q, want why the burst is another one", d.Direction, notes)
		}
	}
}

// TestPrivilegedNamespaceOfTheAgent: ADD uses what the agent left of the pod's
// namespace, also for pods that ask for nothing; without it, or with half of it, the
// node's rates.
func TestPrivilegedNamespaceOfTheAgent(t *testing.T) {
	testutil.RequireRoot(t)
	n := newNode(t)
	rates := func(p *pod) (all []uint64) {
		for _, d := range p.status(t).Directions {
			all = append(all, uint64(d.Rate))
		}
		return all
	}
	p := n.newPod(t)
	c := p.conf(conf{"defaultRate": "50M"})
	p.must(t, "ADD", c)
	if got := rates(p); !slices.Equal(got, []uint64{50e6, 50e6}) {
		t.Errorf("limits %v before the agent knows the namespace, want the node's", got)
	}
	if err := n.paths.RecordNamespace("default", netconf.Namespace{
		"podweir.io/default-egress-rate": "20M", "podweir.io/max-ingress-rate": "5M",
	}); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "CHECK", p.call(t, "CHECK", c).err, 101, "egress")
	p.must(t, "ADD", c)
	if got := rates(p); !slices.Equal(got, []uint64{20e6, 5e6}) {
		t.Errorf("limits %v, want the namespace's default of egress and its maximum of ingress", got)
	}
	p.must(t, "CHECK", c)
	if names, err := n.paths.RecordedNamespaces(); err != nil || !slices.Equal(names, []string{"default"}) {
		t.Errorf("RecordedNamespaces() = %v, %v, want default", names, err)
	}
	if err := os.WriteFile(filepath.Join(n.paths.Run, "namespaces", "default.json"), []byte(`{"podweir.io/`), 0o600); err != nil {
		t.Fatal(err)
	}
	a := p.must(t, "ADD", c)
	if got := rates(p); !slices.Equal(got, []uint64{50e6, 50e6}) || !strings.Contains(a.log, "namespaces/default.json") {
		t.Errorf("limits %v, log %q, want the node's rates and an error that names the file", got, a.log)
	}
}
