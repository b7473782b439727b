// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netconf_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/netconf"
)

// TestParseEnforce: the operator lets a fleet or a namespace be observed only, and a pod
// only where podAnnotations lists it.
func TestParseEnforce(t *testing.T) {
	t.Parallel()
	const listed = `"podAnnotations":["enforce"]`
	for name, tc := range map[string]struct {
		pod, namespace, keys string
		observe              bool
		// ignored is the field that is not accepted, "" if all are; accepted is part of
		// what is said to be, instead of what is used.
		ignored, accepted, instead string
	}{
		"by default":             {},
		"the node observes":      {keys: `"enforce":"observe"`, observe: true},
		"the node limits":        {keys: `"enforce":"limit"`},
		"the namespace observes": {namespace: "observe", observe: true},
		"the namespace limits on a node that observes": {namespace: "limit", keys: `"enforce":"observe"`},
		"the namespace observes on a node that limits": {namespace: "observe", keys: `"enforce":"limit"`, observe: true},
		"a pod may not": {pod: "observe", ignored: "annotation podweir.io/enforce", accepted: "podAnnotations does not list it", instead: "the node's own setting"},
		"nor limit where the node observes": {
			pod: "limit", keys: `"enforce":"observe"`, observe: true,
			ignored: "annotation podweir.io/enforce", accepted: "podAnnotations does not list it", instead: "the node's own setting",
		},
		"a pod that may":             {pod: "observe", keys: listed, observe: true},
		"a pod before its namespace": {pod: "limit", namespace: "observe", keys: listed},
		"a bad key":                  {keys: `"enforce":"off"`, ignored: "enforce", accepted: "one of limit, observe", instead: "podweir's default"},
		"a bad annotation of a namespace": {
			namespace: "monitor", keys: `"enforce":"observe"`, observe: true,
			ignored: "namespace annotation podweir.io/enforce", accepted: "one of limit, observe", instead: "the node's own setting",
		},
		"a bad annotation of a pod that may": {
			pod: "no", keys: listed, ignored: "annotation podweir.io/enforce", accepted: "one of limit, observe", instead: "the node's own setting",
		},
		"a value in podAnnotations": {
			keys: `"podAnnotations":["egress-rate","enforce=observe"]`, ignored: "podAnnotations", accepted: "enforce without a value", instead: "podweir's default",
		},
	} {
		pod, namespace := `"podweir.io/egress-rate":"10M"`, netconf.Namespace(nil)
		if tc.pod != "" {
			pod = `"podweir.io/enforce":"` + tc.pod + `"`
		}
		if tc.namespace != "" {
			namespace = netconf.Namespace{"podweir.io/enforce": tc.namespace}
		}
		keys := `"egressRate":"10M"`
		if tc.keys != "" {
			keys += "," + tc.keys
		}
		got, err := netconf.ParseIn(namespace, netconf.Add, input(annotations(pod), keys))
		if err != nil || got.Shaping.Egress == nil || got.Shaping.Observe != tc.observe {
			t.Errorf("%s: %+v, %v, want a limit and observe = %v", name, got.Shaping, err, tc.observe)
		}
		if tc.ignored == "" && len(got.Ignored) > 0 {
			t.Errorf("%s: ignored %v, want nothing", name, got.Ignored)
		}
		if tc.ignored != "" && (len(got.Ignored) != 1 || got.Ignored[0].Field != tc.ignored || !strings.Contains(got.Ignored[0].Accepted, tc.accepted)) {
			t.Errorf("%s: ignored %v, want %s, accepted %s", name, got.Ignored, tc.ignored, tc.accepted)
		}
		said := func(w string) bool { return strings.Contains(w, tc.ignored) && strings.Contains(w, tc.instead) }
		if tc.ignored != "" && !slices.ContainsFunc(got.Warnings, said) {
			t.Errorf("%s: warnings %q, want %s, and that %s is used", name, got.Warnings, tc.ignored, tc.instead)
		}
	}
}

// TestInstallRefusesABadEnforce: what somebody has just written is an error.
func TestInstallRefusesABadEnforce(t *testing.T) {
	t.Parallel()
	_, err := netconf.ParseStrict(netconf.Add, input("", `"enforce":"off"`))
	if err == nil || err.Error() != `enforce: "off" is not accepted, want one of limit, observe` {
		t.Errorf("ParseStrict() = %v, want an error that names key, value and what is accepted", err)
	}
}
