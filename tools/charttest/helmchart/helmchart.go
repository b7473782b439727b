// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package helmchart reads, lints and renders a chart directory with Helm's own
// packages, without a cluster: what "helm lint --strict" and "helm template"
// do, as functions. It needs no privileges and writes nothing.
package helmchart

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
)

// Options are the arguments of "helm template" that a chart can see.
type Options struct {
	// Release and Namespace of the installation; both are required.
	Release, Namespace string
	// KubeVersion of the imagined cluster, as "1.33" or "v1.33.2".
	KubeVersion string
	// Values are merged over the chart's own, as -f and --set do.
	Values map[string]any
}

// Manifest is what one template made.
type Manifest struct {
	// Template is the path below the chart directory, as
	// "templates/daemonset.yaml".
	Template string
	// Text is the rendered file: any number of YAML documents.
	Text string
}

// Render returns what "helm template" prints, by template, in the order of
// their names and without NOTES.txt. Hooks are in it: Helm takes them out
// later. An error is Helm's own and names the template or the value.
func Render(dir string, o Options) ([]Manifest, error) {
	all, err := renderAll(dir, o)
	if err != nil {
		return nil, err
	}
	var out []Manifest
	for name, text := range all {
		base := path.Base(name)
		if base == notes || strings.HasPrefix(base, "_") || strings.TrimSpace(text) == "" {
			continue
		}
		out = append(out, Manifest{Template: belowChart(name), Text: text})
	}
	slices.SortFunc(out, func(a, b Manifest) int { return strings.Compare(a.Template, b.Template) })
	return out, nil
}

// notes is the file that Helm prints after an installation.
const notes = "NOTES.txt"

// Notes returns what Helm prints after an installation; empty if the chart has
// no NOTES.txt.
func Notes(dir string, o Options) (string, error) {
	all, err := renderAll(dir, o)
	if err != nil {
		return "", err
	}
	for name, text := range all {
		if belowChart(name) == "templates/"+notes {
			return text, nil
		}
	}
	return "", nil
}

func renderAll(dir string, o Options) (map[string]string, error) {
	c, err := loader.LoadDir(dir)
	if err != nil {
		return nil, err
	}
	version, err := chartutil.ParseKubeVersion(o.KubeVersion)
	if err != nil {
		return nil, fmt.Errorf("version %q of Kubernetes: %w", o.KubeVersion, err)
	}
	if want := c.Metadata.KubeVersion; want != "" && !chartutil.IsCompatibleRange(want, version.String()) {
		return nil, fmt.Errorf("kubeVersion %q of Chart.yaml excludes %s", want, version)
	}
	if err := chartutil.ProcessDependenciesWithMerge(c, o.Values); err != nil {
		return nil, err
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *version
	release := chartutil.ReleaseOptions{Name: o.Release, Namespace: o.Namespace, Revision: 1, IsInstall: true}
	values, err := chartutil.ToRenderValues(c, o.Values, release, capabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, values)
}

// belowChart cuts the chart's name off a template's.
func belowChart(name string) string {
	_, below, _ := strings.Cut(name, "/")
	return below
}

// Lint returns what "helm lint --strict" complains of: every message of the
// severity warning or error.
func Lint(dir string, o Options) ([]support.Message, error) {
	version, err := chartutil.ParseKubeVersion(o.KubeVersion)
	if err != nil {
		return nil, fmt.Errorf("version %q of Kubernetes: %w", o.KubeVersion, err)
	}
	var faults []support.Message
	for _, m := range lint.AllWithKubeVersion(dir, o.Values, o.Namespace, version).Messages {
		if m.Severity >= support.WarningSev {
			faults = append(faults, m)
		}
	}
	return faults, nil
}
