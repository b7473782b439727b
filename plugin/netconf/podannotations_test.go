// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netconf_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// TestPodsCannotLiftTheirLimit: by default a pod's annotations tune its limit and do
// not lift it; what would is ignored, and told.
func TestPodsCannotLiftTheirLimit(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		annotations, keys string
		// ignored is the annotation that is not accepted, "" if all are; accepted is
		// part of what is said to be.
		ignored, accepted string
		change            func(*shaping.Limit)
	}{
		"a burst of 50 s": {
			annotations: `"podweir.io/egress-burst":"500M"`, ignored: "egress-burst", accepted: "100ms",
		},
		"a burst of 101 ms": {annotations: `"podweir.io/egress-burst":"101ms"`, ignored: "egress-burst", accepted: "100ms"},
		"a burst of 100 ms": {
			annotations: `"podweir.io/egress-burst":"100ms"`, change: func(l *shaping.Limit) { l.Burst = 125_000 },
		},
		"the burst of 100 ms in bits": {
			annotations: `"podweir.io/egress-burst":"1M"`, change: func(l *shaping.Limit) { l.Burst = 125_000 },
		},
		"up to the node's own burst": {
			annotations: `"podweir.io/egress-burst":"900ms"`, keys: `"egressBurst":"1s"`,
			change: func(l *shaping.Limit) { l.Burst = 1_125_000 },
		},
		"a burst that the operator lets pods have": {
			annotations: `"podweir.io/egress-burst":"1s"`, keys: `"podAnnotations":["egress-burst=1s"]`,
			change: func(l *shaping.Limit) { l.Burst = 1_250_000 },
		},
		"more than that": {
			annotations: `"podweir.io/egress-burst":"2s"`, keys: `"podAnnotations":["egress-burst=1s"]`,
			ignored: "egress-burst", accepted: "1s",
		},
		"elephants": {annotations: `"podweir.io/policy":"elephants"`, ignored: "policy", accepted: "one of strict, flat"},
		"elephants, as the node": {
			annotations: `"podweir.io/policy":"elephants"`, keys: `"policy":"elephants"`,
			change: func(l *shaping.Limit) { l.Policy = terms.PolicyElephants },
		},
		"elephants, which the operator lets pods have": {
			annotations: `"podweir.io/policy":"elephants"`, keys: `"podAnnotations":["policy=elephants"]`,
			change: func(l *shaping.Limit) { l.Policy = terms.PolicyElephants },
		},
		"nothing is heavy": {
			annotations: `"podweir.io/heavy-threshold":"100%"`, keys: `"policy":"elephants"`,
			ignored: "heavy-threshold", accepted: "0.5% to 5%",
			change: func(l *shaping.Limit) { l.Policy = terms.PolicyElephants },
		},
		"less is heavy than the node says": {
			annotations: `"podweir.io/heavy-threshold":"11%"`, keys: `"policy":"elephants","heavyThreshold":"10%"`,
			ignored: "heavy-threshold", accepted: "0.5% to 10%",
			change: func(l *shaping.Limit) { l.Policy, l.HeavyThreshold = terms.PolicyElephants, 100 },
		},
		"more is heavy": {
			annotations: `"podweir.io/heavy-threshold":"2%"`, keys: `"policy":"elephants"`,
			change: func(l *shaping.Limit) { l.Policy, l.HeavyThreshold = terms.PolicyElephants, 20 },
		},
		"a threshold that the operator lets pods have": {
			annotations: `"podweir.io/heavy-threshold":"30%"`, keys: `"policy":"elephants","podAnnotations":["heavy-threshold=30%"]`,
			change: func(l *shaping.Limit) { l.Policy, l.HeavyThreshold = terms.PolicyElephants, 300 },
		},
		"all light flows are charged": {
			annotations: `"podweir.io/heavy-threshold":"100%"`, change: func(l *shaping.Limit) { l.HeavyThreshold = 1000 },
		},
		"a threshold for strict, and then elephants": {
			annotations: `"podweir.io/policy":"elephants"`, keys: `"heavyThreshold":"100%","podAnnotations":["policy=elephants"]`,
			change: func(l *shaping.Limit) { l.Policy, l.HeavyThreshold = terms.PolicyElephants, 500 },
		},
		"policing": {annotations: `"podweir.io/egress-queue":"none"`, ignored: "egress-queue", accepted: "one of auto, tbf"},
		"policing, as the node": {
			annotations: `"podweir.io/egress-queue":"none"`, keys: `"queue":"none"`,
			change: func(l *shaping.Limit) { l.Queue = terms.QueueNone },
		},
		"policing, which the operator lets pods have": {
			annotations: `"podweir.io/egress-queue":"none"`, keys: `"podAnnotations":["egress-queue=none"]`,
			change: func(l *shaping.Limit) { l.Queue = terms.QueueNone },
		},
		"a horizon, which is credit where the limit is policed": {
			annotations: `"podweir.io/egress-horizon":"1s"`, ignored: "egress-horizon", accepted: "1ms to 100ms",
		},
		"a horizon of 100 ms": {
			annotations: `"podweir.io/egress-horizon":"100ms"`, change: func(l *shaping.Limit) { l.Horizon = 100 * time.Millisecond },
		},
		"a horizon that the operator lets pods have": {
			annotations: `"podweir.io/egress-horizon":"1s"`, keys: `"podAnnotations":["egress-horizon=1s"]`,
			change: func(l *shaping.Limit) { l.Horizon = time.Second },
		},
		"what the operator does not list": {
			annotations: `"podweir.io/policy":"flat"`, keys: `"podAnnotations":["egress-burst"]`,
			ignored: "policy", accepted: "podAnnotations",
		},
		"nothing is listed": {
			annotations: `"podweir.io/light-share":"50%"`, keys: `"podAnnotations":[]`, ignored: "light-share", accepted: "podAnnotations",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys := `"egressRate":"10M"`
			if tc.keys != "" {
				keys += "," + tc.keys
			}
			got, err := netconf.Parse(netconf.Add, input(annotations(tc.annotations), keys))
			must.OK(t, err)
			if diff := cmp.Diff(limit(10e6, tc.change), got.Shaping.Egress); diff != "" {
				t.Errorf("limit (-want +got):\n%s", diff)
			}
			switch {
			case tc.ignored == "" && len(got.Ignored) != 0:
				t.Errorf("ignored %v, want nothing", got.Ignored)
			case tc.ignored == "":
			case len(got.Ignored) != 1 || got.Ignored[0].Field != "annotation podweir.io/"+tc.ignored ||
				!strings.Contains(got.Ignored[0].Accepted, tc.accepted):
				t.Errorf("ignored %v, want %s with %q", got.Ignored, tc.ignored, tc.accepted)
			}
		})
	}
}

// TestOwnElephantsNeedHeavyFlows: the operator's own threshold is bounded where it
// decides what the limit applies to.
func TestOwnElephantsNeedHeavyFlows(t *testing.T) {
	t.Parallel()
	in := input("", `"egressRate":"10M","policy":"elephants","heavyThreshold":"51%"`)
	got, err := netconf.Parse(netconf.Add, in)
	if err != nil || got.Shaping.Egress.HeavyThreshold != shaping.DefaultHeavyThreshold {
		t.Errorf("Parse = %+v, %v, want the default threshold", got.Shaping.Egress, err)
	}
	if _, err := netconf.ParseStrict(netconf.Add, in); err == nil || !strings.Contains(err.Error(), "0.5% to 50%") {
		t.Errorf("ParseStrict = %v, want what is accepted under elephants", err)
	}
}

// TestPodAnnotationsOfTheOperator: a bad list or item opens nothing.
func TestPodAnnotationsOfTheOperator(t *testing.T) {
	t.Parallel()
	const pod = `"podweir.io/policy":"elephants","podweir.io/egress-burst":"1s"`
	for name, tc := range map[string]struct{ list, value string }{
		"no list":                      {`"policy"`, `"policy"`},
		"unknown":                      {`["polcy=elephants"]`, "polcy=elephants"},
		"value that is none":           {`["policy=elefants"]`, "policy=elefants"},
		"value that needs no word":     {`["policy=flat"]`, "policy=flat"},
		"burst beyond the range":       {`["egress-burst=11s"]`, "egress-burst=11s"},
		"burst in bytes":               {`["egress-burst=500M"]`, "egress-burst=500M"},
		"threshold with nothing heavy": {`["heavy-threshold=51%"]`, "heavy-threshold=51%"},
		"no bound of its own":          {`["light-share=99%"]`, "light-share=99%"},
	} {
		in := input(annotations(pod), `"egressRate":"10M","podAnnotations":`+tc.list)
		got, err := netconf.Parse(netconf.Add, in)
		must.OK(t, err)
		if diff := cmp.Diff(limit(10e6, nil), got.Shaping.Egress); diff != "" {
			t.Errorf("%s: limit (-want +got):\n%s", name, diff)
		}
		if !slices.ContainsFunc(got.Ignored, func(e *netconf.FieldError) bool {
			return e.Field == "podAnnotations" && e.Value == tc.value && e.Accepted != ""
		}) {
			t.Errorf("%s: ignored %v, want podAnnotations with %s", name, got.Ignored, tc.value)
		}
	}
	got, err := netconf.ParseStrict(netconf.Add, input("", `"egressRate":"10M",
		"podAnnotations":["policy","podweir.io/policy=elephants","egress-burst=10s","ingress-queue=none","heavy-threshold=50%"]`))
	if err != nil || len(got.Warnings) != 0 {
		t.Errorf("ParseStrict of a good list = %v, warnings %q", err, got.Warnings)
	}
}
