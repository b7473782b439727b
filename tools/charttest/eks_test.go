// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package charttest

import (
	"encoding/json"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
)

// The rules of AWS for add-ons that only some values of the chart keep, as they read in
// the AWS Marketplace user guide, "Container-based product requirements", section on
// Amazon EKS add-ons.
const (
	noCNI   = "software is no CNI plugin"
	noHooks = "no Helm hooks"
	// AWS asks for a reason for each directory of the node.
	noFiles    = "writes to bpffs and below /run of the node only"
	noDelivery = "podweir is delivered by nri or watch"
)

// TestEKSAddonRules: the values of the add-on keep every rule, also with the delivery
// watch; all other values break those about CNI plugins, the node's files and hooks.
func TestEKSAddonRules(t *testing.T) {
	for name, values := range mustEnvironments(t) {
		if name == "everything" || name == "service-monitor" {
			continue // what it turns on, an add-on has off
		}
		values["k8version"] = "1.34" // as the pipeline of EKS does
		t.Run(name, func(t *testing.T) {
			if name != "eks-addon" {
				want := []string{noHooks, noDelivery, noCNI, noFiles}
				if diff := cmp.Diff(want, brokenEKSRules(t, values)); diff != "" {
					t.Errorf("broken rules (-want +got):\n%s", diff)
				}
				return
			}
			for _, delivery := range []string{"nri", "watch"} {
				values["delivery"] = delivery
				if broken := brokenEKSRules(t, values); len(broken) > 0 {
					t.Errorf("delivery %s: broken rules %q", delivery, broken)
				}
			}
		})
	}
}

// brokenEKSRules are those of the rules above that a render breaks, in order. Rules that
// every environment must keep are errors of the test.
func brokenEKSRules(t *testing.T, values map[string]any) []string {
	t.Helper()
	broken := map[string]bool{}
	for _, o := range objects(t, "1.34", values) {
		a, err := meta.Accessor(o)
		mustOK(t, err)
		for key := range a.GetAnnotations() {
			broken[noHooks] = broken[noHooks] || strings.HasPrefix(key, "helm.sh/hook")
		}
		if ns := a.GetNamespace(); ns != "" && ns != "kube-system" {
			t.Errorf("%s: in the namespace %s, not in the add-on's", a.GetName(), ns)
		}
		if group := o.GetObjectKind().GroupVersionKind().Group; strings.HasSuffix(group, ".com") || strings.HasSuffix(group, ".io") && !strings.HasSuffix(group, ".k8s.io") {
			t.Errorf("%s: a custom resource of %s is on by default", a.GetName(), group)
		}
		switch o := o.(type) {
		case *apps.DaemonSet:
			lookAtPod(t, a.GetName(), &o.Spec.Template.Spec, broken)
		case *core.Pod:
			lookAtPod(t, a.GetName(), &o.Spec, broken)
		}
	}
	maps.DeleteFunc(broken, func(_ string, is bool) bool { return !is })
	return slices.Sorted(maps.Keys(broken))
}

var cniDir = regexp.MustCompile(`/cni(/|$)`)

func lookAtPod(t *testing.T, name string, pod *core.PodSpec, broken map[string]bool) {
	t.Helper()
	mounted, writable := map[string]bool{}, map[string]bool{}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		for _, m := range c.VolumeMounts {
			mounted[m.Name] = true
			writable[m.Name] = writable[m.Name] || !m.ReadOnly
		}
		for _, e := range c.Env {
			broken[noDelivery] = broken[noDelivery] || e.Name == "PODWEIR_DELIVERY" && e.Value != "nri" && e.Value != "watch"
		}
		if s := c.SecurityContext; s != nil && s.Privileged != nil && *s.Privileged {
			t.Errorf("%s: the container %s is privileged", name, c.Name)
		}
	}
	for _, v := range pod.Volumes {
		if v.HostPath == nil {
			continue
		}
		switch dir := path.Clean(v.HostPath.Path); {
		case cniDir.MatchString(dir):
			broken[noCNI] = broken[noCNI] || writable[v.Name]
		case dir == "/": // what is mounted below it can be written to, read-only or not
			broken[noFiles] = broken[noFiles] || mounted[v.Name]
		case !strings.HasPrefix(dir+"/", "/run/") && !strings.HasPrefix(dir+"/", "/var/run/") && !strings.HasPrefix(dir+"/", "/sys/fs/bpf/"):
			broken[noFiles] = broken[noFiles] || writable[v.Name]
		}
	}
}

// TestEKSMakesAManifestOfTheChart: EKS renders without a cluster, replaces the parts of
// images by their names, and installs what it rendered once.
func TestEKSMakesAManifestOfTheChart(t *testing.T) {
	names, err := filepath.Glob(chartDir + "/templates/*")
	if err != nil || len(names) < 5 {
		t.Fatalf("templates: %v, %v", names, err)
	}
	allowed := regexp.MustCompile(`\.Release\.(Name|Namespace)\b|\.Capabilities\.KubeVersion\b`)
	refused := regexp.MustCompile(`\.Release\b|\.Capabilities\b|\blookup\b|\b(rand[A-Z]\w+|uuidv4|now|gen(CA|SelfSignedCert|SignedCert|PrivateKey)\w*|htpasswd)\s|[({|] *(?:env|expandenv) `)
	image := regexp.MustCompile(`(?m)^\s*(?:- )?image: *(.*)$`)
	parts := regexp.MustCompile(`^"\{\{ \$?\.Values\.image\.registry \}\}/\{\{ \$?\.Values\.image\.repository \}\}:\{\{ \$?\.Values\.image\.tag \}\}`)
	action := regexp.MustCompile(`(?s)\{\{.*?\}\}`)
	for _, name := range names {
		text, err := os.ReadFile(name)
		mustOK(t, err)
		for _, a := range action.FindAllString(string(text), -1) {
			if !strings.HasPrefix(strings.TrimLeft(a, "{- "), "/*") && refused.MatchString(allowed.ReplaceAllString(a, "")) {
				t.Errorf("%s: %s gives nothing, or something else each time, where EKS makes the manifest", name, a)
			}
		}
		for _, m := range image.FindAllStringSubmatch(string(text), -1) {
			if !parts.MatchString(m[1]) {
				t.Errorf("%s: image %s: AWS replaces registry, repository and tag by their names", name, m[1])
			}
		}
	}
	chart, err := readYAML(chartDir + "/Chart.yaml")
	mustOK(t, err)
	if v, _ := chart["version"].(string); !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(v) {
		t.Errorf("version %q of the chart: AWS takes three numbers", v)
	}
}

// TestEKSConfigurationSchema: what users of the add-on may set are values of the chart,
// described, and nothing that AWS keeps fixed or that is a secret.
func TestEKSConfigurationSchema(t *testing.T) {
	text, err := os.ReadFile(chartDir + "/aws_mp_configuration_schema.json")
	mustOK(t, err)
	type schema struct {
		Schema      string            `json:"$schema"`
		Description string            `json:"description"`
		Additional  any               `json:"additionalProperties"`
		Properties  map[string]schema `json:"properties"`
	}
	var top schema
	mustOK(t, json.Unmarshal(text, &top))
	if top.Schema != "http://json-schema.org/draft-07/schema#" || top.Additional != false {
		t.Errorf("$schema %q, additionalProperties %v: want a draft that AWS reads, and false", top.Schema, top.Additional)
	}
	values, err := readYAML(chartDir + "/values.yaml")
	mustOK(t, err)
	camel := regexp.MustCompile(`^[a-z][a-zA-Z0-9]*$`)
	fixed := regexp.MustCompile(`(?i)^(image.*|.*probe|serviceAccount|priorityClassName|.*securityContext|updateStrategy|.*nameOverride|extraVolume.*)$|password|secret|token`)
	var look func(where string, properties map[string]schema, values map[string]any)
	look = func(where string, properties map[string]schema, values map[string]any) {
		for name, p := range properties {
			value, ok := values[name]
			switch below, isMap := value.(map[string]any); {
			case !ok:
				t.Errorf("%s%s is no value of the chart", where, name)
			case p.Description == "" || !camel.MatchString(name) || fixed.MatchString(name):
				t.Errorf("%s%s: described as %q; want camelCase, a description, and nothing that AWS keeps fixed", where, name, p.Description)
			case isMap && len(below) > 0:
				look(where+name+".", p.Properties, below)
			}
		}
	}
	look("", top.Properties, values)
	if len(top.Properties) == 0 {
		t.Error("the schema has no property")
	}
}
