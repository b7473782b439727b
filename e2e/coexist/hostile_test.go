// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package coexist_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// hostile is a neighbour that no profile knows, first on every hook of both ends
// of the pod's pair, who ends the chain with 0 for all that he lets through.
type hostile struct {
	pod *pod
	// filters says that he uses legacy filters instead of TCX programs.
	filters bool
	// bpffs is where the filters' program is pinned for tc(8).
	bpffs string
}

func (h *hostile) title() string {
	if h.filters {
		return "a filter at preference 1"
	}
	return "a TCX program"
}

func (h *hostile) arrive(t *testing.T) {
	t.Helper()
	prog := policyProgram(t, "hostile")
	// tc(8) names a filter after the pin of its program.
	pin := filepath.Join(h.bpffs, h.pod.container, "hostile")
	if h.filters {
		must.OK(t, os.Mkdir(filepath.Dir(pin), 0o700))
		must.OK(t, prog.Pin(pin))
	}
	for _, end := range []struct {
		ns  *testutil.NetNS
		dev string
		id  int
	}{{h.pod.ns, "eth0", h.pod.dev.Index}, {h.pod.rig.node, h.pod.host.Name, h.pod.host.Index}} {
		if h.filters {
			// It may be there already.
			_ = end.ns.Command(t, "tc", "qdisc", "add", "dev", end.dev, "clsact").Run()
			for _, hook := range []string{"ingress", "egress"} {
				end.ns.Run(t, "tc", "filter", "add", "dev", end.dev, hook, "pref", "1", "bpf", "da", "pinned", pin)
			}
			continue
		}
		for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
			attachTCX(t, end.ns, end.id, at, prog, link.Head())
		}
	}
}

// programs are not looked at: nothing happens to them.
func (*hostile) programs(*testing.T) (places, ids []string) { return nil, nil }

func (*hostile) owns(text string) bool { return strings.Contains(text, "hostile") }

// A neighbour ends the chain ahead of podweir. Where its program decides whether
// the limit holds, CHECK names him and ADD goes back in front of him, or, where
// a filter was requested by name, refuses and names him.
func TestPrivilegedHostile(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	bpffs := testutil.BPFFS(t)
	var rows []row
	for _, filters := range []bool{false, true} {
		if !filters && !datapath.HaveTCX() {
			rows = append(rows, row{neighbour: (&hostile{}).title(), device: "veth…", order: "-", result: noTCX})
			continue
		}
		for _, m := range modes() {
			for _, first := range []bool{true, false} {
				t.Run(fmt.Sprintf("filters=%s/%s/first=%s", yesNo(filters), m.name(), yesNo(first)), func(t *testing.T) {
					if !m.likely() {
						mark.NightlyKernels(t, "all modes take an emulated processor minutes")
					}
					p := r.newPod(t, fmt.Sprintf("veth%08x", r.pods))
					h := &hostile{pod: p, filters: filters, bpffs: bpffs}
					k := &hostileCase{kase{title: h.title(), device: "veth…", pod: p, mode: m, traffic: newTraffic(t, p), other: h}}
					k.run(t, first)
					rows = append(rows, k.rows...)
				})
			}
		}
	}
	r.keep(t, "hostile", rows)
}

type hostileCase struct{ kase }

func (k *hostileCase) run(t *testing.T, podweirFirst bool) {
	t.Helper()
	if k.cannot(t, podweirFirst) {
		return
	}
	if !podweirFirst {
		k.other.arrive(t)
		if k.mayAdd(t, "podweir second") {
			k.row(t, "podweir second", true)
			k.pod.remove(t, k.mode)
		}
		return
	}
	k.pod.must(t, "ADD", k.mode)
	k.other.arrive(t)
	k.row(t, "podweir first", false)
	end := k.traffic.watch(t)
	again := k.mayAdd(t, "podweir first, ADD repeated")
	end()
	if again {
		k.row(t, "podweir first, ADD repeated", true)
	}
	k.pod.remove(t, k.mode)
}

// row looks at the pod as it is; mended says that podweir had its say after the
// neighbour came.
func (k *hostileCase) row(t *testing.T, order string, mended bool) {
	t.Helper()
	r, err := k.look(t, order)
	shaped := r.egressShaped == "yes" && r.ingressShaped == "yes"
	r.result = "ok"
	switch {
	case mended && (!shaped || err != nil):
		t.Errorf("%s: egress shaped %s, ingress shaped %s, CHECK = %v, want all well", order, r.egressShaped, r.ingressShaped, describe(err))
	case !shaped && err == nil:
		t.Errorf("%s: egress shaped %s, ingress shaped %s, and CHECK does not say so", order, r.egressShaped, r.ingressShaped)
	case !shaped:
		r.result = "starved, and reported"
	case err != nil:
		r.result = "the limits hold, but light flows do not go first; reported"
	}
	k.rows = append(k.rows, r)
}
