// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"crypto/sha1" //nolint:gosec // it names devices, as aws-cni does
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/compat/profiles"
)

// What the AWS Network Policy Agent leaves on a node. It makes its socket anew
// whenever it starts (main.go, pkg/rpc/rpc_handler.go, v1.4.1).
const (
	npaSocket    = "/var/run/aws-node/npa.sock"
	ipamdSocket  = "/var/run/aws-node/ipamd.sock"
	policyPins   = "/sys/fs/bpf/globals/aws/programs"
	awsPluginLog = "var/log/aws-routed-eni/plugin.log"
)

// policyAgentSince is when the agent last began to listen; false if not known.
func (f *Facts) policyAgentSince() (time.Time, bool) {
	for _, name := range []string{npaSocket, strings.TrimPrefix(npaSocket, "/var")} {
		if info, err := fs.Stat(f.Root, strings.TrimPrefix(name, "/")); err == nil {
			return info.ModTime(), true
		}
	}
	return time.Time{}, false
}

// maxNICs bounds the interfaces of a pod that are looked for by their names: no instance
// has more network cards.
const maxNICs = 32

// policyDevices are the names of a pod's host-side devices without their prefix: that of the
// first interface, and of further ones in both forms (pkg/networkutils/names.go of the VPC
// CNI, v1.23.0, and pkg/utils/utils.go of the agent, v1.5.0).
func policyDevices(pod string) []string {
	pod = strings.Replace(pod, "/", ".", 1)
	names := []string{pod}
	for i := 1; i < maxNICs; i++ {
		names = append(names, fmt.Sprintf("%s.%d", pod, i), fmt.Sprintf("%s/%d", pod, i))
	}
	for i, name := range names {
		sum := sha1.Sum([]byte(name)) //nolint:gosec // see the import
		names[i] = hex.EncodeToString(sum[:])[:11]
	}
	return names
}

// policyIdentifier is what the agent calls all pods of a name up to its last dash
// (pkg/utils/utils.go, v1.4.1).
func policyIdentifier(pod string) string {
	namespace, name, _ := strings.Cut(strings.ReplaceAll(pod, ".", "_"), "/")
	if at := strings.LastIndex(name, "-"); at >= 0 {
		name = name[:at]
	}
	return name + "@" + namespace
}

// policyPods are the pods of devices: by the runtime's results, by the names that aws-cni
// gives devices, or because another device of the same network namespace is named by one of
// these.
func (f *Facts) policyPods(devices []*Device) map[*Device]*Sandbox {
	pods, byNamespace := map[*Device]*Sandbox{}, map[int]*Sandbox{}
	hashes := make([][]string, len(f.Sandboxes))
	for i := range f.Sandboxes {
		hashes[i] = policyDevices(f.Sandboxes[i].Pod)
	}
	for _, d := range devices {
		hash := strings.TrimPrefix(strings.TrimPrefix(d.Name, "eni"), "vlan")
		for i := range f.Sandboxes {
			s := &f.Sandboxes[i]
			if s.Pod != "" && (slices.Contains(s.Devices, d.Name) || slices.Contains(hashes[i], hash)) {
				pods[d], byNamespace[d.Pod] = s, s
			}
		}
	}
	for _, d := range devices {
		if pods[d] == nil && d.Pod != 0 {
			pods[d] = byNamespace[d.Pod]
		}
	}
	return pods
}

// checkNPAFilters knows three kinds of device without filters. The agent attaches
// when aws-cni asks it, for each new pod; and to a pod of before its own start when
// a policy selects that. So a new pod without filters is a fault, an old one need
// not be, and one filter of two always is, as is one interface of a pod without those that
// another has; but for pods that are being set up: the
// agent attaches within aws-cni's ADD, one filter after the other, which took
// seconds for ten pods at once, and the runtime keeps a result when ADD is over.
func checkNPAFilters(f *Facts) Finding {
	if f.npa() != profiles.Yes {
		return skip("the Network Policy Agent is not known to enforce")
	}
	return f.podDevices(func(devices []Device) Finding {
		var its []*Device
		for i := range devices {
			if d := &devices[i]; strings.HasPrefix(d.Name, "eni") || strings.HasPrefix(d.Name, "vlan") {
				its = append(its, d)
			}
		}
		all := filterCensus{pods: f.policyPods(its), filtered: map[int]bool{}}
		for _, d := range its {
			if d.Pod != 0 && hasPolicy(&d.In, "handle_egress") && hasPolicy(&d.Out, "handle_ingress") {
				all.filtered[d.Pod] = true
			}
		}
		for _, d := range its {
			all.add(f, d)
		}
		const expected = "both filters on the device of each pod that started after the agent, or that a policy selects"
		switch {
		case len(all.broken) > 0:
			return breaks(shorten(all.broken), expected, all.fix+" (AWS's part, not podweir's)", all.broken...)
		case len(all.lost) > 0:
			return warns(shorten(all.lost), expected, all.fix+" if a policy selects it (AWS's part, not podweir's)", all.lost...)
		case len(all.unnamed) > 0:
			return unknown("which pods " + shorten(all.unnamed) + " are of is not known, and they have no filter")
		}
		seen := fmt.Sprintf("%d devices", all.whole)
		if len(all.older) > 0 {
			seen += fmt.Sprintf("; %d more are of pods that started before the agent, which no policy has selected since", len(all.older))
		}
		if len(all.starting) > 0 {
			seen += fmt.Sprintf("; %d more are of pods that are being set up", len(all.starting))
		}
		return holds(seen, append(all.older, all.starting...)...)
	})
}

// filterCensus counts devices by what they have of the agent's.
type filterCensus struct {
	// pods are those of the devices as far as they are known, filtered the network
	// namespaces with a device that has both filters.
	pods     map[*Device]*Sandbox
	filtered map[int]bool

	whole int
	// broken lack a filter for certain, lost may have had them, older never had
	// them and need none, starting will get them. Of unnamed nothing is known.
	broken, lost, older, starting, unnamed []string
	// fix is for the first device that needs one.
	fix string
}

func (c *filterCensus) add(f *Facts, d *Device) {
	egress, ingress := hasPolicy(&d.In, "handle_egress"), hasPolicy(&d.Out, "handle_ingress")
	name, fix := d.Name, "delete the pod of "+d.Name
	pod := c.pods[d]
	if pod != nil {
		namespace, podName, _ := strings.Cut(pod.Pod, "/")
		name, fix = pod.Pod+" ("+d.Name+")", "kubectl delete pod -n "+namespace+" "+podName
	}
	since, known := f.policyAgentSince()
	switch {
	case egress && ingress:
		c.whole++
		return
	case (egress || ingress) && pod == nil && len(f.Sandboxes) > 0:
		c.starting = append(c.starting, name)
		return
	case egress:
		c.broken = append(c.broken, name+" lacks handle_ingress")
	case ingress:
		c.broken = append(c.broken, name+" lacks handle_egress")
	case pod != nil && known && pod.Made.After(since):
		c.broken = append(c.broken, name+" has no filter, and started after the agent")
	case c.filtered[d.Pod]:
		c.broken = append(c.broken, name+" has no filter, and another interface of the pod has both")
	case pod != nil && f.policyPinned(pod.Pod):
		c.lost = append(c.lost, name+" has no filter, and the agent has programs for pods of its name")
	case pod == nil:
		c.unnamed = append(c.unnamed, name)
		return
	default:
		c.older = append(c.older, name)
		return
	}
	if c.fix == "" {
		c.fix = fix
	}
}

// policyPinned says whether the agent keeps programs for pods of this name.
func (f *Facts) policyPinned(pod string) bool {
	_, err := fs.Stat(f.Root, strings.TrimPrefix(policyPins, "/")+"/"+policyIdentifier(pod)+"_handle_ingress")
	return err == nil
}

// enforcingMode is what ipamd reports to aws-cni about policy: with any mode aws-cni asks
// the agent for each pod, also where policy is switched off. It is false if the
// environment of ipamd cannot be read.
func (f *Facts) enforcingMode() (string, bool) {
	p := f.Node.Process("aws-k8s-agent")
	if p == nil {
		return "", false
	}
	b, err := fs.ReadFile(f.Root, path.Join("proc", p.PID, "environ"))
	if err != nil || len(b) == 0 {
		return "", false
	}
	for entry := range strings.SplitSeq(string(b), "\x00") {
		if mode, ok := strings.CutPrefix(entry, "NETWORK_POLICY_ENFORCING_MODE="); ok {
			return mode, true
		}
	}
	return "", true
}

func checkPolicyAgent(f *Facts) Finding {
	mode, known := f.enforcingMode()
	if known && mode == "" {
		return skip("ipamd has no NETWORK_POLICY_ENFORCING_MODE: aws-cni asks no policy agent")
	}
	const logs = "kubectl -n kube-system logs daemonset/aws-node -c aws-eks-nodeagent"
	since, made := f.policyAgentSince()
	unix := made || f.Node.Listens(ipamdSocket) == profiles.Yes
	if f.Node.Listens(npaSocket) == profiles.No && unix {
		const expected = "an agent that aws-cni finds: it asks for each pod, and without an answer the pod does not start"
		switch {
		case f.Node.Process("controller") != nil:
			return breaks("the agent runs and does not listen on "+npaSocket, expected, logs+"; upgrade the vpc-cni add-on as a unit")
		case made || known:
			return breaks("no program listens on "+npaSocket, expected, logs+" --previous; kubectl -n kube-system get pods -l k8s-app=aws-node -o wide")
		}
	}
	return f.policyTroubles(since, logs)
}

// answers are what aws-cni logs of the agent's answers, and of their absence
// (cmd/routed-eni-cni-plugin/cni.go, v1.22.4 and v1.23.0). Other calls time out
// with the same words, so that those prove nothing.
var (
	npaAnswer  = regexp.MustCompile(`Network Policy agent for \w+ returned Success : true`)
	npaTrouble = regexp.MustCompile(`Failed to connect to network policy agent|Failed to (setup default|delete pod) network policy|failed to setup network policy`)
	npaEither  = regexp.MustCompile(npaAnswer.String() + "|" + npaTrouble.String())
	logTime    = regexp.MustCompile(`"ts":"([^"]+)"`)
)

// recentTrouble is how long an error in the log says something of now.
const recentTrouble = 10 * time.Minute

// policyTroubles looks for errors that are the log's last word of the agent: after
// its last start and its last answer, and not from long ago.
func (f *Facts) policyTroubles(since time.Time, logs string) Finding {
	lines, err := matchesInTail(f.Root, awsPluginLog, npaEither)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return holds("no log of aws-cni")
	case err != nil:
		return unknown(err.Error())
	}
	if oldest := time.Now().Add(-recentTrouble); since.Before(oldest) {
		since = oldest
	}
	var troubles []string
	for _, line := range lines {
		if npaAnswer.MatchString(line) {
			troubles = nil
		} else if at, ok := timeOf(line); !ok || at.After(since) {
			troubles = append(troubles, line)
		}
	}
	if len(troubles) > 0 {
		return warns(fmt.Sprintf("%d errors in the log of aws-cni, the last: %s", len(troubles), troubles[len(troubles)-1]), "none",
			logs+"; upgrade the vpc-cni add-on as a unit", lastOf(troubles)...)
	}
	return holds("no error at the end of /" + awsPluginLog)
}

// timeOf is when a line of aws-cni's log was written.
func timeOf(line string) (time.Time, bool) {
	found := logTime.FindStringSubmatch(line)
	if found == nil {
		return time.Time{}, false
	}
	at, err := time.Parse("2006-01-02T15:04:05.000Z0700", found[1])
	return at, err == nil
}
