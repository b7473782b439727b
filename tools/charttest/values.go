// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package charttest

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// value is one key of values.yaml.
type value struct {
	key, comment string
	// leaf says that nothing of ours is below it: a scalar, a list, or a map of
	// a form that is Kubernetes' or the user's.
	leaf bool
}

// freeForms are maps whose keys are not ours.
var freeForms = []string{
	"metrics.podMonitor.labels", "metrics.serviceMonitor.labels", "metrics.prometheusRule.labels", "metrics.dashboard.labels", "metrics.tls.endpoint",
	"serviceAccount.annotations", "nodeSelector", "affinity", "podLabels", "podAnnotations", "commonLabels", "securityContext.seLinuxOptions", "securityContext.seccompProfile",
	"admissionPolicy.namespaceSelector",
}

// readValues lists the keys of values.yaml in their order.
func readValues() ([]value, error) {
	data, err := os.ReadFile(chartDir + "/values.yaml")
	if err != nil {
		return nil, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	var out []value
	var visit func(n *yaml.Node, above string) error
	visit = func(n *yaml.Node, above string) error {
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, below := n.Content[i], n.Content[i+1]
			v := value{key: strings.TrimPrefix(above+"."+key.Value, "."), comment: prose(key.HeadComment)}
			v.leaf = below.Kind != yaml.MappingNode || len(below.Content) == 0 || slices.Contains(freeForms, v.key)
			out = append(out, v)
			if !v.leaf {
				if err := visit(below, v.key); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return out, visit(doc.Content[0], "")
}

// prose joins the lines of a comment. The licence and the introduction of the
// file stand above an empty comment line or an empty line.
func prose(comment string) string {
	if i := strings.LastIndex(comment, "\n\n"); i >= 0 {
		comment = comment[i+2:]
	}
	var words []string
	for line := range strings.Lines(comment) {
		words = append(words, strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "#"))...)
	}
	return strings.Join(words, " ")
}

// free reports whether a key lies in a map whose keys are not ours.
func free(all []value, key string) bool {
	return slices.ContainsFunc(all, func(v value) bool {
		return v.leaf && strings.HasPrefix(key, v.key+".")
	})
}

// schemaKeys lists the properties of values.schema.json; items of lists are
// not values of their own.
func schemaKeys() ([]string, error) {
	data, err := os.ReadFile(chartDir + "/values.schema.json")
	if err != nil {
		return nil, err
	}
	type schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
		AnyOf      []json.RawMessage          `json:"anyOf"`
		Type       any                        `json:"type"`
		Additional json.RawMessage            `json:"additionalProperties"`
	}
	var out []string
	var visit func(raw json.RawMessage, above string) error
	visit = func(raw json.RawMessage, above string) error {
		var s schema
		if err := json.Unmarshal(raw, &s); err != nil {
			return err
		}
		if len(s.Properties) > 0 && string(s.Additional) != "false" {
			return fmt.Errorf("values.schema.json: %q takes misspelt keys: additionalProperties is not false", above)
		}
		for name, below := range s.Properties {
			key := strings.TrimPrefix(above+"."+name, ".")
			out = append(out, key)
			if err := visit(below, key); err != nil {
				return err
			}
		}
		for _, one := range s.AnyOf {
			if err := visit(one, above); err != nil {
				return err
			}
		}
		return nil
	}
	err = visit(data, "")
	slices.Sort(out)
	return out, err
}
