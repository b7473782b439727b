// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/terms"
)

func checkCiliumAPI(f *Facts) Outcome {
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
	if c.Settings {
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

// ofLimits has a check run where podweir's limits are known, and there are any.
func ofLimits(check func(*Facts) Outcome) func(*Facts) Outcome {
	return func(f *Facts) Outcome {
		switch {
		case f.AttachedErr != nil:
			return unknown(f.AttachedErr.Error())
		case len(f.Attached)+len(f.Troubles) == 0:
			return skip("no pod of this node has a limit")
		}
		return check(f)
	}
}

// ofDevices has a check run where the devices of pods are known, and there are any.
func ofDevices(check func(*Facts) Outcome) func(*Facts) Outcome {
	return func(f *Facts) Outcome {
		switch {
		case f.DevicesErr != nil:
			return unknown(f.DevicesErr.Error())
		case len(f.Devices) == 0:
			return skip("no pod has a device on this node")
		}
		return check(f)
	}
}

func checkBypassed(f *Facts) Outcome {
	if f.Profile.Bypass == profiles.No {
		return holds(f.Profile.BypassWhy)
	}
	var bad []string
	for _, a := range f.Attached {
		onHost := a.Place == terms.PlaceHost && a.Mode.Is == terms.ModeQdisc || a.Mode.Is.HostSide()
		if a.Direction.Is == terms.Ingress && onHost && !a.Observed() {
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
	case f.FeaturesErr == nil && !f.Features["fq"]:
		return "the kernel has no fq", []string{"fq"}
	}
	return "", nil
}

func checkBandwidthIdle(f *Facts) Outcome {
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

func checkNPABandwidth(f *Facts) Outcome {
	const expected, fix = "a chain without bandwidth", "kubectl -n kube-system set env daemonset/aws-node ENABLE_BANDWIDTH_PLUGIN=false"
	enforces := f.Node.Facts[profiles.FactNPA]
	if enforces == "no" {
		return skip("the Network Policy Agent does not enforce")
	}
	if enforces != "yes" {
		enforces = profiles.Unknown.String()
	}
	original := f.Node.Conf.Network()
	switch {
	case slices.Contains(f.chain(), "bandwidth"):
		return breaks("bandwidth is in the chain, and the Network Policy Agent enforces: "+enforces, expected, fix, f.Node.Conf.Active().Name)
	case original != nil && original.Index("bandwidth") >= 0:
		return warns("bandwidth is in "+original.File+", and podweir's file replaces it: once podweir is uninstalled, pods with an egress limit do not start", expected, fix, original.File)
	}
	return holds("bandwidth is not in the chain")
}

// shorten lists the first few of many findings, in the same order at each look.
func shorten(list []string) string {
	const shown = 5 // that many fit a screen
	list = slices.Sorted(slices.Values(list))
	if len(list) <= shown {
		return strings.Join(list, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(list[:shown], "; "), len(list)-shown)
}

// entry reads keys of a plugin's entry in the network to join.
func (f *Facts) entry(pluginType string, into any) bool {
	n := f.Node.Conf.Network()
	if n == nil {
		return false
	}
	at := n.Index(pluginType)
	return at >= 0 && json.Unmarshal(n.Plugins[at].Raw, into) == nil
}

func checkEgressCNI(f *Facts) Outcome {
	var conf struct {
		Enabled string `json:"enabled"`
	}
	if !f.entry("egress-cni", &conf) {
		return skip("egress-cni is not in the chain")
	}
	if conf.Enabled == "true" {
		if f.sharesLimit() {
			return holds("egress-cni is enabled, and a pod's interfaces share its limit")
		}
		return breaks("egress-cni is enabled: pods have a second interface, with the whole limit once more", "one interface, or interfaces=shared",
			"set interfaces=shared (chart: defaults.interfaces)")
	}
	return holds("egress-cni is not enabled")
}
