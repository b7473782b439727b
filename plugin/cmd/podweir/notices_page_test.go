// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/reference/what-podweir-notices.md")

const noticesPage = "../../../docs/reference/what-podweir-notices.md"

// besideOthers begins the part of the page that is written by hand.
const besideOthers = "\n## What others on a node do\n"

// TestNoticesPage: the first part of the page is made from the states that
// TestPrivilegedNotices makes and judges.
func TestNoticesPage(t *testing.T) {
	got, err := os.ReadFile(noticesPage)
	if err != nil {
		t.Fatal(err)
	}
	_, others, ok := strings.Cut(string(got), besideOthers)
	if !ok {
		t.Fatalf("%s lacks the heading %q", noticesPage, strings.TrimSpace(besideOthers))
	}
	want := renderNotices(notices()) + besideOthers + others
	if *update {
		if err := os.WriteFile(noticesPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		got = []byte(want)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is not what -update writes (-want +got):\n%s", noticesPage, diff)
	}
}

func renderNotices(all []notice) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# What podweir notices

States of a limited pod, and what each command says of them. A test makes each of these %d states, sends a flood in both directions,
runs every command, repairs, sends the floods again, and repairs once more: a second repair finds nothing to do. This page is
written from that test: `+"`go test ./plugin/cmd/podweir -run TestNoticesPage -update`"+`. The test runs without Kubernetes, on the kernel of the
machine that runs it, and on 6.1, 6.12 and the newest in `+"`make test-all`"+`. It leaves out a state that a kernel cannot have. The agent does what `+"`podweir repair`"+` does, by itself.

Traffic is what becomes of a flood: egress first, then ingress. *Limited* means that the limit holds, *outage* that nothing passes.
Quotes are parts of what the command prints. "In order" means that no difference and no error is shown. Codes are those of
[podweir doctor](doctor/README.md).

A limit that is *degraded* is enforced in another way than configured; every repair, ADD and pass of the agent tries the configured way again.

| state | traffic | CHECK | status | doctor | repair | afterwards |
| --- | --- | --- | --- | --- | --- | --- |
`, len(all))
	for i := range all {
		s := &all[i]
		check := "passes"
		if len(s.check) > 0 {
			check = quotes(s.check)
		}
		doctor := orDash(s.doctor)
		if s.noTCX != "" {
			doctor += " (without TCX: " + s.noTCX + ")"
		}
		fmt.Fprintf(&b, "| %s%s | %s | %s | %s | %s | %s | %s |\n", s.name, confOf(s.conf), orDash(s.truth), check, quotes(s.status),
			doctor, quotes(s.repair), afterwards(s))
	}
	return b.String()
}

func confOf(conf map[string]any) string {
	var all []string
	for _, key := range []string{"ingressPlace", "egressQueue", "ingressQueue", "egressCeiling", "hostHook", "policy"} {
		if v, ok := conf[key]; ok {
			all = append(all, fmt.Sprintf("`%s: %v`", key, v))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return " (" + strings.Join(all, ", ") + ")"
}

// afterwards is what traffic and status are after the repair, "in order" if both are.
func afterwards(s *notice) string {
	traffic, status := orDash(s.after), quotes(s.then)
	if traffic == "limited, limited" && status == "in order" {
		return status
	}
	return traffic + "; " + status
}

func orDash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

// quotes shows the parts that are said.
func quotes(parts []string) string {
	var all []string
	for _, p := range parts {
		switch {
		case p == "default/web" && len(parts) > 1:
			all = append(all, "in order")
		case p == "0 with differences":
			all = append(all, "nothing to do")
		case p == "error", p == "0 errors", strings.HasPrefix(p, "!"):
		default:
			all = append(all, `"`+p+`"`)
		}
	}
	return orDash(strings.Join(all, ", "))
}
