// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netconf_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/plugin/units"
)

func page(t *testing.T, name string) string {
	t.Helper()
	return string(must.Get(os.ReadFile(filepath.Join("..", "..", "docs", "reference", name)))(t))
}

// inTables finds what is in backquotes in the first cell of a table's rows.
func inTables(text string, like *regexp.Regexp) []string {
	var out []string
	for line := range strings.Lines(text) {
		cell, _, row := strings.Cut(strings.TrimPrefix(line, "| "), " |")
		if !row || !strings.HasPrefix(line, "| ") {
			continue
		}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
			if like.MatchString(m[1]) {
				out = append(out, m[1])
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func sorted(s []string) []string {
	slices.Sort(s)
	return s
}

func TestDocsNameEveryKeyAndAnnotation(t *testing.T) {
	t.Parallel()
	annotationsPage, keysPage := page(t, "annotations.md"), page(t, "configuration.md")
	annotations := slices.Compact(sorted(append(netconf.Annotations(), netconf.NamespaceAnnotations()...))) // one is of both
	must.Match(t, "annotations.md", annotations, inTables(annotationsPage, regexp.MustCompile("^podweir")))
	others := []string{"auto", "qdisc", "bandwidth"} // modes and capabilities
	var named []string
	for _, k := range inTables(keysPage, regexp.MustCompile("^[a-zA-Z]+$")) {
		if !slices.Contains(others, k) {
			named = append(named, k)
		}
	}
	must.Match(t, "configuration.md", sorted(netconf.Keys()), named)
}

func TestDocsExamplesAreValid(t *testing.T) {
	t.Parallel()
	blocks := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(page(t, "configuration.md"), -1)
	if len(blocks) < 2 {
		t.Fatalf("%d examples in configuration.md, want two", len(blocks))
	}
	for _, b := range blocks {
		var entry map[string]any
		if err := json.Unmarshal([]byte(b[1]), &entry); err != nil {
			t.Fatalf("example %s: %v", b[1], err)
		}
		entry["cniVersion"], entry["name"], entry["prevResult"] = "1.0.0", "net", map[string]any{}
		checkExample(t, entry)
	}
	pod := map[string]string{}
	for line := range strings.Lines(page(t, "annotations.md")) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && strings.HasPrefix(line, "    ") {
			pod[key] = value
		}
	}
	if len(pod) < 3 {
		t.Errorf("example of annotations.md = %v, want annotations", pod)
	}
	checkExample(t, map[string]any{
		"cniVersion": "1.0.0", "name": "net", "prevResult": map[string]any{},
		"runtimeConfig": map[string]any{netconf.PodAnnotationsCapability: pod},
	})
}

func checkExample(t *testing.T, entry map[string]any) {
	t.Helper()
	in := must.Get(json.Marshal(entry))(t)
	must.Len(t, string(in)+": warnings", 0, must.Get(netconf.Parse(netconf.Add, in))(t).Warnings)
}

func TestDocsNameRangesAndDefaults(t *testing.T) {
	t.Parallel()
	must.Have(t, "configuration.md", page(t, "configuration.md"),
		"| time | "+netconf.MinHorizon.String()+" to "+netconf.MaxHorizon.String()+" | `"+shaping.DefaultHorizon.String()+"` |",
		"| "+netconf.MinLightShare.String()+" to "+netconf.MaxLightShare.String()+" | `"+shaping.DefaultLightShare.String()+"` |",
		"| "+netconf.MinHeavyThreshold.String()+" to "+netconf.MaxHeavyThreshold.String()+", under `elephants` to "+
			netconf.MaxElephantsThreshold.String()+" | `"+shaping.DefaultHeavyThreshold.String()+"` |",
		strings.Join(terms.CNIVersions[:6], ", ")+" or "+terms.CNIVersions[6])
	if units.MinRate != 1e3 || units.MaxRate != 400e9 || units.MaxBurst != 500e6 ||
		netconf.MaxSubnets != 256 {
		t.Error("a range changed that configuration.md and the error texts write in words")
	}
}
