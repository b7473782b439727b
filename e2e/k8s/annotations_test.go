// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestPrivilegedAnnotations changes the annotations of a pod while it runs.
func TestPrivilegedAnnotations(t *testing.T) {
	install(t)
	p := run(t, "changing", 0, limits("20M", "10M"))
	peer := run(t, "peer", 1, nil)
	measure(t, p, peer).holds(t, "as it was made", 20_000_000, 10_000_000)
	for _, step := range []struct {
		what            string
		change          map[string]string
		ingress, egress uint64
	}{
		{"both rates changed", limits("10M", "30M"), 10_000_000, 30_000_000},
		{"egress removed", map[string]string{egressKey: ""}, 10_000_000, 0},
		{"egress added again", map[string]string{egressKey: "20M"}, 10_000_000, 20_000_000},
	} {
		p.annotate(t, step.change)
		p.limited(t, step.ingress, step.egress)
		measure(t, p, peer).holds(t, step.what, step.ingress, step.egress)
	}

	p.annotate(t, map[string]string{egressKey: "20Q"})
	e := sees(t, p.Name, egressKey, "20Q")
	if e.Type != "Warning" || e.InvolvedObject.Namespace != "default" {
		t.Errorf("the Event about a bad value is %+v, want a warning in the pod's namespace", e)
	}
	t.Logf("%s %s: %s", e.Type, e.Reason, e.Message)
	measure(t, p, peer).holds(t, "after a bad value", 10_000_000, 20_000_000)
	if restarts := kubectl(t, "get", "pod", p.Name, "-o", "jsonpath={.status.containerStatuses[0].restartCount}"); restarts != "0" {
		t.Errorf("the pod restarted %s times, want 0", restarts)
	}
}

// limited waits until the agent of the pod's node says that these caps are in
// force, in bits per second; 0 is none.
func (p *pod) limited(t *testing.T, ingress, egress uint64) {
	t.Helper()
	want := ""
	for _, d := range []struct {
		name string
		bits uint64
	}{{"egress", egress}, {"ingress", ingress}} {
		if d.bits > 0 {
			want += fmt.Sprintf("podweir_pod_limit_bits_per_second{direction=%q,interface=\"eth0\",namespace=\"default\",pod=%q} %g\n", d.name, p.Name, float64(d.bits))
		}
	}
	metrics(t, p.Node, func(page string) error {
		got := grep(grep(page, "podweir_pod_limit_bits_per_second{"), fmt.Sprintf("pod=%q", p.Name))
		if got != want {
			return fmt.Errorf("caps are\n%s\nwant\n%s", got, strings.TrimSpace(want))
		}
		return nil
	})
}
