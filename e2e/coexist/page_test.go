// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package coexist_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/e2e/coexist"
)

func TestMerged(t *testing.T) {
	first := coexist.Row{Neighbour: "a|b", Order: "first", Result: "ok"}
	again, other := first, first
	again.Order, other.Order, other.Result = "again", "third", "not ok"
	got := coexist.Merged([]coexist.Row{first, again, other})
	first.Order = "first; again"
	if diff := cmp.Diff([]coexist.Row{first, other}, got); diff != "" {
		t.Errorf("Merged() (-want +got):\n%s", diff)
	}
}

func TestTableAndBack(t *testing.T) {
	rows := []coexist.OnKernels{
		{Row: coexist.Row{Neighbour: "a|b", Order: "first; again", Check: "|", Result: "ok"}, Kernels: []string{"6.1", "6.12"}},
		{Row: coexist.Row{Device: "c"}, Kernels: []string{"6.1"}},
	}
	text := coexist.Table(rows)
	got, err := coexist.ReadTable(text)
	if err != nil {
		t.Fatalf("ReadTable(%s) = %v", text, err)
	}
	if diff := cmp.Diff(rows, got); diff != "" {
		t.Errorf("ReadTable(Table()) (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"", text[1:], strings.Replace(text, "| c ", "", 1)} {
		if _, err := coexist.ReadTable(bad); !errors.Is(err, coexist.ErrTable) {
			t.Errorf("ReadTable(%q) = %v, want ErrTable", bad, err)
		}
	}
}

// What one kernel saw replaces what it saw before and nothing else.
func TestPut(t *testing.T) {
	row := func(neighbour, order string) coexist.Row { return coexist.Row{Neighbour: neighbour, Order: order} }
	rows := []coexist.OnKernels{
		{Row: row("a", "1"), Kernels: []string{"6.12", "6.2"}},
		{Row: row("a", "2"), Kernels: []string{"6.2"}},
		{Row: row("b", "1"), Kernels: []string{"6.12"}},
	}
	seen := []coexist.Row{row("a", "1"), row("a", "3"), row("b", "1"), row("c", "1")}
	got := coexist.Put(rows, "6.2", seen)
	want := []coexist.OnKernels{
		{Row: row("a", "1"), Kernels: []string{"6.2", "6.12"}},
		{Row: row("a", "3"), Kernels: []string{"6.2"}},
		{Row: row("b", "1"), Kernels: []string{"6.2", "6.12"}},
		{Row: row("c", "1"), Kernels: []string{"6.2"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Put() (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(seen, coexist.Of(got, "6.2")); diff != "" {
		t.Errorf("Of(Put(x)) (-want +got):\n%s", diff)
	}
	if rows[0].Kernels[0] != "6.12" || len(rows[0].Kernels) != 2 {
		t.Errorf("Put changed its argument: %v", rows[0])
	}
}

func TestAbout(t *testing.T) {
	row := func(neighbour, egress, ingress, order string) coexist.Row {
		return coexist.Row{Neighbour: neighbour, Egress: egress, Ingress: ingress, Order: order}
	}
	rows := []coexist.Row{
		row("a", "1", "1", "x"), row("a", "1", "1", "y"), row("a", "1", "2", "x"), row("a", "2", "1", "x"), row("b", "1", "1", "x"),
	}
	got := coexist.About(rows, []coexist.Row{row("a", "1", "1", "z")})
	if diff := cmp.Diff(rows[:2], got); diff != "" {
		t.Errorf("About() (-want +got):\n%s", diff)
	}
}

func TestMachines(t *testing.T) {
	old := coexist.Machine{Kernel: "6.1", TCX: "no", Prio: "yes", Redirect: "mirred", Judged: "counters"}
	recent := coexist.Machine{Kernel: "6.12", TCX: "yes", Prio: "yes", Redirect: "bpf", Judged: "counters"}
	all := coexist.PutMachine(coexist.PutMachine(nil, &recent), &old)
	got, err := coexist.ReadMachines(coexist.Machines(all))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]coexist.Machine{old, recent}, got); diff != "" {
		t.Errorf("machines (-want +got):\n%s", diff)
	}
	other, bare := recent, recent
	other.Kernel, other.Judged = "6.14", "bursts"
	bare.Kernel, bare.Prio = "6.6", "no"
	both := []coexist.OnKernels{{Kernels: []string{"6.1", "6.12"}}}
	for _, tc := range []struct {
		machine coexist.Machine
		rows    []coexist.OnKernels
		want    string
	}{
		{old, both, "6.1"},
		{recent, both, "6.12"},
		{other, both, "6.12"},
		{bare, both, "6.12"},
		{recent, []coexist.OnKernels{{Kernels: []string{"6.1"}}}, ""},
		{old, nil, ""},
	} {
		if got := coexist.Alike(all, &tc.machine, tc.rows); got != tc.want {
			t.Errorf("Alike(%+v, %v) = %q, want %q", tc.machine, tc.rows, got, tc.want)
		}
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
