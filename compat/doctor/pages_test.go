// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/testutil/must"
)

const pages = "../../docs/reference/doctor"

// TestPages: every code has its page in the form that the doctor reads, and every page
// has a code and names only codes that exist. The index is made from them.
func TestPages(t *testing.T) {
	codes := map[string]bool{"README": true, "pages": true, "v1.schema": true}
	for _, c := range doctor.Checks() {
		codes[c.Code] = true
		if c.Title == "" {
			t.Errorf("%s/%s.md is not in the form that docs/contributing/doctor-checks.md has", pages, c.Code)
		}
	}
	entries := must.Get(os.ReadDir(pages))(t)
	for _, e := range entries {
		if !codes[strings.TrimSuffix(e.Name(), filepath.Ext(e.Name()))] {
			t.Errorf("%s/%s: no check has this code", pages, e.Name())
		}
		text := must.Get(os.ReadFile(filepath.Join(pages, e.Name())))(t)
		for _, code := range regexp.MustCompile(`PW[1-9]\d\d`).FindAllString(string(text), -1) {
			if !codes[code] {
				t.Errorf("%s/%s names %s, and there is no such check", pages, e.Name(), code)
			}
		}
	}
	for _, pair := range doctor.Together {
		if !codes[pair[0]] || !codes[pair[1]] {
			t.Errorf("%s and %s are reported together, and both have to be checks", pair[0], pair[1])
		}
	}
	name := filepath.Join(pages, "README.md")
	if *update {
		must.OK(t, os.WriteFile(name, []byte(index()), 0o644))
	}
	got := must.Get(os.ReadFile(name))(t)
	must.Match(t, fmt.Sprintf("%s is not what -update writes", name), index(), string(got))
}

const head = `# Doctor codes

` + "`podweir doctor`" + ` checks whether podweir can work on a node, is wired in, and works beside everything else there. It changes nothing. It
lists problems, and counts what is in order; ` + "`podweir doctor -v`" + ` lists that too. ` + "`podweir explain PW602`" + ` prints the page of a code.

| result | meaning |
| --- | --- |
| ok | as it should be |
| warn | works less well than it could, or may break later |
| fail | pods are not shaped, or another component's policy or networking is in danger |
| skip | has no meaning here, or needs a check that does not hold |
| unknown | could not be found out; that is not ok |

Exit status: 1 if a check failed, else 2 if one is unknown or the doctor could not run, else 0.

Flags and where to run it: [Commands](../cli.md#podweir-doctor).

A code is never used for another check. This page is made from the others: ` + "`go test ./compat/doctor -update`" + `.

| code | severity | category | checks that |
| --- | --- | --- | --- |
`

const schema = `
## JSON

` + "`-o json`" + ` writes one object. Fields may be added under the same ` + "`schema`" + `; one that changes or goes makes another.

| field | meaning |
| --- | --- |
| ` + "`schema`" + ` | ` + "`" + doctor.Schema + "`" + ` |
| ` + "`version`, `kernel`, `runtime`" + ` | of podweir, the node's kernel and its container runtime |
| ` + "`profile`, `profileAssumed`, `profileWhy`" + ` | the [profile](../profiles.md) of the CNI in force; whether a fact is missing; how it was found |
| ` + "`delivery`" + ` | the delivery that suits the node: ` + "`chain`, `drop-in`, `handed`, `nri` or `watch`" + ` |
| ` + "`checks`" + ` | one object for each check, in the order of the table |
| ` + "`checks[].code`, `title`, `category`, `status`" + ` | the check and its result |
| ` + "`checks[].seen`, `expected`, `why`, `fix`" + ` | what is there, what should be, why it matters, what to do |
| ` + "`checks[].evidence`" + ` | files, devices and programs, all of them |
| ` + "`checks[].also`" + ` | codes of other checks that the same problem breaks, with what they saw; they are skipped |
| ` + "`checks[].page`" + ` | the page of the code in the source tree |
| ` + "`count`" + ` | number of checks with each result |
`

func index() string {
	var b bytes.Buffer
	b.WriteString(head)
	for _, c := range doctor.Checks() {
		fmt.Fprintf(&b, "| [%s](%s.md) | %s | %s | %s |\n", c.Code, c.Code, c.Severity, c.Category, c.Title)
	}
	b.WriteString(schema)
	return b.String()
}

// checklist says which code answers which item of the lists that the doctor was
// made from.
const checklist = "../../docs/contributing/doctor-checks.md"

var codePattern = regexp.MustCompile(`\bPW[0-9]{3}\b`)

// TestChecklist: every item of each list has codes that exist, or a reason for
// none; every code is on the page.
func TestChecklist(t *testing.T) {
	raw := must.Get(os.ReadFile(checklist))(t)
	known, used := map[string]bool{}, map[string]bool{}
	for _, c := range doctor.Checks() {
		known[c.Code] = true
	}
	for _, code := range codePattern.FindAllString(string(raw), -1) {
		if used[code] = true; !known[code] {
			t.Errorf("%s names %s, which is no check", checklist, code)
		}
	}
	for code := range known {
		if !used[code] {
			t.Errorf("%s does not name %s", checklist, code)
		}
	}
	// The lists have so many items.
	for section, items := range map[string]int{
		"## Beside the AWS VPC CNI and its Network Policy Agent": 31, "## Beside Cilium": 29,
	} {
		_, text, ok := strings.Cut(string(raw), section+"\n")
		if !ok {
			t.Fatalf("%s has no %q", checklist, section)
		}
		text, _, _ = strings.Cut(text, "\n## ")
		rows := regexp.MustCompile(`(?m)^(\d+)\. (.+?): (.+)$`).FindAllStringSubmatch(text, -1)
		must.Be(t, section+": items", items, len(rows))
		for i, row := range rows {
			must.Be(t, section+": the item of a row", fmt.Sprint(i+1), row[1])
			if !codePattern.MatchString(row[3]) && !strings.HasPrefix(row[3], "none: ") {
				t.Errorf("%s, item %s: %q is neither codes nor a reason", section, row[1], row[3])
			}
		}
	}
}

// Every check runs behind those it needs, which are all there.
func TestChecksInOrder(t *testing.T) {
	done := map[string]bool{}
	for _, c := range doctor.Checks() {
		for _, need := range c.Needs {
			if !done[need] {
				t.Errorf("%s runs before %s, which it needs, or there is no such check", c.Code, need)
			}
		}
		done[c.Code] = true
	}
}

// writeJSON writes a report as podweir doctor -o json does.
func writeJSON(w io.Writer, rep *doctor.Report) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(rep)
}

// TestPageHasEveryField: the page has every field of the JSON report.
func TestPageHasEveryField(t *testing.T) {
	for _, of := range []reflect.Type{reflect.TypeFor[doctor.Report](), reflect.TypeFor[doctor.Outcome]()} {
		for field := range of.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if field.IsExported() && !strings.Contains(schema, "`"+name+"`") && !strings.Contains(schema, "`checks[]."+name+"`") {
				t.Errorf("the page lacks %s of %v", name, of)
			}
		}
	}
}
