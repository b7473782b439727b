// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package charttest

import (
	"maps"
	"strings"
	"testing"

	celgo "github.com/google/cel-go/cel"
	admissionregistration "k8s.io/api/admissionregistration/v1"
	beta "k8s.io/api/admissionregistration/v1beta1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// lifted is a new pod with these annotations as the policy leaves it. It compiles and
// evaluates as the API server does (compilePolicy in
// k8s.io/apiserver/pkg/admission/plugin/policy/mutating).
func lifted(t *testing.T, p *admissionregistration.MutatingAdmissionPolicy, has annotations) annotations {
	t.Helper()
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	mustOK(t, err)
	opts := cel.OptionalVariableDeclarations{HasAuthorizer: true}
	var variables []cel.NamedExpressionAccessor
	for _, v := range p.Spec.Variables {
		variables = append(variables, &expression{v.Name, v.Expression, celgo.AnyType})
	}
	compiler.CompileAndStoreVariables(variables, opts, environment.StoredExpressions)
	r := &request{object: pod(has)}
	attributes := r.attributes()
	gvr, gvk := attributes.GetResource(), attributes.VersionedKind
	var conditions []cel.ExpressionAccessor
	for _, c := range p.Spec.MatchConditions {
		conditions = append(conditions, &expression{c.Name, c.Expression, celgo.BoolType})
	}
	matcher := compiler.CompileCondition(conditions, opts, environment.StoredExpressions)
	for _, err := range matcher.CompilationErrors() {
		t.Fatal(err)
	}
	inputs := cel.OptionalVariableBindings{Authorizer: r}
	matches, _, err := matcher.ForInput(t.Context(), attributes, cel.CreateAdmissionRequest(attributes, meta.GroupVersionResource(gvr), meta.GroupVersionKind(gvk)),
		inputs, nil, celconfig.RuntimeCELCostBudget)
	mustOK(t, err)
	for _, m := range matches {
		if m.Error != nil {
			t.Fatal(m.Error)
		}
		if m.EvalResult.Value() != true {
			return has
		}
	}
	opts.HasPatchTypes = true
	accessor := &patch.JSONPatchCondition{Expression: p.Spec.Mutations[0].JSONPatch.Expression}
	patcher := patch.NewJSONPatcher(compiler.CompileMutatingEvaluator(accessor, opts, environment.StoredExpressions))
	out, err := patcher.Patch(compiler.CreateContext(t.Context()), patch.Request{
		MatchedResource: gvr, VersionedAttributes: attributes, OptionalVariables: inputs, ObjectInterfaces: admission.NewObjectInterfacesFromScheme(scheme.Scheme),
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
	for _, o := range objects(t, "1.36", nil) {
		if _, ok := o.(*admissionregistration.MutatingAdmissionPolicy); ok {
			t.Error("there is a policy that nobody requested")
		}
	}
}
