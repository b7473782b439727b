// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/podweir/podweir/compat/doctor"
)

// checklist says which code answers which item of the lists that the doctor was
// made from.
const checklist = "../../docs/contributing/doctor-checks.md"

var codePattern = regexp.MustCompile(`\bPW[0-9]{3}\b`)

// TestChecklist: every item of each list has codes that exist, or a reason for
// none; every code is on the page.
func TestChecklist(t *testing.T) {
	raw, err := os.ReadFile(checklist)
	if err != nil {
		t.Fatal(err)
	}
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
		if len(rows) != items {
			t.Errorf("%s: %d items, want %d", section, len(rows), items)
		}
		for i, row := range rows {
			if row[1] != fmt.Sprint(i+1) {
				t.Errorf("%s: item %s in row %d", section, row[1], i+1)
			}
			if !codePattern.MatchString(row[3]) && !strings.HasPrefix(row[3], "none: ") {
				t.Errorf("%s, item %s: %q is neither codes nor a reason", section, row[1], row[3])
			}
		}
	}
}

// Every check runs behind those it needs, which are all there.
func TestChecksInOrder(t *testing.T) {
	done := map[string]bool{}
	ordered := doctor.InOrder(doctor.Checks())
	for _, c := range ordered {
		for _, need := range c.Needs {
			if !done[need] {
				t.Errorf("%s runs before %s, which it needs, or there is no such check", c.Code, need)
			}
		}
		done[c.Code] = true
	}
	if len(ordered) != len(doctor.Checks()) {
		t.Errorf("%d checks in order, want %d", len(ordered), len(doctor.Checks()))
	}
	circle := []doctor.Check{{Code: "A", Needs: []string{"B"}}, {Code: "B", Needs: []string{"A"}}, {Code: "C"}}
	if got := doctor.InOrder(circle); len(got) != 3 || got[0].Code != "C" {
		t.Errorf("checks that need each other come out as %+v, want all, behind C", got)
	}
}
