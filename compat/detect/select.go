// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package detect

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/podweir/podweir/compat/profiles"
)

func (r *reader) distribution() {
	n := r.node
	switch {
	case n.ConfDir == k3sConfDir:
		n.Facts[profiles.FactDistribution] = "k3s"
	case r.exists("var/lib/rancher/rke2") == profiles.Yes:
		n.Facts[profiles.FactDistribution] = "rke2"
	case r.exists("home/kubernetes/bin") == profiles.Yes:
		n.Facts[profiles.FactDistribution] = "gke"
	default:
		n.Facts[profiles.FactDistribution] = ""
	}
}

// policyAgent finds out whether the AWS Network Policy Agent enforces policy:
// its container runs on every node, and mostly does not.
func (r *reader) policyAgent(programs []string) {
	const flag = "--enable-network-policy="
	set := func(a profiles.Answer) { r.node.Facts[profiles.FactNPA] = a.String() }
	if p := r.node.Process("controller"); p != nil {
		for _, a := range p.Args {
			if value, ok := strings.CutPrefix(a, flag); ok {
				set(profiles.Is(value == "true"))
				return
			}
		}
	}
	switch {
	case slices.Contains(programs, "handle_ingress") || slices.Contains(programs, "handle_egress"):
		set(profiles.Yes)
	case r.node.Listens("/var/run/aws-node/npa.sock") == profiles.No && r.node.SeesNode() && programs != nil:
		set(profiles.No)
	}
}

func (r *reader) dataplane(programs []string) {
	bpf := slices.ContainsFunc(programs, func(name string) bool { return strings.HasPrefix(name, "cali_") })
	entries, err := fs.ReadDir(r.root, "sys/fs/bpf/tc/globals")
	pinned := slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return strings.HasPrefix(e.Name(), "cali_") })
	switch {
	case bpf:
		r.node.Facts[profiles.FactCalicoDataplane] = "bpf"
	case programs != nil:
		r.node.Facts[profiles.FactCalicoDataplane] = "tables"
	case pinned:
		r.node.Facts[profiles.FactCalicoDataplane] = "bpf"
	case err == nil || r.exists("sys/fs/bpf/tc/globals") == profiles.No && r.node.Kernel.BPFFS == profiles.Yes:
		r.node.Facts[profiles.FactCalicoDataplane] = "tables"
	}
}

func (r *reader) chainFacts() {
	n := r.node.Conf.Network()
	if n == nil || len(n.Plugins) == 0 {
		return
	}
	facts := r.node.Facts
	facts[profiles.FactNetwork] = n.Name
	var first struct {
		Bridge   string `json:"bridge"`
		Delegate struct {
			Type string `json:"type"`
		} `json:"delegate"`
	}
	// A plugin whose keys have other types has none of these.
	_ = json.Unmarshal(n.Plugins[0].Raw, &first)
	facts[profiles.FactBridge] = first.Bridge
	facts[profiles.FactFlannelDelegate] = first.Delegate.Type
	if n.Plugins[0].Type == "calico" && (strings.Contains(n.File, "canal") || r.node.Process("flanneld") != nil) {
		facts[profiles.FactFlannelDelegate] = "calico"
	}
}

func (r *reader) profile() (p *profiles.Profile, assumed bool, why string) {
	n := r.node.Conf.Network()
	if n == nil || len(n.Plugins) == 0 {
		return nil, false, "no network is in force"
	}
	p, assumed = Select(n.Types(), r.node.Facts)
	why = fmt.Sprintf("%s has the chain %s", n.File, strings.Join(n.Types(), ", "))
	var facts []string
	for _, c := range p.When {
		if value, known := r.node.Facts[c.Fact]; known {
			facts = append(facts, c.Fact+" is "+value)
		} else {
			facts = append(facts, c.Fact+" is not known")
		}
	}
	if len(facts) > 0 {
		why += "; " + strings.Join(facts, ", ")
	}
	return p, assumed, why
}

// Select picks the profile for a chain and the facts of a node. A fact that is
// not in the map is not known; if it would tell members of a family apart the
// careful one is taken and assumed is true. So it is if the facts fit none of the family
// that makes the interface: a later release has other words for them. A chain that no
// profile fits gets [profiles.Other].
func Select(chain []string, facts map[string]string) (p *profiles.Profile, assumed bool) {
	var sure, unsure []*profiles.Profile
	careful := profiles.Other()
	for _, p := range profiles.All() {
		if !inChain(p, chain) {
			continue
		}
		if p.Fallback && p.Plugins[0] != "*" {
			careful = p
		}
		switch fits(p, facts) {
		case profiles.Yes:
			sure = append(sure, p)
		case profiles.Unknown:
			unsure = append(unsure, p)
		case profiles.No:
		}
	}
	best := mostSpecific(sure)
	for _, p := range unsure {
		if best != nil && specificity(p) <= specificity(best) {
			continue
		}
		for _, f := range unsure {
			if f.Family == p.Family && f.Fallback {
				return f, true
			}
		}
		if best == nil {
			return mostSpecific(unsure), true
		}
	}
	if best == nil {
		return careful, true
	}
	return best, false
}

func inChain(p *profiles.Profile, chain []string) bool {
	if len(chain) == 0 || !slices.Contains(p.Plugins, chain[0]) && p.Plugins[0] != "*" {
		return false
	}
	for _, c := range p.Chained {
		if !slices.Contains(chain[1:], c) {
			return false
		}
	}
	return true
}

func fits(p *profiles.Profile, facts map[string]string) profiles.Answer {
	out := profiles.Yes
	for _, c := range p.When {
		switch value, known := facts[c.Fact]; {
		case !known:
			out = profiles.Unknown
		case value != c.Value:
			return profiles.No
		}
	}
	return out
}

// specificity orders profiles: a chained plugin says more than a condition, and
// a named first plugin more than any.
func specificity(p *profiles.Profile) int {
	n := len(p.When) + 10*len(p.Chained)
	if p.Plugins[0] == "*" {
		n -= 5
	}
	return n
}

func mostSpecific(list []*profiles.Profile) *profiles.Profile {
	var best *profiles.Profile
	for _, p := range list {
		if best == nil || specificity(p) > specificity(best) {
			best = p
		}
	}
	return best
}

func (r *reader) running(programs []string) []string {
	var out []string
	for _, p := range profiles.All() {
		if !slices.Contains(out, p.Family) && slices.ContainsFunc(p.Signals, func(s profiles.Signal) bool { return r.seen(s, programs) }) {
			out = append(out, p.Family)
		}
	}
	return out
}

func (r *reader) seen(s profiles.Signal, programs []string) bool {
	switch s.Kind {
	case profiles.SignalSocket:
		return r.node.Listens(s.Value) == profiles.Yes
	case profiles.SignalProcess:
		return r.node.Process(s.Value) != nil || s.Value == calicoNode && r.node.Calico.Runs == profiles.Yes
	case profiles.SignalDevice:
		return slices.Contains(r.node.Devices, s.Value)
	case profiles.SignalProgram:
		return slices.ContainsFunc(programs, func(name string) bool { return strings.HasPrefix(name, s.Value) })
	}
	return false
}
