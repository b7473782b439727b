// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/terms"
)

// ownEntry is podweir's entry in the chain in force, with its file; "" if there is
// none, or none that can be read.
func (f *Facts) ownEntry() (raw []byte, file string) {
	active := f.Node.Conf.Active()
	if active == nil || active.Network == nil {
		return nil, ""
	}
	n := active.Network
	if at := n.Index(conflist.Type); at >= 0 {
		return n.Plugins[at].Raw, n.File
	}
	return f.dropInCapabilities(n.Name)
}

// OwnEntry is podweir's entry in the chain in force of a node, nil if there is none that
// can be read.
func OwnEntry(root fs.FS, node *detect.Node) []byte {
	raw, _ := (&Facts{Root: root, Node: node}).ownEntry()
	return raw
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

// sharesLimit says that the interfaces of a pod share its limit. podweir's entry decides, or the
// node's settings if the chain has no entry.
func (f *Facts) sharesLimit() bool {
	raw, file := f.ownEntry()
	if file == "" {
		raw = []byte(f.handed)
	}
	var entry struct {
		Interfaces string `json:"interfaces"`
	}
	return json.Unmarshal(raw, &entry) == nil && entry.Interfaces == "shared"
}

// direction is one of the two, and who is to shape it.
type direction struct {
	is terms.Direction
	// left is the shaper that podweir leaves it to, 0 if podweir shapes; enforced says
	// whether that one enforces the annotation or, if podweir shapes, whether another does.
	left     terms.Shaper
	enforced profiles.Answer
}

// directions compares podweir's entry with who else shapes. Without an entry, as
// with the delivery nri, podweir leaves to Cilium what that enforces.
func (f *Facts) directions() ([]direction, detect.Others) {
	others := f.Node.OtherShapers()
	both := []direction{{is: terms.Egress, enforced: others.Egress}, {is: terms.Ingress, enforced: others.Ingress}}
	keys, file := f.entryKeys()
	for i := range both {
		d := &both[i]
		if file == "" {
			if others.By == terms.ShaperCilium && d.enforced == profiles.Yes {
				d.left = others.By
			}
			continue
		}
		shaper, _ := keys[d.is.String()+"Shaper"].(string)
		if shaper == "" {
			shaper, _ = keys["shaper"].(string)
		}
		if left, err := terms.ParseShaper(shaper); err == nil && left != terms.ShaperPodweir {
			d.left = left
		}
		if d.left != 0 && d.left != others.By {
			d.enforced = profiles.No
		}
	}
	return both, others
}

func checkOneShaper(f *Facts) Outcome {
	both, others := f.directions()
	if others.By == 0 {
		return skip("no other component here enforces them")
	}
	var two, left []terms.Direction
	var still []string
	for _, d := range both {
		switch {
		case d.enforced != profiles.Yes:
			continue
		case d.left == 0:
			two = append(two, d.is)
			continue
		}
		left = append(left, d.is)
		for _, a := range f.Attached {
			if a.Direction.Is == d.is && a.Standard {
				still = append(still, a.name())
			}
		}
	}
	switch {
	case len(two) > 0 && others.By == terms.ShaperCalico:
		return f.besideFelix(&others, two)
	case len(two) > 0 && others.By != terms.ShaperCilium:
		return f.besideCNI(&others, two)
	case len(two) > 0:
		return breaks(others.Why+", and podweir shapes "+and(two), "one shaper",
			"take away the default shaper=podweir, or: "+profiles.Command(profiles.CiliumWithoutManager, f.Node.Cilium.Version))
	case len(still) > 0:
		return breaks(others.Why+", and podweir still shapes "+shorten(still), "one shaper",
			"the agent takes them off; without it: podweir detach --pod NAMESPACE/NAME", still...)
	case len(left) > 0 && others.Ingress == profiles.Unknown:
		return warns(others.Why, "an agent that says what it enforces", "mount /var/run/cilium into the agent's pod; podweir shapes ingress meanwhile")
	case len(left) > 0 && others.By == terms.ShaperCilium:
		return holds(others.Why + ": " + and(left) + " limits are left to it, which leaves out traffic between pods of one node")
	case len(left) > 0:
		return holds(others.Why + ": " + and(left) + " limits are left to it")
	case others.Egress != profiles.No:
		return unknown(cmp.Or(others.Why, "whether the bandwidth manager is on") + ": podweir shapes")
	case others.By == terms.ShaperCalico:
		return holds("Calico " + f.Node.Calico.Version + " does not read the annotations")
	case others.By != terms.ShaperCilium:
		return holds(others.Why)
	}
	return holds("the bandwidth manager is off")
}

func and(list []terms.Direction) string { return strings.Join(terms.Texts(list), " and ") }

// besideFelix looks for pods of podweir's on which Felix has a limit of ingress. Its
// limit of egress lies behind podweir's queue, and lets all pass that this lets out.
func (f *Facts) besideFelix(others *detect.Others, two []terms.Direction) Outcome {
	if f.DevicesErr != nil || f.AttachedErr != nil {
		return unknown(others.Why + "; whether it has a limit on a pod that podweir shapes was not seen")
	}
	var held []string
	fix := ""
	for _, a := range f.Attached {
		at := slices.IndexFunc(f.Devices, func(d Device) bool { return d.Name == a.Device })
		if a.Direction.Is != terms.Ingress || at < 0 {
			continue
		}
		// Felix changes a queue of its own kind in place, and the queue keeps podweir's handle.
		changed := a.Place == terms.PlaceHost && slices.ContainsFunc(f.Devices[at].Qdiscs, func(q Qdisc) bool {
			return q.Root && q.Ours && q.Kind == "tbf" && q.BitsPerSec != uint64(a.Rate.ByteRate().BitRate())
		})
		if changed {
			fix = "podweir install, which gives ingress the place ifb, out of Calico's reach, and recreate the pods; then "
		}
		if changed || slices.ContainsFunc(f.Devices[at].Qdiscs, holdsBack) {
			held = append(held, a.Pod)
		}
	}
	if len(held) > 0 {
		return fails(others.Why+", and its limit is before podweir's on "+shorten(held), "one shaper for a pod", fix+profiles.LiftFelixLimit(held[0]), held...).of(held)
	}
	return holds(others.Why + "; podweir shapes " + and(two) + ", and no limit of Calico's is before its own")
}

// besideCNI looks for pods of podweir's whose limit the CNI enforces, too: those for
// which the runtime has one.
func (f *Facts) besideCNI(others *detect.Others, two []terms.Direction) Outcome {
	seen := others.Why + ", and podweir shapes " + and(two)
	expected, fix := "one shaper for a pod", profiles.OneShaperBeside(others.By)
	if f.SandboxesErr != nil || f.AttachedErr != nil {
		return breaks(seen, expected, fix)
	}
	var held []string
	for _, a := range f.Attached {
		if slices.Contains(two, a.Direction.Is) && slices.ContainsFunc(f.Sandboxes, func(s Sandbox) bool {
			return s.ContainerID == a.ContainerID && slices.Contains(s.Limited, a.Direction.Is)
		}) {
			held = append(held, a.Pod)
		}
	}
	if held = slices.Compact(held); len(held) > 0 {
		return breaks(seen+" of "+shorten(held), expected, fix, held...).of(held)
	}
	return holds(others.Why + "; no pod that podweir shapes has them")
}

// endless is the rate from which on a tbf holds nothing back: no pod can have a
// limit as high.
const endless = 400_000_000_000

// holdsBack says whether a qdisc is another component's limit.
func holdsBack(q Qdisc) bool { return q.Root && !q.Ours && q.Kind == "tbf" && q.BitsPerSec <= endless }

func checkSomeShaper(f *Facts) Outcome {
	both, _ := f.directions()
	var unenforced, unsure, left []direction
	for _, d := range both {
		switch {
		case d.left == 0:
		case d.enforced == profiles.No:
			unenforced = append(unenforced, d)
		case d.enforced == profiles.Unknown:
			unsure = append(unsure, d)
		default:
			left = append(left, d)
		}
	}
	_, file := f.ownEntry()
	missing, devices := f.withoutFQ()
	lifted, pods := f.liftedByHand(both)
	switch {
	case missing != "" && both[0].left == terms.ShaperCilium:
		return breaks(file+" leaves egress limits to Cilium's bandwidth manager, and "+missing, "a shaper that enforces them",
			"load sch_fq and restart Cilium's agents; or give the default shaper=podweir").of(devices)
	case len(unenforced) > 0:
		return breaks(file+" leaves "+limitsTo(unenforced)+", which does not enforce them", "a shaper for each limit",
			"take away the default shaper="+unenforced[0].left.String()+"; podweir install or the agent writes the entry again")
	case len(unsure) > 0:
		return unknown(file + " leaves " + limitsTo(unsure) + ": whether it enforces them is not known")
	case len(lifted) > 0:
		return breaks(file+" leaves limits to Calico, which has none for "+shorten(lifted), "a limit of Calico's for each",
			"take the annotations qos.projectcalico.org/ingressBandwidth and egressBandwidth off these pods: docs/howto/calico.md; or take away the default shaper=calico", lifted...).of(pods)
	case slices.ContainsFunc(left, func(d direction) bool { return d.left == terms.ShaperCalico }) && errors.Join(f.DevicesErr, f.AttachedErr) != nil:
		return unknown(limitsTo(left) + "; whether it has one for each pod was not seen")
	case len(left) > 0:
		return holds(limitsTo(left))
	}
	return skip("podweir leaves no limit to others")
}

// felixSettles is how long after a pod's start Felix gets to make its limit.
const felixSettles = 10 * time.Second

// liftedByHand are pods with a standard limit that is left to Felix, which has none for them
// that holds anything back: its number was overridden, so that podweir may limit them.
func (f *Facts) liftedByHand(both []direction) (lifted, pods []string) {
	for i := range f.Sandboxes {
		s := &f.Sandboxes[i]
		if s.Ended || time.Since(s.Made).Abs() < felixSettles {
			continue
		}
		for _, d := range both {
			byPodweir := slices.ContainsFunc(f.Attached, func(a Attachment) bool { return a.ContainerID == s.ContainerID && a.Direction.Is == d.is })
			if d.left != terms.ShaperCalico || byPodweir || !slices.Contains(s.Limited, d.is) {
				continue
			}
			for _, device := range f.Devices {
				held := device.Qdiscs
				if d.is == terms.Egress {
					held = device.Egress
				}
				if slices.Contains(s.Devices, device.Name) && !slices.ContainsFunc(held, holdsBack) {
					pod := cmp.Or(s.Pod, "container "+s.ContainerID)
					lifted, pods = append(lifted, pod+" "+d.is.String()), append(pods, pod)
				}
			}
		}
	}
	return lifted, slices.Compact(pods)
}

// limitsTo says which limits are left to whom.
func limitsTo(list []direction) string {
	if len(list) == 2 && list[0].left == list[1].left {
		return list[0].is.String() + " and " + list[1].is.String() + " limits to " + list[0].left.Title()
	}
	texts := make([]string, len(list))
	for i, d := range list {
		texts[i] = d.is.String() + " limits to " + d.left.Title()
	}
	return strings.Join(texts, " and ")
}

// expects says whether a pod with annotations for these directions should have
// come to podweir.
func (f *Facts) expects(asked []terms.Direction) bool {
	both, _ := f.directions()
	return slices.ContainsFunc(both, func(d direction) bool { return d.left == 0 && slices.Contains(asked, d.is) })
}
