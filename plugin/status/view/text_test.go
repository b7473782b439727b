// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package view_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/status/view"
)

func TestRateHasThreeDigits(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0 bit/s", 1: "1 bit/s", 999.4: "999 bit/s", 999.6: "1 kbit/s", 9_870_000: "9.87 Mbit/s", 98_765_432: "98.8 Mbit/s",
		99.96e6: "100 Mbit/s", 123.4e6: "123 Mbit/s", 1.5e9: "1.5 Gbit/s", 400e9: "400 Gbit/s", -5: "0 bit/s", math.NaN(): "0 bit/s",
		9.996e6: "10 Mbit/s", 1.844e19: "18.4 Ebit/s", 1e22: "10000 Ebit/s",
	} {
		if got := view.Rate(v); got != want {
			t.Errorf("Rate(%v) = %q, want %q", v, got, want)
		}
	}
	if got := view.Short(9_870_000); got != "9.87M" {
		t.Errorf("Short = %q", got)
	}
}

func TestText(t *testing.T) {
	if diff := cmp.Diff([]string{"a bb", "cccc", "c dd"}, view.Wrap("a \x1b bb\nccccc dd", 4)); diff != "" {
		t.Errorf("Wrap (-want +got):\n%s", diff)
	}
	for width, want := range map[int]string{10: "abcdefgh", 8: "abcdefgh", 7: "abc…fgh", 4: "a…gh", 1: "a", 0: ""} {
		if got := view.Cut("abcdefgh", width); got != want {
			t.Errorf("Cut to %d = %q, want %q", width, got, want)
		}
	}
	if got := view.Pad("ab", 4); got != "ab  " {
		t.Errorf("Pad = %q", got)
	}
	if got := view.Printable("a\x1b[31m\u009bü"); got != "a [31m ü" {
		t.Errorf("Printable = %q", got)
	}
}
