// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package coexist_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// routing is a way in which Cilium connects pods on veth.
type routing struct {
	name string
	// withTCX and without are the names of the profiles.
	withTCX, without string
	// redirects says that packets go past the host side of the veth to the
	// pod, and past the node's stack from it (BPF host routing).
	redirects bool
	// toContainer says that policy for the pod's ingress is on the lxc
	// device, not on the node's (per-endpoint routes).
	toContainer bool
}

var routings = []routing{
	{name: "Cilium 1.16+, legacy host routing", withTCX: "cilium-legacy-routing", without: "cilium-legacy-routing"},
	{name: "Cilium 1.16+, endpoint routes", withTCX: "cilium-endpoint-routes", without: "cilium-endpoint-routes", toContainer: true},
	{name: "Cilium 1.16+, BPF host routing", withTCX: "cilium", without: "cilium-legacy-tc", redirects: true},
}

func (c *cilium) title() string {
	if c.links == nil {
		return c.name + ", legacy filters"
	}
	return c.name
}

func (c *cilium) profile() string {
	if c.links == nil {
		return c.without
	}
	return c.withTCX
}

// cilium does on the device of a pod what Cilium 1.16 and later do. Each behaviour
// copies the effect of a line of github.com/cilium/cilium v1.20.2; TestCitedLines in
// e2e/cilium finds the word behind the number there. The rows cilium-1.20 of e2e/matrix
// run Cilium itself and restart its agent, with what podweir chooses by itself on one
// kernel; the double adds every mode, both orders, kernels without TCX, and a count of
// the denied packets that arrive.
//
//	pkg/datapath/loader/endpoint.go:236 attachSKBProgram: cil_from_container at the device's ingress, always
//	pkg/datapath/loader/endpoint.go:241 RequireEgressProg: cil_to_container at its egress only then
//	pkg/endpoint/api/endpoint_api_manager.go:113 RequireEgressProg: which is so with endpoint routes
//	pkg/datapath/loader/host.go:291 attachSKBProgram: cil_from_netdev at ingress of the node's device
//	bpf/include/bpf/ctx/skb.h:26 CTX_ACT_OK: a program that allows answers 0, which ends the chain
//
// With TCX:
//
//	pkg/datapath/loader/tcx.go:63 Tail: a new link comes last
//	pkg/datapath/loader/tcx.go:37 updateTCX: a link that is there keeps its place
//	pkg/datapath/loader/tc.go:48 removeTCFilters: after each of both the legacy filters of the hook go,
//	pkg/datapath/loader/tc.go:207 filters: all of them, whosever they are
//
// Without TCX:
//
//	pkg/datapath/loader/tc.go:117 replaceQdisc: a clsact
//	pkg/datapath/loader/tc.go:126 prio: with a filter at preference 1,
//	pkg/datapath/loader/tc.go:133 Handle: handle 1,
//	pkg/datapath/loader/tc.go:142 FilterReplace: which replaces the one before
//
// With both, on a hook for which Cilium has no program:
//
//	pkg/datapath/loader/endpoint.go:247 detachSKBProgram: whenever the endpoint is regenerated,
//	pkg/datapath/loader/tc.go:110 removeTCFilters: all filters of that hook go
//
// With BPF host routing:
//
//	bpf/lib/local_delivery.h:85 enable_bpf_host_routing: packets to a pod
//	bpf/lib/local_delivery.h:104 ctx_redirect_peer: pass the host side by
//	bpf/bpf_lxc.c:1347 fib_redirect_v4: packets from it
//	bpf/lib/fib.h:120 redirect_neigh: pass the node's stack by
type cilium struct {
	pod *pod
	routing
	pins string
	// links are by the name of the program; nil without TCX.
	links map[string]link.Link
	// generation numbers the programs' pins for tc(8).
	generation int
}

// entry is a program of Cilium's and its place.
type entry struct {
	name   string
	ns     *testutil.NetNS
	dev    int
	device string
	at     ebpf.AttachType
	// to is the address that the program cares for, "" for any.
	to    string
	allow asm.Instructions
}

// hook is what tc(8) calls the hook.
func (e *entry) hook() string {
	if e.at == ebpf.AttachTCXEgress {
		return "egress"
	}
	return "ingress"
}

func (c *cilium) entries() []entry {
	p, r := c.pod, c.pod.rig
	fromContainer := entry{name: "cil_from_container", ns: r.node, dev: p.host.Index, device: p.host.Name, at: ebpf.AttachTCXIngress, allow: answer(answerPass)}
	toPod := entry{name: "cil_from_netdev", ns: r.node, dev: r.uplink.Index, device: r.uplink.Name, at: ebpf.AttachTCXIngress, to: p.addr, allow: answer(answerPass)}
	switch {
	case c.redirects:
		fromContainer.allow, toPod.allow = toNeighbour(r.uplink.Index), toPeer(p.host.Index)
	case c.toContainer:
		toPod = entry{name: "cil_to_container", ns: r.node, dev: p.host.Index, device: p.host.Name, at: ebpf.AttachTCXEgress, allow: answer(answerPass)}
	}
	return []entry{fromContainer, toPod}
}

func (c *cilium) arrive(t *testing.T) {
	t.Helper()
	for _, e := range c.entries() {
		if c.links == nil {
			// It may be there already.
			_ = e.ns.Command(t, "tc", "qdisc", "add", "dev", e.device, "clsact").Run()
			c.filter(t, &e)
			continue
		}
		l := attachTCX(t, e.ns, e.dev, e.at, policyProgram(t, kernelName(e.name), e.to, e.allow), link.Tail())
		c.links[e.name] = l
	}
	c.wipe(t)
}

// filter puts an entry's program at preference 1, in the place of the one that
// is there.
func (c *cilium) filter(t *testing.T, e *entry) {
	t.Helper()
	c.generation++
	// tc(8) names a filter after the pin of its program.
	pin := filepath.Join(c.pins, fmt.Sprintf("%s-%d", c.pod.container, c.generation), e.name)
	must.OK(t, os.Mkdir(filepath.Dir(pin), 0o700))
	must.OK(t, policyProgram(t, kernelName(e.name), e.to, e.allow).Pin(pin))
	e.ns.Run(t, "tc", "filter", "replace", "dev", e.device, e.hook(), "pref", "1", "handle", "1", "bpf", "da", "pinned", pin)
	t.Cleanup(func() { _ = e.ns.Command(t, "tc", "filter", "del", "dev", e.device, e.hook(), "pref", "1").Run() })
}

// kernelName is what the kernel keeps of a program's name.
func kernelName(name string) string { return name[:min(len(name), 15)] }

// wipe removes the legacy filters of whomever: on a hook where Cilium has a TCX
// program because of that, elsewhere because there is none of Cilium's.
func (c *cilium) wipe(t *testing.T) {
	t.Helper()
	for _, hook := range []string{"ingress", "egress"} {
		if c.links == nil && slices.ContainsFunc(c.entries(), func(e entry) bool { return e.dev == c.pod.host.Index && e.hook() == hook }) {
			continue
		}
		// There may be no clsact at all.
		_ = c.pod.rig.node.Command(t, "tc", "filter", "del", "dev", c.pod.host.Name, hook).Run()
	}
}

// regenerate replaces the programs of the endpoint.
func (c *cilium) regenerate(t *testing.T) {
	t.Helper()
	for _, e := range c.entries() {
		if c.links == nil {
			c.filter(t, &e)
			continue
		}
		must.OK(t, c.links[e.name].Update(policyProgram(t, kernelName(e.name), e.to, e.allow)))
	}
	c.wipe(t)
}

// anyFilter finds filters at preference 1 in what tc(8) shows.
var anyFilter = regexp.MustCompile(`pref 1 bpf chain 0 handle (0x1) (cil_[a-z_]+).* id ([0-9]+) `)

// programs are told by their links, which Cilium keeps and updates in place, or
// by the handles of their filters.
func (c *cilium) programs(t *testing.T) (places, ids []string) {
	t.Helper()
	for _, e := range c.entries() {
		if c.links != nil {
			info, err := c.links[e.name].Info()
			must.OK(t, err)
			places, ids = append(places, fmt.Sprintf("%s link %d", e.name, info.ID)), append(ids, fmt.Sprint(info.Program))
			continue
		}
		for _, m := range anyFilter.FindAllStringSubmatch(e.ns.Run(t, "tc", "filter", "show", "dev", e.device, e.hook()), -1) {
			places, ids = append(places, e.device+" "+m[1]+" "+m[2]), append(ids, m[3])
		}
	}
	if len(ids) != len(c.entries()) {
		t.Errorf("programs of Cilium: %v %v, want %d", places, ids, len(c.entries()))
	}
	return places, ids
}

func (*cilium) owns(text string) bool { return strings.Contains(text, "cil_") }

func TestPrivilegedCilium(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	pins := testutil.BPFFS(t)
	var rows []row
	for _, way := range routings {
		for _, m := range modes() {
			for _, first := range []bool{true, false} {
				t.Run(way.withTCX+"/"+m.name()+"/first="+yesNo(first), func(t *testing.T) {
					if way.toContainer || m.rare() {
						mark.Nightly(t, "it differs from other cases by one setting")
					}
					if !m.likely() {
						mark.NightlyKernels(t, "all modes take an emulated processor ten minutes")
					}
					p := r.newPod(t, fmt.Sprintf("lxc%08x", r.pods))
					c := &cilium{pod: p, routing: way, pins: pins}
					if datapath.HaveTCX() {
						c.links = map[string]link.Link{}
					}
					k := &kase{
						title: c.title(), device: "lxc…", pod: p, mode: m, profile: profiles.Find(c.profile()),
						traffic: newTraffic(t, p), other: c,
						later: []step{
							{label: "Cilium regenerates the endpoint", do: c.regenerate, replaces: true},
						},
					}
					k.run(t, first)
					rows = append(rows, k.rows...)
				})
			}
		}
	}
	r.keep(t, "cilium", rows)
}
