// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine

import (
	"encoding/json"
	"slices"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// Lacking returns what the entry of the conflist requests by name and no pod of this
// node can have, whatever its rate: the kernel lacks it.
func (p Paths) Lacking(entry json.RawMessage) ([]string, error) {
	conf := map[string]any{}
	if err := json.Unmarshal(entry, &conf); err != nil {
		return nil, err
	}
	// A pod that asks for both directions, for as much as there is.
	conf["prevResult"] = map[string]any{}
	conf["runtimeConfig"] = map[string]any{"bandwidth": map[string]any{"ingressRate": uint64(units.MaxRate), "egressRate": uint64(units.MaxRate)}}
	in, err := json.Marshal(conf)
	if err != nil {
		return nil, err
	}
	cfg, err := netconf.Parse(netconf.Add, in)
	if err != nil {
		return nil, err
	}
	k := &kernel{paths: p}
	facts, tcx, err := k.Facts(attach.Interface{Kind: terms.DeviceVeth, MTU: 1500})
	if err != nil {
		return nil, err
	}
	cfg.Shaping.Observe = false
	var all []string
	for _, d := range terms.Directions {
		l := cfg.Shaping.Limit(d)
		if l == nil {
			continue
		}
		l.Rate = units.MaxRate // the fleet's maximum may be less
		for _, why := range lacking(&cfg.Shaping, d, facts, tcx) {
			if !slices.Contains(all, why) {
				all = append(all, why)
			}
		}
	}
	return all, nil
}

func lacking(cfg *shaping.Config, d terms.Direction, facts shaping.Facts, tcx bool) []string {
	params, err := shaping.Compute(cfg, d, facts, shaping.RandomMajor)
	if err != nil {
		return []string{err.Error()}
	}
	all := params.Declined
	if params.HookKind == terms.HookKindTCX && !tcx {
		all = append(all, "not the mode "+params.Mode.String()+": the kernel has no TCX")
	}
	return all
}
