// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery

import (
	"strings"

	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/terms"
)

// annotated is one of the annotations that others may enforce, too.
type annotated struct {
	direction terms.Direction
	// enforced says whether another party does.
	enforced profiles.Answer
}

func (b *beside) annotations() []annotated {
	return []annotated{{terms.Egress, b.others.Egress}, {terms.Ingress, b.others.Ingress}}
}

// key is where the plugin reads who shapes the direction.
func (a *annotated) key() string { return a.direction.String() + "Shaper" }

// shapers leaves the directions that Cilium's bandwidth manager enforces to it,
// unless the operator says who shapes. Where it is not known podweir shapes: two
// shapers keep a cap, none does not. Nobody else is left anything unasked: Calico's
// default burst is 343 MB, and what OVN-Kubernetes enforces was not tried.
func (b *beside) shapers(keys map[string]any) (notes []string) {
	var left, both []string
	for _, a := range b.annotations() {
		given := keys[a.key()] != nil || keys["shaper"] != nil
		switch {
		case a.enforced != profiles.Yes || given:
		case b.others.By == terms.ShaperCilium:
			keys[a.key()] = terms.ShaperCilium.String()
			left = append(left, a.direction.String())
		default:
			both = append(both, a.direction.String())
		}
	}
	if b.others.Why != "" {
		notes = append(notes, b.others.Why)
	}
	if len(left) > 0 {
		notes = append(notes, strings.Join(left, " and ")+" limits of pods are left to it, which does not limit traffic "+
			"between pods of one node; the default shaper=podweir gives them to podweir")
	}
	if len(both) > 0 {
		notes = append(notes, strings.Join(both, " and ")+" limits of pods have two shapers; "+profiles.OneShaperBeside(b.others.By))
	}
	return notes
}

// dispute says where the operator's word makes two shapers of one limit, or none;
// "" if it does not.
func (b *beside) dispute(defaults map[string]any) string {
	var all []string
	for _, a := range b.annotations() {
		given := profiles.Chosen(defaults, a.key(), "shaper")
		if given == "" {
			continue
		}
		to, err := terms.ParseShaper(given)
		switch {
		case err != nil:
			all = append(all, a.key()+": "+err.Error())
		case to == terms.ShaperPodweir && a.enforced == profiles.Yes:
			all = append(all, a.direction.String()+" limits have two shapers, podweir by the operator's word and "+b.others.By.Title()+": "+b.others.Why)
		case to != terms.ShaperPodweir && (to != b.others.By || a.enforced == profiles.No):
			all = append(all, "nobody enforces "+a.direction.String()+" limits: they are left to "+to.Title()+
				" by the operator's word, and it does not")
		}
	}
	return strings.Join(all, "; ")
}
