// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// trees says how the kernel that runs the tests has the queues of a limit: with
// sch_prio the classifier is a filter of podweir's own queue; without it a program on a
// hook sets the priority by which pfifo_fast chooses a band, and HTB opens a root that
// some packets pass by. Devices are "pod", "host" and "ifb".
type trees struct{ prio bool }

func treesHere(t *testing.T) trees {
	t.Helper()
	return trees{testutil.HasQdisc(t, "prio")}
}

// classifier is the program that chooses between the bands.
func (k trees) classifier() shaping.Program {
	if k.prio {
		return shaping.ProgramClass
	}
	return shaping.ProgramBand
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
	var roots []struct{ Handle, Kind string }
	tcJSON(t, p.ns, &roots, "qdisc", "show", "dev", "eth0", "root")
	if len(roots) != 1 {
		t.Fatalf("roots %v, want one", roots)
	}
	p.ns.Run(t, "tc", "qdisc", "del", "dev", "eth0", "root")
	other := []string{"tbf", "rate", "10mbit", "burst", "10kb", "limit", "1mb"}
	if roots[0].Kind == "tbf" {
		other = []string{"bfifo", "limit", "100000"}
	}
	p.ns.Run(t, "tc", slices.Concat([]string{"qdisc", "add", "dev", "eth0", "root", "handle", roots[0].Handle}, other)...)
}

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
		must.OK(t, err)
		if found.Redirect == "mirred" {
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
