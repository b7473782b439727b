// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package detect_test

import (
	"testing"

	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/profiles"
)

// TestRemembering: an agent that is being started anew has not changed its mind;
// one that answers, or is told otherwise, has.
func TestRemembering(t *testing.T) {
	on := detect.Cilium{API: true, BandwidthManager: profiles.Yes, Version: "1.20.2"}
	for name, tc := range map[string]struct {
		now  detect.Cilium
		want detect.Others
	}{
		"silent":                {detect.Cilium{}, detect.Others{Egress: profiles.Yes, Ingress: profiles.Yes}},
		"silent, still asked":   {detect.Cilium{BandwidthConfigured: profiles.Yes}, detect.Others{Egress: profiles.Yes, Ingress: profiles.Yes}},
		"silent, not asked now": {detect.Cilium{BandwidthConfigured: profiles.No}, detect.Others{Egress: profiles.No, Ingress: profiles.No}},
		"says off":              {detect.Cilium{API: true, BandwidthManager: profiles.No}, detect.Others{Egress: profiles.No, Ingress: profiles.No}},
		"says nothing of it":    {detect.Cilium{API: true}, detect.Others{}},
		"is older":              {detect.Cilium{API: true, BandwidthManager: profiles.Yes, Version: "1.17.2"}, detect.Others{Egress: profiles.Yes, Ingress: profiles.No}},
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

func TestReadsIngress(t *testing.T) {
	for version, want := range map[string]profiles.Answer{
		"1.18.0": profiles.Yes, "v1.18.4": profiles.Yes, "1.20.2": profiles.Yes, "2.0.0": profiles.Yes, "1.19.0-dev": profiles.Yes,
		"1.17.9": profiles.No, "1.9.1": profiles.No, "0.30.0": profiles.No,
		"": profiles.Unknown, "1": profiles.Unknown, "master": profiles.Unknown, "1.x": profiles.Unknown,
	} {
		c := detect.Cilium{API: true, BandwidthManager: profiles.Yes, Version: version}
		if got := c.EnforcesAnnotations(); got.Ingress != want || got.Egress != profiles.Yes || got.Why == "" {
			t.Errorf("version %q: %+v, want ingress %v, and why", version, got, want)
		}
	}
}
