// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery

import (
	"strings"
	"testing"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/terms"
)

// TestEntryBesideAnotherShaper goes from what Cilium's agent says to what the
// plugin makes of a pod's annotations.
func TestEntryBesideAnotherShaper(t *testing.T) {
	const on = profiles.Yes
	for name, tc := range map[string]struct {
		cilium   detect.Cilium
		defaults map[string]any
		// podweir are the directions that podweir shapes.
		podweir       string
		note, warning string
	}{
		"off":                   {cilium: detect.Cilium{API: true, BandwidthManager: profiles.No}, podweir: "egress ingress"},
		"nothing known":         {podweir: "egress ingress"},
		"both":                  {cilium: detect.Cilium{API: true, BandwidthManager: on, Version: "1.20.2", Routing: "BPF"}, note: "between pods of one node"},
		"before 1.18":           {cilium: detect.Cilium{API: true, BandwidthManager: on, Version: "1.17.9", Routing: "BPF"}, podweir: "ingress", note: "egress alone"},
		"version unknown":       {cilium: detect.Cilium{API: true, BandwidthManager: on, Routing: "BPF"}, podweir: "ingress", note: "version unknown"},
		"legacy host routing":   {cilium: detect.Cilium{API: true, BandwidthManager: on, Version: "1.20.2", Routing: "Legacy"}, podweir: "ingress", note: "host routing Legacy"},
		"chained on a veth":     {cilium: detect.Cilium{API: true, BandwidthManager: on, Version: "1.20.2", Routing: "BPF", ChainingMode: "generic-veth"}, podweir: "ingress", note: "generic-veth"},
		"chained, not known":    {cilium: detect.Cilium{API: true, BandwidthManager: on, Version: "1.20.2", Routing: "BPF", ChainingMode: "aws-cni"}, podweir: "ingress", note: "aws-cni"},
		"requested, not said":   {cilium: detect.Cilium{BandwidthConfigured: on}, podweir: "egress ingress", note: "does not say"},
		"requested, turned off": {cilium: detect.Cilium{API: true, BandwidthConfigured: on, BandwidthManager: profiles.No}, podweir: "egress ingress"},
		"given to podweir": {
			cilium: detect.Cilium{API: true, BandwidthManager: on, Version: "1.20.2", Routing: "BPF"}, defaults: map[string]any{"shaper": "podweir"},
			podweir: "egress ingress", note: "is on", warning: "egress limits have two shapers",
		},
		"one given to podweir": {
			cilium: detect.Cilium{API: true, BandwidthManager: on, Version: "1.20.2", Routing: "BPF"}, defaults: map[string]any{"ingressShaper": "podweir"},
			podweir: "ingress", note: "egress limits of pods are left", warning: "ingress limits have two shapers",
		},
		"given to nobody": {
			cilium: detect.Cilium{API: true, BandwidthManager: profiles.No}, defaults: map[string]any{"shaper": "cilium"},
			warning: "nobody enforces egress limits",
		},
		"given to who may": {cilium: detect.Cilium{}, defaults: map[string]any{"egressShaper": "cilium"}, podweir: "ingress"},
	} {
		t.Run(name, func(t *testing.T) {
			p := profiles.Find("cilium")
			node := detect.Node{Profile: p, Cilium: tc.cilium}
			b := beside{profile: p, others: node.OtherShapers()}
			raw, notes, err := b.entry(tc.defaults)
			if err != nil {
				t.Fatal(err)
			}
			if text := strings.Join(notes, "; "); !strings.Contains(text, tc.note) || tc.note == "" && text != "" {
				t.Errorf("notes %q, want %q", text, tc.note)
			}
			warning := b.dispute(tc.defaults)
			if !strings.Contains(warning, tc.warning) || tc.warning == "" && warning != "" {
				t.Errorf("warning %q, want %q", warning, tc.warning)
			}
			if got := shapedBy(t, raw); got != tc.podweir {
				t.Errorf("podweir shapes %q by %s, want %q", got, raw, tc.podweir)
			}
		})
	}
}

// TestEntryBesideFelix: podweir shapes beside it, says so, and leaves to it what the
// operator gives it.
func TestEntryBesideFelix(t *testing.T) {
	for name, tc := range map[string]struct {
		profile, version string
		defaults         map[string]any
		podweir          string
		note, warning    string
	}{
		"calico 3.31":       {profile: "calico", version: "v3.31.2", podweir: "egress ingress", note: "egress and ingress limits of pods have two shapers"},
		"calico 3.29":       {profile: "calico", version: "v3.29.1", podweir: "egress ingress"},
		"calico, unknown":   {profile: "canal", podweir: "egress ingress", note: "which release of Calico runs is not known"},
		"on AWS":            {profile: "aws-vpc-cni-calico", version: "v3.31.2", podweir: "egress ingress", note: `qos.projectcalico.org/ingressBandwidth: "1P"`},
		"given to Calico":   {profile: "calico", version: "v3.31.2", defaults: map[string]any{"shaper": "calico"}, note: "Calico v3.31.2 enforces"},
		"one of them":       {profile: "calico", version: "v3.31.2", defaults: map[string]any{"egressShaper": "calico"}, podweir: "ingress", note: "ingress limits of pods have two shapers"},
		"given to podweir":  {profile: "calico", version: "v3.31.2", defaults: map[string]any{"shaper": "podweir"}, podweir: "egress ingress", note: "Calico", warning: "egress limits have two shapers, podweir by the operator's word and Calico"},
		"given to 3.29":     {profile: "calico", version: "v3.29.1", defaults: map[string]any{"shaper": "calico"}, warning: "nobody enforces egress limits: they are left to Calico"},
		"given to who may":  {profile: "calico", defaults: map[string]any{"shaper": "calico"}, note: "is not known"},
		"given to Cilium":   {profile: "calico", version: "v3.31.2", defaults: map[string]any{"shaper": "cilium"}, note: "Calico", warning: "nobody enforces egress limits: they are left to Cilium's bandwidth manager"},
		"OVN-Kubernetes":    {profile: "ovn-kubernetes", podweir: "egress ingress", note: "egress and ingress limits of pods have two shapers; give such pods podweir.io/ingress-rate"},
		"given to OVN":      {profile: "ovn-kubernetes", defaults: map[string]any{"shaper": "ovn"}, note: "OVN-Kubernetes enforces"},
		"OVN, not here":     {profile: "ptp", defaults: map[string]any{"shaper": "ovn"}, warning: "nobody enforces egress limits: they are left to OVN-Kubernetes"},
		"Calico beside ptp": {profile: "ptp", defaults: map[string]any{"ingressShaper": "calico"}, podweir: "egress", warning: "nobody enforces ingress limits: they are left to Calico"},
	} {
		t.Run(name, func(t *testing.T) {
			p := profiles.Find(tc.profile)
			node := detect.Node{Profile: p, Calico: detect.Calico{Version: tc.version, Dataplane: "tables"}}
			if p.Family == "calico" || p.Family == "aws" {
				node.Calico.Runs = profiles.Yes
			}
			b := beside{profile: p, others: node.OtherShapers()}
			raw, notes, err := b.entry(tc.defaults)
			if err != nil {
				t.Fatal(err)
			}
			if text := strings.Join(notes, "; "); !strings.Contains(text, tc.note) || tc.note == "" && text != "" {
				t.Errorf("notes %q, want %q", text, tc.note)
			}
			if warning := b.dispute(tc.defaults); !strings.Contains(warning, tc.warning) || tc.warning == "" && warning != "" {
				t.Errorf("warning %q, want %q", warning, tc.warning)
			}
			if got := shapedBy(t, raw); got != tc.podweir {
				t.Errorf("podweir shapes %q by %s, want %q", got, raw, tc.podweir)
			}
			if felix := `"hostHook":"tcx","ingressPlace":"prefer-ifb"`; strings.Contains(string(raw), felix) != (tc.profile != "ptp") {
				t.Errorf("entry %s, want %s in it beside who owns the host side's queue alone", raw, felix)
			}
		})
	}
}

// shapedBy lists the directions of which podweir shapes what a pod asks for.
func shapedBy(t *testing.T, raw []byte) string {
	t.Helper()
	stdin := strings.TrimSuffix(string(raw), "}") + `,"cniVersion":"1.0.0","name":"n","runtimeConfig":{"io.kubernetes.cri.pod-annotations":` +
		`{"kubernetes.io/ingress-bandwidth":"10M","kubernetes.io/egress-bandwidth":"20M"}}}`
	conf, err := netconf.Parse(netconf.Status, []byte(stdin))
	if err != nil {
		t.Fatal(err)
	}
	var shaped []string
	for _, d := range terms.Directions {
		if conf.Shaping.Limit(d) != nil {
			shaped = append(shaped, d.String())
		}
	}
	if len(shaped)+len(conf.Shaping.Deferred) != len(terms.Directions) {
		t.Errorf("%s: shaped %v, left to others %v, want every limit in one of them", raw, shaped, conf.Shaping.Deferred)
	}
	return strings.Join(shaped, " ")
}

// TestOtherShapersOfThePrimary: an agent of Cilium's that is not in the chain
// shapes no pod of it.
func TestOtherShapersOfThePrimary(t *testing.T) {
	node := detect.Node{Profile: profiles.Find("flannel"), Cilium: detect.Cilium{BandwidthManager: profiles.Yes, Version: "1.20.2", Routing: "BPF"}}
	if others := node.OtherShapers(); others.Egress == profiles.Yes || others.Ingress == profiles.Yes {
		t.Errorf("OtherShapers() = %+v beside flannel, want none", others)
	}
	raw, _, err := (&beside{profile: node.Profile, others: node.OtherShapers()}).entry(nil)
	if err != nil || string(raw) != conflist.DefaultEntry {
		t.Errorf("entry() = %s, %v, want %s", raw, err, conflist.DefaultEntry)
	}
}
