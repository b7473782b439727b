// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/compat/doctor"
)

const pages = "../../docs/reference/doctor"

// TestPages: every code has its page, made from the registry; every page has a
// code.
func TestPages(t *testing.T) {
	want := map[string]string{"README.md": index()}
	for _, c := range doctor.Checks() {
		want[filepath.Base(doctor.Page(c.Code))] = c.Explanation()
	}
	if *update {
		for name, text := range want {
			if err := os.WriteFile(filepath.Join(pages, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	entries, err := os.ReadDir(pages)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if _, ok := want[e.Name()]; !ok && e.Name() != filepath.Base(schemaFile) {
			t.Errorf("%s/%s: no check has this code", pages, e.Name())
		}
	}
	for name, text := range want {
		got, err := os.ReadFile(filepath.Join(pages, name))
		if err != nil {
			t.Error(err)
			continue
		}
		if diff := cmp.Diff(text, string(got)); diff != "" {
			t.Errorf("%s is not what -update writes (-want +got):\n%s", name, diff)
		}
	}
}

const head = `# Doctor codes

` + "`podweir doctor`" + ` checks whether podweir can work on a node, is wired in, and works beside everything else there. It changes nothing. It
lists problems, and counts what is in order; ` + "`podweir doctor -v`" + ` lists that too. ` + "`podweir doctor explain PW602`" + ` prints the page of a code.
` + "`podweir doctor --probe`" + ` also watches for some seconds and tries what a look does not show (category probe); each such check says what it
touches.

| result | meaning |
| --- | --- |
| ok | as it should be |
| warn | works less well than it could, or may break later |
| fail | pods are not shaped, or another component's policy or networking is in danger |
| skip | has no meaning here, or needs a check that does not hold |
| unknown | could not be found out; that is not ok |

Exit status: 1 if a check failed (with ` + "`--strict`" + ` also for a warning), else 2 if one is unknown or the doctor could not run, else 0.

Flags and where to run it: [Commands](../cli.md#podweir-doctor).

A code is never used for another check. These pages are made from the checks: ` + "`go test ./compat/doctor -update`" + `.

| code | severity | category | checks that |
| --- | --- | --- | --- |
`

const schema = `
## JSON

` + "`-o json`" + ` writes one object. Fields may be added under the same ` + "`schema`" + `; one that changes or goes makes another.
[v1.schema.json](v1.schema.json) describes it as a JSON Schema (draft 2020-12).

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
| ` + "`checks[].touches`" + ` | of a probe: what it makes or changes while it runs |
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

// TestRegistry holds every check to what a reader needs of it.
func TestRegistry(t *testing.T) {
	seen := map[string]bool{}
	checks := doctor.Checks()
	for _, c := range checks {
		if len(c.Code) != 5 || !strings.HasPrefix(c.Code, "PW") || seen[c.Code] {
			t.Errorf("code %q is no code, or is there twice", c.Code)
		}
		seen[c.Code] = true
		for name, text := range map[string]string{"title": c.Title, "looks": c.Looks, "why": c.Why, "mend": c.Mend} {
			if text == "" {
				t.Errorf("%s has no %s", c.Code, name)
			}
		}
		if strings.HasSuffix(c.Why, ".") || strings.HasSuffix(c.Looks, ".") || !strings.HasSuffix(c.Mend, ".") {
			t.Errorf("%s: looks and why are clauses, mend is sentences", c.Code)
		}
		if c.Severity != doctor.SeverityFail && c.Severity != doctor.SeverityWarn {
			t.Errorf("%s has severity %q", c.Code, c.Severity)
		}
	}
	for _, c := range checks {
		for _, n := range c.Needs {
			at := slices.IndexFunc(checks, func(o doctor.Check) bool { return o.Code == n })
			if at < 0 || n == c.Code {
				t.Errorf("%s needs %s", c.Code, n)
			}
		}
	}
}
