// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package conflist_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/testutil/must"
)

func TestDifferences(t *testing.T) {
	for name, tc := range map[string]struct{ a, b, want string }{
		"the same":             {conflist.DefaultEntry, conflist.DefaultEntry, ""},
		"written otherwise":    {`{"type":"podweir-cni","maxRate":"1G","queue":"tbf"}`, "{\n \"queue\": \"tbf\", \"maxRate\":\"1\\u0047\", \"type\":\"podweir-cni\"}", ""},
		"one is missing":       {conflist.DefaultEntry, `{"type":"podweir-cni","maxRate":"1G"}`, "maxRate"},
		"one is left over":     {`{"type":"podweir-cni","onError":"closed"}`, conflist.DefaultEntry, "onError"},
		"other values":         {`{"policy":"flat","podAnnotations":["a","b"],"queue":"tbf"}`, `{"policy":"strict","podAnnotations":["a"],"queue":"tbf"}`, "podAnnotations,policy"},
		"what the runtime has": {`{"type":"podweir-cni","name":"n","cniVersion":"1.0.0"}`, conflist.DefaultEntry, ""},
		"no object":            {`[]`, conflist.DefaultEntry, ""},
	} {
		if got := strings.Join(conflist.Differences([]byte(tc.a), []byte(tc.b)), ","); got != tc.want {
			t.Errorf("%s: Differences() = %q, want %q", name, got, tc.want)
		}
	}
}

// TestJoin: what others put into podweir's file is in what podweir writes next, in its
// place, and what the original no longer has is not.
func TestJoin(t *testing.T) {
	const a, b, mesh, bandwidth = `{"type":"a"}`, `{"type":"b"}`, `{"type":"mesh","x":1}`, `{"type":"bandwidth"}`
	list := func(entries ...string) string {
		return `{"name":"n","plugins":[` + strings.Join(entries, ",") + `]}`
	}
	// noted is podweir's file as podweir made it of a and b, changed by somebody.
	noted := func(from, to string) string {
		return strings.Replace(splice(t, "10-x.conflist", list(a, b)), from, to, 1)
	}
	for name, tc := range map[string]struct {
		original, own string
		want          []string
		// keeps says that podweir's file is as good as what it would write.
		keeps bool
	}{
		"none is there":                {list(a, b), "", []string{"a", "b", conflist.Type}, false},
		"as podweir made it":           {list(a, b), noted("", ""), []string{"a", "b", conflist.Type}, true},
		"a mesh behind":                {list(a, b), noted(entry, entry+","+mesh), []string{"a", "b", conflist.Type, "mesh"}, true},
		"a mesh before":                {list(a, b), noted(entry, mesh+","+entry), []string{"a", "b", "mesh", conflist.Type}, true},
		"a mesh in the middle":         {list(a, b), noted(a+",", a+","+mesh+","), []string{"a", "mesh", "b", conflist.Type}, true},
		"two of others":                {list(a, b), noted(entry, entry+","+mesh+`,{"type":"more"}`), []string{"a", "b", conflist.Type, "mesh", "more"}, true},
		"in the original, too":         {list(a, b, mesh), noted(entry, entry+","+mesh), []string{"a", "b", "mesh", conflist.Type}, false},
		"the original has lost b":      {list(a), noted(entry, entry+","+mesh), []string{"a", conflist.Type, "mesh"}, false},
		"podweir was taken out":        {list(a, b), noted(entry, mesh), []string{"a", "b", "mesh", conflist.Type}, false},
		"a was changed":                {list(a, b), noted(a, `{"type":"a","mtu":9}`), []string{"a", "b", conflist.Type}, false},
		"a setting of the network":     {list(a, b), noted(`"name":"n"`, `"disableCheck":true,"name":"n"`), []string{"a", "b", conflist.Type}, true},
		"bandwidth":                    {list(a, bandwidth), list(a, bandwidth, entry, mesh), []string{"a", conflist.Type, "mesh"}, false},
		"by hand, and a mesh":          {list(a, b), list(a, b, entry, mesh), []string{"a", "b", conflist.Type, "mesh"}, false},
		"by hand, bandwidth is left":   {list(a), list(a, bandwidth, entry), []string{"a", conflist.Type}, false},
		"somebody adds bandwidth":      {list(a, b), noted(entry, entry+","+bandwidth), []string{"a", "b", conflist.Type, "bandwidth"}, true},
		"a mesh that changes its mind": {list(a, b), noted(entry, entry+`,{"type":"mesh","x":2}`), []string{"a", "b", conflist.Type, "mesh"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			original := fileOf(t, "10-x.conflist", tc.original)
			s := conflist.Standing{Delivery: profiles.Chain, Original: original, Entry: []byte(entry)}
			var now *conflist.Network
			if tc.own != "" {
				s.Own = fileOf(t, "00-podweir-10-x.conflist", tc.own)
				now = s.Own.Network
			}
			if action, why := conflist.Decide(s); (action == conflist.Leave) != tc.keeps {
				t.Errorf("Decide() = %v, %s, want it left: %v", action, why, tc.keeps)
			}
			raw, err := conflist.Join(original.Network, []byte(entry), now, nil)
			must.OK(t, err)
			joined := fileOf(t, "00-podweir-10-x.conflist", string(raw))
			if diff := cmp.Diff(tc.want, joined.Network.Types()); diff != "" {
				t.Errorf("Join() (-want +got):\n%s", diff)
			}
			if strings.Contains(tc.own, "disableCheck") && !strings.Contains(string(raw), `"disableCheck": true`) {
				t.Errorf("Join() = %s, lacks what somebody set", raw)
			}
			s.Own = joined
			if action, why := conflist.Decide(s); action != conflist.Leave {
				t.Errorf("Decide() of what was joined = %v, %s", action, why)
			}
		})
	}
}

// TestGonePlugin takes a plugin of the original out of podweir's file, as its owner does at
// the uninstall: it comes back only while its program is installed.
func TestGonePlugin(t *testing.T) {
	const first, mesh = `{"type":"a"}`, `{"type":"mesh"}`
	original := fileOf(t, "10-x.conflist", `{"cniVersion":"1.0.0","name":"n","plugins":[`+first+","+mesh+`]}`)
	installed := true
	s := conflist.Standing{
		Delivery: profiles.Chain, Original: original, Entry: []byte(conflist.DefaultEntry),
		Installed: func(string) bool { return installed },
	}
	join := func(own *conflist.Network) *conflist.File {
		t.Helper()
		raw, err := conflist.Join(original.Network, s.Entry, own, s.Installed)
		must.OK(t, err)
		return fileOf(t, "00-podweir-10-x.conflist", string(raw))
	}
	wants := func(when string, action conflist.Action, types ...string) {
		t.Helper()
		if got, why := conflist.Decide(s); got != action {
			t.Errorf("%s: Decide() = %v, %s, want %v", when, got, why, action)
		}
		s.Own = join(s.Own.Network)
		if diff := cmp.Diff(types, s.Own.Network.Types()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
		if got, why := conflist.Decide(s); got != conflist.Leave {
			t.Errorf("%s: Decide() of what was written = %v, %s", when, got, why)
		}
	}
	takesOut := func() {
		t.Helper()
		raw := strings.Replace(string(original.Raw), ","+mesh, "", 1)
		made := fileOf(t, "10-x.conflist", raw)
		out, err := conflist.Join(made.Network, s.Entry, nil, nil)
		must.OK(t, err)
		// With the note of podweir's own file.
		was, err := json.Marshal(s.Own.Network.Mark)
		must.OK(t, err)
		now, err := json.Marshal(fileOf(t, "x.conflist", string(out)).Network.Mark)
		must.OK(t, err)
		s.Own = fileOf(t, "00-podweir-10-x.conflist", strings.Replace(string(out), string(now), string(was), 1))
	}

	s.Own = join(nil)
	installed = false
	wants("only the program is missing", conflist.Leave, "a", "mesh", conflist.Type)
	installed = true
	takesOut()
	wants("taken out, and still installed", conflist.Write, "a", "mesh", conflist.Type)
	installed = false
	wants("the program went afterwards", conflist.Write, "a", conflist.Type)
	wants("nothing changed", conflist.Leave, "a", conflist.Type)
	installed = true
	wants("installed again", conflist.Write, "a", "mesh", conflist.Type)
	installed = false
	takesOut()
	wants("taken out after its program went", conflist.Write, "a", conflist.Type)
}
