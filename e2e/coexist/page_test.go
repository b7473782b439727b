// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package coexist_test

import (
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/e2e/coexist"
)

const pagePath = "../../docs/reference/coexistence.md"

// envWrite makes the tests write the page instead of comparing with it.
const envWrite = "PODWEIR_WRITE_COEXISTENCE"

// keep compares rows with their section of the committed page, or writes them.
func keep(t *testing.T, section string, rows []coexist.Row) {
	t.Helper()
	if t.Failed() {
		return // what was seen is not what the page may say
	}
	raw, err := os.ReadFile(pagePath)
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	if os.Getenv(envWrite) != "" {
		if page, err = coexist.Replace(page, section, coexist.Table(rows)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(pagePath, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := coexist.Section(page, section)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, coexist.Table(rows)); diff != "" {
		t.Errorf("section %q of %s is not what was seen (-page +seen); %s=1 rewrites it:\n%s", section, pagePath, envWrite, diff)
	}
}

func TestTableMergesOrders(t *testing.T) {
	first := coexist.Row{Neighbour: "a|b", Order: "first", Result: "ok"}
	again, other := first, first
	again.Order, other.Order, other.Result = "again", "third", "not ok"
	got := coexist.Table([]coexist.Row{first, again, other})
	want := "| neighbour | device | egress mode | ingress mode | order | egress: verdicts | ingress: verdicts " +
		"| egress shaped | ingress shaped | CHECK | result |\n|---|---|---|---|---|---|---|---|---|---|---|\n" +
		"| a\\|b |  |  |  | first; again |  |  |  |  |  | ok |\n" +
		"| a\\|b |  |  |  | third |  |  |  |  |  | not ok |\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Table() (-want +got):\n%s", diff)
	}
}

func TestSectionAndReplace(t *testing.T) {
	const page = "top\n<!-- begin x -->\nold\n<!-- end x -->\nbottom\n"
	got, err := coexist.Section(page, "x")
	if err != nil || got != "old\n" {
		t.Errorf("Section() = %q, %v, want the old content", got, err)
	}
	got, err = coexist.Replace(page, "x", "new\n")
	if want := "top\n<!-- begin x -->\nnew\n<!-- end x -->\nbottom\n"; err != nil || got != want {
		t.Errorf("Replace() = %q, %v, want %q", got, err, want)
	}
	for _, page := range []string{"", "<!-- begin x -->\n"} {
		if _, err := coexist.Replace(page, "x", ""); !errors.Is(err, coexist.ErrNoSection) {
			t.Errorf("Replace(%q) = %v, want ErrNoSection", page, err)
		}
	}
}
