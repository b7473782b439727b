// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package coexist_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/e2e/coexist"
	"github.com/podweir/podweir/plugin/testutil"
)

// routing is a way in which Cilium connects pods on veth.
type routing struct {
	title, profile string
	// redirects says that packets go past the host side of the veth to the
	// pod, and past the node's stack from it (BPF host routing).
	redirects bool
	// toContainer says that policy for the pod's ingress is on the lxc
	// device, not on the node's (per-endpoint routes).
	toContainer bool
}

var routings = []routing{
	{title: "Cilium 1.16+, legacy host routing", profile: "cilium-legacy-routing"},
	{title: "Cilium 1.16+, endpoint routes", profile: "cilium-endpoint-routes", toContainer: true},
	{title: "Cilium 1.16+, BPF host routing", profile: "cilium", redirects: true},
}

// cilium does on the device of a pod what Cilium 1.16 and later do (v1.20.2,
// pkg/datapath/loader/tcx.go and tc.go): pinned links at the tail of the TCX
// list, updated in place, and all legacy filters of the device removed after
// each of it.
type cilium struct {
	pod *pod
	routing
	pins  string
	links map[string]link.Link
}

// entry is a program of Cilium's and its place.
type entry struct {
	name string
	ns   *testutil.NetNS
	dev  int
	at   ebpf.AttachType
	// to is the address that the program cares for, "" for any.
	to    string
	allow asm.Instructions
}

func (c *cilium) entries() []entry {
	p, r := c.pod, c.pod.rig
	fromContainer := entry{"cil_from_container", r.node, p.host.Index, ebpf.AttachTCXIngress, "", answer(answerPass)}
	toPod := entry{"cil_from_netdev", r.node, r.uplink.Index, ebpf.AttachTCXIngress, p.addr, answer(answerPass)}
	switch {
	case c.redirects:
		fromContainer.allow, toPod.allow = toNeighbour(r.uplink.Index), toPeer(p.host.Index)
	case c.toContainer:
		toPod = entry{"cil_to_container", r.node, p.host.Index, ebpf.AttachTCXEgress, "", answer(answerPass)}
	}
	return []entry{fromContainer, toPod}
}

func (c *cilium) arrive(t *testing.T) {
	t.Helper()
	for _, e := range c.entries() {
		l := attachTCX(t, e.ns, e.dev, e.at, policyProgram(t, kernelName(e.name), e.to, e.allow), link.Tail())
		pin := filepath.Join(c.pins, c.pod.container+"_"+e.name)
		if err := l.Pin(pin); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Unpin() })
		c.links[e.name] = l
	}
	c.wipe(t)
}

// kernelName is what the kernel keeps of a program's name.
func kernelName(name string) string { return name[:min(len(name), 15)] }

// wipe removes the legacy filters of whomever, on both hooks: on ingress
// because of the TCX program, on egress because there is none of Cilium's.
func (c *cilium) wipe(t *testing.T) {
	t.Helper()
	for _, hook := range []string{"ingress", "egress"} {
		// There may be no clsact at all.
		_ = c.pod.rig.node.Command(t, "tc", "filter", "del", "dev", c.pod.host.Name, hook).Run()
	}
}

// regenerate replaces the programs of the endpoint.
func (c *cilium) regenerate(t *testing.T) {
	t.Helper()
	for _, e := range c.entries() {
		if err := c.links[e.name].Update(policyProgram(t, kernelName(e.name), e.to, e.allow)); err != nil {
			t.Fatal(err)
		}
	}
	c.wipe(t)
}

// restart is what a new agent does: it finds the pinned links and regenerates.
func (c *cilium) restart(t *testing.T) {
	t.Helper()
	for name, l := range c.links {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l, err := link.LoadPinnedLink(filepath.Join(c.pins, c.pod.container+"_"+name), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Unpin(); _ = l.Close() })
		c.links[name] = l
	}
	c.regenerate(t)
}

// programs are not compared; that they still decide is seen by what drops.
func (*cilium) programs(*testing.T) string { return "" }

func (*cilium) owns(text string) bool { return strings.Contains(text, `"cil_`) }

func TestPrivilegedCilium(t *testing.T) {
	r := newRig(t)
	pins := testutil.BPFFS(t)
	var rows []coexist.Row
	for _, way := range routings {
		for _, m := range modes() {
			for _, first := range []bool{true, false} {
				t.Run(way.profile+"/"+m.name()+"/first="+yesNo(first), func(t *testing.T) {
					p := r.newPod(t, fmt.Sprintf("lxc%08x", r.pods))
					c := &cilium{pod: p, routing: way, pins: pins, links: map[string]link.Link{}}
					k := &kase{
						title: way.title, device: "lxc…", pod: p, mode: m, profile: profiles.Find(way.profile),
						traffic: newTraffic(t, p),
						other:   c, later: []step{{"Cilium regenerates the endpoint", c.regenerate}, {"Cilium restarts", c.restart}},
					}
					k.run(t, first)
					rows = append(rows, k.rows...)
				})
			}
		}
	}
	keep(t, "cilium", rows)
}
