// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/testutil/must"
)

const schemaFile = pages + "/v1.schema.json"

// rules is the part of JSON Schema that the report's uses; another keyword is an
// error.
type rules struct {
	Schema               string            `json:"$schema"`
	ID                   string            `json:"$id"`
	Title                string            `json:"title"`
	Description          string            `json:"description"`
	Type                 string            `json:"type"`
	Const                string            `json:"const"`
	Enum                 []string          `json:"enum"`
	Pattern              string            `json:"pattern"`
	MinLength            int               `json:"minLength"`
	Minimum              float64           `json:"minimum"`
	Required             []string          `json:"required"`
	Properties           map[string]*rules `json:"properties"`
	PropertyNames        *rules            `json:"propertyNames"`
	AdditionalProperties *rules            `json:"additionalProperties"`
	Items                *rules            `json:"items"`
}

func readSchema(t *testing.T) *rules {
	t.Helper()
	raw, err := os.ReadFile(schemaFile)
	must.OK(t, err)
	var r rules
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		t.Fatalf("%s: %v", schemaFile, err)
	}
	return &r
}

// faults are what is wrong with a value, with its place.
func (r *rules) faults(at string, v any) []string {
	var out []string
	wrong := func(format string, args ...any) { out = append(out, at+": "+fmt.Sprintf(format, args...)) }
	text, isText := v.(string)
	number, isNumber := v.(float64)
	object, isObject := v.(map[string]any)
	list, isList := v.([]any)
	_, isBool := v.(bool)
	is := map[string]bool{
		"": true, "string": isText, "object": isObject, "array": isList, "boolean": isBool,
		"integer": isNumber && number == float64(int64(number)),
	}
	switch {
	case !is[r.Type]:
		wrong("%v is no %s", v, r.Type)
	case r.Const != "" && text != r.Const:
		wrong("%v, want %q", v, r.Const)
	case r.Enum != nil && !slices.Contains(r.Enum, text):
		wrong("%v is none of %v", v, r.Enum)
	case r.Pattern != "" && !regexp.MustCompile(r.Pattern).MatchString(text):
		wrong("%q does not match %s", text, r.Pattern)
	case len(text) < r.MinLength || isNumber && number < r.Minimum:
		wrong("%v is too small", v)
	}
	for i, item := range list {
		if r.Items != nil {
			out = append(out, r.Items.faults(fmt.Sprintf("%s[%d]", at, i), item)...)
		}
	}
	for _, name := range r.Required {
		if _, ok := object[name]; !ok {
			wrong("lacks %s", name)
		}
	}
	for name, value := range object {
		if r.PropertyNames != nil {
			out = append(out, r.PropertyNames.faults(at+" name", name)...)
		}
		next := r.Properties[name]
		if next == nil {
			next = r.AdditionalProperties
		}
		if next != nil {
			out = append(out, next.faults(path.Join(at, name), value)...)
		}
	}
	return out
}

// TestSchema: what -o json writes is what the schema says, on good and bad nodes,
// whole and short, with a probe and without.
func TestSchema(t *testing.T) {
	r := readSchema(t)
	if r.Properties["schema"].Const != doctor.Schema {
		t.Errorf("the schema is of %q, the report of %q", r.Properties["schema"].Const, doctor.Schema)
	}
	broken := aws()
	delete(broken.files, own)
	broken.kernel = nil
	probed := cilium()
	probed.prober = flows(probed, 100, 0)
	for name, n := range map[string]*node{
		"good": aws(), "broken": broken, "probed": probed, "empty": {files: map[string]string{"x": ""}},
	} {
		var b bytes.Buffer
		must.OK(t, writeJSON(&b, n.report(t)))
		var v any
		must.OK(t, json.Unmarshal(b.Bytes(), &v))
		if bad := r.faults("report", v); len(bad) > 0 {
			t.Errorf("%s: %s", name, strings.Join(bad, "\n"))
		}
	}
}

// writeJSON writes a report as podweir doctor -o json does.
func writeJSON(w io.Writer, rep *doctor.Report) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(rep)
}

// TestSchemaIsComplete: the schema has every field of the report, and no other.
func TestSchemaIsComplete(t *testing.T) {
	r := readSchema(t)
	for _, tc := range []struct {
		schema *rules
		of     reflect.Type
	}{{r, reflect.TypeFor[doctor.Report]()}, {r.Properties["checks"].Items, reflect.TypeFor[doctor.Outcome]()}} {
		fields := map[string]bool{}
		for field := range tc.of.Fields() {
			if !field.IsExported() {
				continue
			}
			name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			fields[name] = true
			if tc.schema.Properties[name] == nil {
				t.Errorf("the schema lacks %s of %v", name, tc.of)
			}
			// A field that may be left out cannot be required; any other is.
			if required := slices.Contains(tc.schema.Required, name); required == strings.Contains(options, "omitempty") {
				t.Errorf("%s of %v: required is %v", name, tc.of, required)
			}
		}
		for name := range tc.schema.Properties {
			if !fields[name] {
				t.Errorf("the schema has %s, which %v does not have", name, tc.of)
			}
		}
	}
}

// TestSchemaRefuses: the validator above finds faults.
func TestSchemaRefuses(t *testing.T) {
	r := readSchema(t)
	var b bytes.Buffer
	must.OK(t, writeJSON(&b, aws().report(t)))
	for name, tc := range map[string]struct{ before, after string }{
		"another version":  {"doctor/v1", "doctor/v2"},
		"unknown delivery": {`"delivery": "drop-in"`, `"delivery": "mail"`},
		"bad code":         {`"PW101"`, `"X1"`},
		"bad status":       {`"status": "ok"`, `"status": "fine"`},
		"no title":         {`"title": "the kernel is new enough"`, `"title": ""`},
		"count of text":    {`"ok": `, `"ok": "1", "skip": `},
		"unknown result":   {`"count": {`, `"count": {"fine": 1,`},
		"a field missing":  {`"kernel": `, `"colonel": `},
	} {
		text := strings.Replace(b.String(), tc.before, tc.after, 1)
		if name == "count of text" {
			at := strings.LastIndex(b.String(), tc.before)
			text = b.String()[:at] + tc.after + b.String()[at+len(tc.before):]
		}
		if text == b.String() {
			t.Fatalf("%s: the report has no %s", name, tc.before)
		}
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(r.faults("report", v)) == 0 {
			t.Errorf("%s: no fault is found", name)
		}
	}
}
