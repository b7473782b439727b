// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// What cannot be shaped starts unshaped, with an error in the log and a record
// for status, or not at all where the operator says so; nothing is left of the
// attempt, and what belongs to others stays.
func TestPrivilegedFailOpenAndClosed(t *testing.T) {
	mark.Kernels(t, "most nodes have prio, and with it another tree of queues")
	testutil.RequireRoot(t)
	foreign := func(t *testing.T, p *pod) {
		t.Helper()
		p.ns.Run(t, "tc", "qdisc", "add", "dev", "eth0", "root", "bfifo", "limit", "77777")
	}
	tests := []struct {
		name   string
		with   conf
		before func(*testing.T, *pod)
		code   uint
		parts  []string
	}{
		{"bad rate", conf{"egressRate": "10X"}, nil, 7, []string{"egressRate", `"10X"`, "1k to 400G"}},
		{"nothing that is available", both(conf{"egressQueue": "tbf"}), func(t *testing.T, p *pod) {
			t.Helper()
			foreign(t, p)
			p.node.rewrite(t, map[string]any{"tcx": false})
			p.ns.Run(t, "tc", "qdisc", "add", "dev", "eth0", "clsact")
			pin := newCounter(t, "foreign_drop", tcActShot).pinned(t)
			p.ns.Run(t, "tc", "filter", "add", "dev", "eth0", "egress", "pref", "1", "bpf", "da", "pinned", pin)
		}, 102, []string{"bfifo", "eth0"}},
		{"no such interface", both(conf{"prevResult": conf{"cniVersion": "1.1.0"}}), func(t *testing.T, p *pod) {
			t.Helper()
			p.ns.Run(t, "ip", "link", "set", "eth0", "down")
			p.ns.Run(t, "ip", "link", "set", "eth0", "name", "eth7")
		}, 100, []string{`"eth0"`}},
		{"no namespace", both(conf{"prevResult": conf{"cniVersion": "1.1.0"}}), func(_ *testing.T, p *pod) {
			p.netns = "/run/netns/nowhere"
		}, 8, []string{"/run/netns/nowhere"}},
		{"pins not on bpffs", both(nil), func(t *testing.T, p *pod) {
			t.Helper()
			p.node.paths.Pins = filepath.Join(t.TempDir(), "podweir")
		}, 100, []string{"BPF file system"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newNode(t).newPod(t)
			if tt.before != nil {
				tt.before(t, p)
			}
			before := p.state(t)
			closed := p.call(t, "ADD", p.conf(tt.with))
			wantCode(t, "ADD that fails closed", closed.err, tt.code, tt.parts...)
			must.Be(t, "the result of an ADD that fails", "", closed.stdout)
			p.node.wantFailures(t, "ADD that fails closed")
			c := p.conf(tt.with)
			c["onError"] = "open"
			open := p.must(t, "ADD", c)
			if open.stdout == "" || !strings.Contains(open.log, "pod starts unshaped") {
				t.Errorf("ADD that fails open prints %q and logs %q", open.stdout, open.log)
			}
			f, err := p.node.paths.Mail().Failures()
			if err != nil || len(f) != 1 || f[0].ID.ContainerID != p.container {
				t.Fatalf("failure records %v, %v, want one of %s", f, err, p.container)
			}
			for _, part := range tt.parts {
				if !strings.Contains(f[0].Error, part) || !strings.Contains(open.log, strings.Trim(part, `"`)) {
					t.Errorf("failure %q and log %q, want %q in both", f[0].Error, open.log, part)
				}
			}
			wantState(t, p, "after both", append(before, noCeiling))
			p.node.wantNoPins(t, "after both")
			p.must(t, "DEL", c)
			p.node.wantFailures(t, "DEL")
		})
	}
}

// asks is a network configuration with a pod's annotations.
func asks(annotations, more conf) conf {
	c := conf{"runtimeConfig": conf{"io.kubernetes.cri.pod-annotations": annotations}}
	maps.Copy(c, more)
	return c
}

// A rate that cannot be read, without another to take, leaves its direction without
// a limit and not the other one.
func TestPrivilegedBadRateKeepsTheOtherDirection(t *testing.T) {
	p := newNode(t).newPod(t)
	with := asks(conf{"kubernetes.io/egress-bandwidth": "bogus", "kubernetes.io/ingress-bandwidth": "20M"}, nil)
	closed := p.call(t, "ADD", p.conf(with))
	wantCode(t, "ADD that fails closed", closed.err, 7, "egress-bandwidth", `"bogus"`)
	wantState(t, p, "refused", []string{})
	with["onError"] = "open"
	c := p.conf(with)
	a := p.must(t, "ADD", c)
	a.tells(t, "pod starts without all of its limits")
	s := p.status(t)
	if len(s.Directions) != 1 || s.Directions[0].Direction.Is != terms.Ingress || s.Directions[0].Rate != 20_000_000 {
		t.Errorf("status shows %+v, want 20M of ingress", s.Directions)
	}
	must.Have(t, "status", strings.Join(s.Notes, "\n"), "egress has no limit: annotation kubernetes.io/egress-bandwidth")
	p.node.wantFailures(t, "ADD", `"bogus"`)
	wantCode(t, "CHECK", p.call(t, "CHECK", c).err, 7, `"bogus"`)
	p.must(t, "DEL", c)
	wantClean(t, p, "DEL")
}

func TestPrivilegedForeignRoot(t *testing.T) {
	p := newNode(t).newPod(t)
	p.ns.Run(t, "tc", "qdisc", "add", "dev", "eth0", "root", "bfifo", "limit", "77777")
	foreign := p.ns.Run(t, "tc", "qdisc", "show", "dev", "eth0", "root")
	// With the queue left to podweir: policing, and the other's qdisc stays.
	c := p.conf(conf{"egressRate": "10M"})
	a := p.must(t, "ADD", c)
	a.tells(t, "policing instead", "bfifo")
	wantState(t, p, "policing", []string{"pod clsact egress pw_police", "pod qdisc bfifo", "pod qdisc clsact"})
	p.must(t, "CHECK ADD DEL", c)
	must.Be(t, "after DEL the root", foreign, p.ns.Run(t, "tc", "qdisc", "show", "dev", "eth0", "root"))
	// So it is with a queue by name: a limit that is policed is better than none.
	c = p.conf(conf{"egressRate": "10M", "egressQueue": "tbf"})
	a = p.must(t, "ADD", c)
	a.tells(t, "level=WARN", "not the queue tbf", "bfifo")
	wantState(t, p, "policing in place of tbf", []string{"pod clsact egress pw_police", "pod qdisc bfifo", "pod qdisc clsact"})
	p.must(t, "CHECK DEL", c)
	// With the operator's word it is replaced.
	c = p.conf(conf{"egressRate": "10M", "replaceQdisc": true})
	p.must(t, "ADD", c)
	wantState(t, p, "replaced", treesHere(t).bands("pod"))
	p.must(t, "CHECK DEL", c)
	wantClean(t, p, "DEL")
}

// Whoever owns the root qdisc of the host side, as Calico does from 3.30, keeps it:
// the ingress queue moves to the pod, whoever comes first.
func TestPrivilegedForeignRootOnTheHostSide(t *testing.T) {
	testutil.RequireQdisc(t, "ifb")
	n := newNode(t)
	takes := func(t *testing.T, p *pod) string {
		t.Helper()
		// Theirs is a token bucket too.
		n.Run(t, "tc", "qdisc", "replace", "dev", p.host.Name, "root", "handle", "1:", "tbf", "rate", "10mbit", "burst", "1mb", "limit", "2mb")
		return n.Run(t, "tc", "qdisc", "show", "dev", p.host.Name, "root")
	}
	for name, first := range map[string]bool{"podweir first": true, "podweir second": false} {
		t.Run(name, func(t *testing.T) {
			p := n.newPod(t)
			c := p.conf(conf{"ingressRate": "10M"})
			if first {
				p.must(t, "ADD", c)
			}
			foreign := takes(t, p)
			must.Fail(t, "CHECK before podweir has mended", p.call(t, "CHECK", c).err)
			a := p.must(t, "ADD", c)
			a.tells(t, "queue on an ifb instead", "tbf 1: on "+p.host.Name)
			p.must(t, "CHECK ADD", c)
			takes(t, p)
			p.must(t, "CHECK", c)
			wantState(t, p, name, join(treesHere(t).bands("ifb"), []string{
				"host qdisc tbf", "ifb exists", "pod clsact ingress pw_redirect", "pod qdisc clsact",
			}))
			p.must(t, "DEL", c)
			must.Be(t, "after DEL the root", foreign, n.Run(t, "tc", "qdisc", "show", "dev", p.host.Name, "root"))
		})
	}
}

// A pod that was unshaped and is shaped now has no failure record any more.
func TestPrivilegedFailureRecordGoes(t *testing.T) {
	p := newNode(t).newPod(t)
	p.must(t, "ADD", p.conf(conf{"onError": "open", "egressRate": "10X"}))
	p.must(t, "ADD", p.conf(both(nil)))
	p.node.wantFailures(t, "a later ADD")
	// The run directory may be deleted, or not be writable, at any time.
	must.OK(t, os.RemoveAll(p.node.paths.Run))
	p.must(t, "CHECK", p.conf(both(nil)))
	p.node.paths = engine.Paths{Pins: p.node.paths.Pins, Run: "/proc/nowhere"}
	p.must(t, "CHECK", p.conf(both(nil)))
	a := p.must(t, "ADD", p.conf(conf{"onError": "open", "egressRate": "10X"}))
	a.tells(t, "failure record not written")
}
