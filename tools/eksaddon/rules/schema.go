// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package rules

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// schemaFile is what EKS shows for "aws eks describe-addon-configuration" and
// holds --configuration-values against.
const schemaFile = "aws_mp_configuration_schema.json"

// parametersFile says which IAM permissions the add-on needs.
const parametersFile = "aws_mp_addon_parameters.json"

func schemaRules() []Rule {
	return []Rule{
		{"EKS118", schemaFile + " is a JSON Schema of a draft that AWS reads", schemaDraft},
		{"EKS119", "its properties are camelCase and have descriptions", schemaProperties},
		{"EKS120", "it asks for no secrets", schemaSecrets},
		{"EKS121", "it offers nothing that AWS keeps fixed", schemaFixed},
		{"EKS122", "it describes values that the chart has", schemaValues},
		{"EKS123", parametersFile + ", if there is one, names policies", parameters},
	}
}

// drafts are those that AWS Marketplace reads.
var drafts = regexp.MustCompile(`^https?://json-schema\.org/(draft-0[467]/schema#?|draft/2019-09/schema#?)$`)

// schema returns the decoded configuration schema; nil if there is none or it
// is no JSON.
func (c *Chart) schema() map[string]any {
	out := map[string]any{}
	if json.Unmarshal(c.files[schemaFile], &out) != nil {
		return nil
	}
	return out
}

func schemaDraft(c *Chart) []Finding {
	data, ok := c.files[schemaFile]
	if !ok {
		return []Finding{{File: schemaFile, Message: "is missing: without it the add-on has no configuration at all"}}
	}
	s := c.schema()
	if s == nil {
		return []Finding{{File: schemaFile, Message: fmt.Sprintf("is no JSON object: %v", json.Unmarshal(data, &map[string]any{}))}}
	}
	if draft := str(s, "$schema"); !drafts.MatchString(draft) {
		return []Finding{{File: schemaFile, Line: max(1, c.line(schemaFile, "$schema")), Message: fmt.Sprintf(
			"$schema %q; AWS reads draft-04, draft-06, draft-07 and 2019-09", draft)}}
	}
	return nil
}

// property is one property of the configuration schema.
type property struct {
	path   []string
	schema map[string]any
	line   int
}

// properties lists every property at every depth.
func (c *Chart) properties() []property {
	var out []property
	var visit func(schema any, path []string)
	visit = func(schema any, path []string) {
		props, _ := get(schema, "properties").(map[string]any)
		for name, sub := range props {
			p := property{path: append(slices.Clone(path), name), line: c.line(schemaFile, fmt.Sprintf("%q:", name))}
			p.schema, _ = sub.(map[string]any)
			out = append(out, p)
			visit(sub, p.path)
		}
		if items := get(schema, "items"); items != nil {
			visit(items, append(slices.Clone(path), "[]"))
		}
	}
	visit(c.schema(), nil)
	slices.SortFunc(out, func(a, b property) int { return slices.Compare(a.path, b.path) })
	return out
}

func (c *Chart) propertiesWhere(wrong func(property) string) []Finding {
	var out []Finding
	for _, p := range c.properties() {
		if message := wrong(p); message != "" {
			out = append(out, Finding{File: schemaFile, Line: p.line, Message: describe(p.path) + " " + message})
		}
	}
	return out
}

var camelCase = regexp.MustCompile(`^[a-z][a-zA-Z0-9]*$`)

func schemaProperties(c *Chart) []Finding {
	return c.propertiesWhere(func(p property) string {
		switch {
		case !camelCase.MatchString(p.path[len(p.path)-1]):
			return "is not camelCase"
		case strings.TrimSpace(str(p.schema, "description")) == "":
			return "has no description"
		}
		return ""
	})
}

var (
	secretName = regexp.MustCompile(`(?i)(password|passphrase|secret|token|credential|api_?key|private_?key|licen[cs]e_?key)`)
	// secretPointer ends the name of a value that only says where a secret is.
	secretPointer = regexp.MustCompile(`(?:Name|Ref|Names|Refs)$`)
)

func schemaSecrets(c *Chart) []Finding {
	return c.propertiesWhere(func(p property) string {
		name := p.path[len(p.path)-1]
		if secretName.MatchString(name) && !secretPointer.MatchString(name) {
			return "looks like a secret; take the name of a Secret instead"
		}
		return ""
	})
}

// fixed are the values that AWS does not let users set, by their usual names.
var fixed = []string{
	"image", "images", "imagePullSecrets", "imagePullPolicy", "livenessProbe", "readinessProbe", "startupProbe",
	"podDisruptionBudget", "serviceAccount", "priorityClassName", "securityContext", "podSecurityContext",
	"updateStrategy", "nameOverride", "fullnameOverride", "extraVolumes", "extraVolumeMounts",
}

func schemaFixed(c *Chart) []Finding {
	return c.propertiesWhere(func(p property) string {
		if slices.Contains(fixed, p.path[len(p.path)-1]) {
			return "is one of the things that AWS keeps fixed"
		}
		return ""
	})
}

// schemaValues holds the schema against values.yaml: a property that the chart
// does not have would be taken and do nothing, or be refused by the chart.
func schemaValues(c *Chart) []Finding {
	var values any = map[string]any{}
	if decoded := map[string]any{}; c.values.Decode(&decoded) == nil {
		values = decoded
	}
	out := c.propertiesWhere(func(p property) string {
		parent := get(values, p.path[:len(p.path)-1]...)
		m, isMap := parent.(map[string]any)
		if !isMap || (len(m) == 0 && len(p.path) > 1) {
			return "" // inside a list, or of a free form
		}
		value, has := m[p.path[len(p.path)-1]]
		if !has {
			return "is no value of the chart"
		}
		if want := str(p.schema, "type"); want != "" && !hasType(value, want) {
			return fmt.Sprintf("is of type %s, values.yaml has %v", want, value)
		}
		return ""
	})
	if s := c.schema(); s != nil && get(s, "additionalProperties") != false {
		out = append(out, Finding{File: schemaFile, Line: 1, Message: "additionalProperties is not false: a misspelt value would be taken and do nothing"})
	}
	return out
}

func hasType(value any, want string) bool {
	switch v := value.(type) {
	case string:
		return want == "string"
	case bool:
		return want == "boolean"
	case int:
		return want == "integer" || want == "number"
	case float64:
		return want == "number"
	case []any:
		return want == "array"
	case map[string]any:
		return want == "object"
	default:
		return v == nil
	}
}

func parameters(c *Chart) []Finding {
	data, ok := c.files[parametersFile]
	if !ok {
		return nil
	}
	fields := map[string]any{}
	if err := json.Unmarshal(data, &fields); err != nil {
		return []Finding{{File: parametersFile, Message: "is no JSON object: " + err.Error()}}
	}
	permissions := list(fields, "permissions", "permissionsList")
	if len(permissions) == 0 {
		return []Finding{{File: parametersFile, Line: 1, Message: "names no permissions; leave the file out"}}
	}
	var out []Finding
	for _, p := range permissions {
		account := str(p, "serviceAccount")
		if len(list(p, "managedPolicies")) == 0 {
			out = append(out, Finding{File: parametersFile, Line: c.line(parametersFile, account), Message: fmt.Sprintf(
				"service account %q has no managedPolicies, which AWS refuses; leave the file out if no AWS API is called", account)})
		}
	}
	return out
}
