// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/testutil"
)

// onThisKernel is what the running kernel has instead of what others have: the
// mirred action where bpf_redirect to an ifb loses packets, as the node's
// self-test found, and filters without TCX.
func onThisKernel(t *testing.T, n *node, want []string) []string {
	t.Helper()
	const byProgram = "pod clsact ingress pw_redirect"
	if at := slices.Index(want, byProgram); at >= 0 {
		var found struct{ Redirect string }
		b, err := os.ReadFile(filepath.Join(n.paths.Run, "features.json"))
		if err == nil {
			err = json.Unmarshal(b, &found)
		}
		if err != nil {
			t.Fatal(err)
		}
		if found.Redirect == "mirred" {
			want = join(slices.Delete(slices.Clone(want), at, at+1), []string{"pod clsact ingress mirred"})
		}
	}
	return withCeiling(withoutTCX(want))
}

// noCeiling stands in a list of what is wanted for a policy that has none.
const noCeiling = "no ceiling"

// withCeiling adds the ceiling that a limit on the pod's own side has. What was read
// from the devices has it already.
func withCeiling(want []string) []string {
	if i := slices.Index(want, noCeiling); i >= 0 {
		return slices.Delete(slices.Clone(want), i, i+1)
	}
	if slices.ContainsFunc(want, func(s string) bool { return strings.Contains(s, "pw_ceiling") }) {
		return want
	}
	own := func(s string) bool {
		queue := strings.HasPrefix(s, "pod qdisc ") && s != "pod qdisc clsact"
		return queue || strings.HasPrefix(s, "pod ") && strings.Contains(s, " egress pw_")
	}
	if !slices.ContainsFunc(want, own) {
		return want
	}
	name := "pw_ceiling"
	if slices.ContainsFunc(want, func(s string) bool { return strings.HasSuffix(s, "_x") }) {
		name = "pw_ceiling_x"
	}
	ceiling := []string{"host clsact ingress " + name}
	if !slices.Contains(want, "host qdisc clsact") {
		ceiling = append(ceiling, "host qdisc clsact")
	}
	return join(want, ceiling)
}

// withoutTCX is what a kernel without TCX has instead of the programs that have
// TCX as their second choice: filters on clsact.
func withoutTCX(want []string) []string {
	if datapath.HaveTCX() {
		return want
	}
	out := []string{}
	for _, s := range want {
		if device, program, ok := strings.Cut(s, " tcx "); ok {
			if qdisc := device + " qdisc clsact"; !slices.Contains(want, qdisc) && !slices.Contains(out, qdisc) {
				out = append(out, qdisc)
			}
			out = append(out, device+" clsact "+program)
		} else {
			out = append(out, s)
		}
	}
	slices.Sort(out)
	return out
}

func requireTCX(t *testing.T) {
	t.Helper()
	if !datapath.HaveTCX() {
		testutil.SkipFeature(t, "tcx")
	}
}

// bandsOf is a TBF over prio with its filter, as a kernel with prio has it
// where newNode says that there is none; in the other modes nothing differs.
func bandsOf(device string) []string {
	return []string{
		device + " qdisc tbf", device + " qdisc prio", device + " qdisc bfifo", device + " qdisc bfifo", device + " qdisc bfifo",
		device + " filter pw_class",
	}
}

// classifiedFirst is the queue where the classifier stands before the bucket: with
// exempt subnets, and out of a pod below 54M.
func classifiedFirst(device, program string) []string {
	return []string{
		device + " qdisc prio", device + " qdisc bfifo", device + " qdisc tbf",
		device + " qdisc prio", device + " qdisc bfifo", device + " qdisc bfifo", device + " qdisc bfifo",
		device + " filter " + program,
	}
}

// The queues that most machines get, on what this kernel really has: ADD makes
// them, twice changes nothing, CHECK finds what is missing, the next ADD mends
// it, packets cross, and DEL leaves the devices as they were.
func TestPrivilegedQueuesWithPrio(t *testing.T) {
	testutil.RequireRoot(t)
	testutil.RequireQdisc(t, "tbf", "prio", "fq", "ifb", "clsact")
	guard := []string{"pod qdisc clsact", "pod clsact egress pw_guard"}
	open := func(device string) []string {
		return []string{
			device + " qdisc prio", device + " qdisc bfifo", device + " qdisc tbf", device + " qdisc bfifo", device + " qdisc bfifo", device + " filter pw_class",
		}
	}
	for _, m := range []mode{
		{"strict", both(nil), join(guard, classifiedFirst("pod", "pw_class"), bandsOf("host"))},
		{"flat", both(conf{"policy": "flat"}), []string{"host qdisc bfifo", "host qdisc tbf", "pod qdisc bfifo", "pod qdisc tbf"}},
		{"elephants", both(conf{"policy": "elephants"}), join(guard, open("pod"), open("host"), []string{noCeiling})},
		{"unshaped subnets", both(conf{"unshapedSubnets": []string{"10.99.0.0/16"}}), join(guard, classifiedFirst("pod", "pw_class_x"), classifiedFirst("host", "pw_class_x"))},
		{"fq", both(conf{"queue": "fq", "policy": "flat"}), join(
			[]string{"pod qdisc fq", "pod qdisc clsact", "pod clsact egress pw_edt"},
			[]string{"host qdisc fq", "host tcx egress pw_edt"},
		)},
		{"ifb", inIFB(nil), join(guard, classifiedFirst("pod", "pw_class"), bandsOf("ifb"), []string{"ifb exists", "pod clsact ingress pw_redirect"})},
	} {
		t.Run(m.name, func(t *testing.T) {
			p := unprobed(t).newPod(t)
			before, c := p.raw(t), p.conf(m.with)
			add := func(what string) {
				t.Helper()
				p.must(t, "ADD", c)
				wantQueues(t, p, what, m.want)
				p.must(t, "CHECK", c)
				p.crosses(t)
			}
			add("ADD")
			ids := p.node.programs(t)
			add("ADD twice")
			for pin, id := range p.node.programs(t) {
				if ids[pin] != id {
					t.Errorf("ADD twice replaced program %s", pin)
				}
			}
			p.ns.Run(t, "tc", "qdisc", "del", "dev", "eth0", "root")
			wantCode(t, "CHECK without the root qdisc", p.call(t, "CHECK", c).err, 101, "egress build-queue")
			add("ADD after the root qdisc was removed")
			earlierRoot(t, p)
			wantCode(t, "CHECK with the root of an earlier release", p.call(t, "CHECK", c).err, 101, "egress ")
			add("ADD after an upgrade")
			p.must(t, "DEL", c)
			p.afterIFB(t)
			wantClean(t, p, "DEL")
			if after := p.raw(t); after != before {
				t.Errorf("DEL leaves\n%s\nwhere ADD found\n%s", after, before)
			}
		})
	}
}

// earlierRoot puts another kind of queue in the place of podweir's root on the pod's side,
// with its handle, as a release that built another tree left it.
func earlierRoot(t *testing.T, p *pod) {
	t.Helper()
	var roots []struct{ Handle string }
	tcJSON(t, p.ns, &roots, "qdisc", "show", "dev", "eth0", "root")
	if len(roots) != 1 {
		t.Fatalf("roots %v, want one", roots)
	}
	p.ns.Run(t, "tc", "qdisc", "del", "dev", "eth0", "root")
	p.ns.Run(t, "tc", "qdisc", "add", "dev", "eth0", "root", "handle", roots[0].Handle, "tbf", "rate", "10mbit", "burst", "10kb", "limit", "1mb")
}

// wantQueues is wantState with the filters of inner qdiscs too.
func wantQueues(t *testing.T, p *pod, what string, want []string) {
	t.Helper()
	want = onThisKernel(t, p.node, want)
	got := p.state(t)
	for _, d := range []struct {
		ns        *testutil.NetNS
		dev, name string
	}{{p.ns, p.dev.Name, "pod"}, {p.node.NetNS, p.host.Name, "host"}, {p.ns, hostif.IFBName(p.dev.Index), "ifb"}} {
		if d.name == "ifb" && !slices.Contains(got, "ifb exists") {
			continue
		}
		var qdiscs []struct {
			Kind, Handle string
			Root         bool
		}
		tcJSON(t, d.ns, &qdiscs, "qdisc", "show", "dev", d.dev)
		for _, q := range qdiscs {
			if q.Kind == "prio" && !q.Root {
				for _, name := range filterNames(t, d.ns, d.dev, "parent "+q.Handle) {
					got = append(got, d.name+" filter "+name)
				}
			}
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%s: on the devices\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
