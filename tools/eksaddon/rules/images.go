// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package rules

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

func imageRules() []Rule {
	return []Rule{
		{"EKS109", "in a submission every image is in AWS Marketplace's registry", registries},
		{"EKS110", "images stand in values.yaml alone, as registry, repository and tag", imageReferences},
		{"EKS111", "every image has a tag, and it is not latest", imageTags},
		{"EKS112", "fewer than 50 images", imageCount},
		{"EKS113", "the software runs on amd64 and arm64", architectures},
	}
}

// marketplaceRegistry is where AWS Marketplace keeps sellers' images:
// one account for all of them.
const marketplaceRegistry = "709825985650.dkr.ecr.us-east-1.amazonaws.com"

// maxImages is "fewer than 50" of the Marketplace API reference.
const maxImages = 49

// image is one map in values.yaml that describes an image.
type image struct {
	path                      []string
	line                      int
	registry, repository, tag *yaml.Node
}

func (i *image) reference() string {
	return i.registry.Value + "/" + i.repository.Value + ":" + i.tag.Value
}

// images lists every map of values.yaml that has a repository or a tag.
func (c *Chart) images() []*image {
	var out []*image
	var visit func(n *yaml.Node, path []string)
	visit = func(n *yaml.Node, path []string) {
		if n.Kind == yaml.DocumentNode && len(n.Content) > 0 {
			visit(n.Content[0], path)
		}
		if n.Kind != yaml.MappingNode {
			return
		}
		i := &image{path: path, line: n.Line, registry: &yaml.Node{}, repository: &yaml.Node{}, tag: &yaml.Node{}}
		parts := map[string]**yaml.Node{"registry": &i.registry, "repository": &i.repository, "tag": &i.tag}
		for k := 0; k+1 < len(n.Content); k += 2 {
			if part := parts[n.Content[k].Value]; part != nil && n.Content[k+1].Kind == yaml.ScalarNode {
				*part = n.Content[k+1]
			}
			visit(n.Content[k+1], append(slices.Clone(path), n.Content[k].Value))
		}
		if i.repository.Line > 0 || i.tag.Line > 0 {
			out = append(out, i)
		}
	}
	visit(c.values, nil)
	return out
}

func registries(c *Chart) []Finding {
	if !c.o.Submission {
		return nil
	}
	var out []Finding
	for _, i := range c.images() {
		if i.registry.Value != marketplaceRegistry {
			out = append(out, Finding{File: "values.yaml", Line: i.line, Message: fmt.Sprintf(
				"%s: registry %q; AWS takes images from %s alone", strings.Join(i.path, "."), i.registry.Value, marketplaceRegistry)})
		}
	}
	return out
}

var (
	imageLine = regexp.MustCompile(`^\s*(?:- )?["']?image["']?:\s*(\S.*?)\s*$`)
	// threeParts is the form that AWS prescribes: registry, repository and tag
	// of one map of the values. A digest of the same map may follow where it is set.
	threeParts = regexp.MustCompile(`^["']?\{\{-? *\$?\.Values\.([\w.]+)\.registry *-?\}\}/\{\{-? *\$?\.Values\.([\w.]+)\.repository *-?\}\}:\{\{-? *\$?\.Values\.([\w.]+)\.tag *-?\}\}` +
		`(?:\{\{-? *with +\$?\.Values\.([\w.]+)\.digest *-?\}\}@\{\{-? *\. *-?\}\}\{\{-? *end *-?\}\})?["']?$`)
)

func imageReferences(c *Chart) []Finding {
	var out []Finding
	for _, i := range c.images() {
		if i.registry.Value == "" || i.repository.Value == "" {
			out = append(out, Finding{File: "values.yaml", Line: i.line, Message: fmt.Sprintf(
				"%s: an image needs registry, repository and tag", strings.Join(i.path, "."))})
		}
	}
	for _, name := range c.templates() {
		n := 0
		for line := range bytes.Lines(c.files[name]) {
			n++
			m := imageLine.FindSubmatch(bytes.TrimRight(line, "\n"))
			if m == nil {
				continue
			}
			parts := threeParts.FindSubmatch(m[1])
			if parts == nil || string(parts[1]) != string(parts[2]) || string(parts[1]) != string(parts[3]) ||
				len(parts[4]) > 0 && string(parts[1]) != string(parts[4]) {
				out = append(out, Finding{File: name, Line: n, Message: fmt.Sprintf(
					`image: %s; AWS replaces the parts by name and needs "{{ .Values.x.registry }}/{{ .Values.x.repository }}:{{ .Values.x.tag }}"`, m[1])})
			}
		}
	}
	return append(out, c.undeclared()...)
}

// undeclared finds images in what was rendered that values.yaml does not show.
func (c *Chart) undeclared() []Finding {
	if len(c.o.Values) > 0 {
		return nil // other values, other images: the templates were looked at
	}
	known := map[string]bool{}
	for _, i := range c.images() {
		known[i.reference()] = true
	}
	var out []Finding
	for _, o := range c.rendered {
		for _, container := range containers(o) {
			if ref := str(container, "image"); !known[ref] {
				out = append(out, c.at(o, ref, "image %q is not one of values.yaml", ref))
			}
		}
	}
	return out
}

func imageTags(c *Chart) []Finding {
	var out []Finding
	for _, i := range c.images() {
		if tag := i.tag.Value; tag == "" || tag == "latest" {
			out = append(out, Finding{File: "values.yaml", Line: max(i.tag.Line, i.line), Message: fmt.Sprintf(
				"%s: tag %q; AWS refuses latest and needs the tag in values.yaml", strings.Join(i.path, "."), tag)})
		}
	}
	return out
}

func imageCount(c *Chart) []Finding {
	if n := len(c.images()); n > maxImages {
		return []Finding{{File: "values.yaml", Line: 1, Message: fmt.Sprintf("%d images, at most %d", n, maxImages)}}
	}
	return nil
}

const archLabel = "kubernetes.io/arch"

// architectures finds pods that are kept away from one of the two.
func architectures(c *Chart) []Finding {
	var out []Finding
	for _, o := range c.rendered {
		pod := podSpec(o)
		if pod == nil {
			continue
		}
		if arch := str(pod, "nodeSelector", archLabel); arch != "" {
			out = append(out, c.at(o, archLabel, "nodeSelector keeps it on %s", arch))
		}
		for _, e := range nodeExpressions(pod) {
			if str(e, "key") != archLabel {
				continue
			}
			values := list(e, "values")
			in := str(e, "operator") == "In"
			for _, arch := range []any{"amd64", "arm64"} {
				if slices.Contains(values, arch) != in {
					out = append(out, c.at(o, archLabel, "its node affinity shuts out %s", arch))
				}
			}
		}
	}
	return out
}

// nodeExpressions lists what the nodes of a pod must be.
func nodeExpressions(pod map[string]any) []any {
	var out []any
	terms := list(pod, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
	for _, term := range terms {
		out = append(out, list(term, "matchExpressions")...)
	}
	return out
}
