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
