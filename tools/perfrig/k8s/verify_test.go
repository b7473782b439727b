// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s

import (
	"errors"
	"strings"
	"testing"

	"github.com/podweir/podweir/tools/perfrig/spec"
)

// cellOf is the cell of a profile.
func cellOf(t *testing.T, profile, id string) *spec.Cell {
	t.Helper()
	s, err := spec.Profile(profile)
	if err != nil {
		t.Fatal(err)
	}
	cells, _ := s.Cells()
	for i := range cells {
		if cells[i].ID() == id {
			return &cells[i]
		}
	}
	t.Fatalf("profile %s has no cell %s", profile, id)
	return nil
}

func TestUnavailableSaysWhatAKubeletCannotDo(t *testing.T) {
	for id, want := range map[string]string{
		"rivals mixed/uncapped/unshaped":                  "",
		"rivals mixed/10M/bandwidth-1.9":                  "",
		"rivals mixed/10M/bandwidth-1.9-tuned":            "the runtime hands down its own burst",
		"rivals latency-ingress/20M/podweir-strict":       "",
		"rivals latency-ingress/20M/calico":               "not one of the cluster's plugins",
		"loads load-pages-egress/10M/cake":                "not measured in a cluster",
		"costs memory-100/100M/podweir-strict":            "not measured in a cluster",
		"costs others-tcp-1-pod/uncapped/podweir-unused":  "not measured in a cluster",
	} {
		profile, id, _ := strings.Cut(id, " ")
		if got := unavailable(cellOf(t, profile, id)); got != want {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
}

func TestLimitsAreThoseOfTheAnnotations(t *testing.T) {
	if got := limits(0); len(got) != 0 {
		t.Errorf("limits(0) = %v, want none", got)
	}
	for _, key := range []string{"kubernetes.io/ingress-bandwidth", "kubernetes.io/egress-bandwidth"} {
		if got := limits(10_000_000)[key]; got != "10000000" {
			t.Errorf("%s of 10M = %q, want 10000000 bit/s", key, got)
		}
	}
}

const (
	noqueue = `{"kind":"noqueue","handle":"0:","dev":"lo","root":true}`
	tbf     = `{"kind":"tbf","handle":"1:","dev":"veth1","root":true}`
)

func TestHasBucketsWantsTwoOfABandwidthPodAndNoneElse(t *testing.T) {
	for name, tc := range map[string]struct {
		qdiscs string
		kind   spec.Kind
		good   bool
	}{
		"unshaped":             {noqueue, spec.Unshaped, true},
		"unshaped and not":     {noqueue + "," + tbf, spec.Unshaped, false},
		"limited":              {noqueue + "," + tbf + "," + tbf, spec.Bandwidth, true},
		"limited but one":      {noqueue + "," + tbf, spec.Bandwidth, false},
		"limited and not":      {noqueue, spec.Bandwidth, false},
		"one of another's pod": {tbf + "," + tbf + "," + tbf, spec.Bandwidth, false},
	} {
		if err := hasBuckets([]byte("["+tc.qdiscs+"]"), tc.kind); (err == nil) != tc.good || err != nil && !errors.Is(err, errOtherwise) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := hasBuckets([]byte("no"), spec.Unshaped); err == nil || errors.Is(err, errOtherwise) {
		t.Errorf("what is no JSON: %v, want another error than %v", err, errOtherwise)
	}
}

// told is what podweir says of a pod that is shaped as it should be.
const told = `{"schema":1,"attachments":[{"pod":"default/other"},{"pod":"default/p","directions":[
	{"direction":"egress","rateBitsPerSecond":10000000,"policy":"flat","capHolds":true},
	{"direction":"ingress","rateBitsPerSecond":10000000,"policy":"flat","capHolds":true}]}]}`

func TestIsShapedReadsPodweirsStatus(t *testing.T) {
	c := cellOf(t, "k8s", "mixed/10M/podweir-flat")
	for name, tc := range map[string]struct {
		old, new string
		good     bool
	}{
		"as it should be": {"", "", true},
		"another policy":  {`"policy":"flat"`, `"policy":"strict"`, false},
		"another rate":    {`10000000`, `20000000`, false},
		"policed":         {`"capHolds":true`, `"capHolds":false`, false},
		"drifted":         {`"default/p",`, `"default/p","drift":["x"],`, false},
		"unreadable":      {`"default/p",`, `"default/p","error":"x",`, false},
		"another pod":     {`"default/p"`, `"default/q"`, false},
		"one direction":   {`{"direction":"egress","rateBitsPerSecond":10000000,"policy":"flat","capHolds":true},`, ``, false},
	} {
		text := strings.Replace(told, tc.old, tc.new, 1)
		if tc.old != "" && text == told {
			t.Fatalf("%s: %q is not in the text", name, tc.old)
		}
		if err := isShaped([]byte(text), "default/p", c); (err == nil) != tc.good || err != nil && !errors.Is(err, errOtherwise) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
