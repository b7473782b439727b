// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// mode is a way to attach and where everything is then.
type mode struct {
	name string
	with conf
	want []string
}

func join(parts ...[]string) []string {
	all := append([]string{}, slices.Concat(parts...)...)
	slices.Sort(all)
	return all
}

// modes are all that this kernel can have, both directions at once.
func modes(t *testing.T) []mode {
	t.Helper()
	named := func(name string, more conf, parts ...[]string) mode {
		c := both(conf{"mode": name})
		for _, k := range slices.Sorted(maps.Keys(more)) {
			c[k] = more[k]
			name += fmt.Sprintf(" %s=%v", k, more[k])
		}
		return mode{name, c, join(parts...)}
	}
	k := treesHere(t)
	return []mode{
		named("auto", nil, k.bands("pod"), k.bands("host")),
		named("auto", conf{"queue": "none"},
			[]string{"pod qdisc clsact", "pod clsact egress pw_police", "pod clsact ingress pw_police"}),
		named("auto", conf{"enforce": "observe"}, []string{noCeiling},
			[]string{"pod qdisc clsact", "pod clsact egress pw_police", "pod clsact ingress pw_police"}),
		named("tcx-hostside", conf{"enforce": "observe"}, []string{"host tcx egress pw_police", "host tcx ingress pw_police"}),
		named("qdisc", nil, k.bands("pod"), k.bands("host")),
		named("qdisc", conf{"policy": "flat"},
			[]string{"pod qdisc tbf", "pod qdisc bfifo", "host qdisc tbf", "host qdisc bfifo"}),
		named("qdisc", conf{"policy": "elephants"}, []string{noCeiling}, k.elephants("pod"), k.elephants("host")),
		named("qdisc", conf{"unshapedSubnets": []string{"10.99.0.0/16"}}, k.exempt("pod"), k.exempt("host")),
		named("qdisc", conf{"ingressPlace": "ifb"}, k.bands("pod"), k.bands("ifb"), []string{"ifb exists", "pod clsact ingress pw_redirect"}),
		named("tcx-podside", nil, hooked("pod"), []string{"pod tcx egress pw_band", "pod tcx ingress pw_police"}),
		named("tcx-podside", conf{"queue": "none"}, []string{"pod tcx egress pw_police", "pod tcx ingress pw_police"}),
		named("tcx-hostside", nil, hooked("host"), []string{"host tcx egress pw_band", "host tcx ingress pw_police"}),
		named("tcx-hostside", conf{"queue": "none"}, []string{"host tcx egress pw_police", "host tcx ingress pw_police"}),
		named("clsact-podside", nil, hooked("pod"),
			[]string{"pod qdisc clsact", "pod clsact egress pw_band", "pod clsact ingress pw_police"}),
		named("clsact-podside", conf{"queue": "none"},
			[]string{"pod qdisc clsact", "pod clsact egress pw_police", "pod clsact ingress pw_police"}),
		named("clsact-hostside", nil, hooked("host"),
			[]string{"host qdisc clsact", "host clsact egress pw_band", "host clsact ingress pw_police"}),
		named("clsact-hostside", conf{"queue": "none"},
			[]string{"host qdisc clsact", "host clsact egress pw_police", "host clsact ingress pw_police"}),
	}
}

// require skips the test where the kernel lacks what the mode names.
func (m *mode) require(t *testing.T) {
	t.Helper()
	if strings.HasPrefix(m.name, "tcx") {
		testutil.RequireQdisc(t, "tcx")
	}
}

// raw is what tc(8) says of all devices of a pod, handles and all.
func (p *pod) raw(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, d := range []struct {
		ns  *testutil.NetNS
		dev string
	}{{p.ns, "eth0"}, {p.node.NetNS, p.host.Name}} {
		for _, args := range [][]string{
			{"tc", "qdisc", "show", "dev", d.dev},
			{"tc", "filter", "show", "dev", d.dev},
			{"tc", "filter", "show", "dev", d.dev, "ingress"},
			{"tc", "filter", "show", "dev", d.dev, "egress"},
			{"ip", "link", "show"},
		} {
			// A device without clsact has no filters, which tc says as an error.
			out, _ := d.ns.Command(t, args[0], args[1:]...).Output()
			b.Write(out)
		}
	}
	return b.String() + strings.Join(p.state(t), "\n")
}

// Every mode, on what the kernel has: ADD makes it, twice changes nothing, packets
// cross, CHECK finds a queue that is missing or an earlier release's, the next ADD mends
// it, and DEL leaves the devices as they were.
func TestPrivilegedModes(t *testing.T) {
	mark.NightlyKernels(t, "it takes an emulated processor minutes")
	testutil.RequireQdisc(t, "tbf", "htb", "pfifo_fast", "ifb", "clsact")
	for _, m := range modes(t) {
		t.Run(m.name, func(t *testing.T) {
			m.require(t)
			p := newNode(t).newPod(t)
			before, c := p.raw(t), p.conf(m.with)
			add := func(what string) {
				t.Helper()
				p.must(t, "ADD", c)
				wantState(t, p, what, m.want)
				p.must(t, "CHECK", c)
				p.crosses(t)
			}
			add("ADD")
			ids := p.node.programs(t)
			add("ADD twice")
			must.Match(t, "a second ADD: programs", ids, p.node.programs(t))
			if queue := func(s string) bool { return strings.HasPrefix(s, "pod qdisc ") && s != "pod qdisc clsact" }; slices.ContainsFunc(m.want, queue) {
				p.ns.Run(t, "tc", "qdisc", "del", "dev", "eth0", "root")
				wantCode(t, "CHECK without the root qdisc", p.call(t, "CHECK", c).err, 101, "egress build-queue")
				add("ADD after the root qdisc was removed")
				earlierRoot(t, p)
				wantCode(t, "CHECK with the root of an earlier release", p.call(t, "CHECK", c).err, 101, "egress ")
				add("ADD after an upgrade")
			}
			p.goes(t, c)
			must.Match(t, "what DEL leaves", before, p.raw(t))
		})
	}
}

// crosses fails the test unless packets pass in both directions.
func (p *pod) crosses(t *testing.T) {
	t.Helper()
	for _, toPod := range []bool{false, true} {
		f := p.newFlow(t, toPod)
		f.send(t, "hello")
		must.Be(t, fmt.Sprintf("received, to the pod %v", toPod), "hello", f.receive(t))
	}
}

// A program that another party puts ahead of podweir's on the host side could
// end the chain: CHECK says who it is, and ADD goes back to the head.
func TestPrivilegedHeadOfTheHostSide(t *testing.T) {
	testutil.RequireQdisc(t, "tcx")
	p := newNode(t).newPod(t)
	c := p.conf(conf{"ingressRate": "10M", "ingressMode": "tcx-hostside"})
	p.must(t, "ADD", c)
	newCounter(t, "cil_to_pod", tcxNext).onTCX(t, p.node.NetNS, p.host.Index, "egress", link.Head())
	wantCode(t, "CHECK behind another program", p.call(t, "CHECK", c).err, 101,
		"cil_to_pod (program ", "is ahead of pw_band on the egress hook of "+p.host.Name)
	p.must(t, "ADD CHECK", c)
	testutil.Eventually(t, 5*time.Second, "podweir is first, and there once", func() bool {
		return slices.Equal(tcxNames(t, p.node.NetNS, p.host.Index, "egress"), []string{"pw_band", "cil_to_pod"})
	})
	p.must(t, "DEL", c)
	wantState(t, p, "DEL", []string{"host tcx egress cil_to_pod"})
}

// TestPrivilegedDefaultsThatCannotBeHad: what the node's defaults name and its kernel
// or the rate cannot have leaves no pod without a limit, also in every verb after ADD.
func TestPrivilegedDefaultsThatCannotBeHad(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "ifb", "clsact")
	for name, tc := range map[string]struct {
		with    conf
		lacks   map[string]any
		told    string
		queues  []string
		ingress string
	}{
		"a queue that the kernel lacks": {conf{"queue": "tbf"}, map[string]any{"TBF": false}, "not the queue tbf", []string{"none", "none"}, "pod"},
		"tcx that the kernel lacks":     {conf{"mode": "tcx-podside"}, map[string]any{"tcx": false}, "not the mode tcx-podside", []string{"tbf", "tbf"}, "host"},
		"queues that the kernel lacks":  {conf{"mode": "qdisc"}, map[string]any{"TBF": false}, "not the mode qdisc", []string{"none", "none"}, "pod"},
		"a place that the kernel lacks": {conf{"ingressPlace": "ifb"}, map[string]any{"redirect": ""}, "not the place ifb", []string{"tbf", "none"}, "pod"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newNode(t).newPod(t)
			p.node.rewrite(t, tc.lacks)
			c := p.conf(both(tc.with))
			a := p.must(t, "ADD", c)
			a.tells(t, "level=WARN", tc.told)
			p.must(t, "CHECK ADD", c)
			p.repair(t)
			var queues []string
			s := p.status(t)
			for _, d := range s.Directions {
				queues = append(queues, d.Queue.String())
			}
			if !slices.Equal(queues, tc.queues) || s.Directions[1].Side.String() != tc.ingress || len(s.Drift) != 0 {
				t.Errorf("status shows %+v, want the queues %v and ingress on the %s side", s, tc.queues, tc.ingress)
			}
			must.Have(t, "status", fmt.Sprint(s.Directions), tc.told)
			p.setClock(t, 2*time.Hour)
			if now := p.status(t); now.Attached.Sub(s.Attached) != 2*time.Hour || now.Directions[1].Degraded[0].Since.Sub(s.Directions[1].Degraded[0].Since) != 2*time.Hour {
				t.Errorf("after the clock was set by two hours: %v, %v, want two hours after %v, %v", now.Attached, now.Directions[1].Degraded, s.Attached, s.Directions[1].Degraded)
			}
			p.crosses(t)
			p.goes(t, c)
		})
	}
}

// setClock has the record of a pod say what it would if the node's clock had been set forwards since it was written.
func (p *pod) setClock(t *testing.T, by time.Duration) {
	t.Helper()
	b := must.Get(datapath.ReadRecord(p.dir()))(t)
	r := must.Get(apply.UnmarshalRecord(b))(t)
	r.Booted = r.Booted.Add(-by)
	b = must.Get(r.Marshal())(t)
	must.OK(t, datapath.WriteRecord(p.dir(), b))
}

// trees says how the kernel that runs the tests has the queues of a limit: with
// sch_prio the classifier is a filter of podweir's own queue; without it a program on a
// hook sets the priority by which pfifo_fast chooses a band, and HTB opens a root that
// some packets pass by. Devices are "pod", "host" and "ifb".
type trees struct{ prio bool }

func treesHere(t *testing.T) trees {
	t.Helper()
	return trees{testutil.HasQdisc(t, "prio")}
}

// programs are those that attachments with such queues in both directions share.
func (k trees) programs() []string {
	if k.prio {
		return []string{"pw_ceiling", "pw_class", "pw_guard"}
	}
	return []string{"pw_band", "pw_ceiling"}
}

// bands are what a limit of less than 54 Mbit/s makes on a device, with all of it that
// is on hooks of the device.
func (k trees) bands(device string) []string {
	switch {
	case !k.prio:
		return join(hooked(device), of(device, "qdisc clsact", "clsact egress pw_band"))
	case device == "pod":
		// The classifier is before the bucket, which would cut packets into segments.
		return join(k.opened(device, "pw_class", k.inner(device)), guarded(device))
	}
	return join(of(device, "qdisc tbf", "filter pw_class"), k.inner(device), of(device, "qdisc bfifo"))
}

// inner is what is under the bucket, without the queue for what is dropped.
func (k trees) inner(device string) []string {
	if k.prio {
		return of(device, "qdisc prio", "qdisc bfifo", "qdisc bfifo")
	}
	return of(device, "qdisc pfifo_fast")
}

// exempt are the same where some subnets have no limit.
func (k trees) exempt(device string) []string {
	return join(k.opened(device, "pw_class", k.inner(device)), guarded(device))
}

// elephants are what that policy makes.
func (k trees) elephants(device string) []string {
	return join(k.opened(device, "pw_class", of(device, "qdisc bfifo")), guarded(device))
}

// opened is a root of which one class has no limit and another has the bucket.
func (k trees) opened(device, program string, inner []string) []string {
	root := of(device, "qdisc htb")
	if k.prio {
		root = of(device, "qdisc prio", "qdisc bfifo")
	}
	return join(root, of(device, "qdisc tbf", "qdisc bfifo", "filter "+program), inner)
}

// hooked is a queue whose classifier is on a hook of the device by the operator's will,
// as every kernel has it.
func hooked(device string) []string { return of(device, "qdisc pfifo_fast", "qdisc tbf") }

// guarded is the guard that a classifier of the pod's own queue needs.
func guarded(device string) []string {
	if device != "pod" {
		return nil
	}
	return of(device, "qdisc clsact", "clsact egress pw_guard")
}

func of(device string, what ...string) []string {
	all := make([]string, len(what))
	for i := range what {
		all[i] = device + " " + what[i]
	}
	return all
}

// shapedBoth is what ADD of both directions makes where nobody else is.
func shapedBoth(t *testing.T) []string {
	t.Helper()
	k := treesHere(t)
	return join(k.bands("pod"), k.bands("host"))
}

// tbfIn finds a TBF, what it is under, its rate and its bucket.
var tbfIn = regexp.MustCompile(`qdisc tbf ([0-9a-f]+:) (root|parent \S+) .*rate (\S+) burst (\S+) `)

// setRate changes the rate of the queue of a device by tc(8), and returns what it was.
func setRate(t *testing.T, ns *testutil.NetNS, device, rate string) string {
	t.Helper()
	m := tbfIn.FindStringSubmatch(ns.Run(t, "tc", "qdisc", "show", "dev", device))
	if m == nil {
		t.Fatalf("no tbf on %s", device)
	}
	args := slices.Concat([]string{"qdisc", "change", "dev", device, "handle", m[1]}, strings.Fields(m[2]),
		[]string{"tbf", "rate", rate, "burst", m[4], "limit", "100k"}) // of a child that there is not
	ns.Run(t, "tc", args...)
	return m[3]
}

// earlierRoot puts another kind of queue in the place of podweir's root on the pod's side,
// with its handle, as a release that built another tree left it.
func earlierRoot(t *testing.T, p *pod) {
	t.Helper()
	root := strings.Fields(p.ns.Run(t, "tc", "qdisc", "show", "dev", "eth0", "root")) // "qdisc tbf 1: root"
	if len(root) < 3 {
		t.Fatalf("root %v, want one", root)
	}
	p.ns.Run(t, "tc", "qdisc", "del", "dev", "eth0", "root")
	other := []string{"tbf", "rate", "10mbit", "burst", "10kb", "limit", "1mb"}
	if root[1] == "tbf" {
		other = []string{"bfifo", "limit", "100000"}
	}
	p.ns.Run(t, "tc", slices.Concat([]string{"qdisc", "add", "dev", "eth0", "root", "handle", root[2]}, other)...)
}

// onThisKernel is what the running kernel has instead of what others have: the
// mirred action where bpf_redirect to an ifb loses packets, as the node's
// self-test found, and filters without TCX.
func onThisKernel(t *testing.T, n *node, want []string) []string {
	t.Helper()
	const byProgram = "pod clsact ingress pw_redirect"
	if at := slices.Index(want, byProgram); at >= 0 {
		if n.rewrite(t, nil)["redirect"] == "mirred" {
			want = join(slices.Delete(slices.Clone(want), at, at+1), []string{"pod clsact ingress mirred"})
		}
	}
	return join(withCeiling(withoutTCX(want)))
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
	ceiling := []string{"host clsact ingress pw_ceiling"}
	if !slices.Contains(want, "host qdisc clsact") {
		ceiling = append(ceiling, "host qdisc clsact")
	}
	return join(want, ceiling)
}

// withoutTCX is what a kernel without TCX has instead of the programs that have
// TCX as their second choice: filters on clsact.
func withoutTCX(want []string) []string {
	if testutil.HaveTCX() {
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
