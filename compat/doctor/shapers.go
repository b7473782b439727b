// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/profiles"
)

func shaperChecks() []Check {
	return []Check{
		{
			Code: "PW403", Title: "one shaper for the annotations", Category: CategoryCNI, Severity: SeverityWarn, Family: "cilium",
			Looks: "whether Cilium's bandwidth manager is on, which directions podweir's entry leaves to it, and podweir's attachments",
			Why:   "it enforces kubernetes.io/egress-bandwidth, and ingress-bandwidth from 1.18 with BPF host routing, but not between pods of one node",
			Mend:  "Decide who shapes: podweir leaves to it what it enforces, unless the operator gives the default shaper=podweir. docs/howto/cilium-bandwidth-manager.md has both ways.",
			Refs:  []string{ciliumDocs + "pkg/datapath/linux/bandwidth/bandwidth.go", "https://github.com/cilium/cilium/issues/15824"},
			run:   checkOneShaper,
		},
		{
			Code: "PW409", Title: "every annotation has a shaper", Category: CategoryCNI, Severity: SeverityFail,
			Looks: "the directions that podweir's entry leaves to Cilium's bandwidth manager, and whether that enforces them",
			Why:   "a limit that each takes for the other's is nobody's",
			Mend:  "Take away the default shaper=cilium, so that the agent or podweir install decides by what Cilium says; or turn the bandwidth manager on.",
			Refs:  []string{ciliumDocs + "pkg/datapath/linux/bandwidth/bandwidth.go"},
			run:   checkSomeShaper,
		},
	}
}

// ownEntry is podweir's entry in the chain in force, with its file; "" if there is
// none, or none that can be read.
func (f *Facts) ownEntry() (raw []byte, file string) {
	active := f.active()
	if active == nil || active.Network == nil {
		return nil, ""
	}
	n := active.Network
	if at := n.Index(conflist.Type); at >= 0 {
		return n.Plugins[at].Raw, n.File
	}
	return f.dropInCapabilities(n.Name)
}

// entryKeys are those of podweir's entry, with its file; nil and "" if there is
// none that can be read.
func (f *Facts) entryKeys() (keys map[string]any, file string) {
	raw, file := f.ownEntry()
	if file == "" || json.Unmarshal(raw, &keys) != nil {
		return nil, ""
	}
	return keys, file
}

// direction is one of the two, and who is to shape it.
type direction struct {
	name string
	// enforced says whether somebody else enforces the annotation, left whether
	// podweir leaves it to him.
	enforced profiles.Answer
	left     bool
	// ownRate says that podweir has a rate for pods without the annotation.
	ownRate bool
}

// directions compares podweir's entry with who else shapes. Without an entry, as
// with the delivery nri, podweir leaves what is enforced.
func (f *Facts) directions() ([]direction, detect.Others) {
	others := f.Node.OtherShapers()
	both := []direction{{name: "egress", enforced: others.Egress}, {name: "ingress", enforced: others.Ingress}}
	keys, file := f.entryKeys()
	if file == "" {
		for i := range both {
			both[i].left = both[i].enforced == profiles.Yes
		}
		return both, others
	}
	for i := range both {
		d := &both[i]
		shaper := keys[d.name+"Shaper"]
		if shaper == nil {
			shaper = keys["shaper"]
		}
		d.left, d.ownRate = shaper == "cilium", keys[d.name+"Rate"] != nil
	}
	return both, others
}

func checkOneShaper(f *Facts) Finding {
	fix := "take away the default shaper=podweir, or: " + profiles.Command(profiles.CiliumWithoutManager, f.Node.Cilium.Version)
	both, others := f.directions()
	var two, left, still []string
	for _, d := range both {
		switch {
		case d.enforced != profiles.Yes:
			continue
		case !d.left:
			two = append(two, d.name)
			continue
		}
		left = append(left, d.name)
		for _, a := range f.Attached {
			if a.Direction == d.name && a.Failure == "" && !a.Gone && !d.ownRate {
				still = append(still, a.Pod+" "+d.name)
			}
		}
	}
	switch {
	case len(two) > 0:
		return breaks(others.Why+", and podweir shapes "+strings.Join(two, " and "), "one shaper", fix)
	case len(still) > 0:
		return breaks(others.Why+", and podweir still shapes "+shorten(still), "one shaper",
			"the agent takes them off; without it: podweir detach --pod NAMESPACE/NAME", still...)
	case len(left) > 0 && others.Ingress == profiles.Unknown:
		return warns(others.Why, "an agent that says what it enforces", "mount /var/run/cilium into the agent's pod; podweir shapes ingress meanwhile")
	case len(left) > 0:
		return holds(others.Why + ": " + strings.Join(left, " and ") + " limits are left to it, which leaves out traffic between pods of one node")
	case others.Egress == profiles.No:
		return holds("the bandwidth manager is off")
	}
	return unknown("whether the bandwidth manager is on: podweir shapes")
}

func checkSomeShaper(f *Facts) Finding {
	both, _ := f.directions()
	var nobody, unsure, left []string
	for _, d := range both {
		switch {
		case !d.left:
		case d.enforced == profiles.No:
			nobody = append(nobody, d.name)
		case d.enforced == profiles.Unknown:
			unsure = append(unsure, d.name)
		default:
			left = append(left, d.name)
		}
	}
	_, file := f.ownEntry()
	switch {
	case len(nobody) > 0:
		return breaks(file+" leaves "+strings.Join(nobody, " and ")+" limits to Cilium's bandwidth manager, which does not enforce them", "a shaper for each limit",
			"take away the default shaper=cilium; podweir install or the agent writes the entry again")
	case len(unsure) > 0:
		return unknown("whether Cilium's bandwidth manager enforces " + strings.Join(unsure, " and ") + ", which " + file + " leaves to it")
	case len(left) > 0:
		return holds(strings.Join(left, " and ") + ": Cilium's bandwidth manager")
	}
	return skip("podweir leaves no limit to others")
}

// expects says whether a pod with annotations for these directions should have
// come to podweir.
func (f *Facts) expects(asked []string) bool {
	both, _ := f.directions()
	return slices.ContainsFunc(both, func(d direction) bool { return !d.left && slices.Contains(asked, d.name) })
}
