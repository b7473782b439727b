// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package terms_test

import (
	"testing"

	"github.com/podweir/podweir/plugin/terms"
)

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
		if got := terms.Runnable(text, in); got != want {
			t.Errorf("Runnable(%q) = %q, want %q", text, got, want)
		}
		if got := terms.Runnable(text, terms.OnPath); got != text {
			t.Errorf("Runnable(%q) on the node = %q, want it unchanged", text, got)
		}
	}
	if got := terms.Runnable(terms.Runnable("podweir gc", terms.ByKubectl), terms.ByKubectl); got != terms.ByKubectl+" gc" {
		t.Errorf("twice = %q", got)
	}
}
