// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/terms"
)

const npaIssues = "https://github.com/aws/aws-network-policy-agent/issues/"

func awsChecks() []Check {
	return []Check{
		{
			Code: "PW301", Title: "the bandwidth plugin is not combined with AWS network policy", Category: CategoryCNI, Severity: SeverityFail,
			Family: "aws", Needs: []string{"PW201"},
			Looks: "bandwidth in the chain in force, and in the file that podweir's replaces, while the Network Policy Agent enforces",
			Why:   "from VPC CNI 1.19.3 pods with an egress limit cannot start; before it policy is not enforced. podweir's file has podweir in the place of bandwidth, until podweir is uninstalled",
			Mend:  "Set ENABLE_BANDWIDTH_PLUGIN=false through the add-on's configuration, and recreate the pods.",
			Refs:  []string{npaIssues + "68"},
			run:   checkNPABandwidth,
		},
		{
			Code: "PW302", Title: "every pod has the policy agent's filters", Category: CategoryDatapath, Severity: SeverityFail, Family: "aws",
			Looks: "handle_egress on hook ingress and handle_ingress on hook egress of each eni and vlan device, preference 1, handle 1; " +
				"which devices are of one pod; when the agent and the pod started",
			Why: "a pod without them has no network policy; podweir is not the cause, but is often suspected. " +
				"The agent attaches them to new pods, and to older ones when a policy selects them: older pods without a policy need none",
			Mend: "Delete the pod, so that a new one gets the filters; restarting aws-node does not attach them to a pod that no policy selects. " +
				"Known faults of the agent are issues 486, 514 and 569.",
			Refs: []string{npaIssues + "514", npaIssues + "486", npaIssues + "569"},
			run:  checkNPAFilters,
		},
		{
			Code: "PW303", Title: "no ingress qdisc is on a pod's device", Category: CategoryDatapath, Severity: SeverityFail, Family: "aws",
			Looks: "qdiscs of kind ingress on the pods' devices",
			Why:   "the Network Policy Agent takes it for clsact and attaches its programs to the wrong hook",
			Mend:  "Find its owner (bandwidth, netobserv), delete the qdisc and recreate the pod.",
			Refs:  []string{"https://github.com/containernetworking/plugins/issues/894", "https://github.com/netobserv/netobserv-operator/issues/791"},
			run:   checkIngressQdisc,
		},
		{
			Code: "PW304", Title: "only one policy engine is active", Category: CategoryCNI, Severity: SeverityFail, Family: "aws",
			Looks: "Cilium in the chain, or running, while the Network Policy Agent enforces",
			Why:   "Cilium deletes every legacy filter of the devices it attaches to, the agent's policy included",
			Mend:  "Disable one: enableNetworkPolicy \"false\" for the VPC CNI, or Cilium's policy.",
			Refs:  []string{"https://github.com/cilium/cilium/blob/v1.20.2/pkg/datapath/loader/tc.go"},
			run:   checkTwoEngines,
		},
		{
			Code: "PW305", Title: "no foreign filter takes the policy agent's place", Category: CategoryDatapath, Severity: SeverityWarn, Family: "aws",
			Looks: "legacy filters on the pods' devices that are neither the agent's nor podweir's",
			Why:   "the agent deletes other programs' filters with handle 1, and filters after its own never run",
			Mend:  "Report it to the owner of the filter: only TCX works beside the agent.",
			Refs:  []string{npaIssues + "480"},
			run:   checkForeignFilters,
		},
		{
			Code: "PW306", Title: "devices have the names that the policy agent knows", Category: CategoryCNI, Severity: SeverityWarn,
			Family: "aws", Needs: []string{"PW201"},
			Looks: "vethPrefix in the entry of aws-cni",
			Why:   "the agent attaches to devices called eni… and vlan… only: pods would have no policy",
			Mend:  "Set AWS_VPC_K8S_CNI_VETHPREFIX back to eni.",
			run:   checkVethPrefix,
		},
		{
			Code: "PW307", Title: "a pod has one interface, or its interfaces share the limit", Category: CategoryCNI, Severity: SeverityWarn,
			Family: "aws", Needs: []string{"PW201"},
			Looks: "egress-cni in the chain, enabled, and podweir's setting interfaces",
			Why:   "egress-cni gives pods a second interface (v4if0, v6if0) for the other IP family; by default each interface has the whole limit, so a pod gets twice",
			Mend:  "Set interfaces=shared, which gives each interface its part of the limit, or know that a pod gets its limit in each IP family.",
			run:   checkEgressCNI,
		},
	}
}

// npa says whether the Network Policy Agent enforces.
func (f *Facts) npa() profiles.Answer {
	switch f.Node.Facts[profiles.FactNPA] {
	case "yes":
		return profiles.Yes
	case "no":
		return profiles.No
	default:
		return profiles.Unknown
	}
}

// withNPA runs the check only where the agent enforces or may.
func withNPA(f *Facts, further func() Finding) Finding {
	if f.npa() == profiles.No {
		return skip("the Network Policy Agent does not enforce")
	}
	return further()
}

func checkNPABandwidth(f *Facts) Finding {
	return withNPA(f, func() Finding {
		const expected, fix = "a chain without bandwidth", "kubectl -n kube-system set env daemonset/aws-node ENABLE_BANDWIDTH_PLUGIN=false"
		original := f.original()
		switch {
		case slices.Contains(f.chain(), "bandwidth"):
			return breaks("bandwidth is in the chain, and the Network Policy Agent enforces: "+f.npa().String(), expected, fix, f.active().Name)
		case original != nil && original.Index("bandwidth") >= 0:
			return warns("bandwidth is in "+original.File+", and podweir's file replaces it: once podweir is uninstalled, pods with an egress limit do not start", expected, fix, original.File)
		}
		return holds("bandwidth is not in the chain")
	})
}

// podDevices are the devices that a check of theirs is about.
func (f *Facts) podDevices(further func([]Device) Finding) Finding {
	switch {
	case f.DevicesErr != nil:
		return unknown(f.DevicesErr.Error())
	case len(f.Devices) == 0:
		return skip("no pod has a device on this node")
	}
	return further(f.Devices)
}

// shorten lists the first few of many findings.
func shorten(list []string) string {
	const shown = 5 // that many fit a screen
	if len(list) <= shown {
		return strings.Join(list, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(list[:shown], "; "), len(list)-shown)
}

func checkIngressQdisc(f *Facts) Finding {
	return f.podDevices(func(devices []Device) Finding {
		var bad []string
		for _, d := range devices {
			for _, q := range d.Qdiscs {
				if q.Kind == "ingress" {
					bad = append(bad, d.Name+" has an ingress qdisc")
				}
			}
		}
		if len(bad) > 0 {
			return breaks(shorten(bad), "clsact or nothing", "tc qdisc del dev "+strings.Fields(bad[0])[0]+" ingress, and recreate the pod", bad...)
		}
		return holds(fmt.Sprintf("none on %d devices", len(devices)))
	})
}

func checkTwoEngines(f *Facts) Finding {
	return withNPA(f, func() Finding {
		if f.hasFamily("cilium") || slices.Contains(f.chain(), "cilium-cni") {
			return breaks("Cilium is here, and the Network Policy Agent enforces: "+f.npa().String(), "one of them",
				"set enableNetworkPolicy to \"false\" in the configuration of the vpc-cni add-on")
		}
		return holds("Cilium is not here")
	})
}

func checkForeignFilters(f *Facts) Finding {
	return withNPA(f, func() Finding {
		return f.podDevices(func(devices []Device) Finding {
			var bad []string
			for _, d := range devices {
				for _, h := range []*judge.Chain{&d.In, &d.Out} {
					for _, p := range f.strangers(h) {
						if p.Kind == terms.HookKindClsact {
							bad = append(bad, fmt.Sprintf("%s: %v", d.Name, p))
						}
					}
				}
			}
			if len(bad) > 0 {
				return breaks(shorten(bad), "no legacy filters but the agent's", "tell its owner to use TCX", bad...)
			}
			return holds(fmt.Sprintf("none on %d devices", len(devices)))
		})
	})
}

// entry reads keys of a plugin's entry in the network to join.
func (f *Facts) entry(pluginType string, into any) bool {
	n := f.original()
	if n == nil {
		return false
	}
	at := n.Index(pluginType)
	return at >= 0 && json.Unmarshal(n.Plugins[at].Raw, into) == nil
}

func checkVethPrefix(f *Facts) Finding {
	return withNPA(f, func() Finding {
		var conf struct {
			VethPrefix string `json:"vethPrefix"`
		}
		if !f.entry("aws-cni", &conf) || conf.VethPrefix == "" {
			return skip("the entry of aws-cni has no prefix")
		}
		if conf.VethPrefix != "eni" {
			return breaks("vethPrefix is "+conf.VethPrefix, "eni", "kubectl -n kube-system set env daemonset/aws-node AWS_VPC_K8S_CNI_VETHPREFIX=eni")
		}
		return holds("vethPrefix is eni")
	})
}

func checkEgressCNI(f *Facts) Finding {
	var conf struct {
		Enabled string `json:"enabled"`
	}
	if !f.entry("egress-cni", &conf) {
		return skip("egress-cni is not in the chain")
	}
	if conf.Enabled == "true" {
		if keys, _ := f.entryKeys(); keys["interfaces"] == "shared" {
			return holds("egress-cni is enabled, and a pod's interfaces share its limit")
		}
		return breaks("egress-cni is enabled: pods have a second interface, with the whole limit once more", "one interface, or interfaces=shared",
			"set interfaces=shared (chart: defaults.interfaces)")
	}
	return holds("egress-cni is not enabled")
}
