// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// parse reads an entry as the plugin does, at a rate in bits per second.
func parse(t *testing.T, raw []byte, rate int) *netconf.Config {
	t.Helper()
	input := map[string]any{}
	must.OK(t, json.Unmarshal(raw, &input))
	input["cniVersion"], input["name"] = "1.0.0", "n"
	input["prevResult"] = map[string]any{"cniVersion": "1.0.0"}
	input["runtimeConfig"] = map[string]any{"bandwidth": map[string]int{"ingressRate": rate, "egressRate": rate}}
	cfg := must.Get(netconf.Parse(netconf.Add, must.Get(json.Marshal(input))(t)))(t)
	must.Len(t, "warnings of "+string(raw), 0, cfg.Warnings)
	return cfg
}

// TestEntries holds the entry of every profile to the plugin's own reading, and
// to what the profile demands.
func TestEntries(t *testing.T) {
	for _, p := range append(profiles.All(), profiles.Other()) {
		t.Run(p.Name, func(t *testing.T) {
			raw, _, err := (&beside{profile: p}).entry(nil)
			must.OK(t, err)
			again, _, _ := (&beside{profile: p}).entry(nil)
			must.Be(t, "entry() again", string(raw), string(again))
			want := terms.PlaceAuto
			if p.Ingress.Place.Is == terms.PlaceIFB {
				want = terms.PlacePreferIFB
			}
			_, noFilter := p.Egress.Refused[terms.Name(terms.ModeClsactHostSide)]
			must.Be(t, "only TCX at the host side by "+string(raw), noFilter, parse(t, raw, 1_000_000).Shaping.HostTCX)
			for _, rate := range []int{1_000_000, 10_000_000_000} {
				in := parse(t, raw, rate).Shaping.Ingress
				if in == nil || in.Place != want {
					t.Errorf("%s: ingress %+v, want the place %v: %s", raw, in, want, p.Ingress.Why)
				}
			}
			n := must.Get(conflist.Parse("10-x.conflist", []byte(`{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"ptp"}]}`)))(t)
			must.OK(t, must.Err(conflist.Join(n, raw, nil, nil)))
		})
	}
}

func TestEntryWithDefaults(t *testing.T) {
	cilium := profiles.Find("cilium")
	for name, tc := range map[string]struct {
		profile  *profiles.Profile
		defaults map[string]any
		want     string
		note     string
	}{
		"settings": {
			profiles.Find("ptp"),
			map[string]any{"policy": "elephants", "lightShare": "80%", "replaceQdisc": true},
			`"lightShare":"80%","policy":"elephants","replaceQdisc":true`,
			"",
		},
		"beside the profile's": {cilium, map[string]any{"horizon": "20ms"}, `"horizon":"20ms","hostHook":"tcx","ingressPlace":"prefer-ifb"`, ""},
		"instead of it":        {cilium, map[string]any{"ingressPlace": "host"}, `"hostHook":"tcx","ingressPlace":"host"`, "may go past"},
		"a hook of the host's": {profiles.Find("calico-ebpf"), map[string]any{"mode": "tcx-hostside"}, `"hostHook":"tcx","mode":"tcx-hostside"`, "may go past"},
		"a hook of the pod's":  {cilium, map[string]any{"ingressMode": "tcx-podside"}, `"hostHook":"tcx","ingressMode":"tcx-podside"`, ""},
		"own queues by name":   {cilium, map[string]any{"mode": "qdisc"}, `"hostHook":"tcx","ingressPlace":"prefer-ifb","mode":"qdisc"`, ""},
		"auto by name":         {cilium, map[string]any{"mode": "auto", "ingressPlace": "auto"}, `"hostHook":"tcx","ingressPlace":"prefer-ifb","mode":"auto"`, ""},
		"the ifb by name":      {cilium, map[string]any{"ingressPlace": "ifb"}, `"hostHook":"tcx","ingressPlace":"ifb"`, ""},
		"policing":             {cilium, map[string]any{"queue": "none"}, `"hostHook":"tcx","ingressPlace":"prefer-ifb","queue":"none"`, ""},
		"a filter by name":     {cilium, map[string]any{"hostHook": "auto", "ingressPlace": "host"}, `"hostHook":"auto","ingressPlace":"host"`, "may go past"},
	} {
		t.Run(name, func(t *testing.T) {
			raw, notes, err := (&beside{profile: tc.profile}).entry(tc.defaults)
			must.OK(t, err)
			must.Be(t, "what entry() adds", ","+tc.want+"}", strings.TrimPrefix(string(raw), strings.TrimSuffix(conflist.DefaultEntry, "}")))
			must.Part(t, "notes", tc.note, strings.Join(notes, " "))
			parse(t, raw, 100_000_000)
		})
	}
}

// The handlers of the node's container runtime decide where podweir may attach, unless the
// operator does.
func TestEntryBesideSandboxedRuntimes(t *testing.T) {
	kata, gvisor := profiles.Runtimes{Redirects: true, TCX: profiles.Yes}, profiles.Runtimes{GVisor: true, TCX: profiles.Yes}
	old := func(r profiles.Runtimes) profiles.Runtimes { r.TCX = profiles.No; return r }
	const atHost = `"hostHook":"tcx","ingressMode":"tcx-hostside","ingressQueue":"none"`
	for name, tc := range map[string]struct {
		profile  string
		runtimes profiles.Runtimes
		defaults map[string]any
		want     string
	}{
		"Kata":                           {"ptp", kata, nil, `"podHook":"tcx"`},
		"Kata without a CNI":             {"", kata, nil, `"podHook":"tcx"`},
		"Kata, auto by name":             {"ptp", kata, map[string]any{"podHook": "auto"}, `"podHook":"tcx"`},
		"Kata, the operator's word":      {"ptp", kata, map[string]any{"podHook": "clsact"}, `"podHook":"clsact"`},
		"Kata, a filter by name":         {"ptp", kata, map[string]any{"mode": "clsact-podside"}, `"mode":"clsact-podside"`},
		"Kata before TCX":                {"flannel", old(kata), nil, ""},
		"Kata, not known whether TCX":    {"flannel", profiles.Runtimes{Redirects: true}, nil, ""},
		"Kata beside Cilium":             {"cilium", kata, nil, `"hostHook":"tcx","ingressPlace":"prefer-ifb","podHook":"tcx"`},
		"gVisor, the host side anyway":   {"ptp", gvisor, nil, ""},
		"gVisor beside Felix":            {"calico", gvisor, nil, atHost},
		"gVisor, the operator's place":   {"calico", gvisor, map[string]any{"ingressPlace": "ifb"}, `"hostHook":"tcx","ingressPlace":"ifb"`},
		"gVisor, the operator's queue":   {"calico", gvisor, map[string]any{"queue": "tbf"}, `"hostHook":"tcx","ingressPlace":"prefer-ifb","queue":"tbf"`},
		"gVisor beside Felix before TCX": {"calico", old(gvisor), nil, `"hostHook":"tcx","ingressPlace":"prefer-ifb"`},
		"gVisor where all go past":       {"cilium", gvisor, nil, `"hostHook":"tcx","ingressPlace":"prefer-ifb"`},
		"gVisor, legacy host routing":    {"cilium-legacy-routing", gvisor, nil, `"hostHook":"tcx"`},
		"both":                           {"calico", profiles.Runtimes{Redirects: true, GVisor: true, TCX: profiles.Yes}, nil, atHost + `,"podHook":"tcx"`},
	} {
		raw, _, err := (&beside{profile: profiles.Find(tc.profile), runtimes: tc.runtimes}).entry(tc.defaults)
		must.OK(t, err)
		got := strings.TrimSuffix(strings.TrimPrefix(string(raw), strings.TrimSuffix(conflist.DefaultEntry, "}")), "}")
		must.Be(t, name+": what entry() adds", tc.want, strings.TrimPrefix(got, ","))
		parse(t, raw, 100_000_000)
	}
}

// TestEntryPlacesTheQueue: ingress never ends up where packets go past it.
func TestEntryPlacesTheQueue(t *testing.T) {
	for name, tc := range map[string]struct {
		defaults map[string]any
		ifb      bool
		want     string
	}{
		"a queue":                  {nil, true, "tbf on ifb"},
		"a queue, no ifb":          {nil, false, "none on pod"},
		"the node polices":         {map[string]any{"queue": "none"}, true, "none on pod"},
		"the node polices, no ifb": {map[string]any{"queue": "none"}, false, "none on pod"},
		"the ifb by name, no ifb":  {map[string]any{"ingressPlace": "ifb"}, false, "there is no ifb"},
		"own queues, no ifb":       {map[string]any{"mode": "qdisc"}, false, "there is no ifb"},
		"own queues by name":       {map[string]any{"mode": "qdisc"}, true, "tbf on ifb"},
	} {
		raw, _, err := (&beside{profile: profiles.Find("cilium")}).entry(tc.defaults)
		must.OK(t, err)
		stdin := strings.TrimSuffix(string(raw), "}") + `,"cniVersion":"1.0.0","name":"n","runtimeConfig":{"io.kubernetes.cri.pod-annotations":` +
			`{"kubernetes.io/ingress-bandwidth":"10M"}}}`
		conf, err := netconf.Parse(netconf.Status, []byte(stdin))
		got := fmt.Sprint(err)
		if err == nil {
			params, err := shaping.Compute(&conf.Shaping, terms.Ingress,
				shaping.Facts{TBF: true, MTU: 1500, IFB: tc.ifb, NoIFB: "there is no ifb"}, shaping.RandomMajor)
			if got = fmt.Sprint(err); err == nil {
				got = fmt.Sprintf("%v on %v", params.Queue, params.Side)
			}
		}
		must.Have(t, name, got, tc.want)
	}
}

// TestHandedEntry: the commands for a chain that the CNI writes itself have the
// entry of that member of the family which is careful.
func TestHandedEntry(t *testing.T) {
	commands := 0
	for _, p := range profiles.All() {
		if len(p.Conflist.HandedDo) == 0 {
			continue
		}
		careful := p
		for _, other := range profiles.All() {
			if other.Family == p.Family && other.Fallback {
				careful = other
			}
		}
		raw, _, err := (&beside{profile: careful}).entry(nil)
		must.OK(t, err)
		must.Be(t, p.Name+": HandedEntry(), that of "+careful.Name, string(raw), HandedEntry(&detect.Node{Profile: p}, nil))
		commands++
		must.Have(t, p.Name, p.Conflist.HandedDo[0], ".plugins += ["+string(raw)+"]")
		must.Have(t, p.Name, p.Conflist.HandedAgainDo[0], " = "+string(raw)+"'")
		must.Be(t, p.Name+": a ConfigMap is made and named", 2, strings.Count(strings.Join(p.Conflist.HandedDo, "\n"), "podweir-cni-configuration"))
	}
	if commands == 0 {
		t.Error("no CNI takes a chain from others")
	}
}

// TestHandedEntryWithDefaults: the operator's defaults are in the entry for a chain that
// the CNI writes, beside what suits every member of its family.
func TestHandedEntryWithDefaults(t *testing.T) {
	for name, tc := range map[string]struct {
		defaults map[string]any
		want     string
	}{
		"beside the profile's": {map[string]any{"onError": "closed", "maxRate": "1G"}, `"hostHook":"tcx","ingressPlace":"prefer-ifb","maxRate":"1G","onError":"closed"`},
		"a list":               {map[string]any{"podAnnotations": []string{"policy"}}, `"hostHook":"tcx","ingressPlace":"prefer-ifb","podAnnotations":["policy"]`},
		// Beside BPF host routing this mode is refused.
		"only the node takes it": {map[string]any{"ingressMode": "tcx-hostside"}, `"hostHook":"tcx","ingressMode":"tcx-hostside"`},
		"nobody takes it":        {map[string]any{"maxRate": "much"}, ""},
	} {
		want := ""
		if tc.want != "" {
			want = strings.TrimSuffix(conflist.DefaultEntry, "}") + "," + tc.want + "}"
		}
		must.Be(t, name+": HandedEntry()", want, HandedEntry(&detect.Node{Profile: profiles.Find("cilium-legacy-routing")}, tc.defaults))
	}
}

func TestEntryRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		profile  string
		defaults map[string]any
		want     []string
	}{
		"unknown key":         {"ptp", map[string]any{"lightshare": "80%"}, []string{"lightshare", "lightShare"}},
		"a key of the entry":  {"ptp", map[string]any{"type": "x"}, []string{`"type"`}},
		"bad value":           {"ptp", map[string]any{"lightShare": "200%"}, []string{"lightShare", "200%"}},
		"bad even unused":     {"ptp", map[string]any{"horizon": "1h"}, []string{"horizon", "1h"}},
		"contradiction":       {"ptp", map[string]any{"ingressMode": "tcx-podside", "ingressPlace": "ifb"}, []string{"ingressPlace"}},
		"the profile refuses": {"aws-vpc-cni-npa", map[string]any{"egressMode": "clsact-hostside"}, []string{"clsact-hostside", "Network Policy Agent"}},
		"packets go past it":  {"cilium", map[string]any{"mode": "tcx-hostside"}, []string{"ingressMode=tcx-hostside", "Cilium"}},
		"by the common mode":  {"cilium", map[string]any{"mode": "clsact-hostside"}, []string{"clsact-hostside", "Cilium"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := (&beside{profile: profiles.Find(tc.profile)}).entry(tc.defaults)
			must.Fail(t, "entry()", err, tc.want...)
		})
	}
}

func TestChoose(t *testing.T) {
	cilium, ptp := profiles.Find("cilium"), profiles.Find("ptp")
	old, recent := conflist.Runtime{Name: "containerd", Version: "1.6.36"}, conflist.Runtime{Name: "containerd", Version: "2.1.3"}
	unwritable := conflist.Situation{Exclusive: profiles.No, Profile: ptp, Runtime: recent, Writable: profiles.No, Obstacle: "/opt/cni/bin cannot be written: read-only file system"}
	for name, tc := range map[string]struct {
		asked     profiles.Delivery
		s         conflist.Situation
		want      profiles.Delivery
		why, warn string
		refused   string
	}{
		"auto, read-only":            {asked: Auto, s: unwritable, want: profiles.NRI, why: "read-only"},
		"what auto says":             {asked: profiles.Chain, s: conflist.Situation{Exclusive: profiles.No, Profile: ptp}, want: profiles.Chain, why: "requested"},
		"drop-in":                    {asked: profiles.DropIn, s: conflist.Situation{Exclusive: profiles.No, Profile: ptp, Runtime: recent}, want: profiles.DropIn, why: "requested; containerd 2.1.3 reads drop-ins"},
		"chain":                      {asked: profiles.Chain, s: conflist.Situation{Exclusive: profiles.No, Profile: ptp, Runtime: recent}, want: profiles.Chain, why: "would choose drop-in"},
		"chain, several networks":    {asked: profiles.Chain, s: conflist.Situation{Exclusive: profiles.No, Profile: ptp, Runtime: recent, Several: true}, refused: "max_conf_num"},
		"chain, another is first":    {asked: profiles.Chain, s: conflist.Situation{Exclusive: profiles.No, Profile: ptp, Runtime: recent, Original: &conflist.Network{File: "00-hybridnet.conflist"}}, refused: "sorts before"},
		"drop-in, old runtime":       {asked: profiles.DropIn, s: conflist.Situation{Exclusive: profiles.No, Profile: ptp, Runtime: old}, refused: "1.6.36 ignores"},
		"drop-in, who knows":         {asked: profiles.DropIn, s: conflist.Situation{Exclusive: profiles.No, Profile: ptp}, want: profiles.DropIn, warn: "not known"},
		"drop-in, closed":            {asked: profiles.DropIn, s: conflist.Situation{Exclusive: profiles.No, Profile: ptp, Runtime: recent, Original: &conflist.Network{File: "f", OnlyInlined: true}}, refused: "loadOnlyInlinedPlugins"},
		"chain, exclusive":           {asked: profiles.Chain, s: conflist.Situation{Profile: cilium, Runtime: recent, Exclusive: profiles.Yes}, refused: "cni.exclusive=false"},
		"chain, perhaps":             {asked: profiles.Chain, s: conflist.Situation{Profile: cilium, Runtime: recent}, want: profiles.Chain, warn: "is not known"},
		"chain, read-only":           {asked: profiles.Chain, s: unwritable, refused: "/opt/cni/bin cannot be written"},
		"handed":                     {asked: profiles.Handed, s: conflist.Situation{Profile: cilium, Runtime: recent, Exclusive: profiles.Yes}, want: profiles.Handed},
		"handed to who takes none":   {asked: profiles.Handed, s: conflist.Situation{Exclusive: profiles.No, Profile: ptp}, refused: "does not take a chain"},
		"nri":                        {asked: profiles.NRI, s: conflist.Situation{Exclusive: profiles.No, Profile: ptp, Runtime: recent}, want: profiles.NRI, why: "requested"},
		"watch":                      {asked: profiles.Watch, s: conflist.Situation{Exclusive: profiles.No, Profile: ptp, Runtime: old}, want: profiles.Watch, why: "would choose chain", warn: "without its limit"},
		"watch, read-only":           {asked: profiles.Watch, s: unwritable, want: profiles.Watch, why: "would choose nri", warn: "without its limit"},
		"nri, runtime without":       {asked: profiles.NRI, s: conflist.Situation{Exclusive: profiles.No, Profile: ptp, Runtime: old}, refused: "1.6.36 has no NRI"},
		"auto, read-only, no NRI":    {asked: Auto, s: conflist.Situation{Exclusive: profiles.No, Profile: ptp, Runtime: old, Writable: profiles.No}, want: profiles.Watch, warn: "without its limit"},
		"auto, read-only, may be on": {asked: Auto, s: conflist.Situation{Exclusive: profiles.No, Profile: ptp, Writable: profiles.No}, want: profiles.NRI, warn: "not known"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := choose(tc.asked, tc.s)
			if tc.refused != "" {
				must.Fail(t, "choose()", err, tc.refused)
				return
			}
			if err != nil || got.Delivery != tc.want || !strings.Contains(got.Why, tc.why) {
				t.Errorf("choose() = %+v, %v, want %s because %q", got, err, tc.want, tc.why)
			}
			must.Part(t, "warning", tc.warn, got.Warning)
		})
	}
}

// entryBeside checks which directions podweir's entry on a node shapes, and its note and warning.
func entryBeside(t *testing.T, node *detect.Node, defaults map[string]any, directions, note, warning string) []byte {
	t.Helper()
	b := beside{profile: node.Profile, others: node.OtherShapers()}
	raw, notes, err := b.entry(defaults)
	must.OK(t, err)
	must.Part(t, "notes", note, strings.Join(notes, "; "))
	must.Part(t, "warning", warning, b.dispute(defaults))
	must.Be(t, "directions that podweir shapes by "+string(raw), directions, shapedBy(t, raw))
	return raw
}

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
			entryBeside(t, &detect.Node{Profile: profiles.Find("cilium"), Cilium: tc.cilium}, tc.defaults, tc.podweir, tc.note, tc.warning)
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
			raw := entryBeside(t, &node, tc.defaults, tc.podweir, tc.note, tc.warning)
			must.Be(t, "who owns the host side's queue alone in "+string(raw), tc.profile != "ptp", strings.Contains(string(raw), `"hostHook":"tcx","ingressPlace":"prefer-ifb"`))
		})
	}
}

// shapedBy lists the directions of which podweir shapes what a pod asks for.
func shapedBy(t *testing.T, raw []byte) string {
	t.Helper()
	stdin := strings.TrimSuffix(string(raw), "}") + `,"cniVersion":"1.0.0","name":"n","runtimeConfig":{"io.kubernetes.cri.pod-annotations":` +
		`{"kubernetes.io/ingress-bandwidth":"10M","kubernetes.io/egress-bandwidth":"20M"}}}`
	conf := must.Get(netconf.Parse(netconf.Status, []byte(stdin)))(t)
	var shaped []string
	for _, d := range terms.Directions {
		if conf.Shaping.Limit(d) != nil {
			shaped = append(shaped, d.String())
		}
	}
	must.Be(t, "limits that are shaped or left to others by "+string(raw), len(terms.Directions), len(shaped)+len(conf.Shaping.Deferred))
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
	must.OK(t, err)
	must.Be(t, "entry()", conflist.DefaultEntry, string(raw))
}
