// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package coexist_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/podweir/podweir/e2e/coexist"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/mark"
)

// bandwidthPlugin is where "make refplugins" puts the reference plugin.
const bandwidthPlugin = "../../bin/ref/bandwidth"

// Limits of the reference plugin, as the runtime hands them down but for the burst.
const (
	referenceRate  = 20_000_000
	referenceBurst = 2_000_000
)

// bandwidth runs ADD of the reference plugin for a pod, with limits for these
// directions.
func (p *pod) bandwidth(t *testing.T, directions ...string) error {
	t.Helper()
	c := p.with(&mode{})
	c["type"], c["cniVersion"] = "bandwidth", "1.0.0"
	for _, d := range []string{"egress", "ingress"} {
		delete(c, d+"Rate")
	}
	delete(c, "onError")
	for _, d := range directions {
		c[d+"Rate"], c[d+"Burst"] = referenceRate, referenceBurst
	}
	stdin, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	plugin, err := filepath.Abs(bandwidthPlugin)
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), plugin)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	cmd.Env = []string{
		"CNI_COMMAND=ADD", "CNI_CONTAINERID=" + p.container, "CNI_NETNS=" + p.ns.Path(), "CNI_IFNAME=eth0", "CNI_PATH=/nowhere",
	}
	// The child is in the namespace of the thread that starts it.
	if err := p.rig.node.Do(cmd.Start); err != nil {
		t.Fatalf("%v: \"make refplugins\" builds it", err)
	}
	if cmd.Wait() == nil {
		return nil
	}
	e := &types.Error{}
	if err := json.Unmarshal(stdout.Bytes(), e); err != nil {
		t.Fatalf("bandwidth: %s%s", stdout.String(), stderr.String())
	}
	return e
}

// The reference bandwidth plugin and the agent cannot share a device, as AWS
// documents: whoever comes second fails, and if that is the agent, the policy is
// not enforced.
func TestPrivilegedReferenceBandwidthAndNPA(t *testing.T) {
	t.Parallel()
	mark.NightlyKernels(t, "it is about the reference plugin, not about podweir")
	r := newRig(t)
	a := newAgent(t, r.node)
	a.start(t)
	var rows []coexist.Row
	for i, tt := range []struct {
		order      string
		directions []string
		npaFirst   bool
		// fails is in the error of who came second, "" if all goes well.
		fails string
		// verdicts of both directions, and which are shaped.
		verdicts        string
		egress, ingress string
	}{
		{order: "bandwidth second, both limits", directions: []string{"egress", "ingress"}, npaFirst: true, fails: "file exists", verdicts: "allowed passes, denied drops", egress: "no", ingress: "yes"},
		{order: "bandwidth second, limit for ingress only", directions: []string{"ingress"}, npaFirst: true, verdicts: "allowed passes, denied drops", egress: "no", ingress: "yes"},
		{order: "bandwidth first, both limits", directions: []string{"egress", "ingress"}, fails: "invalid argument", verdicts: "allowed passes, denied passes", egress: "yes", ingress: "yes"},
	} {
		t.Run(strings.ReplaceAll(tt.order, " ", "_"), func(t *testing.T) {
			name := fmt.Sprintf("shop-%d-x", i)
			p := r.newPod(t, hostVeth(npaNamespace, name))
			k := &kase{pod: p, traffic: newTraffic(t, p)}
			var err error
			if tt.npaFirst {
				(&npa{a, p, name}).arrive(t)
				err = p.bandwidth(t, tt.directions...)
			} else {
				if err := p.bandwidth(t, tt.directions...); err != nil {
					t.Fatal(describe(err))
				}
				err = a.ask("attach", name)
				// Its policy comes all the same; that there is nobody to ask it is
				// what the traffic shows.
				_ = a.ask("allow", name)
			}
			if (err == nil) != (tt.fails == "") || err != nil && !strings.Contains(describe(err), tt.fails) {
				t.Fatalf("who came second: %v, want an error with %q", err, tt.fails)
			}
			row := coexist.Row{
				Neighbour: "NPA v1.4.1", Device: "eni…", Egress: "bandwidth v1.9.1", Ingress: "bandwidth v1.9.1", Order: tt.order,
				EgressVerdicts: k.traffic.egress.verdicts(t), IngressVerdicts: k.traffic.ingress.verdicts(t),
				EgressShaped: yesNo(k.byReference(t, terms.Egress)), IngressShaped: yesNo(k.byReference(t, terms.Ingress)),
				Check: "-", Result: "ok",
			}
			if row.EgressVerdicts != tt.verdicts || row.IngressVerdicts != tt.verdicts || row.EgressShaped != tt.egress || row.IngressShaped != tt.ingress {
				t.Errorf("%+v, want %s and shaped %s, %s", row, tt.verdicts, tt.egress, tt.ingress)
			}
			switch {
			case err != nil && tt.npaFirst:
				row.Result = fmt.Sprintf("**the pod cannot start**: %q", tt.fails)
			case err != nil:
				row.Result = fmt.Sprintf("**policy is not enforced**: the agent's attach fails with %q", tt.fails)
			}
			rows = append(rows, row)
		})
	}
	r.keep(t, "bandwidth", rows)
}
