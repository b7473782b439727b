// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/e2e/k8s/cilium"
	"github.com/podweir/podweir/e2e/matrix/cnis"
	"github.com/podweir/podweir/e2e/matrix/row"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// docs are the pages of the repository.
const docs = "../../docs"

func matrix(t *testing.T) *row.Matrix {
	t.Helper()
	m := must.Get(row.Parse(rows))(t)
	return m
}

func TestEveryRowCanBePlanned(t *testing.T) {
	used := map[string]bool{}
	for _, r := range matrix(t).Rows {
		if r.Needs != "" {
			continue
		}
		used[r.CNI] = true
		if _, err := plan(r); err != nil {
			t.Error(err)
		}
		for _, f := range r.Kernel {
			if probes[f] == "" {
				t.Errorf("row %s: kernel feature %q has no probe", r.Name, f)
			}
		}
		if _, err := os.Stat(filepath.Join("../../chart/values", r.Values+".yaml")); err != nil {
			t.Errorf("row %s: %v", r.Name, err)
		}
		// A row without podweir has nothing to do the same by.
		if r.Recipe == "" && r.Scenario != row.Stock {
			t.Errorf("row %s has no recipe", r.Name)
		} else if _, err := os.Stat(filepath.Join(docs, r.Recipe)); err != nil {
			t.Errorf("row %s: %v", r.Name, err)
		}
	}
	for _, name := range cnis.Names() {
		if !used[name] {
			t.Errorf("no row has the CNI %s", name)
		}
	}
}

// TestRowsDoWhatOthersLeaveToThem reads the reasons for steps that are left out.
func TestRowsDoWhatOthersLeaveToThem(t *testing.T) {
	m := matrix(t)
	for _, r := range m.Rows {
		for step, reason := range r.Skip {
			named := 0
			for _, other := range m.Rows {
				if !slices.Contains(strings.FieldsFunc(reason, func(c rune) bool { return c == ' ' || c == ',' }), other.Name) {
					continue
				}
				named++
				if steps, err := plan(other); err != nil || !slices.Contains(steps, step) {
					t.Errorf("row %s leaves %q to row %s, which does %q, %v", r.Name, step, other.Name, steps, err)
				}
			}
			if named == 0 {
				t.Errorf("row %s leaves out %q and names no row that does it: %s", r.Name, step, reason)
			}
		}
	}
}

// TestVersionsAreThoseOfTheModules holds the versions in matrix.yaml to the
// modules that are built.
func TestVersionsAreThoseOfTheModules(t *testing.T) {
	plugins := must.Get(os.ReadFile("../k8s/components/go.mod"))(t)
	var ciliums string
	for _, mod := range []string{cilium.Newest, cilium.Old} {
		text := must.Get(os.ReadFile(filepath.Join("../cilium", mod)))(t)
		ciliums += string(text)
	}
	amazon := must.Get(os.ReadFile("../npa/go.mod"))(t)
	from := map[string]string{"containernetworking/plugins": string(plugins), "cilium/cilium": ciliums, "aws/amazon-vpc-cni-k8s": string(amazon)}
	for _, r := range matrix(t).Rows {
		// The agent beside it is in no go.mod if it is the newest.
		first, _, _ := strings.Cut(strings.Replace(r.Version, "VPC CNI", "aws/amazon-vpc-cni-k8s", 1), ",")
		module, version, _ := strings.Cut(first, " ")
		if text, ok := from[module]; ok && !strings.Contains(strings.ReplaceAll(text, "\n", " "), "github.com/"+module+" "+version+" ") {
			t.Errorf("row %s: no go.mod has %s", r.Name, r.Version)
		}
	}
}

// TestCommittedPageIsOfItsResults wants -count=1, as make test-pages has it: go
// keeps what a test said whatever files outside of its module have become.
func TestCommittedPageIsOfItsResults(t *testing.T) {
	page := must.Get(os.ReadFile(filepath.Join(docs, "reference/support.md")))(t)
	neighbours := must.Get(readPins(filepath.Join(docs, "reference/support.md")))(t)
	if len(neighbours) == 0 || matrix(t).Page(string(page), committed(t), neighbours) != string(page) {
		t.Error("docs/reference/support.md is not what matrix.yaml, the results and neighbours.json give: " +
			"make matrix-page writes it again")
	}
}

// TestProfilesCiteTheRowsThatPassed holds compat/profiles to the results.
func TestProfilesCiteTheRowsThatPassed(t *testing.T) {
	passed := map[string][]string{}
	results := committed(t)
	for _, r := range matrix(t).Rows {
		i := slices.IndexFunc(results, func(res row.Result) bool { return res.Row == r.Name })
		if r.Profile != "" && r.Scenario != row.Stock && i >= 0 && results[i].Lacks == "" && results[i].Failure() == nil {
			passed[r.Profile] = append(passed[r.Profile], r.Name)
		}
	}
	known := map[string]bool{}
	for _, p := range profiles.All() {
		known[p.Name] = true
		must.Match(t, fmt.Sprintf("profile %s: Tried is not the rows that passed", p.Name), passed[p.Name], p.Tried)
	}
	for _, r := range matrix(t).Rows {
		if r.Profile != "" && !known[r.Profile] {
			t.Errorf("row %s: there is no profile %q", r.Name, r.Profile)
		}
	}
}

// TestReadmeQuotesRows compares what README quotes of a row with what was seen in it.
func TestReadmeQuotesRows(t *testing.T) {
	readme := must.Get(os.ReadFile("../../README.md"))(t)
	found := regexp.MustCompile("\\[([a-z-]+)\\]\\(docs/reference/support\\.json\\): `([^`]+)`").FindAllStringSubmatch(string(readme), -1)
	if len(found) == 0 {
		t.Error("README.md quotes no row")
	}
	for _, m := range found {
		i := slices.IndexFunc(committed(t), func(r row.Result) bool { return r.Row == m[1] })
		if i < 0 || !strings.Contains(fmt.Sprint(committed(t)[i].Steps), m[2]) {
			t.Errorf("README.md quotes %q of the row %s, which has not seen it", m[2], m[1])
		}
	}
}

// committed are the last results of each row.
func committed(t *testing.T) []row.Result {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(docs, "reference/support.json"))
	var results []row.Result
	if err == nil {
		err = json.Unmarshal(raw, &results)
	}
	must.OK(t, err)
	return results
}
