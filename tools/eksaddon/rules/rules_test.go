// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package rules_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/podweir/podweir/tools/eksaddon/rules"
)

// The charts are archives: testdata/good.txtar keeps every rule, each of the
// others replaces files of it (an empty file removes one) and says above the
// files what must be found, a line each:
//
//	want CODE file:line text of the message
//
// and before that, where needed, "options: submission".

func readArchive(t *testing.T, name string) *txtar.Archive {
	t.Helper()
	a, err := txtar.ParseFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// chartDir writes the good chart with the changes of an archive.
func chartDir(t *testing.T, change *txtar.Archive) string {
	t.Helper()
	files := map[string][]byte{}
	for _, a := range []*txtar.Archive{readArchive(t, "good.txtar"), change} {
		for _, f := range a.Files {
			files[f.Name] = f.Data
		}
	}
	dir := t.TempDir()
	for name, data := range files {
		if len(bytes.TrimSpace(data)) == 0 {
			continue
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func options() rules.Options {
	return rules.Options{Namespace: "kube-system", KubeVersions: []string{"1.33"}}
}

func check(t *testing.T, dir string, o rules.Options) []rules.Finding {
	t.Helper()
	findings, err := rules.Check(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(findings, func(f rules.Finding) bool { return f.Review })
}

func TestGoodChartKeepsEveryRule(t *testing.T) {
	for _, f := range check(t, chartDir(t, &txtar.Archive{}), options()) {
		t.Error(f)
	}
}

func TestEachRuleIsBrokenByAChart(t *testing.T) {
	names, err := filepath.Glob("testdata/EKS*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			a := readArchive(t, filepath.Base(name))
			o := options()
			o.Submission = strings.Contains(string(a.Comment), "options: submission")
			compare(t, wanted(a), check(t, chartDir(t, a), o), seen)
		})
	}
	var without []string
	for _, r := range rules.All() {
		if !seen[r.Code] {
			without = append(without, r.Code)
		}
	}
	if len(without) > 0 {
		t.Errorf("no chart in testdata breaks %v", without)
	}
}

func wanted(a *txtar.Archive) []string {
	var out []string
	for line := range strings.Lines(string(a.Comment)) {
		if want, ok := strings.CutPrefix(strings.TrimSpace(line), "want "); ok {
			out = append(out, want)
		}
	}
	return out
}

// compare holds findings against wants, each exactly once.
func compare(t *testing.T, wants []string, findings []rules.Finding, seen map[string]bool) {
	t.Helper()
	if len(wants) == 0 {
		t.Error("the archive wants nothing")
	}
	for _, want := range wants {
		code, rest, _ := strings.Cut(want, " ")
		place, text, _ := strings.Cut(rest, " ")
		i := slices.IndexFunc(findings, func(f rules.Finding) bool {
			return f.Code == code && place == fmt.Sprintf("%s:%d", f.File, f.Line) && strings.Contains(f.Message, text)
		})
		if i < 0 {
			t.Errorf("not found: %s", want)
			continue
		}
		seen[code] = true
		findings = slices.Delete(findings, i, i+1)
	}
	for _, f := range findings {
		t.Errorf("not wanted: %s", f)
	}
}

func TestValuesFilesGoOverTheChart(t *testing.T) {
	dir := chartDir(t, &txtar.Archive{})
	over := filepath.Join(t.TempDir(), "over.yaml")
	if err := os.WriteFile(over, []byte("hostDir: /opt/cni/bin\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	o := options()
	o.Values = []string{over}
	findings := check(t, dir, o)
	if len(findings) != 1 || findings[0].Code != "EKS101" {
		t.Errorf("findings = %v, want one of EKS101", findings)
	}
}

// TestOwnValues: podweir's chart may be an add-on with the values for one, and with no
// others.
func TestOwnValues(t *testing.T) {
	for values, want := range map[string][]string{
		"eks-addon": nil,
		"k3s":       {"EKS101", "EKS102", "EKS128", "EKS129"},
	} {
		o := options()
		o.Values = []string{"../../../chart/values/" + values + ".yaml"}
		var got []string
		for _, f := range check(t, "../../../chart", o) {
			got = append(got, f.Code)
		}
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, want) {
			t.Errorf("%s.yaml: %v, want %v", values, got, want)
		}
	}
}

func TestReviewIsNoError(t *testing.T) {
	all, err := rules.Check(chartDir(t, &txtar.Archive{}), options())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(f rules.Finding) bool { return f.Review })
	if i < 0 || !strings.Contains(all[i].String(), "review: EKS125") {
		t.Errorf("findings = %v, want the host path for review", all)
	}
}

func TestDirectoryWithoutChart(t *testing.T) {
	if _, err := rules.Check(t.TempDir(), options()); err == nil || !strings.Contains(err.Error(), "Chart.yaml") {
		t.Errorf("error = %v, want one that names Chart.yaml", err)
	}
}

func TestCodesAreUnique(t *testing.T) {
	seen := map[string]int{}
	for _, r := range rules.All() {
		seen[r.Code]++
	}
	for code := range maps.Keys(seen) {
		if seen[code] != 1 {
			t.Errorf("%s is used %d times", code, seen[code])
		}
	}
}
