// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/profiles"
)

// seesNode says whether the node's own processes are visible.
func (f *Facts) seesNode() bool {
	return slices.ContainsFunc(f.Node.Processes, func(p detect.Process) bool {
		return p.Name == "kubelet" || p.Name == "containerd" || p.Name == "crio" || strings.HasPrefix(p.Name, "k3s") || strings.HasPrefix(p.Name, "rke2")
	})
}

func checkVisible(f *Facts) Finding {
	var miss []string
	if !f.seesNode() {
		miss = append(miss, "no kubelet and no container runtime among the processes")
	}
	if f.Node.Sockets == nil {
		miss = append(miss, "listening sockets cannot be read")
	}
	if len(miss) > 0 {
		return breaks(strings.Join(miss, "; "), "the node's processes and sockets", "podweir doctor --root /host, with hostPID and hostNetwork")
	}
	return holds(fmt.Sprintf("%d processes", len(f.Node.Processes)))
}

func checkRuntime(f *Facts) Finding {
	r := f.Node.Runtime
	if r.Name == "" {
		return unknown("no container runtime is seen")
	}
	if r.ReadsDropIns() == profiles.Unknown {
		return breaks(r.String()+": whether it reads drop-in directories is not known", "a known version",
			"podweir doctor --runtime "+r.Name+"://VERSION")
	}
	return holds(fmt.Sprintf("%v, reads drop-in directories: %v", r, r.ReadsDropIns()))
}

func checkProfile(f *Facts) Finding {
	switch {
	case f.Node.Profile == nil:
		return skip("no network is in force")
	case f.Profile.Family == "other":
		return breaks(f.Node.Why, "a CNI with a profile", "report it with the conflist; until then podweir attaches where it does no harm")
	case f.Node.Assumed:
		return breaks("assumed to be "+f.Profile.Title+": "+f.Node.Why, "facts that decide", f.adviceForFacts()+"; the careful profile is in use meanwhile")
	}
	return holds(f.Profile.Title, f.Node.Why)
}

// adviceForFacts says how to get a fact that decides, by what keeps it from
// the doctor.
func (f *Facts) adviceForFacts() string {
	switch {
	case f.Profile.Family == "cilium" && !f.Node.Cilium.API:
		return "let the doctor ask Cilium's agent (PW401)"
	case !f.seesNode() || f.Node.Sockets == nil:
		return "let the doctor see the node (PW107)"
	}
	return "nothing on the node reports it: report it, with the output of podweir doctor -o json"
}
