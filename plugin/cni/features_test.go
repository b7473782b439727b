// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/version"

	"github.com/podweir/podweir/plugin/cni"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// Where the ifb that a profile prefers cannot be used, ingress is policed and it is
// said why; when it can, the next look moves the queue there. So it is with the ifb
// by name.
func TestPrivilegedFallsBackFromAnIFB(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "clsact", "ifb")
	p := newNode(t).newPod(t)
	const why = "packets get lost on the way through an ifb"
	for _, place := range []string{"ifb", "prefer-ifb"} {
		p.node.rewrite(t, map[string]any{"redirect": ""})
		c := p.conf(inIFB(conf{"ingressPlace": place}))
		a := p.must(t, "ADD", c)
		a.tells(t, "level=WARN", why)
		d := p.ingress(t)
		if d.Queue.Is != terms.QueueNone || d.CapHolds || !strings.Contains(strings.Join(d.Notes, "; "), why) {
			t.Errorf("%s: ingress is %+v, want policing with the reason", place, d)
		}
		p.must(t, "CHECK", c)
		p.crosses(t)

		must.OK(t, os.Remove(filepath.Join(p.node.paths.Run, "features.json")))
		p.repair(t)
		if d := p.ingress(t); d.Side.Is != terms.SideIFB || d.Queue.Is != terms.QueueTBF {
			t.Errorf("%s: after the repair ingress is %s on the %s side, want tbf on the ifb", place, d.Queue, d.Side)
		}
		p.must(t, "CHECK", c)
		p.crosses(t)
		p.must(t, "DEL", c)
	}
}

// When ingress moves away from a queue of podweir's, the queue is removed even if another party
// changed it: it would go on limiting the pod to the other party's rate.
func TestPrivilegedChangedQueueGoesWithAMove(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "clsact", "ifb")
	p := newNode(t).newPod(t)
	p.must(t, "ADD", p.conf(both(nil)))
	p.node.Run(t, "tc", "qdisc", "change", "dev", p.host.Name, "root", "tbf", "rate", "5mbit", "burst", "20kb", "latency", "50ms")
	c := p.conf(inIFB(nil))
	p.must(t, "ADD", c)
	must.Have(t, "the host side", queues(t, p.node.NetNS, p.host.Name), "!tbf")
	p.must(t, "CHECK", c)
	p.crosses(t)
}

// Where hostHook is tcx and the kernel has no TCX, no program of podweir's stands on the
// host side, not even one that stood there before: there is no ceiling, and an ingress
// queue that needs a program on the hook moves into the pod.
func TestPrivilegedNoHostFilterWithoutTCX(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "clsact", "ifb")
	p := newNode(t).newPod(t)
	p.must(t, "ADD", p.conf(both(nil)))
	if onHost := p.hostFilters(t); len(onHost) == 0 {
		t.Fatal("without hostHook there is no filter on the host side to remove")
	}
	p.node.rewrite(t, map[string]any{"tcx": false})
	c := p.conf(both(conf{"hostHook": "tcx"}))
	p.must(t, "ADD", c)
	must.Len(t, "filters on the host side", 0, p.hostFilters(t))
	side, told := terms.SideIFB, terms.Directions[:]
	if treesHere(t).prio { // whose filter is on podweir's own queue
		side, told = terms.SideHost, []terms.Direction{terms.Egress}
	}
	for _, d := range p.status(t).Directions {
		notes := strings.Join(d.Notes, "; ")
		if d.Direction.Is == terms.Ingress && d.Side.Is != side {
			t.Errorf("ingress is on the %s side, want %v", d.Side, side)
		}
		if slices.Contains(told, d.Direction.Is) && !strings.Contains(notes, "hostHook is tcx") {
			t.Errorf("%s has the notes %q, want the reason for what it lacks", d.Direction, notes)
		}
	}
	p.must(t, "CHECK", c)
	p.crosses(t)
	p.goes(t, c)
}

// hostFilters are the filters on the host side and their qdisc.
func (p *pod) hostFilters(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(p.state(t), func(s string) bool {
		return !strings.HasPrefix(s, "host ") || !strings.Contains(s, "clsact")
	})
}

// ingress is what status says of that direction.
func (p *pod) ingress(t *testing.T) status.Direction {
	t.Helper()
	for _, d := range p.status(t).Directions {
		if d.Direction.Is == terms.Ingress {
			return d
		}
	}
	t.Fatal("status says nothing of ingress")
	return status.Direction{}
}

// rewrite changes what the node keeps of its probes, and returns it.
func (n *node) rewrite(t *testing.T, change map[string]any) map[string]any {
	t.Helper()
	return testutil.Probed(t, n.paths.Run, change)
}

// TestSpokenInEveryChain: with another version in a chain the skeleton refuses ADD and
// DEL of all pods, before onError counts.
func TestSpokenInEveryChain(t *testing.T) {
	chains := must.Get(filepath.Glob("../../compat/conflist/testdata/*.golden.*"))(t)
	must.AtLeast(t, "chains that podweir is spliced into", 5, len(chains))
	for _, chain := range chains {
		raw := must.Get(os.ReadFile(chain))(t)
		got, err := (&version.ConfigDecoder{}).Decode(raw)
		if err != nil || !slices.Contains(cni.SupportedVersions.SupportedVersions(), got) {
			t.Errorf("%s has the CNI version %q, %v, want one of %q", filepath.Base(chain), got, err, cni.SupportedVersions.SupportedVersions())
		}
	}
}
