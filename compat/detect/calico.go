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
	// Sign is something of Felix's on the node, as a clause, "" if there is nothing.
	Sign string
}

// calicoNode is what Calico's agent is called in its image before v3.33; it is called
// calico there since.
const calicoNode = "calico-node"

// felixIFB begins the names of the devices that Felix makes for limits of egress
// (ifbDevicePrefix in felix/dataplane/linux/qos/qos.go, commit 04baf82929c4).
const felixIFB = "bwcali"

func (r *reader) calico() {
	c := &r.node.Calico
	c.Dataplane = r.node.Facts[profiles.FactCalicoDataplane]
	if r.node.SeesNode() {
		c.Runs = profiles.No
	}
	plugin := r.node.Binary(r.root, "calico")
	if plugin != "" {
		c.sign("/" + plugin + " is there")
	}
	if at := slices.IndexFunc(r.node.Devices, func(name string) bool { return strings.HasPrefix(name, felixIFB) }); at >= 0 {
		c.Limits = true
		c.sign("the device " + r.node.Devices[at] + " is there")
	}
	for i := range r.node.Processes {
		p := &r.node.Processes[i]
		switch isFelix(p) {
		case profiles.Yes:
			if c.Runs != profiles.Yes {
				c.Runs, c.Version = profiles.Yes, calicoVersion(r.buildInfo("proc/"+p.PID+"/exe"))
			}
		case profiles.Unknown:
			c.sign("the process " + p.PID + " (" + strings.Join(p.Args, " ") + ") is Calico's")
		case profiles.No:
		}
	}
	if c.Version == "" && c.Runs != profiles.No && plugin != "" {
		// It is installed from an image of the agent's release.
		c.Version = calicoVersion(r.buildInfo(plugin))
	}
	if c.Runs == profiles.No || c.mayRun() {
		r.node.Facts[profiles.FactFelixQueues] = profiles.Is(c.mayRun() && c.readsAnnotations() != profiles.No).String()
	}
}

// sign notes something of Felix's, with which it may run where no process shows it.
func (c *Calico) sign(what string) {
	c.Sign = what
	if c.Runs == profiles.No {
		c.Runs = profiles.Unknown
	}
}

// mayRun says that Felix runs or that something of it is there.
func (c *Calico) mayRun() bool { return c.Runs == profiles.Yes || c.Sign != "" }

// isFelix says whether a process is Felix: calico-node in its image, calico-felix by
// itself, and from v3.33 on a component of the one binary that all parts are, the plugin
// too, which alone has no arguments.
func isFelix(p *Process) profiles.Answer {
	switch {
	case p.Name == calicoNode || p.Name == "calico-felix":
		return profiles.Yes
	case p.Name != "calico" || len(p.Args) == 1 && p.Args[0] != "":
		return profiles.No
	case slices.Contains(p.Args, "felix"):
		return profiles.Yes
	default:
		return profiles.Unknown
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
	return profiles.AtLeast(c.Version, felixMajor, felixMinor)
}

// EnforcesAnnotations says whether Felix enforces the annotations of pods. With the
// eBPF dataplane it does so only where it attaches by TCX or to netkit devices,
// which only one of its devices shows.
func (c *Calico) EnforcesAnnotations() Others {
	others := Others{By: terms.ShaperCalico}
	switch reads := c.readsAnnotations(); {
	case reads != profiles.No && c.Runs != profiles.Yes && !c.Limits && c.Sign != "":
		others.Why = "whether Calico's agent runs is not known, and " + c.Sign + ": from v3.30 on it enforces kubernetes.io/*-bandwidth"
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
