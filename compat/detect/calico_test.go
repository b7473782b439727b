// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package detect_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/terms"
)

// TestWhetherFelixRuns: it has other names in other releases, and where something of it is
// there the answer is never no.
func TestWhetherFelixRuns(t *testing.T) {
	const yes, no, unknown = profiles.Yes, profiles.No, profiles.Unknown
	aws := map[string]string{net + "10-aws.conflist": list("aws-cni", "aws-cni")}
	azure := map[string]string{net + "10-azure.conflist": list("azure", "azure-vnet")}
	const kubelet, noPolicy = "2 kubelet", "9 controller --enable-network-policy=false"
	for name, tc := range map[string]struct {
		node    node
		runs    profiles.Answer
		shaper  terms.Shaper
		profile string
		place   terms.Place
	}{
		"calico-node":                {node{files: aws, processes: []string{kubelet, noPolicy, "7 calico-node -felix"}}, yes, terms.ShaperCalico, "aws-vpc-cni-calico", terms.PlaceIFB},
		"3.33":                       {node{files: aws, processes: []string{kubelet, noPolicy, "7 calico component felix"}}, yes, terms.ShaperCalico, "aws-vpc-cni-calico", terms.PlaceIFB},
		"3.33, and its other parts":  {node{files: aws, processes: []string{kubelet, noPolicy, "6 calico component confd", "7 calico component felix"}}, yes, terms.ShaperCalico, "aws-vpc-cni-calico", terms.PlaceIFB},
		"another part alone":         {node{files: aws, processes: []string{kubelet, noPolicy, "7 calico component confd"}}, unknown, terms.ShaperCalico, "aws-vpc-cni-calico", terms.PlaceIFB},
		"its device":                 {node{files: aws, processes: []string{kubelet, noPolicy}, devices: []string{"bwcali0123456789"}}, unknown, terms.ShaperCalico, "aws-vpc-cni-calico", terms.PlaceIFB},
		"its plugin":                 {node{files: with(aws, map[string]string{"opt/cni/bin/calico": ""}), processes: []string{kubelet, noPolicy}}, unknown, terms.ShaperCalico, "aws-vpc-cni-calico", terms.PlaceIFB},
		"no sign":                    {node{files: aws, processes: []string{kubelet, noPolicy}}, no, 0, "aws-vpc-cni", terms.PlaceHost},
		"no sign, and nothing seen":  {node{files: aws, processes: []string{noPolicy}}, unknown, 0, "aws-vpc-cni", terms.PlaceHost},
		"a zombie":                   {node{files: with(aws, map[string]string{"proc/7/stat": "7 (calico-node) Z 1 7 7 0"}), processes: []string{kubelet, noPolicy, "7 calico-node"}}, no, 0, "aws-vpc-cni", terms.PlaceHost},
		"running, with a bad name":   {node{files: with(aws, map[string]string{"proc/7/stat": "7 (x) Z (y) S 1 7 7 0"}), processes: []string{kubelet, noPolicy, "7 calico-node"}}, yes, terms.ShaperCalico, "aws-vpc-cni-calico", terms.PlaceIFB},
		"both policies":              {node{files: aws, processes: []string{kubelet, "9 controller --enable-network-policy=true", "7 calico-node -felix"}}, yes, terms.ShaperCalico, "aws-vpc-cni-npa", terms.PlaceIFB},
		"Azure with Calico's policy": {node{files: azure, processes: []string{kubelet, "7 calico-node -felix"}}, yes, terms.ShaperCalico, "azure-vnet", terms.PlaceIFB},
		"Azure":                      {node{files: azure, processes: []string{kubelet}}, no, 0, "azure-vnet", terms.PlaceHost},
	} {
		t.Run(name, func(t *testing.T) {
			tc.node.files = maps.Clone(tc.node.files)
			n := detect.Read(t.Context(), tc.node.root(), detect.Options{Live: live{programs: []string{}}})
			if n.Calico.Runs != tc.runs || n.Profile.Name != tc.profile || n.Profile.Ingress.Place != tc.place || n.OtherShapers().By != tc.shaper {
				t.Errorf("runs %v, profile %s, ingress on %v, beside %v, want %v, %s, %v, %v",
					n.Calico.Runs, n.Profile.Name, n.Profile.Ingress.Place, n.OtherShapers().By, tc.runs, tc.profile, tc.place, tc.shaper)
			}
			at := slices.IndexFunc(n.Found, func(f detect.Found) bool { return f.Family == "calico" })
			if running := at >= 0 && n.Found[at].State == detect.StateRunning; running != (tc.runs == yes) {
				t.Errorf("Calico is found running: %v, want %v", running, tc.runs == yes)
			}
			if tc.place == terms.PlaceIFB && n.Profile.Egress.Refused[terms.ModeClsactHostSide] == "" {
				t.Error("a filter of podweir's may stand where Felix has its own")
			}
		})
	}
}
