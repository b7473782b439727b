// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netconf_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// manyAnnotations is what a pod's author may write: all of podweir's domain.
func manyAnnotations(n int) map[string]string {
	all := map[string]string{"kubernetes.io/egress-bandwidth": "10M", "podweir.io/policy": "flat"}
	for i := range n {
		all[fmt.Sprintf("podweir.io/flood-%04d", i)] = strings.Repeat("x", 50)
	}
	return all
}

func TestUnknownAnnotationsAreCounted(t *testing.T) {
	t.Parallel()
	const n = 3000
	names := []string{
		"podweir.io/flood-0000", "podweir.io/flood-0001", "podweir.io/flood-0002", "podweir.io/flood-0003", "podweir.io/flood-0004",
	}
	raw, err := json.Marshal(manyAnnotations(n))
	must.OK(t, err)
	var fromJSON netconf.PodAnnotations
	must.OK(t, json.Unmarshal(raw, &fromJSON))
	for way, a := range map[string]netconf.PodAnnotations{"map": netconf.KeepAnnotations(manyAnnotations(n)), "JSON": fromJSON} {
		if got := a.UnknownNames(); a.Unknown != n || !slices.Equal(got, names) || len(a.Values) != 2+len(names) || a.Values[names[0]] != "" {
			t.Errorf("from %s: %d unknown, values %v, want %d and the first names alone", way, a.Unknown, a.Values, n)
		}
	}
	got, err := netconf.Parse(netconf.Add, input(annotations(strings.Trim(string(raw), "{}")), ""))
	if err != nil || got.Shaping.Egress == nil {
		t.Fatalf("Parse() = %+v, %v, want the limit", got, err)
	}
	want := []string{fmt.Sprintf("unknown annotations are ignored: %q and %d more", names, n-len(names))}
	want[0] = strings.NewReplacer("[", "", "]", "", `" "`, `", "`).Replace(want[0])
	if diff := cmp.Diff(want, got.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

// A value that is longer than any that podweir reads is no value, whichever way it comes:
// the agent must not read another limit than the plugin.
func TestLongAnnotationIsRefused(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0", netconf.MaxAnnotationBytes-2) + "10M"
	for _, tc := range []struct {
		value    string
		accepted bool
	}{{long[1:], true}, {long, false}, {strings.Repeat("0", 1<<16) + "10M", false}} {
		all := map[string]string{"kubernetes.io/egress-bandwidth": tc.value}
		raw, err := json.Marshal(all)
		must.OK(t, err)
		_, plugin := netconf.Parse(netconf.Add, input(annotations(strings.Trim(string(raw), "{}")), ""))
		_, agent := netconf.ParseEntry([]byte(`{"cniVersion":"1.0.0","name":"n","type":"podweir-cni"}`), netconf.KeepAnnotations(all), nil)
		for who, err := range map[string]error{"plugin": plugin, "agent": agent} {
			if (err == nil) != tc.accepted || err != nil && (!strings.Contains(err.Error(), "at most 128 bytes") || len(err.Error()) > 300) {
				t.Errorf("%s: value of %d bytes: %v, want accepted = %v", who, len(tc.value), err, tc.accepted)
			}
		}
	}
}

func TestEqualIgnoresUnknownAnnotations(t *testing.T) {
	t.Parallel()
	few, many := netconf.KeepAnnotations(manyAnnotations(0)), netconf.KeepAnnotations(manyAnnotations(9))
	if !few.Equal(&many) {
		t.Error("unknown annotations make a pod another one")
	}
	other := manyAnnotations(9)
	other["podweir.io/policy"] = "strict"
	if o := netconf.KeepAnnotations(other); many.Equal(&o) {
		t.Error("another policy makes no difference")
	}
}

// FuzzPodAnnotations: what is kept of a JSON object is what is kept of the map that
// encoding/json makes of it, and both refuse the same.
func FuzzPodAnnotations(f *testing.F) {
	for _, seed := range []string{
		`{"kubernetes.io/egress-bandwidth":"10M","podweir.io/policy":"flat","podweir.io/x":"y","other":"\\\""}`,
		` { "podweir.io\/policy" : "\u0066lat" , "a" : null } `, `null`, `{}`, `[]`, `"x"`, `{"podweir.io/policy":5}`,
		`{"a":{"podweir.io/policy":"flat"}}`, "{\"podweir.io/\xff\":\"\"}", `{"\u0070odweir.io/policy":"strict"}`,
		`{"podweir.io/1":"","podweir.io/2":"","podweir.io/3":"","podweir.io/4":"","podweir.io/5":"","podweir.io/6":""}`,
		`{"podweir.io/policy":"` + strings.Repeat("a", 200) + `"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		before := bytes.Clone(raw)
		var got netconf.PodAnnotations
		err := json.Unmarshal(raw, &got)
		if !bytes.Equal(before, raw) {
			t.Fatal("the input is changed")
		}
		if len(got.Values) > 20 {
			t.Errorf("%d values are kept", len(got.Values))
		}
		for name, value := range got.Values {
			if len(name) > netconf.MaxAnnotationBytes+1 || len(value) > netconf.MaxAnnotationBytes+1 {
				t.Errorf("%d bytes of a name and %d of a value are kept", len(name), len(value))
			}
		}
		var all map[string]string
		wantErr := json.Unmarshal(raw, &all)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("error = %v, want as encoding/json: %v", err, wantErr)
		}
		if err != nil {
			return
		}
		// Comparing by hand, and asking about repeated names only after a difference,
		// makes the target three times as fast.
		want := netconf.KeepAnnotations(all)
		if maps.Equal(want.Values, got.Values) && want.Unknown == got.Unknown || repeats(raw, len(all)) {
			return
		}
		t.Errorf("from a map and from JSON (-map +JSON):\n%s", cmp.Diff(want, got, cmpopts.EquateEmpty()))
	})
}

// repeats says whether an object of strings has a name more than once.
func repeats(raw []byte, names int) bool {
	dec, texts := json.NewDecoder(bytes.NewReader(raw)), 0
	for {
		token, err := dec.Token()
		if err != nil {
			return texts != names*2
		}
		if _, ok := token.(string); ok || token == nil && names > 0 {
			texts++
		}
	}
}

func TestParseEntry(t *testing.T) {
	t.Parallel()
	const entry = `{"cniVersion":"1.0.0","name":"net","type":"podweir-cni","onError":"closed","runtimeConfig":{"bandwidth":{"egressRate":1}}%s}`
	for name, tc := range map[string]struct {
		entry       string
		annotations map[string]string
		egress      int
		closed      bool
		err         string
	}{
		"annotations": {
			entry: strings.Replace(entry, "%s", "", 1), annotations: map[string]string{"kubernetes.io/egress-bandwidth": "7M", "x": "y"},
			egress: 7e6, closed: true,
		},
		"none":           {entry: strings.Replace(entry, "%s", "", 1), closed: true},
		"a default":      {entry: strings.Replace(entry, "%s", `,"egressRate":"2M"`, 1), egress: 2e6, closed: true},
		"bad annotation": {entry: strings.Replace(entry, "%s", "", 1), annotations: map[string]string{"kubernetes.io/egress-bandwidth": "fast"}, closed: true, err: "annotation kubernetes.io/egress-bandwidth"},
		"null":           {entry: "null", err: "read the node's configuration: not a JSON object"},
		"no JSON":        {entry: "{", err: "read the node's configuration"},
	} {
		got, err := netconf.ParseEntry([]byte(tc.entry), netconf.KeepAnnotations(tc.annotations), nil)
		if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: ParseEntry() = %v, want %q", name, err, tc.err)
		}
		egress := 0
		if l := got.Shaping.Egress; l != nil {
			egress = int(l.Rate)
		}
		if closed := got.OnError == netconf.FailClosed; egress != tc.egress || closed != tc.closed {
			t.Errorf("%s: egress %d, closed %v, want %d, %v", name, egress, closed, tc.egress, tc.closed)
		}
	}
}
