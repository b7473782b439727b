// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package charttest

import (
	"strings"
	"testing"
)

// How long the packets of one pod wait, small flows beside large ones: 98 of 100 light
// packets below 0.13 ms and the others below 0.26 ms, heavy ones from 67 to 134 ms.
func TestDashboardShowsWhichBandWaits(t *testing.T) {
	of := func(pod, band, le, samples string) string {
		return `podweir_pod_wait_seconds_bucket{namespace="shop",pod="` + pod + `",direction="egress",interface="eth0",band="` + band +
			`",le="` + le + `",node="n1"} ` + samples
	}
	all := series{
		of("web", "light", "0.000131072", "0+98x60"), of("web", "light", "0.000262144", "0+100x60"), of("web", "light", "+Inf", "0+100x60"),
		of("web", "heavy", "0.067108864", "0x60"), of("web", "heavy", "0.134217728", "0+100x60"), of("web", "heavy", "+Inf", "0+100x60"),
		of("api", "light", "+Inf", "0+100x60"),
	}
	d, _ := readDashboard(t)
	// The greatest and least seconds of light and heavy packets by the panel's name.
	want := map[string]map[string][2]float64{
		"Wait in the queue: 99th percentile": {"light": {131e-6, 263e-6}, "heavy": {0.13, 0.135}},
		"Wait in the queue: median":          {"light": {0, 131e-6}, "heavy": {0.1, 0.101}},
	}
	found := 0
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			if want[p.Title] == nil {
				continue
			}
			found++
			expr := strings.NewReplacer("$__rate_interval", "5m", "$namespace", "shop", "$pod", "web", "$direction", ".*").Replace(target.Expr)
			got := evaluate(t, expr, all)
			if len(got) != 2 {
				t.Errorf("%s gives %v, want two bands of one pod", p.Title, got)
			}
			for _, s := range got {
				limits := want[p.Title][s.Metric.Get("band")]
				if s.F <= limits[0] || s.F > limits[1] {
					t.Errorf("%s of %s is %v s, want %v", p.Title, s.Metric, s.F, limits)
				}
			}
		}
	}
	if found != len(want) {
		t.Errorf("%d panels say how long packets wait, want %d", found, len(want))
	}
}
