// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"slices"
	"strings"

	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/terms"
)

const ciliumDocs = "https://github.com/cilium/cilium/blob/v1.20.2/"

func ciliumChecks() []Check {
	return []Check{
		{
			Code: "PW401", Title: "Cilium's agent answers", Category: CategoryCNI, Severity: SeverityWarn, Family: "cilium",
			Looks: "GET /v1/healthz and /v1/config on the agent's socket; its settings under /proc/PID/root; the header of its programs, /run/cilium/state/globals/node_config.h (up to 1.18)",
			Why:   "without it host routing, datapath mode and bandwidth manager are guessed, and the careful guess costs speed",
			Mend:  "If the agent runs, mount /var/run/cilium read-only into the doctor's or agent's pod, or run the doctor on the node. If it does not run, see why: pods do not start without it.",
			run:   checkCiliumAPI,
		},
		{
			Code: "PW402", Title: "packets do not bypass the ingress limit", Category: CategoryDatapath, Severity: SeverityFail,
			Looks: "attachments with their ingress queue or program on the host side while packets are redirected past it",
			Why:   "with BPF host routing the egress side of the host device sees nothing from the network and from other pods",
			Mend:  "Leave mode and place of ingress to auto, or take ingressPlace ifb. Pods that run keep their place until they are recreated.",
			Refs:  []string{ciliumDocs + "bpf/lib/local_delivery.h"},
			run:   checkBypassed,
		},
		{
			Code: "PW404", Title: "Cilium's bandwidth manager runs as configured", Category: CategoryCNI, Severity: SeverityWarn, Family: "cilium",
			Looks: "the setting enable-bandwidth-manager, what the agent says, and the qdiscs of the manager's devices",
			Why:   "the agent turns it off by itself (nested namespaces, IPsec, sysctls it cannot read); podweir shapes until it comes on, so who shapes may change with a restart of Cilium. On a kernel without fq the agent says that it is on, and pods exceed their limits: 1.23 times the limit was measured",
			Mend:  "Turn the setting off, so that it stays podweir. Or give the node a kernel with sch_fq.",
			run:   checkBandwidthIdle,
		},
		{
			Code: "PW405", Title: "Cilium leaves podweir's programs alone", Category: CategoryDatapath, Severity: SeverityFail, Family: "cilium",
			Looks: "attachments by clsact on the host side of Cilium's devices",
			Why:   "Cilium deletes legacy filters of others at every regeneration of the endpoint",
			Mend:  "Leave the mode to auto; podweir's own queues and TCX survive. Take a kernel from 6.6 on for TCX.",
			Refs:  []string{ciliumDocs + "pkg/datapath/loader/tc.go"},
			run:   checkLegacyBesideCilium,
		},
		{
			Code: "PW406", Title: "pods' host-side devices are of a tested kind", Category: CategoryDatapath, Severity: SeverityWarn,
			Looks: "the kind of the pods' devices",
			Why:   "on netkit programs are attached at the host's end only, and podweir was not run with it",
			Mend:  "Use bpf.datapathMode=veth on new nodes; it cannot be changed under running pods. Or watch podweir status.",
			run:   checkDeviceKind,
		},
	}
}

func checkCiliumAPI(f *Facts) Finding {
	const expected, mount = "the agent's own answer", "mount /var/run/cilium, or run the doctor on the node"
	c := f.Node.Cilium
	says := "datapath " + orUnknown(c.DatapathMode) + ", host routing " + orUnknown(c.Routing) + ", attach mode " + orUnknown(c.AttachMode)
	if c.API {
		return holds("Cilium " + orUnknown(c.Version) + ": " + says)
	}
	fix := mount
	if f.Node.Listens(ciliumSocket) == profiles.No {
		fix = "kubectl --namespace kube-system get pods --selector k8s-app=cilium: no program listens on " + ciliumSocket
	}
	switch {
	case c.Header:
		return breaks("the agent does not answer; by the header of its programs: "+says, expected, fix, problems(f)...)
	case c.Settings:
		return breaks("only the agent's settings are readable: "+says, expected, fix, problems(f)...)
	}
	return breaks("neither the agent nor its settings can be read", "an answer on "+ciliumSocket, fix, problems(f)...)
}

const ciliumSocket = "/var/run/cilium/cilium.sock"

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// withAttachments runs the check where podweir's attachments are known.
func (f *Facts) withAttachments(further func([]Attachment) Finding) Finding {
	switch {
	case f.AttachedErr != nil:
		return unknown(f.AttachedErr.Error())
	case len(f.Attached) == 0:
		return skip("no pod of this node has a limit")
	}
	return further(f.Attached)
}

func checkBypassed(f *Facts) Finding {
	return f.withAttachments(func(list []Attachment) Finding {
		if f.Profile.Bypass == profiles.No {
			return holds(f.Profile.BypassWhy)
		}
		var bad []string
		for _, a := range list {
			onHost := a.Place == terms.PlaceHost && a.Mode.Is == terms.ModeQdisc || a.Mode.Is.HostSide()
			if a.Direction.Is == terms.Ingress && onHost {
				bad = append(bad, a.Pod+" ("+a.Device+", "+a.Mode.String()+")")
			}
		}
		if len(bad) == 0 {
			return holds("every ingress limit is on the pod side")
		}
		const expected, fix = "ingress on the pod side (ifb)", "set ingressMode and ingressPlace to auto, and recreate the pods"
		if f.Profile.Bypass == profiles.Unknown {
			return warns("on the host side, where packets may pass by: "+shorten(bad), expected, fix, bad...)
		}
		return breaks("on the host side, which packets pass by: "+shorten(bad), expected, fix, bad...)
	})
}

// withoutFQ says on what Cilium's bandwidth manager relies in vain: it gives packets their
// departure time, and fq keeps them until then. It is "" if nothing is known to be missing.
func (f *Facts) withoutFQ() (what string, devices []string) {
	if f.Node.Cilium.BandwidthManager != profiles.Yes {
		return "", nil
	}
	var texts []string
	for _, name := range f.Node.Cilium.BandwidthDevices {
		if kinds, known := f.ManagerQueues[name]; known && !slices.Contains(kinds, "fq") {
			texts, devices = append(texts, name+" ("+strings.Join(kinds, ", ")+")"), append(devices, name)
		}
	}
	switch {
	case len(texts) == 1:
		return texts[0] + " has no fq", devices
	case len(texts) > 1:
		return shorten(texts) + " have no fq", devices
	case f.FeaturesErr == nil && f.Features.Queues["fq"] == profiles.No:
		return "the kernel has no fq", []string{"fq"}
	}
	return "", nil
}

func checkBandwidthIdle(f *Facts) Finding {
	c := f.Node.Cilium
	missing, devices := f.withoutFQ()
	switch {
	case missing != "":
		return breaks("Cilium's bandwidth manager is on, and "+missing+", which holds packets back: pods exceed their egress limits", "fq on its devices",
			"load sch_fq and restart Cilium's agents; or give the limits to podweir: "+profiles.Command(profiles.CiliumWithoutManager, c.Version)).of(devices)
	case c.BandwidthConfigured == profiles.Yes && c.BandwidthManager == profiles.No:
		return breaks("enable-bandwidth-manager is true, and the agent turned it off", "the setting and the state agree",
			profiles.Command(profiles.CiliumWithoutManager, c.Version))
	case c.BandwidthConfigured == profiles.Unknown || c.BandwidthManager == profiles.Unknown:
		return skip("the setting or the state is not known")
	}
	if c.BandwidthManager == profiles.Yes && len(f.ManagerQueues) > 0 {
		return holds("the setting and the state agree, and its devices have fq")
	}
	return holds("the setting and the state agree")
}

func checkLegacyBesideCilium(f *Facts) Finding {
	return f.withAttachments(func(list []Attachment) Finding {
		var bad []string
		for _, a := range list {
			if a.Mode.Is == terms.ModeClsactHostSide && strings.HasPrefix(a.Device, "lxc") {
				bad = append(bad, a.Pod+" ("+a.Device+")")
			}
		}
		if len(bad) > 0 {
			return breaks(shorten(bad)+" by clsact-hostside", "qdisc or TCX", "set the mode to auto, and recreate the pods", bad...)
		}
		return holds("nothing of podweir's is a legacy filter on Cilium's devices")
	})
}

func checkDeviceKind(f *Facts) Finding {
	return f.podDevices(func(devices []Device) Finding {
		var bad []string
		for _, d := range devices {
			if d.Kind != terms.DeviceVeth {
				bad = append(bad, d.Name+" is "+string(d.Kind))
			}
		}
		if len(bad) > 0 {
			return breaks(shorten(bad), "veth", "see podweir status for what works", bad...)
		}
		return holds("veth")
	})
}
