// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile

import (
	"reflect"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// A rate that cannot be read keeps its direction as it was, and the other one follows
// what is requested: its annotation, and the maximum of the node.
func TestWithPrior(t *testing.T) {
	t.Parallel()
	const standard = "kubernetes.io/"
	before := &shaping.Config{Egress: &shaping.Limit{Rate: 30_000_000}, Ingress: &shaping.Limit{Rate: 40_000_000}}
	left := shaping.Deferred{Direction: terms.Ingress, Rate: 40_000_000, To: terms.ShaperCilium}
	for name, tt := range map[string]struct {
		ingress string
		prior   *shaping.Config
		want    shaping.Config
	}{
		"unreadable":            {"fast", before, shaping.Config{Ingress: before.Ingress}},
		"unreadable, none then": {"fast", &shaping.Config{Egress: before.Egress}, shaping.Config{}},
		"unreadable, left then": {"fast", &shaping.Config{Deferred: []shaping.Deferred{left}}, shaping.Config{Deferred: []shaping.Deferred{left}}},
	} {
		conf, err := netconf.ParseEntry([]byte(`{"cniVersion":"1.0.0","name":"n","type":"podweir-cni","egressMaxRate":"15M"}`), netconf.PodAnnotations{
			Values: map[string]string{standard + "egress-bandwidth": "20M", standard + "ingress-bandwidth": tt.ingress},
		}, nil)
		if err == nil || conf.Shaping.Egress == nil || conf.Shaping.Ingress != nil {
			t.Fatalf("%s: %+v, %v, want egress alone and an error", name, conf.Shaping, err)
		}
		got := withPrior(&conf.Shaping, tt.prior)
		if got.Egress == nil || got.Egress.Rate != 15_000_000 {
			t.Errorf("%s: egress %+v, want the maximum of now", name, got.Egress)
		}
		if got.Ingress != tt.want.Ingress || !reflect.DeepEqual(got.Deferred, tt.want.Deferred) {
			t.Errorf("%s: ingress %+v, left %v, want %+v, %v", name, got.Ingress, got.Deferred, tt.want.Ingress, tt.want.Deferred)
		}
		if noLimit(&got) != (tt.want.Ingress == nil) {
			t.Errorf("%s: noLimit() = %v with ingress %+v", name, noLimit(&got), got.Ingress)
		}
		want := "ingress has no limit: "
		if tt.want.Ingress != nil {
			want = "ingress keeps the limit from before: "
		}
		if len(got.Notes) == 0 || !strings.HasPrefix(got.Notes[len(got.Notes)-1], want) {
			t.Errorf("%s: notes %q, want %q", name, got.Notes, want)
		}
	}
}
