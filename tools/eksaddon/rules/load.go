// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package rules

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"helm.sh/helm/v3/pkg/ignore"

	"github.com/podweir/podweir/tools/eksaddon/helmchart"
)

// release is the name that the check gives to the imagined installation.
const release = "addon"

// Chart is a chart directory, read once for all rules.
type Chart struct {
	dir   string
	o     Options
	files map[string][]byte
	// merged are the values given on the command line, values those of
	// values.yaml with their places.
	merged map[string]any
	values *yaml.Node
	// rendered is empty, and renderError set, where Helm refuses the chart.
	rendered    []Object
	renderError error
}

// Object is one rendered Kubernetes object.
type Object struct {
	// Template that made it.
	Template string
	// Fields is the decoded document.
	Fields map[string]any
}

// Kind of the object; empty where it has none.
func (o Object) Kind() string { return str(o.Fields, "kind") }

// Name of the object.
func (o Object) Name() string { return str(o.Fields, "metadata", "name") }

func load(dir string, o Options) (*Chart, error) {
	c := &Chart{dir: dir, o: o, files: map[string][]byte{}, merged: map[string]any{}}
	if err := c.readFiles(); err != nil {
		return nil, err
	}
	if c.files["Chart.yaml"] == nil {
		return nil, fmt.Errorf("%s has no Chart.yaml", dir)
	}
	for _, name := range o.Values {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		more := map[string]any{}
		if err := yaml.Unmarshal(data, &more); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		merge(c.merged, more)
	}
	c.values = &yaml.Node{}
	// A values.yaml that does not parse is what Helm complains of (EKS108).
	if err := yaml.Unmarshal(c.files["values.yaml"], c.values); err != nil {
		c.values = &yaml.Node{}
	}
	c.rendered, c.renderError = c.render(c.o.KubeVersions[0])
	return c, nil
}

// readFiles takes what "helm package" would: .helmignore holds.
func (c *Chart) readFiles() error {
	skip := ignore.Empty()
	if r, err := ignore.ParseFile(filepath.Join(c.dir, ignore.HelmIgnore)); err == nil {
		skip = r
	}
	skip.AddDefaults()
	return filepath.WalkDir(c.dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == c.dir {
			return err
		}
		below, _ := filepath.Rel(c.dir, name)
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case skip.Ignore(filepath.ToSlash(below), info) && d.IsDir():
			return filepath.SkipDir
		case d.IsDir() || skip.Ignore(filepath.ToSlash(below), info):
			return nil
		}
		data, err := os.ReadFile(name)
		c.files[filepath.ToSlash(below)] = data
		return err
	})
}

// render does what AWS does with the chart:
// "helm template --set k8version=V --kube-version V --namespace N --include-crds --no-hooks -f ...".
func (c *Chart) render(version string) ([]Object, error) {
	values := map[string]any{"k8version": version}
	merge(values, c.merged)
	manifests, err := helmchart.Render(c.dir, helmchart.Options{
		Release: release, Namespace: c.o.Namespace, KubeVersion: version, Values: values,
	})
	if err != nil {
		return nil, err
	}
	var out []Object
	for _, m := range manifests {
		objects, err := decode(m.Template, []byte(m.Text))
		if err != nil {
			return nil, err
		}
		out = append(out, objects...)
	}
	for _, name := range c.names("crds/") {
		objects, err := decode(name, c.files[name])
		if err != nil {
			return nil, err
		}
		out = append(out, objects...)
	}
	return out, nil
}

func decode(name string, text []byte) ([]Object, error) {
	var out []Object
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		fields := map[string]any{}
		switch err := decoder.Decode(&fields); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("%s: rendered YAML: %w", name, err)
		case len(fields) > 0:
			out = append(out, Object{Template: name, Fields: fields})
		}
	}
}

// names lists the files below a directory, in order.
func (c *Chart) names(dir string) []string {
	var out []string
	for name := range c.files {
		if strings.HasPrefix(name, dir) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// line returns where text stands in a file, from 1, or 0.
func (c *Chart) line(name, text string) int {
	i := bytes.Index(c.files[name], []byte(text))
	if i < 0 || text == "" {
		return 0
	}
	return bytes.Count(c.files[name][:i], []byte("\n")) + 1
}

// at makes a finding about a rendered object: the line is that of the text in
// the template, else in the values, from where it must have come.
func (c *Chart) at(o Object, text, format string, args ...any) Finding {
	f := Finding{File: o.Template, Message: fmt.Sprintf("%s %s: ", o.Kind(), o.Name()) + fmt.Sprintf(format, args...)}
	if f.Line = c.line(o.Template, text); f.Line == 0 {
		if n := c.line("values.yaml", text); n > 0 {
			f.File, f.Line = "values.yaml", n
		}
	}
	return f
}

// merge lays over's keys over those of base, maps key by key.
func merge(base, over map[string]any) {
	for key, value := range over {
		m, isMap := value.(map[string]any)
		if old, ok := base[key].(map[string]any); ok && isMap {
			merge(old, m)
			continue
		}
		base[key] = value
	}
}

// get follows keys through maps; nil where there is no way.
func get(fields any, keys ...string) any {
	for _, key := range keys {
		m, ok := fields.(map[string]any)
		if !ok {
			return nil
		}
		fields = m[key]
	}
	return fields
}

func str(fields any, keys ...string) string {
	s, _ := get(fields, keys...).(string)
	return s
}

func list(fields any, keys ...string) []any {
	l, _ := get(fields, keys...).([]any)
	return l
}
