// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package coexist_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/e2e/coexist"
	"github.com/podweir/podweir/plugin/testutil/mark"
)

const npaNamespace = "default"

// npa is the Network Policy Agent on the device of one pod.
type npa struct {
	agent *agent
	pod   *pod
	name  string
}

func (n *npa) must(t *testing.T, do string) {
	t.Helper()
	if err := n.agent.ask(do, n.name); err != nil {
		t.Fatalf("%s: %v", do, err)
	}
}

// arrive is what the agent does when the VPC CNI adds a pod that has policies.
func (n *npa) arrive(t *testing.T) {
	t.Helper()
	n.must(t, "attach")
	n.must(t, "allow")
	if got, _ := n.filters(t); !slices.Equal(got, []string{"ingress handle_egress", "egress handle_ingress"}) {
		t.Fatalf("filters of the agent: %v", got)
	}
}

// handle1 finds the agent's filters in what tc(8) shows.
var handle1 = regexp.MustCompile(`pref 1 bpf chain 0 handle 0x1 (handle_[a-z]+).* (id [0-9]+) `)

// filters are the agent's filters on the device, by hook, and their ids.
func (n *npa) filters(t *testing.T) (all, ids []string) {
	t.Helper()
	for _, hook := range []string{"ingress", "egress"} {
		out := n.pod.rig.node.Run(t, "tc", "filter", "show", "dev", n.pod.host.Name, hook)
		for _, m := range handle1.FindAllStringSubmatch(out, -1) {
			all, ids = append(all, hook+" "+m[1]), append(ids, m[2])
		}
	}
	return all, ids
}

func (n *npa) programs(t *testing.T) (places, ids []string) {
	t.Helper()
	return n.filters(t)
}

// restart is what comes after the agent was killed: it starts, finds its pins,
// and its reconciler attaches the pod and programs its policy again.
func (n *npa) restart(t *testing.T) {
	t.Helper()
	n.agent.stop()
	n.agent.start(t)
	n.arrive(t)
}

// upgrade is the restart of an agent with other programs: it removes every
// filter with its handle from all devices, attaches again, and programs the
// policy.
func (n *npa) upgrade(t *testing.T) {
	t.Helper()
	n.agent.stop()
	n.agent.changePrograms(t)
	n.agent.start(t)
	n.arrive(t)
}

// clean is the agent's removal of its filters, twice, and their return.
func (n *npa) clean(t *testing.T) {
	t.Helper()
	n.must(t, "clean")
	if got, _ := n.filters(t); len(got) != 0 {
		t.Fatalf("filters after the agent's clean-up: %v", got)
	}
	n.must(t, "clean")
	n.restart(t)
}

func (*npa) owns(text string) bool { return strings.Contains(text, "handle_") }

func TestPrivilegedNPA(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := newAgent(t, r.node)
	a.start(t)
	var rows []coexist.Row
	for i, m := range modes() {
		for _, first := range []bool{true, false} {
			t.Run(m.name()+"/first="+yesNo(first), func(t *testing.T) {
				if m.rare() {
					mark.Nightly(t, "it differs from other cases by one setting")
				}
				if m.egress != "auto" || m.ingress != "auto" {
					mark.NightlyKernels(t, "a queue by name takes an emulated processor four minutes")
				}
				name := fmt.Sprintf("web-%d%s-x", i, yesNo(first))
				p := r.newPod(t, hostVeth(npaNamespace, name))
				n := &npa{a, p, name}
				k := &kase{
					title: "NPA v1.4.1", device: "eni…", pod: p, mode: m, traffic: newTraffic(t, p), other: n,
					profile: profiles.Find("aws-vpc-cni-npa"),
					later: []step{
						{label: "NPA restarts", do: n.restart},
						{label: "NPA is upgraded", do: n.upgrade, replaces: true},
						{label: "NPA cleans up and comes back", do: n.clean},
					},
					ownGap: true,
				}
				k.run(t, first)
				rows = append(rows, k.rows...)
			})
		}
	}
	r.keep(t, "npa", rows)
}
