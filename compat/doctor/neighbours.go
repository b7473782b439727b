// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// neighbourChecks are about what others say and do.
func neighbourChecks() []Check {
	return []Check{
		{
			Code: "PW308", Title: "the policy filters run the agent's current programs", Category: CategoryDatapath, Severity: SeverityFail,
			Family: "aws", Needs: []string{"PW302"},
			Looks: "the programs of the filters handle_egress and handle_ingress, and those pinned in " + policyPins,
			Why:   "a filter with a program from before the agent's restart enforces a policy that is no longer updated",
			Mend:  "Restart the pod. podweir is not the cause; it is issue 514 of the agent.",
			Refs:  []string{npaIssues + "514"},
			run:   checkPolicyPrograms,
		},
		{
			Code: "PW309", Title: "the policy agent answers the CNI", Category: CategoryCNI, Severity: SeverityFail, Family: "aws",
			Looks: "whether a program listens on " + npaSocket + ", NETWORK_POLICY_ENFORCING_MODE of ipamd, and errors in /" + awsPluginLog +
				" since the agent's last start and last answer, of the last 10 min",
			Why: "with any enforcing mode, also with policy switched off, aws-cni asks the agent for each pod: without an answer pods fail to start with " +
				"\"failed to setup network policy\", which looks as if the chain were broken",
			Mend: "See why the container aws-eks-nodeagent of aws-node does not run. Upgrade the vpc-cni add-on as a unit: VPC CNI from 1.20.2 asks by a " +
				"Unix socket, the agent has it from 1.2.6. Under bursts of pods it is issue 585 of the agent.",
			Refs: []string{npaIssues + "585"},
			run:  checkPolicyAgent,
		},
		{
			Code: "PW407", Title: "Cilium's programs stay attached", Category: CategoryCNI, Severity: SeverityFail, Family: "cilium",
			Looks: "\"Detected unexpected endpoint BPF program removal\" at the end of the agent's logs in /" + podLogs + ", of the last 10 min",
			Why:   "some program on the node deletes qdiscs or filters of others, policy included",
			Mend:  "Find who deletes clsact on lxc devices. podweir removes only what it made.",
			Refs:  []string{"https://github.com/cilium/cilium/issues/28433"},
			run:   checkRemovals,
		},
		{
			Code: "PW408", Title: "Cilium's programs call no foreign programs", Category: CategoryCNI, Severity: SeverityWarn, Family: "cilium",
			Looks: "the setting enable-datapath-plugins (1.20)",
			Why:   "with it a cil_ program may run others; podweir is not tested with their answers",
			Mend:  "Run podweir doctor --probe: it shows whether podweir still sees the packets.",
			Refs:  []string{ciliumDocs + "daemon/cmd/daemon_main.go"},
			run:   checkDatapathPlugins,
		},
	}
}

const podLogs = "var/log/pods"

func checkPolicyPrograms(f *Facts) Finding {
	return f.podDevices(func(devices []Device) Finding {
		if f.PolicyErr != nil {
			return unknown(f.PolicyErr.Error())
		}
		if len(f.Policy) == 0 {
			return skip("nothing is pinned in " + policyPins)
		}
		if bad := f.Unpinned; len(bad) > 0 {
			return breaks(shorten(bad), "programs that are pinned in "+policyPins, "restart the pod (AWS's part, not podweir's)", bad...)
		}
		return holds(fmt.Sprintf("%d devices", len(devices)))
	})
}

// readPolicy looks twice where a program is not pinned: the agent pins what it has
// attached, and unpins before the device of a pod that ends is gone.
func (f *Facts) readPolicy(ctx context.Context, k Kernel, settle time.Duration) {
	f.Policy, f.PolicyErr = k.PolicyPrograms(ctx)
	f.Unpinned = unpinned(f.Devices, f.Policy)
	if f.PolicyErr != nil || len(f.Policy) == 0 || len(f.Unpinned) == 0 {
		return
	}
	select {
	case <-time.After(settle):
	case <-ctx.Done():
	}
	devices, err := k.Devices(ctx)
	pinned, pinsErr := k.PolicyPrograms(ctx)
	if f.PolicyErr = errors.Join(err, pinsErr); f.PolicyErr != nil {
		return
	}
	still := unpinned(devices, pinned)
	f.Unpinned = slices.DeleteFunc(f.Unpinned, func(s string) bool { return !slices.Contains(still, s) })
}

// unpinned names the policy agent's programs on devices that are not pinned.
func unpinned(devices []Device, pinned []uint32) []string {
	var out []string
	for _, d := range devices {
		for _, p := range filters(&d.In, &d.Out) {
			if (p.Name == "handle_egress" || p.Name == "handle_ingress") && !slices.Contains(pinned, p.ProgramID) {
				out = append(out, fmt.Sprintf("%s: %v is not pinned", d.Name, p))
			}
		}
	}
	return out
}

var removal = regexp.MustCompile(`Detected unexpected endpoint BPF program removal`)

func checkRemovals(f *Facts) Finding {
	logs, err := fs.Glob(f.Root, podLogs+"/kube-system_cilium-*/cilium-agent/*.log")
	if err != nil {
		return unknown(err.Error())
	}
	oldest := time.Now().Add(-recentTrouble)
	old := func(line string) bool {
		at, known := criTime(line)
		return known && at.Before(oldest)
	}
	var lists [][]string
	for _, name := range logs {
		found, err := matchesInTail(f.Root, name, removal)
		if err != nil {
			return unknown("/" + name + ": " + err.Error())
		}
		lists = append(lists, slices.DeleteFunc(found, old))
	}
	if found := lastOf(lists...); len(found) > 0 {
		return breaks("Cilium says: "+found[len(found)-1], "no such line", "look for what deletes qdiscs or filters on lxc devices", found...)
	}
	if len(logs) == 0 {
		return skip("no log of the agent in /" + podLogs)
	}
	return holds(fmt.Sprintf("no such line at the end of %d logs, of the last 10 min", len(logs)))
}

// criTime is when the container runtime wrote a line of a pod's log: the line begins
// with that.
func criTime(line string) (time.Time, bool) {
	first, _, _ := strings.Cut(line, " ")
	at, err := time.Parse(time.RFC3339Nano, first)
	return at, err == nil
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
