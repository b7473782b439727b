// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/terms"
)

// beside is what of a node decides about podweir's entry in the chain.
type beside struct {
	// profile belongs to the CNI in force, nil without one.
	profile *profiles.Profile
	// runtimes are those whose pods need podweir elsewhere than it would be.
	runtimes profiles.Runtimes
	// others says who else enforces the annotations.
	others detect.Others
}

// entry returns podweir's entry in the chain beside a CNI: what its profile
// demands, who else shapes, and what the operator wants for all pods. The
// operator's word wins, except that a mode which the profile refuses is a
// an error. Without a profile the entry says nothing of where to attach:
// podweir decides for each interface.
//
// The same node and defaults give the same bytes.
func (b *beside) entry(defaults map[string]any) (raw []byte, notes []string, err error) {
	keys := map[string]any{}
	for key, value := range defaults {
		if !slices.Contains(netconf.Keys(), key) {
			return nil, nil, settingError("default", key, "a key of the plugin's configuration: "+strings.Join(netconf.Keys(), ", "), "")
		}
		keys[key] = value
	}
	if b.profile != nil {
		if err := checkModes(b.profile, keys); err != nil {
			return nil, nil, err
		}
	}
	notes = profiles.Fill(b.profile, b.runtimes, keys)
	notes = append(notes, b.shapers(keys)...)
	raw = []byte(strings.TrimSuffix(conflist.DefaultEntry, "}"))
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		value, err := json.Marshal(keys[key])
		if err != nil {
			return nil, nil, fmt.Errorf("encode default %s: %w", key, err)
		}
		raw = fmt.Appendf(raw, ",%q:%s", key, value)
	}
	raw = append(raw, '}')
	return raw, notes, accepted(raw)
}

// HandedEntry returns podweir's entry for a chain that the primary CNI writes itself,
// with the operator's defaults. All nodes have the same chain, and podweir cannot change
// it when another party changes how the CNI works. So the entry is made for the careful member
// of the CNI's family, or the node's own if that member refuses a default. It is "" if the
// defaults are not accepted.
func HandedEntry(node *detect.Node, defaults map[string]any) string {
	own := beside{profile: node.Profile, runtimes: node.Runtimes(), others: node.OtherShapers()}
	careful := own
	if own.profile != nil {
		careful.profile = own.profile.Careful()
	}
	for _, b := range []beside{careful, own} {
		if raw, _, err := b.entry(defaults); err == nil {
			return string(raw)
		}
	}
	return ""
}

// checkModes asks the judge about a mode of the operator's: the error says which the
// profile refuses.
func checkModes(p *profiles.Profile, keys map[string]any) error {
	for _, d := range []struct {
		key string
		at  *profiles.Attach
	}{{"egressMode", &p.Egress}, {"ingressMode", &p.Ingress}} {
		value, ok := keys[d.key]
		if !ok {
			value = keys["mode"]
		}
		named, _ := value.(string)
		mode, err := terms.ParseMode(named)
		if err != nil {
			continue // the plugin's own reading refuses it
		}
		rules := d.at.Rules()
		if err := rules.Mode(mode); err != nil {
			return settingError("default", d.key+"="+named, "another mode beside "+p.Title, err.Error())
		}
	}
	return nil
}

// accepted returns the plugin's own error for an entry that it would refuse, at
// the rates that any kind of queue accepts.
func accepted(raw []byte) error {
	input := map[string]any{}
	if err := json.Unmarshal(raw, &input); err != nil {
		return fmt.Errorf("podweir's entry: %w", err)
	}
	const rate = 1_000_000_000
	input["cniVersion"], input["name"] = "1.0.0", "podweir"
	input["prevResult"] = map[string]any{"cniVersion": "1.0.0"}
	input["runtimeConfig"] = map[string]any{"bandwidth": map[string]any{"ingressRate": rate, "egressRate": rate}}
	stdin, err := json.Marshal(input)
	if err != nil {
		return fmt.Errorf("podweir's entry: %w", err)
	}
	_, err = netconf.ParseStrict(netconf.Add, stdin)
	if err != nil {
		return fmt.Errorf("defaults of the node: %w", err)
	}
	return nil
}

// shaperOf is where the plugin reads who shapes a direction.
func shaperOf(d terms.Direction) (key string) { return d.String() + "Shaper" }

// shapers leaves the directions that Cilium's bandwidth manager enforces to it,
// unless the operator says who shapes. Where it is not known podweir shapes: two
// shapers keep a cap, none does not. Nobody else is left anything unasked: Calico's
// default burst is 343 MB, and what OVN-Kubernetes enforces was not tried.
func (b *beside) shapers(keys map[string]any) (notes []string) {
	var left, both []string
	for _, d := range terms.Directions {
		given := keys[shaperOf(d)] != nil || keys["shaper"] != nil
		switch {
		case b.others.Enforces(d) != profiles.Yes || given:
		case b.others.By == terms.ShaperCilium:
			keys[shaperOf(d)] = terms.ShaperCilium.String()
			left = append(left, d.String())
		default:
			both = append(both, d.String())
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
	for _, d := range terms.Directions {
		given := profiles.Chosen(defaults, shaperOf(d), "shaper")
		if given == "" {
			continue
		}
		to, err := terms.ParseShaper(given)
		enforced := b.others.Enforces(d)
		switch {
		case err != nil:
			all = append(all, shaperOf(d)+": "+err.Error())
		case to == terms.ShaperPodweir && enforced == profiles.Yes:
			all = append(all, d.String()+" limits have two shapers, podweir by the operator's word and "+b.others.By.Title()+": "+b.others.Why)
		case to != terms.ShaperPodweir && (to != b.others.By || enforced == profiles.No):
			all = append(all, "nobody enforces "+d.String()+" limits: they are left to "+to.Title()+
				" by the operator's word, and it does not")
		}
	}
	return strings.Join(all, "; ")
}
