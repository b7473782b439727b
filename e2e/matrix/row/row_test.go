// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package row_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/e2e/matrix/row"
	"github.com/podweir/podweir/plugin/testutil/must"
)

const text = `rows:
  - {name: a.1, cni: ptp, version: v1, variant: plain, tier: fast, real: all, doctor: {PW109: it is so}}
  - {name: a-2, cni: ptp, version: v1, variant: plain, real: all}
  - {name: cloud, version: v1, variant: plain, needs: cloud, elsewhere: nothing}
`

func parse(t *testing.T, text string) *row.Matrix {
	t.Helper()
	m := must.Get(row.Parse([]byte(text)))(t)
	return m
}

func TestParseRefusesWhatNoRowCanBe(t *testing.T) {
	for want, text := range map[string]string{
		`there are two`:                   `rows: [{name: a, cni: p, version: v, variant: v, real: r}, {name: a, cni: p, version: v, variant: v, real: r}]`,
		`field colour not found`:          `rows: [{name: a, colour: red}]`,
		`version and variant are missing`: `rows: [{name: a, cni: p, real: r}]`,
		`cni and real are missing`:        `rows: [{name: a, version: v, variant: v}]`,
		`tier "slow" is not accepted`:     `rows: [{name: a, cni: p, version: v, variant: v, real: r, tier: slow}]`,
		`delivery "mail" is not accepted`: `rows: [{name: a, cni: p, version: v, variant: v, real: r, delivery: mail}]`,
		`doctor PW1 has no reason`:        `rows: [{name: a, cni: p, version: v, variant: v, real: r, doctor: {PW1: ""}}]`,
		`has no cni`:                      `rows: [{name: a, cni: p, version: v, variant: v, needs: cloud}]`,
		`needs "luck" is not accepted`:    `rows: [{name: a, version: v, variant: v, needs: luck}]`,
		`want small letters`:              `rows: [{name: A, cni: p, version: v, variant: v, real: r}]`,
	} {
		must.Fail(t, "Parse of "+text, must.Err(row.Parse([]byte(text))), want)
	}
}

func TestSelect(t *testing.T) {
	m := parse(t, text)
	for _, tc := range []struct {
		fast     bool
		patterns []string
		want     []string
		pods     int
	}{
		{false, nil, []string{"a.1", "a-2"}, 50},
		{true, nil, []string{"a.1"}, 12},
		{false, []string{"a-.*"}, []string{"a-2"}, 50},
		{false, []string{"a"}, nil, 0},
		{false, []string{"cloud"}, nil, 0},
	} {
		chosen, err := m.Select(tc.fast, tc.patterns...)
		var got []string
		for _, r := range chosen {
			got = append(got, r.Name)
			must.Be(t, fmt.Sprintf("Select(%v, %q): pods that row %s churns", tc.fast, tc.patterns, r.Name), tc.pods, r.Pods)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" || (err == nil) != (tc.want != nil) {
			t.Errorf("Select(%v, %q): %v (-want +got):\n%s", tc.fast, tc.patterns, err, diff)
		}
	}
	must.Fail(t, "a pattern that is none", must.Err(m.Select(false, "(")))
}

func TestVerdict(t *testing.T) {
	failed := &row.Result{Steps: []row.Step{{Name: "a", Outcome: row.Passed}, {Name: "b", Outcome: row.Failed}}}
	must.Be(t, "Verdict()", "**failed** at b", failed.Verdict())
	var none *row.Result
	must.Be(t, "Verdict() of none", "not run yet", none.Verdict())
}

func TestBehind(t *testing.T) {
	for _, c := range []struct{ version, newest, want string }{
		{"v1.15.19", "v1.20.2", "5 minor"},
		{"v2.4.2", "v2.4.2", "0"},
		{"v2.4.1", "v2.4.3", "2 patch"},
		{"v3.22.0", "v4.3.0", "1 major"},
		{"v1.5.1-rc.1", "v1.5.1", "0"},
		// Newer than the proxy's newest release, as a prerelease is.
		{"v0.38.0-alpha.1", "v0.37.2", "0"},
	} {
		must.Be(t, c.version+" beside "+c.newest, c.want, (row.Pin{Version: c.version, Newest: c.newest}).Behind())
	}
}
