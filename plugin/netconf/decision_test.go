// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netconf_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// Who decided a rate that is not the pod's own wish is told with what the pod asks for.
func TestDecisions(t *testing.T) {
	t.Parallel()
	const pod = `"bandwidth":{"egressRate":50000000,"egressBurst":4294967295}`
	for name, tt := range map[string]struct {
		runtime, keys string
		namespace     netconf.Namespace
		want          *shaping.Decision
	}{
		"the pod":                           {runtime: pod},
		"below the maximum":                 {runtime: pod, keys: `"maxRate":"60M"`},
		"the maximum":                       {runtime: pod, keys: `"maxRate":"200k"`, want: decided(50e6, "maxRate")},
		"the maximum of the direction":      {runtime: pod, keys: `"maxRate":"1G","egressMaxRate":"200k"`, want: decided(50e6, "egressMaxRate")},
		"the namespace's maximum":           {runtime: pod, namespace: netconf.Namespace{"podweir.io/max-egress-rate": "1M"}, want: decided(50e6, "namespace annotation podweir.io/max-egress-rate")},
		"the default rate":                  {keys: `"egressRate":"10M"`, want: decided(0, "egressRate")},
		"the maximum of who asks nothing":   {keys: `"egressMaxRate":"10M"`, want: decided(0, "egressMaxRate")},
		"the default of the namespace":      {namespace: netconf.Namespace{"podweir.io/default-egress-rate": "1M"}, want: decided(0, "namespace annotation podweir.io/default-egress-rate")},
		"a rate that cannot be read":        {runtime: annotations(`"kubernetes.io/egress-bandwidth":"10Mbps"`), keys: `"egressRate":"10M"`, want: decided(0, "egressRate")},
		"the shaper of others, no decision": {runtime: pod, keys: `"shaper":"cilium"`},
	} {
		got, err := netconf.ParseIn(tt.namespace, netconf.Add, input(tt.runtime, tt.keys))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tt.want, got.Shaping.Decision(terms.Egress)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func decided(asked uint64, by string) *shaping.Decision {
	return &shaping.Decision{Direction: terms.Egress, Asked: units.BitRate(asked), By: by}
}
