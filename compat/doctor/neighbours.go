// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/podweir/podweir/compat/profiles"
)

// neighbourChecks are about what others say and do.
func neighbourChecks() []Check {
	return []Check{
		{
			Code: "PW308", Title: "policy filters run the agent's present programs", Category: CategoryDatapath, Severity: SeverityFail,
			Family: "aws", Needs: []string{"PW302"},
			Looks: "the programs of the filters handle_egress and handle_ingress, and those pinned in " + policyPins,
			Why:   "a filter with a program of before the agent's restart enforces a policy that nobody updates",
			Mend:  "Restart the pod. podweir is not the cause; it is issue 514 of the agent.",
			Refs:  []string{npaIssues + "514"},
			run:   checkPolicyPrograms,
		},
		{
			Code: "PW309", Title: "the policy agent answers the CNI", Category: CategoryCNI, Severity: SeverityWarn, Family: "aws",
			Looks: "its socket /var/run/aws-node/npa.sock while it runs, and errors at the end of /" + awsPluginLog,
			Why:   "pods fail to start with \"failed to setup network policy\", which looks as if the chain were broken",
			Mend:  "Upgrade the vpc-cni add-on as a unit: VPC CNI from 1.20.2 asks by a Unix socket, the agent has it from 1.2.6. Under bursts of pods it is issue 585 of the agent.",
			Refs:  []string{npaIssues + "585"},
			run:   checkPolicyAgent,
		},
		{
			Code: "PW407", Title: "nobody removes Cilium's programs", Category: CategoryCNI, Severity: SeverityFail, Family: "cilium",
			Looks: "\"Detected unexpected endpoint BPF program removal\" at the end of the agent's logs in /" + podLogs,
			Why:   "some program on the node deletes qdiscs or filters of others, policy included",
			Mend:  "Find who deletes clsact on lxc devices. podweir removes only what it made.",
			Refs:  []string{"https://github.com/cilium/cilium/issues/28433"},
			run:   checkRemovals,
		},
		{
			Code: "PW408", Title: "Cilium's programs are its own", Category: CategoryCNI, Severity: SeverityWarn, Family: "cilium",
			Looks: "the setting enable-datapath-plugins (1.20)",
			Why:   "with it a cil_ program may run others, whose answers podweir was not tried with",
			Mend:  "See with podweir doctor --probe whether packets are still seen.",
			Refs:  []string{ciliumDocs + "daemon/cmd/daemon_main.go"},
			run:   checkDatapathPlugins,
		},
	}
}

const (
	policyPins   = "/sys/fs/bpf/globals/aws/programs"
	awsPluginLog = "var/log/aws-routed-eni/plugin.log"
	podLogs      = "var/log/pods"
)

func checkPolicyPrograms(f *Facts) Finding {
	return f.podDevices(func(devices []Device) Finding {
		if f.PolicyErr != nil {
			return unknown(f.PolicyErr.Error())
		}
		if len(f.Policy) == 0 {
			return skip("nothing is pinned in " + policyPins)
		}
		var bad []string
		for _, d := range devices {
			for _, p := range slices.Concat(d.In.Legacy, d.Out.Legacy) {
				if (p.Name == "handle_egress" || p.Name == "handle_ingress") && !slices.Contains(f.Policy, p.ID) {
					bad = append(bad, fmt.Sprintf("%s: %v is not pinned", d.Name, p))
				}
			}
		}
		if len(bad) > 0 {
			return breaks(shorten(bad), "programs that are pinned in "+policyPins, "restart the pod (AWS's part, not podweir's)", bad...)
		}
		return holds(fmt.Sprintf("%d devices", len(devices)))
	})
}

// policyTroubles are what aws-cni logs when the agent does not answer.
var policyTroubles = regexp.MustCompile(`failed to setup network policy|context deadline exceeded`)

func checkPolicyAgent(f *Facts) Finding {
	const socket = "/var/run/aws-node/npa.sock"
	if f.npa() == profiles.No {
		return skip("the Network Policy Agent does not enforce")
	}
	const fix = "kubectl -n kube-system logs daemonset/aws-node -c aws-eks-nodeagent; upgrade the vpc-cni add-on as a unit"
	if f.Node.Process("controller") != nil && f.Node.Listens(socket) == profiles.No {
		return breaks("the agent runs and does not listen on "+socket, "a socket that aws-cni finds", fix)
	}
	troubles, err := matchesInTail(f.Root, awsPluginLog, policyTroubles)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return holds("no log of aws-cni")
	case err != nil:
		return unknown(err.Error())
	case len(troubles) > 0:
		return breaks(fmt.Sprintf("%d errors in the log of aws-cni, the last: %s", len(troubles), troubles[len(troubles)-1]), "none", fix, lastOf(troubles)...)
	}
	return holds("no error at the end of /" + awsPluginLog)
}

var removal = regexp.MustCompile(`Detected unexpected endpoint BPF program removal`)

func checkRemovals(f *Facts) Finding {
	logs, err := fs.Glob(f.Root, podLogs+"/kube-system_cilium-*/cilium-agent/*.log")
	if err != nil {
		return unknown(err.Error())
	}
	var lists [][]string
	for _, name := range logs {
		found, err := matchesInTail(f.Root, name, removal)
		if err != nil {
			return unknown("/" + name + ": " + err.Error())
		}
		lists = append(lists, found)
	}
	if found := lastOf(lists...); len(found) > 0 {
		return breaks("Cilium says: "+found[len(found)-1], "no such line", "look for what deletes qdiscs or filters on lxc devices", found...)
	}
	if len(logs) == 0 {
		return skip("no log of the agent in /" + podLogs)
	}
	return holds(fmt.Sprintf("no such line at the end of %d logs", len(logs)))
}

func checkDatapathPlugins(f *Facts) Finding {
	p := f.Node.Process("cilium-agent")
	if p == nil {
		return skip("the agent's settings cannot be read")
	}
	// The ConfigMap in the agent's own mount namespace, as compat/detect reads it.
	b, err := fs.ReadFile(f.Root, path.Join("proc", p.PID, "root/tmp/cilium/config-map/enable-datapath-plugins"))
	if err == nil && strings.TrimSpace(string(b)) == "true" {
		return breaks("enable-datapath-plugins is true", "false, or a try", "podweir doctor --probe")
	}
	return holds("datapath plugins are off")
}
