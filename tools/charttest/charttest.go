// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package charttest tests the Helm chart in chart/ without a cluster: what it
// renders for each environment, what it refuses, and that its values and their
// schema say the same. It is a module of its own because Helm
// and the Kubernetes types are needed by nothing else.
//
// With UPDATE=1 in the environment the tests write chart/testdata/golden and
// docs/examples.
package charttest

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

// Places, from this directory.
const (
	chartDir  = "../../chart"
	valuesDir = chartDir + "/values"
	docsDir   = "../../docs"
)

// Kubernetes versions against which everything is rendered: the oldest that
// Chart.yaml allows, the last before a field that the templates ask for, and
// the newest release with which the project is run.
var kubeVersions = []string{"1.28", "1.29", "1.34"}

// environments are the values files by name, "default" being none.
func environments() (map[string]map[string]any, error) {
	out := map[string]map[string]any{"default": {}}
	names, err := filepath.Glob(valuesDir + "/*.yaml")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		values, err := readYAML(name)
		if err != nil {
			return nil, err
		}
		out[strings.TrimSuffix(filepath.Base(name), ".yaml")] = values
	}
	return out, nil
}

func readYAML(name string) (map[string]any, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	if err := yaml.Unmarshal(data, &out); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return out, nil
}

// manifest is what one template made, as text: any number of YAML documents.
type manifest struct{ template, text string }

// render returns what "helm template" prints, in the order of the names of templates.
func render(kubeVersion string, values map[string]any) ([]manifest, error) {
	all, _, err := renderAs("podweir", "kube-system", kubeVersion, values)
	return all, err
}

// renderAs is render for a release and a namespace of these names, with the notes. An error
// is Helm's own and names the template or the value.
func renderAs(release, namespace, kubeVersion string, values map[string]any) (all []manifest, notes string, err error) {
	c, err := loader.LoadDir(chartDir)
	if err != nil {
		return nil, "", err
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	version, err := chartutil.ParseKubeVersion(kubeVersion)
	if err != nil {
		return nil, "", err
	}
	if want := c.Metadata.KubeVersion; !chartutil.IsCompatibleRange(want, version.String()) {
		return nil, "", fmt.Errorf("kubeVersion %q of Chart.yaml excludes %s", want, version)
	}
	capabilities.KubeVersion = *version
	top, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}, capabilities)
	if err != nil {
		return nil, "", err
	}
	texts, err := engine.Render(c, top)
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		_, below, _ := strings.Cut(name, "/")
		switch text := texts[name]; {
		case path.Base(name) == "NOTES.txt":
			notes = text
		case !strings.HasPrefix(path.Base(name), "_") && strings.TrimSpace(text) != "":
			all = append(all, manifest{below, text})
		}
	}
	return all, notes, err
}

// everything turns on whatever is off by default. Of the two monitors there may be one.
func everything(monitors string) map[string]any {
	return map[string]any{
		"metrics": map[string]any{
			"address": "10.0.0.1", "profiles": true,
			"tls": map[string]any{
				"enabled": true, "secretName": "podweir-metrics",
				"endpoint": map[string]any{"tlsConfig": map[string]any{"serverName": "podweir"}, "authorization": map[string]any{"type": "Bearer"}},
			},
			monitors: map[string]any{
				"enabled": true, "interval": "30s", "labels": map[string]any{"team": "net"},
				"relabelings":       []any{map[string]any{"targetLabel": "cluster", "replacement": "a"}},
				"metricRelabelings": []any{map[string]any{"action": "labeldrop", "regex": "interface"}},
			},
			"dashboard":      map[string]any{"enabled": true},
			"prometheusRule": map[string]any{"enabled": true, "labels": map[string]any{"team": "net"}},
		},
		"defaults":         map[string]any{"policy": "elephants", "horizon": "20ms", "maxRate": "1G", "unshapedSubnets": []any{"10.0.0.0/8", "fd00::/8"}},
		"node":             map[string]any{"confDir": "/etc/cni/other.d", "binDir": "/opt/bin", "criSocket": "/run/x.sock"},
		"serviceAccount":   map[string]any{"name": "other", "annotations": map[string]any{"a": "b"}},
		"imagePullSecrets": []any{map[string]any{"name": "registry"}},
		"securityContext": map[string]any{
			"seLinuxOptions": map[string]any{"type": "spc_t"}, "seccompProfile": map[string]any{"type": "Localhost", "localhostProfile": "podweir.json"},
		},
		"image":             map[string]any{"digest": "sha256:" + strings.Repeat("0123456789abcdef", 4)},
		"global":            map[string]any{"imageRegistry": "", "imagePullSecrets": []any{"shared"}},
		"fullnameOverride":  "net-podweir",
		"commonLabels":      map[string]any{"owner": "net"},
		"delivery":          "watch",
		"logFormat":         "text",
		"doctorInterval":    "1m",
		"goMemLimit":        "32MiB",
		"extraArgs":         []any{"--pass=30s"},
		"extraEnv":          []any{map[string]any{"name": "GOGC", "value": "30"}},
		"extraVolumes":      []any{map[string]any{"name": "more", "emptyDir": map[string]any{}}},
		"extraVolumeMounts": []any{map[string]any{"name": "more", "mountPath": "/more"}},
		"uninstall":         map[string]any{"clean": false},
		"minReadySeconds":   30,
		"probes":            map[string]any{"startup": map[string]any{"failureThreshold": 120}},
		"nodeSelector":      map[string]any{"disk": "fast"},
		"podLabels":         map[string]any{"team": "net"},
		"podAnnotations":    map[string]any{"note": "x"},
		"cleanUp":           map[string]any{"nodes": []any{"n1.example"}},
	}
}
