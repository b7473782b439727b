// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package detect_test

import (
	"strings"
	"testing"

	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/terms"
)

// TestRemembering: an agent that is being restarted has not changed its mind;
// one that answers, or is configured otherwise, has.
func TestRemembering(t *testing.T) {
	on := detect.Cilium{API: true, BandwidthManager: profiles.Yes, Version: "1.20.2", Routing: "BPF"}
	for name, tc := range map[string]struct {
		now  detect.Cilium
		want detect.Others
	}{
		"silent":                {detect.Cilium{}, detect.Others{Egress: profiles.Yes, Ingress: profiles.Yes}},
		"silent, still asked":   {detect.Cilium{BandwidthConfigured: profiles.Yes}, detect.Others{Egress: profiles.Yes, Ingress: profiles.Yes}},
		"silent, not asked now": {detect.Cilium{BandwidthConfigured: profiles.No}, detect.Others{Egress: profiles.No, Ingress: profiles.No}},
		"says off":              {detect.Cilium{API: true, BandwidthManager: profiles.No}, detect.Others{Egress: profiles.No, Ingress: profiles.No}},
		"says nothing of it":    {detect.Cilium{API: true}, detect.Others{}},
		"is older":              {detect.Cilium{API: true, BandwidthManager: profiles.Yes, Version: "1.17.2", Routing: "BPF"}, detect.Others{Egress: profiles.Yes, Ingress: profiles.No}},
	} {
		now := tc.now
		now.Remembering(&on)
		got := now.EnforcesAnnotations()
		got.Why = ""
		if got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

// TestWhoPolicesIngress: the release has to know the annotation, and packets have
// to meet the policer.
func TestWhoPolicesIngress(t *testing.T) {
	const yes, no, unknown = profiles.Yes, profiles.No, profiles.Unknown
	for _, tc := range []struct {
		version, routing, chaining string
		want                       profiles.Answer
	}{
		{"1.18.0", "BPF", "none", yes},
		{"v1.18.4", "BPF", "", yes},
		{"1.19.0-dev", "BPF", "portmap", yes},
		{"2.0.0", "BPF", "none", yes},
		{"1.17.9", "BPF", "none", no},
		{"1.9.1", "BPF", "none", no},
		{"0.30.0", "", "aws-cni", no},
		{"1.20.2", "Legacy", "none", no},
		{"", "Legacy", "none", no},
		{"1.20.2", "BPF", "generic-veth", no},
		{"1.20.2", "BPF", "aws-cni", unknown},
		{"1.20.2", "", "none", unknown},
		{"", "BPF", "none", unknown},
		{"1", "BPF", "none", unknown},
		{"master", "BPF", "none", unknown},
		{"1.x", "BPF", "none", unknown},
	} {
		c := detect.Cilium{API: true, BandwidthManager: yes, Version: tc.version, Routing: tc.routing, ChainingMode: tc.chaining}
		if got := c.EnforcesAnnotations(); got.Ingress != tc.want || got.Egress != yes || got.Why == "" {
			t.Errorf("%+v: %+v, want ingress %v, and why", tc, got, tc.want)
		}
	}
}

// TestWhetherFelixEnforces: by the release, or by what it leaves on the node.
func TestWhetherFelixEnforces(t *testing.T) {
	const yes, no, unknown = profiles.Yes, profiles.No, profiles.Unknown
	for name, tc := range map[string]struct {
		calico detect.Calico
		want   profiles.Answer
		why    string
	}{
		"3.30":                  {detect.Calico{Version: "v3.30.0", Dataplane: "tables"}, yes, "Calico v3.30.0 enforces"},
		"3.29":                  {detect.Calico{Version: "v3.29.6", Dataplane: "tables"}, no, ""},
		"4.0, dataplane hidden": {detect.Calico{Version: "v4.0.0"}, yes, "v4.0.0"},
		"release hidden":        {detect.Calico{Dataplane: "tables"}, unknown, "which release"},
		"release hidden, acts":  {detect.Calico{Dataplane: "tables", Limits: true}, yes, "Calico enforces"},
		"eBPF":                  {detect.Calico{Version: "v3.31.2", Dataplane: "bpf"}, unknown, "where that uses TCX"},
		"eBPF, acts":            {detect.Calico{Version: "v3.31.2", Dataplane: "bpf", Limits: true}, yes, "Calico v3.31.2 enforces"},
		"eBPF, 3.29":            {detect.Calico{Version: "v3.29.6", Dataplane: "bpf"}, no, ""},
	} {
		for _, profile := range []string{"calico", "canal", "aws-vpc-cni-calico"} {
			tc.calico.Runs = yes
			got := (&detect.Node{Profile: profiles.Find(profile), Calico: tc.calico}).OtherShapers()
			if got.By != terms.ShaperCalico || got.Egress != tc.want || got.Ingress != tc.want || !strings.Contains(got.Why, tc.why) {
				t.Errorf("%s, %s: %+v, want %v because %q", name, profile, got, tc.want, tc.why)
			}
		}
		tc.calico.Runs = no
		if got := (&detect.Node{Profile: profiles.Find("flannel"), Calico: tc.calico}).OtherShapers(); got != (detect.Others{Egress: no, Ingress: no}) {
			t.Errorf("%s, left over beside flannel: %+v, want none", name, got)
		}
	}
}
