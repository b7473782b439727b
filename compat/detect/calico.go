// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package detect

import (
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/terms"
)

// Calico is what is known of Calico's agent on the node, Felix.
type Calico struct {
	// Runs says whether it does.
	Runs profiles.Answer
	// Version is as its binary says, v3.31.2; "" if it does not.
	Version string
	// Dataplane is bpf or tables, "" if not known.
	Dataplane string
	// Limits says that a device is there which Felix makes for a limit of egress.
	Limits bool
}

// felixProcesses are the agent in Calico's image, and by itself.
var felixProcesses = []string{"calico-node", "calico-felix"}

// felixIFB begins the names of the devices that Felix makes for limits of egress
// (ifbDevicePrefix in felix/dataplane/linux/qos/qos.go, commit 04baf82929c4).
const felixIFB = "bwcali"

// calico finds out whether Felix runs, and which release.
func (r *reader) calico() {
	c := &r.node.Calico
	c.Dataplane = r.node.Facts[profiles.FactCalicoDataplane]
	c.Limits = slices.ContainsFunc(r.node.Devices, func(name string) bool { return strings.HasPrefix(name, felixIFB) })
	if r.node.seesNode() {
		c.Runs = profiles.No
	}
	for _, name := range felixProcesses {
		if p := r.node.Process(name); p != nil && c.Runs != profiles.Yes {
			c.Runs, c.Version = profiles.Yes, calicoVersion(r.buildInfo("proc/"+p.PID+"/exe"))
		}
	}
	if plugin := r.node.Binary(r.root, "calico"); c.Version == "" && c.Runs != profiles.No && plugin != "" {
		// It is installed from an image of the agent's release.
		c.Version = calicoVersion(r.buildInfo(plugin))
	}
	switch c.Runs {
	case profiles.Yes:
		r.node.Facts[profiles.FactFelixQueues] = profiles.Is(c.readsAnnotations() != profiles.No).String()
	case profiles.No:
		r.node.Facts[profiles.FactFelixQueues] = profiles.No.String()
	case profiles.Unknown:
	}
}

// calicoStamp is how Calico's build puts the release into a binary: by a flag of
// the linker, which the binary shows (LDFLAGS in lib.Makefile; the variables had
// other names before v3.30).
var calicoStamp = regexp.MustCompile(`(?i)projectcalico/calico/\S*version=['"]?(v?[0-9]+\.[0-9]+[^\s'"]*)`)

func calicoVersion(info *debug.BuildInfo) string {
	for _, s := range info.Settings {
		if m := calicoStamp.FindStringSubmatch(s.Value); s.Key == "-ldflags" && m != nil {
			return m[1]
		}
	}
	return ""
}

// Felix reads kubernetes.io/*-bandwidth from v3.30.0 on (commit 7304c5b2e9).
const felixMajor, felixMinor = 3, 30

// readsAnnotations says whether this release of Felix knows the annotations.
func (c *Calico) readsAnnotations() profiles.Answer {
	if c.Limits {
		return profiles.Yes
	}
	return atLeast(c.Version, felixMajor, felixMinor)
}

// EnforcesAnnotations says whether Felix enforces the annotations of pods. With the
// eBPF dataplane it does so only where it attaches by TCX or to netkit devices,
// which only one of its devices shows.
func (c *Calico) EnforcesAnnotations() Others {
	others := Others{By: terms.ShaperCalico}
	switch reads := c.readsAnnotations(); {
	case reads == profiles.Unknown:
		others.Why = "which release of Calico runs is not known: from v3.30 on it enforces kubernetes.io/*-bandwidth"
	case reads == profiles.Yes && c.Dataplane == "bpf" && !c.Limits:
		others.Why = c.title() + " enforces kubernetes.io/*-bandwidth with its eBPF dataplane where that uses TCX: whether it does here is not known"
	case reads == profiles.Yes:
		others.Why = c.title() + " enforces kubernetes.io/*-bandwidth, too"
		fallthrough
	default:
		others.Egress, others.Ingress = reads, reads
	}
	return others
}

func (c *Calico) title() string {
	if c.Version == "" {
		return "Calico"
	}
	return "Calico " + c.Version
}
