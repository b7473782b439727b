// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"strings"
	"testing"

	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// A filter on the host side is refused beside every Cilium with the same sentence:
// by ADD, CHECK and the agent, which all decide so, and by hand. The delivery and the
// doctor are held to it in their own packages.
func TestOneRefusal(t *testing.T) {
	told := judge.Rules{HostTCX: true}
	sentence := told.Mode(terms.ModeClsactHostSide).Error()
	seen := 0
	for _, p := range profiles.All() {
		if p.Family != "cilium" {
			continue
		}
		seen++
		t.Run(p.Name, func(t *testing.T) {
			if !p.NoHostFilter() {
				t.Fatal("the entry would not have hostHook tcx")
			}
			for direction, key := range map[terms.Direction]string{terms.Egress: "egressMode", terms.Ingress: "ingressMode"} {
				cfg, err := netconf.ParseStrict(netconf.Add, []byte(`{"cniVersion":"1.0.0","name":"n","type":"podweir-cni","hostHook":"tcx","`+key+`":"clsact-hostside",`+
					`"egressRate":"10M","ingressRate":"10M","prevResult":{"cniVersion":"1.0.0"}}`))
				if err != nil {
					t.Fatal(err)
				}
				req := &attach.Request{Config: &cfg.Shaping, Facts: shaping.Facts{TBF: true, Prio: true, FQ: true, IFB: true, MTU: 1500}, TCX: true, Random: shaping.RandomMajor}
				req.Strict = true
				if _, _, err := attach.Decide(req, nobodyThere()); err == nil || !strings.Contains(err.Error(), direction.String()+": "+sentence) {
					t.Errorf("by name: %v, want %q", err, sentence)
				}
				req.Strict = false
				want, _, err := attach.Decide(req, nobodyThere())
				if err != nil {
					t.Fatal(err)
				}
				if all := strings.Join(want.Directions[direction].Params.Declined, "; "); !strings.Contains(all, sentence) {
					t.Errorf("what was declined is %q, want %q", all, sentence)
				}
				if want.Directions[direction].Params.Mode == terms.ModeClsactHostSide {
					t.Error("it is a filter on the host side all the same")
				}
				cfg.Shaping.HostTCX = false // by hand nobody wrote an entry
				if err := heed(p, &cfg.Shaping, false); err == nil || !strings.Contains(err.Error(), direction.String()+": "+sentence) {
					t.Errorf("by hand: %v, want %q", err, sentence)
				}
			}
		})
	}
	if seen != 8 {
		t.Errorf("%d profiles of Cilium, want 8", seen)
	}
}

func nobodyThere() *attach.Observed {
	return &attach.Observed{Devices: map[terms.Side]*attach.Device{
		terms.SidePod: {Exists: true, Name: "eth0", Index: 2}, terms.SideHost: {Exists: true, Name: "lxc1", Index: 3},
	}}
}

// By hand, too, nothing is a filter on the host side where that is ruled out, unless the
// operator says so.
func TestHeed(t *testing.T) {
	for name, tc := range map[string]struct {
		profile *profiles.Profile
		given   bool
		want    bool
	}{
		"no CNI":            {nil, false, false},
		"Cilium":            {profiles.Find("cilium"), false, true},
		"Cilium, his word":  {profiles.Find("cilium"), true, false},
		"nobody is against": {profiles.Find("ptp"), false, false},
	} {
		cfg := shaping.Config{Egress: &shaping.Limit{Mode: terms.ModeAuto}}
		if err := heed(tc.profile, &cfg, tc.given); err != nil || cfg.HostTCX != tc.want {
			t.Errorf("%s: HostTCX %v, %v, want %v", name, cfg.HostTCX, err, tc.want)
		}
	}
}
