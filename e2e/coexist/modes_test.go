// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package coexist_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/podweir/podweir/plugin/terms"
)

// mode is a way to attach.
type mode struct {
	keys conf
	// egress and ingress are its names in the page.
	egress, ingress string
	// profile is the mode's name in package profiles, where there is no auto.
	profile terms.Mode
	// tcx says that it needs a kernel with TCX.
	tcx bool
	// ingressHost says that ingress is held on the host side.
	ingressHost bool
}

// modes are all that there are, one for every place where podweir
// can stand in either direction.
func modes() []*mode {
	return []*mode{
		{keys: conf{}, egress: "auto", ingress: "auto", profile: terms.ModeQdisc, ingressHost: true},
		{
			keys: conf{"queue": "none"}, egress: "auto, policing", ingress: "auto, policing",
		},
		{
			keys: conf{"mode": "qdisc", "policy": "flat"}, egress: "qdisc, flat", ingress: "qdisc, flat",
			profile: terms.ModeQdisc, ingressHost: true,
		},
		{
			keys: conf{"mode": "qdisc", "ingressPlace": "ifb"}, egress: "qdisc", ingress: "qdisc on an ifb",
			profile: terms.ModeQdisc,
		},
		{
			keys: conf{"mode": "tcx-podside"}, egress: "tcx-podside", ingress: "tcx-podside, policing",
			profile: terms.ModeTCXPodSide, tcx: true,
		},
		{
			keys: conf{"mode": "tcx-hostside"}, egress: "tcx-hostside, policing", ingress: "tcx-hostside",
			profile: terms.ModeTCXHostSide, ingressHost: true, tcx: true,
		},
		{
			keys: conf{"mode": "clsact-podside"}, egress: "clsact-podside", ingress: "clsact-podside, policing",
			profile: terms.ModeClsactPodSide,
		},
		{
			// With hostHook tcx, as beside these neighbours, ADD refuses this mode.
			keys: conf{"mode": "clsact-hostside", "hostHook": "auto"}, egress: "clsact-hostside, policing", ingress: "clsact-hostside",
			profile: terms.ModeClsactHostSide, ingressHost: true,
		},
	}
}

// rare says that the mode differs by one setting from one that is tested more often.
func (m *mode) rare() bool {
	return m.egress == "clsact-podside" || m.egress == "tcx-podside" || m.egress == "qdisc, flat"
}

// likely says that podweir takes the mode by itself beside some profile.
func (m *mode) likely() bool {
	return (m.egress == "auto" || m.egress == "qdisc") && (m.ingress == "auto" || m.ingress == "qdisc on an ifb")
}

// name is the mode as the name of a subtest.
func (m *mode) name() string {
	return strings.ReplaceAll(m.egress+"+"+m.ingress, " ", "")
}

// programs are the ids of the programs that podweir pinned for the node.
func programs(t *testing.T, node string) map[string]ebpf.ProgramID {
	t.Helper()
	pins, err := filepath.Glob(filepath.Join(node, "pw_*"))
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]ebpf.ProgramID)
	for _, pin := range pins {
		prog, err := ebpf.LoadPinnedProgram(pin, nil)
		if err != nil {
			continue // a map
		}
		info, err := prog.Info()
		_ = prog.Close()
		if err != nil {
			t.Fatal(err)
		}
		all[pin], _ = info.ID()
	}
	return all
}
