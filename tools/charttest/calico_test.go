// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package charttest

import (
	"maps"
	"strings"
	"testing"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	beta "k8s.io/api/admissionregistration/v1beta1"
	core "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/kubernetes/scheme"
)

var liftCalico = map[string]any{"liftCalicoLimits": map[string]any{
	"enabled": true, "namespaceSelector": map[string]any{"matchLabels": map[string]any{"tenant": "yes"}},
}}

// lifted is a new pod with these annotations as the policy leaves it.
func lifted(t *testing.T, p *admissionregistration.MutatingAdmissionPolicy, has annotations) annotations {
	t.Helper()
	e := newEvaluator(t, environment.DefaultCompatibilityVersion(), p.Spec.Variables, &request{object: pod(has)})
	if !e.matches(p.Spec.MatchConditions) {
		return has
	}
	opts := cel.OptionalVariableDeclarations{HasAuthorizer: true, HasPatchTypes: true}
	accessor := &patch.JSONPatchCondition{Expression: p.Spec.Mutations[0].JSONPatch.Expression}
	patcher := patch.NewJSONPatcher(e.compiler.CompileMutatingEvaluator(accessor, opts, environment.StoredExpressions))
	out, err := patcher.Patch(e.compiler.CreateContext(t.Context()), patch.Request{
		MatchedResource: e.attributes.GetResource(), VersionedAttributes: e.attributes, OptionalVariables: cel.OptionalVariableBindings{Authorizer: e.r},
		ObjectInterfaces: admission.NewObjectInterfacesFromScheme(scheme.Scheme),
	}, celconfig.RuntimeCELCostBudget)
	mustOK(t, err)
	return out.(*core.Pod).Annotations
}

// Calico's limit is lifted where a standard annotation stands, and nowhere else.
func TestCalicoLimitsAreLifted(t *testing.T) {
	p := only[*admissionregistration.MutatingAdmissionPolicy](t, objects(t, "1.36", liftCalico))
	const in, out = "kubernetes.io/ingress-bandwidth", "kubernetes.io/egress-bandwidth"
	const calicoIn, calicoOut = "qos.projectcalico.org/ingressBandwidth", "qos.projectcalico.org/egressBandwidth"
	for name, tc := range map[string]struct{ has, adds annotations }{
		"no annotations":           {nil, nil},
		"podweir's own":            {annotations{"podweir.io/ingress-rate": "10M"}, nil},
		"both directions":          {annotations{in: "10M", out: "20M", "x": "y"}, annotations{calicoIn: "1P", calicoOut: "1P"}},
		"one direction":            {annotations{out: "20M"}, annotations{calicoOut: "1P"}},
		"a value of the pod's own": {annotations{in: "10M", out: "20M", calicoIn: "5M"}, annotations{calicoOut: "1P"}},
		"Calico's alone":           {annotations{calicoIn: "5M"}, nil},
		"done before":              {annotations{in: "10M", calicoIn: "1P"}, nil},
	} {
		want := maps.Clone(tc.has)
		if len(tc.adds) > 0 {
			maps.Copy(want, tc.adds)
		}
		if got := lifted(t, p, tc.has); !maps.Equal(got, want) {
			t.Errorf("%s: %v becomes %v, want %v", name, tc.has, got, want)
		}
	}
	if f := p.Spec.FailurePolicy; f == nil || *f != admissionregistration.Ignore {
		t.Errorf("failurePolicy %v: a pod would not start where the policy cannot be evaluated", f)
	}
	b := only[*admissionregistration.MutatingAdmissionPolicyBinding](t, objects(t, "1.36", liftCalico))
	if b.Spec.PolicyName != p.Name || b.Spec.MatchResources.NamespaceSelector.MatchLabels["tenant"] != "yes" {
		t.Errorf("the policy is bound as %+v", b.Spec)
	}
}

// The API is that which the operator says, and comes to no cluster that cannot have it.
func TestCalicoLimitsByVersion(t *testing.T) {
	older := map[string]any{"liftCalicoLimits": map[string]any{"enabled": true, "apiVersion": "v1beta1"}}
	for version, values := range map[string]map[string]any{"1.35": liftCalico, "1.33": older} {
		if _, err := render(version, values); err == nil || !strings.Contains(err.Error(), "Kubernetes 1.36, or 1.34 with apiVersion v1beta1") {
			t.Errorf("on Kubernetes %s: %v, want an error that names the versions", version, err)
		}
	}
	only[*beta.MutatingAdmissionPolicyBinding](t, objects(t, "1.34", older))
	p := only[*beta.MutatingAdmissionPolicy](t, objects(t, "1.34", older))
	if now := only[*admissionregistration.MutatingAdmissionPolicy](t, objects(t, "1.36", liftCalico)); p.Spec.Mutations[0].JSONPatch.Expression != now.Spec.Mutations[0].JSONPatch.Expression {
		t.Error("the policies of the two APIs differ")
	}
}
