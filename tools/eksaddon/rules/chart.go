// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package rules

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/podweir/podweir/tools/eksaddon/helmchart"
)

func chartRules() []Rule {
	return []Rule{
		{"EKS106", "charts it depends on lie in it (repository: file://...)", dependencies},
		{"EKS107", "helm lint --strict has nothing to say", linted},
		{"EKS108", "helm template makes valid YAML for every declared Kubernetes version", templated},
		{"EKS117", "the version is <major>.<minor>.<patch>", version},
	}
}

func dependencies(c *Chart) []Finding {
	var meta struct {
		Dependencies []struct {
			Name       string    `yaml:"name"`
			Repository yaml.Node `yaml:"repository"`
		} `yaml:"dependencies"`
	}
	// One that does not parse is Helm's to refuse (EKS107).
	_ = yaml.Unmarshal(c.files["Chart.yaml"], &meta)
	var out []Finding
	for _, d := range meta.Dependencies {
		if repository := d.Repository.Value; !strings.HasPrefix(repository, "file://") {
			line := d.Repository.Line
			if line == 0 {
				line = c.line("Chart.yaml", "name: "+d.Name)
			}
			out = append(out, Finding{File: "Chart.yaml", Line: line, Message: fmt.Sprintf(
				"the chart %s comes from %q; put it under charts/ and say repository: file://charts/%s", d.Name, repository, d.Name)})
		}
	}
	return out
}

// lintPlace finds the line that Helm's linter names, as in
// "template: x/templates/y.yaml:12:3" and "yaml: line 4".
var lintPlace = regexp.MustCompile(`(?:templates/[\w./-]+:|line )(\d+)`)

func linted(c *Chart) []Finding {
	var out []Finding
	for _, v := range c.o.KubeVersions {
		faults, err := helmchart.Lint(c.dir, helmchart.Options{Namespace: c.o.Namespace, KubeVersion: v, Values: c.merged})
		if err != nil {
			out = append(out, Finding{File: "Chart.yaml", Message: err.Error()})
		}
		for _, m := range faults {
			f := Finding{File: c.below(m.Path), Message: strings.TrimSpace(m.Err.Error())}
			if place := lintPlace.FindStringSubmatch(f.Message); place != nil {
				_, _ = fmt.Sscan(place[1], &f.Line)
			}
			out = append(out, f)
		}
	}
	return out
}

// below is the path of a message of Helm's linter under the chart's directory;
// that of the directory itself is about the chart.
func (c *Chart) below(path string) string {
	if !filepath.IsAbs(path) {
		return strings.TrimSuffix(path, "/")
	}
	return "Chart.yaml"
}

func templated(c *Chart) []Finding {
	var out []Finding
	for _, v := range c.o.KubeVersions {
		if _, err := c.render(v); err != nil {
			f := Finding{File: "Chart.yaml", Message: fmt.Sprintf(
				"helm template --set k8version=%s --kube-version %s: %v", v, v, strings.TrimSpace(err.Error()))}
			if strings.Contains(err.Error(), "k8version") {
				f.File, f.Message = "values.schema.json", f.Message+" (AWS sets k8version: the schema has to allow it)"
			}
			out = append(out, f)
		}
	}
	return out
}

// plainVersion is the pattern of the Marketplace API.
var plainVersion = regexp.MustCompile(`^\d+\.\d+\.\d+$`)

func version(c *Chart) []Finding {
	var meta struct {
		Version yaml.Node `yaml:"version"`
	}
	_ = yaml.Unmarshal(c.files["Chart.yaml"], &meta)
	if plainVersion.MatchString(meta.Version.Value) {
		return nil
	}
	return []Finding{{File: "Chart.yaml", Line: meta.Version.Line, Message: fmt.Sprintf("version %q is not three numbers", meta.Version.Value)}}
}
