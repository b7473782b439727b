// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package coexist_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf/link"

	"github.com/podweir/podweir/plugin/terms"
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
		}
		for _, hook := range []string{"ingress", "egress"} {
			if h.filters {
				end.ns.Run(t, "tc", "filter", "add", "dev", end.dev, hook, "pref", "1", "bpf", "da", "pinned", pin)
			} else {
				end.ns.AttachTCX(t, end.id, hook, prog, link.Head())
			}
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
	for _, filters := range []bool{false, true} {
		if !filters && !testutil.HaveTCX() {
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
					h.run(t, &kase{pod: p, mode: m, traffic: newTraffic(t, p), other: h}, first)
				})
			}
		}
	}
}

func (h *hostile) run(t *testing.T, k *kase, podweirFirst bool) {
	t.Helper()
	if k.cannot(t, podweirFirst) {
		return
	}
	m := k.mode
	// Behind another's filter or TCX program podweir's filter is not asked, and its redirect
	// comes last by design; without TCX it polices by a filter.
	refused := strings.HasPrefix(m.egress, "clsact") || m.keys["ingressPlace"] == "ifb" || m.keys["queue"] == "none" && !testutil.HaveTCX()
	if !podweirFirst {
		h.arrive(t)
		if k.mayAdd(t, "podweir second", refused) {
			h.row(t, k, "podweir second", true)
			k.pod.remove(t, k.mode)
		}
		return
	}
	k.pod.must(t, "ADD", k.mode)
	h.arrive(t)
	h.row(t, k, "podweir first", false)
	end := k.traffic.watch(t)
	again := k.mayAdd(t, "podweir first, ADD repeated", refused)
	end()
	if again {
		h.row(t, k, "podweir first, ADD repeated", true)
	}
	k.pod.remove(t, k.mode)
}

// row looks at the pod as it is; mended says that podweir had its say after the neighbour
// came. Until then its own queues limit the pod, though light flows do not go first, and
// what stands on a hook may be starved: CHECK names the neighbour, but for filters
// in modes that the next ADD would attach in the same way again.
func (h *hostile) row(t *testing.T, k *kase, order string, mended bool) {
	t.Helper()
	egress, ingress, check := k.look(t, order)
	m := k.mode
	queues := m.profile == terms.ModeQdisc && m.ingressHost
	same := h.filters && (m.tcx || m.keys["policy"] == "flat" || m.egress == "auto" && !testutil.HaveTCX())
	if (mended || queues) && (!egress || !ingress) || (check == nil) != (mended || same) {
		t.Errorf("%s: egress shaped %t, ingress shaped %t, CHECK = %s", order, egress, ingress, describe(check))
	}
}
