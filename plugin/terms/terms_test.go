// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package terms_test

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// What is told has words by their names, as before they were values, and is read back as
// the same.
func TestNamed(t *testing.T) {
	type told struct {
		Direction terms.Named[terms.Direction] `json:"direction"`
		Queue     terms.Named[terms.Queue]     `json:"queue"`
		Hook      terms.Named[terms.Hook]      `json:"hook"`
		Kind      terms.Named[terms.HookKind]  `json:"kind,omitzero"`
	}
	one := told{Direction: terms.Name(terms.Ingress), Queue: terms.Name(terms.QueueTBF), Hook: terms.Name(terms.HookOwnQdisc)}
	const want = `{"direction":"ingress","queue":"tbf","hook":"own-qdisc"}`
	must.Be(t, "JSON", want, string(must.Get(json.Marshal(one))(t)))
	var back told
	must.OK(t, json.Unmarshal([]byte(want), &back))
	must.Be(t, "read back", one, back)
	must.Fail(t, "a name of no queue", json.Unmarshal([]byte(`{"queue":"fqq"}`), &back))
	must.Be(t, "no words", `{"direction":"","queue":"","hook":""}`, string(must.Get(json.Marshal(told{}))(t)))
}

func TestNearest(t *testing.T) {
	t.Parallel()
	words := []string{"bandwidth", "egress", "ingress", "maxRate"}
	for word, want := range map[string]string{
		"bandwdth": "bandwidth", "bnadwidth": "bandwidth", "Bandwidth": "bandwidth", "banwidht": "bandwidth", "bnwdht": "", "badwith": "bandwidth",
		"egres": "egress", "engress": "egress", "maxrate": "maxRate", "maxrte": "maxRate", "portMappings": "", "x": "", "": "",
		strings.Repeat("bandwidth", 100): "",
	} {
		must.Be(t, "Nearest("+word+")", want, terms.Nearest(word, words))
	}
	must.Be(t, "DidYouMean", `, did you mean "bandwidth"?`, terms.DidYouMean("bandwdth", words))
	must.Be(t, "DidYouMean of nothing known", "", terms.DidYouMean("portMappings", words))
}

func TestRunnable(t *testing.T) {
	const in = "kubectl -n kube-system exec podweir-x -- podweir"
	for text, want := range map[string]string{
		"podweir repair": in + " repair",
		"podweir repair; if it comes back: podweir explain PW602": in + " repair; if it comes back: " + in + " explain PW602",
		"or `podweir gc`":               "or `" + in + " gc`",
		"kubectl podweir status":        "kubectl podweir status",
		"kubectl podweir explain PW602": "kubectl podweir explain PW602",
		"then podweir polices":          "then podweir polices",
		"podweir agent, which limits":   "podweir agent, which limits",
		"podweir-cni set":               "podweir-cni set",
		"podweir settles":               "podweir settles",
		"--namespace podweir install":   "--namespace " + in + " install",
	} {
		must.Be(t, "Runnable", want, terms.Runnable(text, in))
		must.Be(t, "Runnable on the node", text, terms.Runnable(text, terms.OnPath))
	}
	must.Be(t, "Runnable twice", terms.ByKubectl+" gc", terms.Runnable(terms.Runnable("podweir gc", terms.ByKubectl), terms.ByKubectl))
}

func TestFlowName(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]terms.Flow{
		"tcp 10.0.0.1:1 > [fd00::1]:443":  {Protocol: 6, Source: netip.MustParseAddrPort("10.0.0.1:1"), Dest: netip.MustParseAddrPort("[fd00::1]:443")},
		"protocol 47 10.0.0.1 > 10.0.0.2": {Protocol: 47, Source: netip.MustParseAddrPort("10.0.0.1:0"), Dest: netip.MustParseAddrPort("10.0.0.2:0")},
		"ethertype 0x88cc":                {EtherType: 0x88cc},
	} {
		must.Be(t, "Name()", want, f.Name())
	}
}
