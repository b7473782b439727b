// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package conflist_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/plugin/testutil/must"
)

const entry = conflist.DefaultEntry

func splice(t *testing.T, file, raw string) string {
	t.Helper()
	n, err := conflist.Parse(file, []byte(raw))
	if err != nil {
		t.Fatalf("Parse(): %v", err)
	}
	out, err := conflist.Splice(n, []byte(entry))
	if err != nil {
		t.Fatalf("Splice(): %v", err)
	}
	return string(out)
}

// TestGolden splices the configuration of each CNI and compares with the
// golden file beside it; libcni must load the result as meant.
func TestGolden(t *testing.T) {
	inputs, err := filepath.Glob("testdata/*.in.*")
	if err != nil || len(inputs) < 5 {
		t.Fatalf("Glob() = %q, %v", inputs, err)
	}
	for _, in := range inputs {
		t.Run(filepath.Base(in), func(t *testing.T) {
			raw, err := os.ReadFile(in)
			must.OK(t, err)
			name := strings.Replace(filepath.Base(in), ".in.", ".", 1)
			got := splice(t, name, string(raw))
			golden := strings.Replace(in, ".in.", ".golden.", 1)
			if *update {
				must.OK(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			must.OK(t, err)
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("Splice() (-want +got):\n%s", diff)
			}
			compareByLibcni(t, name, raw, []byte(got))
		})
	}
}

// compareByLibcni loads both with the real libcni: the spliced network has the
// same plugins with the same content, podweir at the end or in the place of the
// bandwidth plugin, and the same name, version and flags.
func compareByLibcni(t *testing.T, name string, before, after []byte) {
	t.Helper()
	a := loadLibcni(t, name, before)
	b := loadLibcni(t, "x.conflist", after)
	var want []string
	replaced := false
	for _, p := range a.Plugins {
		if p.Network.Type == "bandwidth" {
			want = append(want, canonical(t, []byte(entry)))
			replaced = true
			continue
		}
		want = append(want, canonical(t, p.Bytes))
	}
	if !replaced {
		want = append(want, canonical(t, []byte(entry)))
	}
	var got []string
	for _, p := range b.Plugins {
		got = append(got, canonical(t, p.Bytes))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("plugins by libcni (-want +got):\n%s", diff)
	}
	if a.Name != b.Name || a.CNIVersion != b.CNIVersion || a.DisableCheck != b.DisableCheck || a.DisableGC != b.DisableGC {
		t.Errorf("network by libcni = %s %s %v %v, want %s %s %v %v", b.Name, b.CNIVersion, b.DisableCheck, b.DisableGC,
			a.Name, a.CNIVersion, a.DisableCheck, a.DisableGC)
	}
}

func loadLibcni(t *testing.T, name string, raw []byte) *libcni.NetworkConfigList {
	t.Helper()
	list, err := libcniNetwork(name, raw)
	if err != nil {
		t.Fatalf("libcni: %v\n%s", err, raw)
	}
	return list
}

func libcniNetwork(name string, raw []byte) (*libcni.NetworkConfigList, error) {
	if strings.HasSuffix(name, ".conflist") {
		return libcni.NetworkConfFromBytes(raw)
	}
	single, err := libcni.ConfFromBytes(raw) //nolint:staticcheck // what runtimes call for a .conf
	if err != nil {
		return nil, err
	}
	return libcni.ConfListFromConf(single) //nolint:staticcheck // what runtimes call for a .conf
}

func canonical(t *testing.T, raw []byte) string {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	must.OK(t, dec.Decode(&v))
	out, err := json.Marshal(v)
	must.OK(t, err)
	return string(out)
}

func TestParseRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ file, raw, want string }{
		"empty":             {"a.conflist", "", "a.conflist: the file is empty"},
		"broken":            {"a.conflist", `{"name":"n","plugins":[{"type":"x"]}`, "is not JSON"},
		"cut off":           {"a.conflist", `{"name":"n","plugins":[`, "ends in the middle of the JSON object, after 23 bytes"},
		"more behind":       {"a.conflist", `{"name":"n","plugins":[{"type":"x"}]} {}`, "has more behind the JSON object"},
		"huge":              {"a.conflist", strings.Repeat(" ", 10<<20), `size: "10485760 bytes" is not accepted, want at most 1048576`},
		"not UTF-8":         {"a.conflist", "{\"name\":\"\xff\"}", "byte 9 is not UTF-8"},
		"byte order mark":   {"a.conflist", "\xef\xbb\xbf{}", "byte order mark"},
		"no object":         {"a.conflist", `["x"]`, "want a JSON object"},
		"no name":           {"a.conflist", `{"plugins":[{"type":"x"}]}`, `name: "" is not accepted`},
		"name with a slash": {"a.conflist", `{"name":"../x","plugins":[{"type":"x"}]}`, `name: "../x" is not accepted`},
		"name not a string": {"a.conflist", `{"name":7,"plugins":[{"type":"x"}]}`, `name: "7" is not accepted, want a string`},
		"null name":         {"a.conflist", `{"name":null,"plugins":[{"type":"x"}]}`, `name: "null" is not accepted`},
		"plugins no list":   {"a.conflist", `{"name":"n","plugins":{}}`, `plugins: "{}" is not accepted, want a list of objects`},
		"no plugins":        {"a.conflist", `{"name":"n","plugins":[]}`, "at least one plugin"},
		"plugin no object":  {"a.conflist", `{"name":"n","plugins":[{"type":"x"},"y"]}`, `plugins[1]: "\"y\"" is not accepted`},
		"plugin null":       {"a.conflist", `{"name":"n","plugins":[null]}`, "plugins[0]"},
		"no type":           {"a.conflist", `{"name":"n","plugins":[{"tipe":"x"}]}`, "plugins[0]"},
		"name twice":        {"a.conflist", `{"name":"n","name":"m","plugins":[{"type":"x"}]}`, `key "name" is there twice`},
		"version a number":  {"a.conflist", `{"cniVersion":1,"name":"n","plugins":[{"type":"x"}]}`, `cniVersion: "1" is not accepted, want a string`},
		"versions no list":  {"a.conflist", `{"cniVersions":"1.0.0","name":"n","plugins":[{"type":"x"}]}`, `want a list of strings`},
		"version, a .conf":  {"a.conf", `{"cniVersion":1,"name":"n","type":"x"}`, "cniVersion"},
		"bad flag":          {"a.conflist", `{"name":"n","loadOnlyInlinedPlugins":1,"plugins":[{"type":"x"}]}`, "want true or false"},
		"inlined only":      {"a.conflist", `{"name":"n","loadOnlyInlinedPlugins":"TRUE"}`, "rules out drop-ins"},
		"list in a .conf":   {"a.conf", `{"name":"n","plugins":[{"type":"x"}]}`, "has no type"},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := conflist.Parse(tc.file, []byte(tc.raw))
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), tc.file) {
				t.Errorf("Parse() = %v, %v, want an error of %s with %q", n, err, tc.file, tc.want)
			}
			if _, ok := errors.AsType[*conflist.Error](err); !ok {
				t.Errorf("Parse() error has type %T", err)
			}
		})
	}
}

func TestSpliceRefuses(t *testing.T) {
	const ok = `{"name":"n","plugins":[{"type":"x"}]}`
	for name, tc := range map[string]struct{ file, raw, entry, want string }{
		"podweir in it":     {"a.conflist", `{"name":"n","plugins":[{"type":"x"},{"type":"podweir-cni"}]}`, entry, "podweir is in the chain already"},
		"spliced":           {"a.conflist", `{"podweir":{},"name":"n","plugins":[{"type":"x"}]}`, entry, "podweir is in the chain already"},
		"only drop-ins":     {"a.conflist", `{"name":"n"}`, entry, "without a plugin there is nothing to chain to"},
		"two bandwidths":    {"a.conflist", `{"name":"n","plugins":[{"type":"bandwidth"},{"type":"bandwidth"}]}`, entry, "at most one bandwidth plugin"},
		"bandwidth alone":   {"a.conf", `{"name":"n","type":"bandwidth"}`, entry, "a plugin that makes an interface"},
		"entry no object":   {"a.conflist", ok, `"x"`, "podweir's entry"},
		"entry not podweir": {"a.conflist", ok, `{"type":"x"}`, "podweir's entry"},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := conflist.Parse(tc.file, []byte(tc.raw))
			must.OK(t, err)
			if out, err := conflist.Splice(n, []byte(tc.entry)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Splice() = %s, %v, want an error with %q", out, err, tc.want)
			}
		})
	}
}
