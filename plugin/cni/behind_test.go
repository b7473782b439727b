// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// The redirect to the ifb runs last: a TCX program and filters at any
// preference that come after it see every packet, and what one of them drops
// does not arrive.
func TestPrivilegedLaterProgramsComeBeforeTheRedirect(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "ifb", "clsact")
	const packets = 20
	prefs := []string{"1", "50000", "65534"}
	if datapath.HaveTCX() {
		prefs = append(prefs, "")
	}
	for _, pref := range prefs {
		t.Run("pref "+pref, func(t *testing.T) {
			p := newNode(t).newPod(t)
			c := p.conf(inIFB(nil))
			p.must(t, "ADD", c)
			f := p.newFlow(t, true)
			sees := newCounter(t, "foreign_count", tcxNext)
			remove := sees.onPod(t, p, pref)
			for range packets {
				f.send(t, "passed on")
			}
			for range packets {
				if got := f.receive(t); got != "passed on" {
					t.Errorf("received %q", got)
				}
			}
			if n := sees.packets(t); n != packets {
				t.Errorf("the later program saw %d packets, want %d", n, packets)
			}
			p.must(t, "CHECK", c)
			remove()
			drops := newCounter(t, "foreign_drop", tcActShot)
			remove = drops.onPod(t, p, pref)
			for range packets {
				f.send(t, "dropped")
			}
			drops.wait(t, packets, "dropped by the later program")
			if n := drops.packets(t); n != packets {
				t.Errorf("the later program saw %d packets to drop, want %d", n, packets)
			}
			remove()
			f.send(t, "allowed")
			if got := f.receive(t); got != "allowed" {
				t.Errorf("the later program let %q pass", got)
			}
		})
	}
}

// A netfilter ingress chain that comes behind the redirect is blind, which is
// why podweir leaves at once: who waits for such a chain is told, CHECK and
// status name it, and a repair or the next ADD moves to policing, whatever mode
// was requested. Then what the chain drops does not arrive.
func TestPrivilegedChainBehindTheRedirect(t *testing.T) {
	testutil.RequireQdisc(t, "ifb", "tbf")
	for name, with := range map[string]conf{
		"auto":          nil,
		"mode by name":  {"ingressMode": "qdisc"},
		"queue by name": {"ingressQueue": "tbf"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newNode(t).newPod(t)
			c := p.conf(inIFB(with))
			c["ingressRate"] = slow
			p.must(t, "ADD", c)
			appeared := make(chan error, 1)
			go func() { appeared <- hostif.WaitNetfilterIngress(t.Context(), p.ns.NetNS, "eth0") }()
			p.addChain(t)
			must.OK(t, <-appeared)
			f := p.newFlow(t, true)
			f.send(t, "hidden")
			if got := f.receive(t); got != "hidden" || p.dropped(t) != 0 {
				t.Errorf("received %q, and the chain is not blind: this test proves nothing", got)
			}
			const chain = "netfilter ingress chain on eth0"
			wantCode(t, "CHECK", p.call(t, "CHECK", c).err, 101, chain)
			if a := p.status(t); !strings.Contains(strings.Join(a.Drift, "\n"), chain) {
				t.Errorf("status tells the drift %q, want the chain", a.Drift)
			}
			p.repair(t)
			for range 5 {
				f.send(t, "forbidden")
			}
			p.chainDrops(t, 5)
			p.must(t, "CHECK", c)
			a := p.must(t, "ADD", c)
			s := p.status(t)
			for _, d := range s.Directions {
				if d.Direction.Is == terms.Ingress && (d.Queue.Is != terms.QueueNone || d.CapHolds || !strings.Contains(strings.Join(d.Notes, "\n"), chain)) {
					t.Errorf("status tells %+v, want policing because of the chain", d)
				}
			}
			if len(s.Drift) != 0 || len(s.Directions) != 2 || !strings.Contains(a.log, chain) {
				t.Errorf("status tells drift %q and %d directions, ADD logs %s", s.Drift, len(s.Directions), a.log)
			}
			p.deleteChain(t)
			f.send(t, "allowed")
			if got := f.receive(t); got != "allowed" {
				t.Errorf("the chain let %q pass", got)
			}
			offer(t, p.node.NetNS, p.ns, p.addr).wantCapped(t, "policing")
			wantState(t, p, "repaired", join(treesHere(t).bands("pod"), []string{"pod clsact ingress pw_police"}))
			// The queue was always wanted, and is available again.
			wantCode(t, "CHECK without the chain", p.call(t, "CHECK", c).err, 101, "is available again")
			p.must(t, "ADD", c)
			p.must(t, "CHECK", c)
			if now := p.state(t); !slices.Contains(now, "pod clsact ingress pw_redirect") && !slices.Contains(now, "pod clsact ingress mirred") {
				t.Errorf("after ADD there is %q, want the redirect", now)
			}
			p.must(t, "DEL", c)
			wantClean(t, p.afterIFB(t), "DEL")
		})
	}
}

// onNode runs a function on the node's state, as `podweir` does.
func (p *pod) onNode(t *testing.T, f func(*engine.Node) error) {
	t.Helper()
	must.OK(t, p.node.Do(func() error {
		node, err := engine.Open(p.node.paths)
		if err != nil {
			return err
		}
		defer node.Close()
		return f(node)
	}))
}

func (p *pod) status(t *testing.T) status.Attachment {
	t.Helper()
	var rep *status.Report
	p.onNode(t, func(n *engine.Node) (err error) { rep, err = status.Collect(n); return err })
	if len(rep.Attachments) != 1 || rep.Attachments[0].Error != "" {
		t.Fatalf("status = %+v, want one attachment", rep)
	}
	return rep.Attachments[0]
}

func (p *pod) repair(t *testing.T) {
	t.Helper()
	p.onNode(t, func(n *engine.Node) error {
		_, err := n.Repair(t.Context(), attach.ID{Network: "net", ContainerID: p.container, IfName: "eth0"})
		return err
	})
}
