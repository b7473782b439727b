// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/podweir/podweir/compat/profiles"
)

func checkNPABandwidth(f *Facts) Finding {
	const expected, fix = "a chain without bandwidth", "kubectl -n kube-system set env daemonset/aws-node ENABLE_BANDWIDTH_PLUGIN=false"
	enforces := f.Node.Facts[profiles.FactNPA]
	if enforces == "no" {
		return skip("the Network Policy Agent does not enforce")
	}
	if enforces != "yes" {
		enforces = profiles.Unknown.String()
	}
	original := f.original()
	switch {
	case slices.Contains(f.chain(), "bandwidth"):
		return breaks("bandwidth is in the chain, and the Network Policy Agent enforces: "+enforces, expected, fix, f.active().Name)
	case original != nil && original.Index("bandwidth") >= 0:
		return warns("bandwidth is in "+original.File+", and podweir's file replaces it: once podweir is uninstalled, pods with an egress limit do not start", expected, fix, original.File)
	}
	return holds("bandwidth is not in the chain")
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

// entry reads keys of a plugin's entry in the network to join.
func (f *Facts) entry(pluginType string, into any) bool {
	n := f.original()
	if n == nil {
		return false
	}
	at := n.Index(pluginType)
	return at >= 0 && json.Unmarshal(n.Plugins[at].Raw, into) == nil
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
