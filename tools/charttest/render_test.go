// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package charttest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pmezard/go-difflib/difflib"
	"go.yaml.in/yaml/v3"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
)

// golden compares text with a file, or writes it.
func golden(t *testing.T, name, text string) {
	t.Helper()
	if os.Getenv("UPDATE") != "" {
		mustOK(t, os.WriteFile(name, []byte(text), 0o644))
		return
	}
	want, err := os.ReadFile(name)
	mustOK(t, err)
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("%s is not what the chart gives (UPDATE=1 writes it):\n%s", name, diff)
	}
}

func mustEnvironments(t *testing.T) map[string]map[string]any {
	t.Helper()
	all, err := environments()
	mustOK(t, err)
	all["everything"], all["service-monitor"] = everything("podMonitor"), everything("serviceMonitor")
	return all
}

func mustRender(t *testing.T, version string, values map[string]any) []manifest {
	t.Helper()
	out, err := render(version, values)
	mustOK(t, err)
	return out
}

const licence = "# SPDX-License-Identifier: Apache-2.0\n# Copyright Authors of podweir\n"

// The default's golden is whole, each other's how it differs from that, or from everything
// with the other monitor. Of the dashboard, which is a file of the chart, a golden has the name.
func TestGoldenRenders(t *testing.T) {
	all := mustEnvironments(t)
	whole := rendered(t, all["default"])
	dir := filepath.Join(chartDir, "testdata", "golden")
	golden(t, filepath.Join(dir, "default.yaml"), whole)
	delete(all, "default")
	for name, values := range all {
		t.Run(name, func(t *testing.T) {
			from, whole := "default.yaml", whole
			if name == "service-monitor" {
				from, whole = "everything", rendered(t, all["everything"])
			}
			diff, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
				A: difflib.SplitLines(whole), B: difflib.SplitLines(rendered(t, values)),
				FromFile: from, ToFile: name, Context: 1,
			})
			mustOK(t, err)
			// Numbers of lines would change with every line above them.
			head := "# How the render differs from " + from + "; UPDATE=1 writes it.\n"
			golden(t, filepath.Join(dir, name+".diff"), head+regexp.MustCompile(`(?m)^@@ .* @@$`).ReplaceAllString(diff, "@@"))
		})
	}
}

// rendered is what "helm template" gives.
func rendered(t *testing.T, values map[string]any) string {
	t.Helper()
	newest := kubeVersions[len(kubeVersions)-1]
	var text strings.Builder
	text.WriteString(licence + "# What \"helm template\" gives for Kubernetes " + newest + "; UPDATE=1 writes it.\n")
	for _, m := range mustRender(t, newest, values) {
		text.WriteString("---\n# Source: " + m.template + "\n" + strings.TrimSpace(m.text) + "\n")
	}
	const dashboard = "dashboards/podweir.json"
	file, err := os.ReadFile(filepath.Join(chartDir, dashboard))
	mustOK(t, err)
	indented := strings.ReplaceAll(strings.TrimSpace(string(file)), "\n", "\n    ")
	return strings.ReplaceAll(text.String(), indented, "("+dashboard+")")
}

// The example in docs is what the chart renders, of nothing but the policies and the
// right.
func TestAdmissionPolicyExample(t *testing.T) {
	text := licence + "# What the chart renders with admissionPolicy.enabled=true: docs/howto/limit-a-namespace.md.\n" +
		"# Written by UPDATE=1 in tools/charttest.\n"
	for _, m := range mustRender(t, kubeVersions[len(kubeVersions)-1], withPolicy) {
		if strings.HasSuffix(m.template, "/admission.yaml") {
			text += "---\n" + strings.TrimSpace(m.text) + "\n"
		}
	}
	golden(t, filepath.Join(docsDir, "examples", "admission-policy.yaml"), text)
}

func TestHelmLintStrict(t *testing.T) {
	for name, values := range mustEnvironments(t) {
		for _, version := range kubeVersions {
			kubernetes, err := chartutil.ParseKubeVersion(version)
			mustOK(t, err)
			for _, f := range lint.AllWithKubeVersion(chartDir, values, "kube-system", kubernetes).Messages {
				if f.Severity >= support.WarningSev {
					t.Errorf("%s, Kubernetes %s: %s: %v", name, version, f.Path, f.Err)
				}
			}
		}
	}
}

func TestOldKubernetesIsRefused(t *testing.T) {
	if _, err := render("1.27", nil); err == nil || !strings.Contains(err.Error(), "kubeVersion") {
		t.Errorf("error = %v, want one that names kubeVersion", err)
	}
}

func TestNotesSayWhatToRunNext(t *testing.T) {
	for name, values := range mustEnvironments(t) {
		daemonSet := "daemonset/podweir"
		if other, ok := values["fullnameOverride"].(string); ok {
			daemonSet = "daemonset/" + other
		}
		_, text, err := renderAs("podweir", "kube-system", "1.34", values)
		mustOK(t, err)
		for _, want := range []string{"podweir doctor", daemonSet, "kubernetes.io/egress-bandwidth", "helm uninstall podweir -n kube-system"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the notes do not say %q", name, want)
			}
		}
	}
	for values, want := range map[string]string{
		`metrics: {tls: {enabled: true}, podMonitor: {enabled: true}}`:                                                 "Agents answer 401",
		`metrics: {tls: {enabled: true, endpoint: {bearerTokenFile: /x}}, podMonitor: {enabled: true}}`:                "Agents answer 401",
		`metrics: {tls: {enabled: true, endpoint: {bearerTokenFile: /x}}, serviceMonitor: {enabled: true}}`:            "",
		`metrics: {address: "::", prometheusRule: {enabled: true}, podMonitor: {enabled: true, interval: 5m1s}}`:       "at the interval 5m1s",
		`metrics: {address: "::", prometheusRule: {enabled: true}, serviceMonitor: {enabled: true, interval: 300s}}`:   "at the interval 300s",
		`metrics: {address: "::", prometheusRule: {enabled: true}, podMonitor: {enabled: true, interval: 4m59s999ms}}`: "",
		`terminationGracePeriodSeconds: 49`:                              "killed after 49 s",
		`terminationGracePeriodSeconds: null`:                            "killed after 30 s",
		`{terminationGracePeriodSeconds: 49, uninstall: {clean: false}}`: "",
	} {
		_, text, err := renderAs("podweir", "kube-system", "1.34", fromYAML(t, values))
		mustOK(t, err)
		for _, warning := range []string{"Agents answer 401", "at the interval", "killed after"} {
			if said := strings.Contains(text, warning); said != strings.HasPrefix(want, warning) || !strings.Contains(text, want) {
				t.Errorf("%s: the notes say %q: %t, want %q:\n%s", values, warning, said, want, text)
			}
		}
	}
}

// A label by which others choose an object is the operator's, also where the chart or
// commonLabels has one of that name; each is there once.
func TestLabelsOfMonitors(t *testing.T) {
	values := fromYAML(t, `{commonLabels: {release: a}, metrics: {address: "::", podMonitor: {enabled: true, labels: {release: b, app.kubernetes.io/component: c}}}}`)
	for _, m := range mustRender(t, "1.34", values) {
		var o struct {
			Metadata struct{ Labels map[string]string }
		}
		if strings.HasSuffix(m.template, "/podmonitor.yaml") {
			mustOK(t, yaml.Unmarshal([]byte(m.text), &o))
			if l := o.Metadata.Labels; l["release"] != "b" || l["app.kubernetes.io/component"] != "c" || l["app.kubernetes.io/name"] != "podweir" {
				t.Errorf("the monitor has the labels %v", l)
			}
		}
	}
}

// fromYAML reads values.
func fromYAML(t *testing.T, text string) (values map[string]any) {
	t.Helper()
	mustOK(t, yaml.Unmarshal([]byte(text), &values))
	return values
}

// mustOK ends the test with err, unless that is nil.
func mustOK(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
