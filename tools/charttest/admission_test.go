// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package charttest

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"

	celgo "github.com/google/cel-go/cel"
	admissionregistration "k8s.io/api/admissionregistration/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
)

// expression is a condition, a variable or a message of a policy.
type expression struct {
	name, text string
	returns    *celgo.Type
}

func (e *expression) GetExpression() string      { return e.text }
func (e *expression) GetName() string            { return e.name }
func (e *expression) ReturnTypes() []*celgo.Type { return []*celgo.Type{e.returns} }

var (
	identifier = regexp.MustCompile(`^[_a-zA-Z][_a-zA-Z0-9]*$`)
	// reserved are the words that the API server takes for no name, which its compiler
	// does not mind (celReservedSymbols in k8s.io/apiserver/pkg/cel/escaping.go).
	reserved = []string{
		"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop",
		"package", "namespace", "return", "var", "void", "while",
	}
)

// request is what a client asks the API server for.
type request struct {
	object, old runtime.Object
	namespace   *core.Namespace
	user        user.DefaultInfo
	// sets says that RBAC lets the user set limits, in the namespace of that name or,
	// with "*", everywhere.
	sets string
}

// Authorize implements the authorizer of the request.
func (r *request) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	right := a.GetVerb() == "set" && a.GetAPIGroup() == "podweir.io" && a.GetResource() == "limits"
	if right && (r.sets == "*" || r.sets != "" && r.sets == a.GetNamespace()) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func (r *request) attributes() *admission.VersionedAttributes {
	kind, resource := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	switch r.object.(type) {
	case *core.Namespace:
		kind.Kind, resource.Resource = "Namespace", "namespaces"
	case *core.Node:
		kind.Kind, resource.Resource = "Node", "nodes"
	}
	operation := admission.Create
	if r.old != nil {
		operation = admission.Update
	}
	o := r.object.(meta.Object)
	a := admission.NewAttributesRecord(r.object, r.old, kind, o.GetNamespace(), o.GetName(), resource, "", operation, nil, false, &r.user)
	return &admission.VersionedAttributes{
		Attributes: a, VersionedKind: kind,
		VersionedObject: admission.NewLazyObject(r.object), VersionedOldObject: admission.NewLazyObject(r.old),
	}
}

// evaluator compiles and evaluates expressions beside the variables of a policy, as the API
// server of a version does (compilePolicy in the packages below
// k8s.io/apiserver/pkg/admission/plugin/policy).
type evaluator struct {
	t          *testing.T
	compiler   *cel.CompositedCompiler
	r          *request
	attributes *admission.VersionedAttributes
}

func newEvaluator(t *testing.T, v *version.Version, variables []admissionregistration.Variable, r *request) *evaluator {
	t.Helper()
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(v))
	mustOK(t, err)
	var all []cel.NamedExpressionAccessor
	for _, v := range variables {
		if !identifier.MatchString(v.Name) || slices.Contains(reserved, v.Name) {
			t.Errorf("the API server takes no variable %q", v.Name)
		}
		all = append(all, &expression{v.Name, v.Expression, celgo.AnyType})
	}
	compiler.CompileAndStoreVariables(all, cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.StoredExpressions)
	return &evaluator{t, compiler, r, r.attributes()}
}

func (e *evaluator) evaluate(all []cel.ExpressionAccessor, authorized bool) []cel.EvaluationResult {
	e.t.Helper()
	inputs := cel.OptionalVariableBindings{}
	if authorized {
		inputs.Authorizer = e.r
	}
	condition := e.compiler.CompileCondition(all, cel.OptionalVariableDeclarations{HasAuthorizer: authorized}, environment.StoredExpressions)
	for _, err := range condition.CompilationErrors() {
		e.t.Error(err)
	}
	gvk := meta.GroupVersionKind{Version: "v1", Kind: e.attributes.VersionedKind.Kind}
	gvr := meta.GroupVersionResource{Version: "v1", Resource: e.attributes.GetResource().Resource}
	results, _, err := condition.ForInput(e.compiler.CreateContext(e.t.Context()), e.attributes, cel.CreateAdmissionRequest(e.attributes, gvr, gvk),
		inputs, cel.CreateNamespaceObject(e.r.namespace), celconfig.RuntimeCELCostBudget)
	mustOK(e.t, err)
	for i := range results {
		if results[i].Error != nil {
			e.t.Errorf("%s: %v", all[i].GetExpression(), results[i].Error)
		}
	}
	return results
}

// matches says that all conditions hold.
func (e *evaluator) matches(conditions []admissionregistration.MatchCondition) bool {
	e.t.Helper()
	var all []cel.ExpressionAccessor
	for _, c := range conditions {
		all = append(all, &expression{c.Name, c.Expression, celgo.BoolType})
	}
	return !slices.ContainsFunc(e.evaluate(all, true), func(r cel.EvaluationResult) bool { return r.EvalResult.Value() != true })
}

// ask returns why a policy refuses a request, "" if it does not, by the oldest Kubernetes that
// has such policies.
func ask(t *testing.T, p *admissionregistration.ValidatingAdmissionPolicy, r *request) string {
	t.Helper()
	e := newEvaluator(t, version.MajorMinor(1, 30), p.Spec.Variables, r)
	if !e.matches(p.Spec.MatchConditions) {
		return ""
	}
	var validations, messages []cel.ExpressionAccessor
	for _, v := range p.Spec.Validations {
		validations = append(validations, &expression{"", v.Expression, celgo.BoolType})
		messages = append(messages, &expression{"", v.MessageExpression, celgo.StringType})
	}
	texts := e.evaluate(messages, false)
	for i, v := range e.evaluate(validations, true) {
		if v.EvalResult.Value() != true {
			return texts[i].EvalResult.Value().(string)
		}
	}
	return ""
}

// policy renders the policy whose name ends so.
func policy(t *testing.T, values map[string]any, suffix string) *admissionregistration.ValidatingAdmissionPolicy {
	t.Helper()
	for _, o := range objects(t, "1.34", values) {
		if p, ok := o.(*admissionregistration.ValidatingAdmissionPolicy); ok && strings.HasSuffix(p.Name, suffix) {
			return p
		}
	}
	t.Fatalf("no policy %s", suffix)
	return nil
}

type annotations = map[string]string

func namespace(a annotations) *core.Namespace {
	return &core.Namespace{ObjectMeta: meta.ObjectMeta{Name: "team", Annotations: a}}
}

func pod(a annotations) *core.Pod {
	return &core.Pod{ObjectMeta: meta.ObjectMeta{Name: "x", Namespace: "team", Annotations: a}}
}

var withPolicy = map[string]any{"admissionPolicy": map[string]any{"enabled": true}}

func TestTenantsCannotChangeTheRatesOfPods(t *testing.T) {
	p := policy(t, withPolicy, "-pods")
	limited := namespace(annotations{"podweir.io/max-egress-rate": "10M"})
	const own, standard = "podweir.io/egress-rate", "kubernetes.io/egress-bandwidth"
	for name, tc := range map[string]struct {
		request
		want string
	}{
		"no annotations":                      {request{object: pod(nil)}, ""},
		"a new pod, no maximum":               {request{object: pod(annotations{own: "100G"})}, ""},
		"a new pod below the maximum":         {request{object: pod(annotations{own: "9M", standard: "10000k"}), namespace: limited}, ""},
		"a new pod above the maximum":         {request{object: pod(annotations{own: "11M"}), namespace: limited}, "podweir.io/max-egress-rate 10M"},
		"by the standard annotation":          {request{object: pod(annotations{own: "1M", standard: "1G"}), namespace: limited}, standard + " is 1G"},
		"something that is no rate":           {request{object: pod(annotations{own: "fast"}), namespace: limited}, own + " is fast, and podweir.io/max-egress-rate 10M"},
		"a rate of nothing":                   {request{object: pod(annotations{standard: "0"}), namespace: limited}, standard + " is 0"},
		"a rate of milli":                     {request{object: pod(annotations{own: "10m"}), namespace: limited}, own + " is 10m"},
		"a rate below zero":                   {request{object: pod(annotations{own: "-5M"}), namespace: limited}, own + " is -5M"},
		"a rate with a space":                 {request{object: pod(annotations{own: " 5M"}), namespace: limited}, own + " is  5M"},
		"in other units":                      {request{object: pod(annotations{own: "9Mi", standard: "1e7"}), namespace: limited}, ""},
		"in other units, above":               {request{object: pod(annotations{own: "10Mi", standard: "0.01G"}), namespace: limited}, "rate from 1k to what its namespace may have: " + own + " is 10Mi, and podweir.io/max-egress-rate 10M"},
		"in the other direction":              {request{object: pod(annotations{"podweir.io/ingress-rate": "1G"}), namespace: limited}, ""},
		"a maximum that is no rate":           {request{object: pod(annotations{own: "1G"}), namespace: namespace(annotations{"podweir.io/max-egress-rate": "much"})}, ""},
		"a maximum that podweir ignores":      {request{object: pod(annotations{own: "1G"}), namespace: namespace(annotations{"podweir.io/max-egress-rate": "0"})}, ""},
		"who may set limits there":            {request{object: pod(annotations{own: "1G"}), namespace: limited, sets: "team"}, ""},
		"who may set limits elsewhere":        {request{object: pod(annotations{own: "1G"}), namespace: limited, sets: "other"}, "what its namespace may have"},
		"a change of something else":          {request{object: pod(annotations{own: "1M", "x": "y"}), old: pod(annotations{own: "1M"})}, ""},
		"a change below a former maximum":     {request{object: pod(annotations{own: "1G", "x": "y"}), old: pod(annotations{own: "1G"}), namespace: limited}, ""},
		"a change of the rate":                {request{object: pod(annotations{own: "2M"}), old: pod(annotations{own: "1M"})}, own},
		"of the standard annotation":          {request{object: pod(annotations{standard: "2M"}), old: pod(annotations{standard: "1M"})}, standard},
		"a rate that is taken away":           {request{object: pod(nil), old: pod(annotations{own: "1M"})}, own},
		"a rate that comes":                   {request{object: pod(annotations{"podweir.io/ingress-rate": "1T"}), old: pod(nil)}, "podweir.io/ingress-rate"},
		"a change by who may set limits":      {request{object: pod(annotations{own: "2M"}), old: pod(annotations{own: "1M"}), sets: "team"}, ""},
		"a change of how the limit is kept":   {request{object: pod(annotations{own: "1M", "podweir.io/policy": "flat"}), old: pod(annotations{own: "1M"})}, ""},
		"a change by who may set it anywhere": {request{object: pod(nil), old: pod(annotations{own: "1M"}), sets: "*"}, ""},
	} {
		got := ask(t, p, &tc.request)
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: refused by %q, want %q", name, got, tc.want)
		}
	}
}

func TestTenantsCannotChangeTheRatesOfNamespaces(t *testing.T) {
	p := policy(t, withPolicy, "-namespaces")
	const most, preset = "podweir.io/max-ingress-rate", "podweir.io/default-egress-rate"
	for name, tc := range map[string]struct {
		request
		want string
	}{
		"no annotations":                       {request{object: namespace(nil)}, ""},
		"a new namespace with a rate":          {request{object: namespace(annotations{preset: "1G"})}, preset},
		"a change of something else":           {request{object: namespace(annotations{most: "1M", "x": "y"}), old: namespace(annotations{most: "1M"})}, ""},
		"a maximum that is raised":             {request{object: namespace(annotations{most: "2M"}), old: namespace(annotations{most: "1M"})}, most},
		"a maximum that is taken away":         {request{object: namespace(nil), old: namespace(annotations{most: "1M"})}, most},
		"with a right in this namespace alone": {request{object: namespace(nil), old: namespace(annotations{most: "1M"}), sets: "team"}, most},
		"by the platform":                      {request{object: namespace(annotations{most: "1.5G", preset: "none"}), sets: "*"}, ""},
		"by the platform, no rate":             {request{object: namespace(annotations{most: "fast"}), sets: "*"}, most + " is fast"},
		"by the platform, milli":               {request{object: namespace(annotations{most: "10m"}), sets: "*"}, "not a rate"},
		"by the platform, too much":            {request{object: namespace(annotations{most: "401G"}), sets: "*"}, "not a rate"},
		"by a tenant, observe only":            {request{object: namespace(annotations{"podweir.io/enforce": "observe"})}, "podweir.io/enforce"},
		"by the platform, observe only":        {request{object: namespace(annotations{"podweir.io/enforce": "observe"}), sets: "*"}, ""},
		"by the platform, a rate to enforce":   {request{object: namespace(annotations{"podweir.io/enforce": "10M"}), sets: "*"}, "limit or observe"},
		"by the platform, a maximum of none":   {request{object: namespace(annotations{most: "none"}), sets: "*"}, "not a rate"},
		"by the platform, taken away":          {request{object: namespace(nil), old: namespace(annotations{most: "fast"}), sets: "*"}, ""},
		"a misspelt one":                       {request{object: namespace(annotations{"podweir.io/max-egres-rate": "1M"}), sets: "*"}, "no such annotation of a Namespace: podweir.io/max-egres-rate; it reads podweir.io/default-ingress-rate"},
		"that of a pod, from before":           {request{object: namespace(annotations{"podweir.io/egress-rate": "1M", "x": "y"}), old: namespace(annotations{"podweir.io/egress-rate": "1M"})}, ""},
		"a bad one from before":                {request{object: namespace(annotations{most: "fast", "x": "y"}), old: namespace(annotations{most: "fast"})}, ""},
	} {
		got := ask(t, p, &tc.request)
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: refused by %q, want %q", name, got, tc.want)
		}
	}
}

// Every policy is bound, and none comes where Kubernetes has none.
func TestPoliciesAreBound(t *testing.T) {
	values := map[string]any{"admissionPolicy": map[string]any{
		"enabled": true, "actions": []any{"Audit", "Warn"}, "namespaceSelector": map[string]any{"matchLabels": map[string]any{"tenant": "yes"}},
	}}
	bound, policies := map[string]*admissionregistration.ValidatingAdmissionPolicyBinding{}, 0
	all := objects(t, "1.34", values)
	for _, o := range all {
		if b, ok := o.(*admissionregistration.ValidatingAdmissionPolicyBinding); ok {
			bound[b.Spec.PolicyName] = b
		}
	}
	for _, o := range all {
		p, ok := o.(*admissionregistration.ValidatingAdmissionPolicy)
		if !ok {
			continue
		}
		policies++
		b := bound[p.Name]
		switch {
		case b == nil:
			t.Errorf("%s is not bound", p.Name)
		case len(b.Spec.ValidationActions) != 2 || b.Spec.MatchResources.NamespaceSelector.MatchLabels["tenant"] != "yes":
			t.Errorf("%s is bound as %+v", p.Name, b.Spec)
		}
	}
	if policies != 2 {
		t.Errorf("%d policies, want 2", policies)
	}
	if _, err := render("1.29", withPolicy); err == nil || !strings.Contains(err.Error(), "Kubernetes 1.30") {
		t.Errorf("on Kubernetes 1.29: %v, want an error that names 1.30", err)
	}
}
