// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// One problem is one finding: what else it breaks is reported with it.
func TestOneProblemIsOneFinding(t *testing.T) {
	foreign := func(n *node) {
		troubled(terms.FaultDiffers, "podweir repair", "ingress build-queue: root qdisc is not podweir's: pfifo")(n)
		n.kernel.devices[0].Qdiscs = []doctor.Qdisc{{Kind: "pfifo", Root: true}}
	}
	tampered := func(f terms.Fault) func(n *node) {
		return with(troubled(f, "podweir explain PW612", "is taken away"), troubled(terms.FaultDiffers, "podweir repair", "egress build-queue"),
			func(n *node) { n.kernel.attached[0].PastQueue = 9 })
	}
	withoutPolicy := func(n *node) {
		n.files["proc/4/cmdline"] = "/controller\x00--enable-network-policy=false\x00"
		n.kernel.devices = nil
	}
	for name, tc := range map[string]struct {
		node   func() *node
		change func(n *node)
		// want are codes with the codes that are reported with them.
		want map[string][]string
	}{
		"a foreign queue": {aws, foreign, map[string][]string{"PW602": {"PW505"}}},
		"a foreign queue on two devices, one of them of another pod": {aws, func(n *node) {
			foreign(n)
			n.kernel.devices = append(n.kernel.devices, doctor.Device{Name: "eniother", Pod: 2, In: n.kernel.devices[0].In, Out: n.kernel.devices[0].Out, Qdiscs: []doctor.Qdisc{{Kind: "htb", Root: true}}})
		}, map[string][]string{"PW602": nil, "PW505": nil}},
		"a queue that is gone": {aws, func(n *node) {
			a := &n.kernel.attached[0]
			troubled(terms.FaultDiffers, "podweir repair", "no root qdisc")(n)
			a.Queue, a.Policed, a.NoCeiling, a.PastQueue = terms.Name(terms.QueueNone), "policing instead", "the host side is gone", 3
		}, map[string][]string{"PW602": {"PW603", "PW609", "PW611"}}},
		"a limit that is taken away":              {aws, tampered(terms.FaultTaken), map[string][]string{"PW612": {"PW611", "PW602"}}},
		"a limit that is taken away and holds":    {aws, tampered(terms.FaultHeld), map[string][]string{"PW612": {"PW611"}, "PW602": nil}},
		"packets past the queue, without a probe": {aws, func(n *node) { n.kernel.attached[0].PastQueue = 3 }, map[string][]string{"PW611": nil}},
		"another program undoes podweir's file": {aws, func(n *node) {
			n.fight = &conflist.Fight{File: "/" + own, Change: "removes or renames it"}
			delete(n.files, own)
		}, map[string][]string{"PW221": {"PW202"}}},
		"a foreign file is in force": {aws, func(n *node) {
			n.files[net+"00-bridge.conflist"] = `{"cniVersion":"1.0.0","name":"b","plugins":[{"type":"bridge"},{"type":"bandwidth"}]}`
			withoutPolicy(n)
		}, map[string][]string{"PW208": {"PW202", "PW203", "PW206", "PW210"}}},
		"a broken foreign file is in force": {aws, func(n *node) {
			n.files[net+"00-a.conf"] = "{"
			n.kernel.devices, n.kernel.attached = nil, nil
		}, map[string][]string{"PW201": {"PW208"}}},
		"a foreign file is in force, and the original has changed": {aws, func(n *node) {
			n.files[net+"00-bridge.conflist"] = `{"cniVersion":"1.0.0","name":"b","plugins":[{"type":"bridge"}]}`
			n.files[net+"00-podweir-00-bridge.conflist"] = n.files[own]
			n.kernel.devices = nil
		}, map[string][]string{"PW208": {"PW202", "PW203", "PW210"}}},
		"another original":                         {aws, func(n *node) { n.files[net+"05-aws.conflist"] = n.files[net+"10-aws.conflist"] }, map[string][]string{"PW203": nil}},
		"a drop-in that the runtime does not read": {cilium, func(n *node) { n.opts.Runtime = "containerd://1.7.2" }, map[string][]string{"PW210": {"PW211", "PW202"}}},
		"a file that Cilium renames": {cilium, func(n *node) {
			delete(n.files, net+"cilium/50-podweir.conf")
			n.files[net+"00-podweir-05-.conflist"+conflist.BackupSuffix] = "{}"
		}, map[string][]string{"PW214": {"PW202"}}},
		"a file that Cilium renames again and again": {cilium, func(n *node) {
			delete(n.files, net+"cilium/50-podweir.conf")
			n.spliceIn("05-cilium.conflist")
			n.files[net+"00-podweir-05-.conflist"+conflist.BackupSuffix] = "{}"
		}, map[string][]string{"PW210": {"PW214"}}},
		"a drop-in in the directory of another network": {cilium, func(n *node) {
			n.files[net+"05-cilium.conflist"] = strings.Replace(list, `"name":"cilium"`, `"name":"portmap"`, 1)
		}, map[string][]string{"PW202": nil}},
		"a capability that is missing": {aws, func(n *node) {
			asking(doctor.Sandbox{Asks: tenM})(n)
			n.files[own] = strings.Replace(n.files[own], `"bandwidth":true`, `"bandwdth":true`, 1)
		}, map[string][]string{"PW207": {"PW605"}}},
		"bandwidth in the place of podweir": {calico, func(n *node) {
			delete(n.files, net+"00-podweir-10-calico.conflist")
			n.files[net+"10-calico.conflist"] = `{"cniVersion":"0.3.1","name":"k8s-pod-network","plugins":[{"type":"calico"},{"type":"bandwidth"}]}`
			n.sockets, n.kernel.attached = []string{"/x"}, nil
			withoutPolicy(n)
		}, map[string][]string{"PW202": {"PW206"}}},
		"bandwidth under a drop-in": {cilium, func(n *node) {
			n.files[net+"05-cilium.conflist"] = strings.Replace(list, "]}", bottled, 1)
		}, map[string][]string{"PW206": {"PW210"}}},
		"Calico's limit is before podweir's": {calico, func(n *node) {
			felix("", 20_000_000)(n)
			n.sockets, n.kernel.devices[0].In, n.kernel.devices[0].Out = []string{"/x"}, judge.Chain{}, judge.Chain{}
		}, map[string][]string{"PW403": {"PW505"}}},
		"a program is ahead": {cilium, func(n *node) {
			n.kernel.devices[0].In.Programs = []judge.Program{{ProgramID: 10, Name: "cil_from_contai"}, {ProgramID: 20, Name: "pw_police", Ours: true}}
			troubled(terms.FaultDiffers, "podweir repair", "egress attach: not first")(n)
		}, map[string][]string{"PW501": {"PW602"}}},
	} {
		t.Run(name, func(t *testing.T) {
			n := tc.node()
			tc.change(n)
			rep := n.report(t)
			got, count := map[string][]string{}, map[doctor.Status]int{}
			for _, o := range rep.Checks {
				count[o.Status]++
				if o.Status == doctor.Fail || o.Status == doctor.Warn {
					got[o.Code] = nil
				}
				for _, also := range o.Also {
					got[o.Code] = append(got[o.Code], also.Code)
				}
			}
			must.Match(t, "findings", tc.want, got)
			must.Match(t, "count", count, rep.Count)
			text := rep.Table(doctor.Format{Short: true})
			for code, also := range got {
				if i := slices.IndexFunc(also, func(a string) bool { return !strings.Contains(text, "also     "+a+": ") }); i >= 0 || !strings.Contains(text, " "+code+" ") {
					t.Errorf("%s or what is with it is not written:\n%s", code, text)
				}
			}
		})
	}
}
