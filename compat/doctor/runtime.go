// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"fmt"
	"path"
	"strings"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/profiles"
)

func runtimeChecks() []Check {
	return []Check{
		{
			Code: "PW112", Title: "the kind of node is supported", Category: CategoryNode, Severity: SeverityFail,
			Looks: "the label eks.amazonaws.com/compute-type that kubelet registers its node with",
			Why:   "on EKS Auto Mode and Fargate nodes no other CNI plugin may be added",
			Mend:  "Take a node group of EC2 instances, managed or your own, and keep podweir off the others by node affinity.",
			Refs:  []string{"https://docs.aws.amazon.com/eks/latest/userguide/alternate-cni-plugins.html"},
			run:   checkComputeType,
		},
		{
			Code: "PW113", Title: "kubelet uses the runtime that doctor looked at", Category: CategoryNode, Severity: SeverityWarn,
			Looks: "containerRuntimeEndpoint in kubelet's configuration, or its flag",
			Why:   "where both containerd and CRI-O run, the other one's version says nothing about drop-ins",
			Mend:  "Say which runtime it is: podweir doctor --runtime cri-o://1.34.0, and stop the one that is not used.",
			run:   checkEndpoint,
		},
		{
			Code: "PW114", Title: "the runtime loads one network, not several", Category: CategoryCNI, Severity: SeverityFail,
			Looks: "max_conf_num, as containerd says it on its CRI socket, or else as its configuration has it",
			Why:   "with more than one, or 0 for all, podweir's file and its original are both loaded and pods get two networks",
			Mend: "Set max_conf_num = 1, which is containerd's default, and restart containerd. Else podweir must not be there by the delivery chain: auto takes drop-in, nri or watch. " +
				"A drop-in is in the first network; the interfaces of further networks have no limit from it.",
			Refs: []string{"https://github.com/containerd/containerd/blob/v2.1.3/docs/cri/config.md"},
			run:  checkMaxConfNum,
		},
		{
			Code: "PW115", Title: "NRI is on if pods are limited through NRI", Category: CategoryInstall, Severity: SeverityFail,
			Looks: "whether a program listens on /var/run/nri/nri.sock, and containerd's setting of its NRI plugin",
			Why:   "without it the delivery nri reaches no pod",
			Mend:  "Set disable = false for io.containerd.nri.v1.nri (containerd before 2.0 has it off), or enable_nri = true for CRI-O, and restart the runtime. Where that cannot be changed, the delivery watch needs no NRI.",
			run:   checkNRI,
		},
	}
}

// unsupportedTypes are the values of the label on nodes where no second plugin
// can be installed, and what they are.
var unsupportedTypes = map[string]string{"auto": "EKS Auto Mode", "fargate": "Fargate", "hybrid": "an EKS hybrid node"}

func checkComputeType(f *Facts) Finding {
	const label = "eks.amazonaws.com/compute-type"
	if !f.Kubelet.Seen {
		return skip("kubelet is not seen")
	}
	kind := f.Kubelet.Labels[label]
	if what, ok := unsupportedTypes[kind]; ok {
		return breaks(label+"="+kind+": this is "+what, "a node group of EC2 instances", "node affinity: "+label+" NotIn (fargate, hybrid, auto)")
	}
	return holds("kubelet's labels name no kind of node that is not supported")
}

func checkEndpoint(f *Facts) Finding {
	endpoint, name := f.Kubelet.Endpoint, f.Node.Runtime.Name
	switch {
	case endpoint == "" || name == "":
		return skip("kubelet's endpoint or the runtime is not known")
	case runtimeAt(endpoint) == name:
		return holds(endpoint)
	}
	return breaks("kubelet talks to "+endpoint+", and "+f.Node.Runtime.String()+" was looked at", "the runtime of kubelet",
		"podweir doctor --runtime NAME://VERSION, as kubectl get node -o wide prints it")
}

// runtimeAt is the runtime that listens at an endpoint, by its name.
func runtimeAt(endpoint string) string {
	switch {
	case strings.Contains(endpoint, "crio"):
		return "cri-o"
	case strings.Contains(endpoint, "docker"):
		return "docker"
	default:
		return "containerd"
	}
}

func checkMaxConfNum(f *Facts) Finding {
	if f.Node.Config.MaxConfNum == nil {
		return holds("max_conf_num is not set: one network is loaded")
	}
	n := *f.Node.Config.MaxConfNum
	own := f.Node.Conf != nil && len(f.Node.Conf.Own()) > 0
	const fix = "set max_conf_num = 1, and restart containerd"
	switch {
	case n == 1:
		return holds("max_conf_num is 1")
	case own:
		return breaks(fmt.Sprintf("max_conf_num is %d, and podweir's file is beside its original", n), "1, or another delivery",
			"podweir install, which takes another delivery; or: "+fix)
	}
	return warns(fmt.Sprintf("max_conf_num is %d: only interfaces of the first network are limited from their start", n), "1", fix)
}

func checkNRI(f *Facts) Finding {
	listens := f.Node.Listens(detect.NRISocket)
	switch {
	case f.Choice.Delivery != profiles.NRI:
		return skip("the delivery is " + string(f.Choice.Delivery))
	case listens == profiles.Yes:
		return holds("the runtime listens on " + detect.NRISocket)
	case f.Node.Config.NRI == profiles.No:
		return breaks("the runtime's configuration has NRI off", "NRI on", "disable = false for io.containerd.nri.v1.nri, or enable_nri = true for CRI-O, and restart the runtime")
	case listens == profiles.No:
		return breaks("no program listens on "+detect.NRISocket, "NRI on", "switch NRI on in the runtime's configuration, and restart it")
	}
	return unknown("whether the runtime has NRI on")
}

// dropInCapabilities are the capabilities of podweir's drop-in in the network in
// force, and its file; "" if there is none that can be read.
func (f *Facts) dropInCapabilities(network string) (raw []byte, file string) {
	for _, c := range f.Node.Conf.DropIns[network] {
		if c.Type != conflist.Type {
			continue
		}
		name := path.Join(f.Node.ConfDir, network, c.Name)
		if b, err := conflist.ReadFile(f.Root, name); err == nil {
			return b, "/" + name
		}
	}
	return nil, ""
}
