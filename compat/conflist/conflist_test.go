// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package conflist_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/containernetworking/cni/libcni"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/testutil/must"
)

const entry = conflist.DefaultEntry

func splice(t *testing.T, file, raw string) string {
	t.Helper()
	n := must.Get(conflist.Parse(file, []byte(raw)))(t)
	return string(must.Get(conflist.Join(n, []byte(entry), nil, nil))(t))
}

// TestGolden splices the configuration of each CNI and compares with the
// golden file beside it; libcni must load the result as meant.
func TestGolden(t *testing.T) {
	for _, in := range must.Len(t, "inputs", 7, must.Get(filepath.Glob("testdata/*.in.*"))(t)) {
		t.Run(filepath.Base(in), func(t *testing.T) {
			raw := must.Get(os.ReadFile(in))(t)
			name := strings.Replace(filepath.Base(in), ".in.", ".", 1)
			got := splice(t, name, string(raw))
			golden := strings.Replace(in, ".in.", ".golden.", 1)
			if *update {
				must.OK(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want := must.Get(os.ReadFile(golden))(t)
			must.Match(t, "Join()", string(want), got)
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
	must.Match(t, "plugins by libcni", want, got)
	if a.Name != b.Name || a.CNIVersion != b.CNIVersion || a.DisableCheck != b.DisableCheck || a.DisableGC != b.DisableGC {
		t.Errorf("network by libcni = %s %s %v %v, want %s %s %v %v", b.Name, b.CNIVersion, b.DisableCheck, b.DisableGC,
			a.Name, a.CNIVersion, a.DisableCheck, a.DisableGC)
	}
}

func loadLibcni(t *testing.T, name string, raw []byte) *libcni.NetworkConfigList {
	t.Helper()
	return must.Get(libcniNetwork(name, raw))(t)
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
	return string(must.Get(json.Marshal(v))(t))
}

func TestParseRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ file, raw, want string }{
		"empty":             {"a.conflist", "", "a.conflist: the file is empty"},
		"broken":            {"a.conflist", `{"name":"n","plugins":[{"type":"x"]}`, "is not JSON"},
		"cut off":           {"a.conflist", `{"name":"n","plugins":[`, "is not JSON: unexpected end of JSON input at byte 23"},
		"more behind":       {"a.conflist", `{"name":"n","plugins":[{"type":"x"}]} {}`, "after top-level value at byte 39"},
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
		"version a number":  {"a.conflist", `{"cniVersion":1,"name":"n","plugins":[{"type":"x"}]}`, `cniVersion: "1" is not accepted, want a string`},
		"versions no list":  {"a.conflist", `{"cniVersions":"1.0.0","name":"n","plugins":[{"type":"x"}]}`, `want a list of strings`},
		"version, a .conf":  {"a.conf", `{"cniVersion":1,"name":"n","type":"x"}`, "cniVersion"},
		"bad flag":          {"a.conflist", `{"name":"n","loadOnlyInlinedPlugins":1,"plugins":[{"type":"x"}]}`, "want true or false"},
		"a flag of CHECK":   {"a.conflist", `{"name":"n","disableCheck":"no","plugins":[{"type":"x"}]}`, `disableCheck: "\"no\"" is not accepted, want true or false`},
		"a flag of GC":      {"a.conflist", `{"name":"n","disableGC":null,"plugins":[{"type":"x"}]}`, "disableGC"},
		"inlined only":      {"a.conflist", `{"name":"n","loadOnlyInlinedPlugins":"TRUE"}`, "rules out drop-ins"},
		"list in a .conf":   {"a.conf", `{"name":"n","plugins":[{"type":"x"}]}`, "has no type"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := conflist.Parse(tc.file, []byte(tc.raw))
			must.Fail(t, "Parse()", err, tc.file, tc.want)
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
		"two bandwidths":    {"a.conflist", `{"name":"n","plugins":[{"type":"ptp"},{"type":"bandwidth"},{"type":"bandwidth"}]}`, entry, "at most one bandwidth plugin"},
		"bandwidth alone":   {"a.conf", `{"name":"n","type":"bandwidth"}`, entry, "a plugin that makes an interface"},
		"entry no object":   {"a.conflist", ok, `"x"`, "podweir's entry"},
		"entry not podweir": {"a.conflist", ok, `{"type":"x"}`, "podweir's entry"},
	} {
		t.Run(name, func(t *testing.T) {
			n := must.Get(conflist.Parse(tc.file, []byte(tc.raw)))(t)
			must.Fail(t, "Join()", must.Err(conflist.Join(n, []byte(tc.entry), nil, nil)), tc.want)
		})
	}
}

const (
	plain = `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"ptp"}]}`
	dir   = "etc/cni/net.d"
)

func tree(files map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for name, content := range files {
		out[dir+"/"+name] = &fstest.MapFile{Data: []byte(content)}
	}
	return out
}

func readDir(t *testing.T, root fs.FS) *conflist.Dir {
	t.Helper()
	return must.Get(conflist.ReadDir(root, dir))(t)
}

func TestReadDir(t *testing.T) {
	d := readDir(t, tree(map[string]string{
		"10-b.conflist":                   plain,
		"05-a.conf":                       `{"name":"s","type":"bridge"}`,
		"00-podweir-05-a.conflist":        `{"podweir":{"source":"05-a.conf"},"name":"s","plugins":[{"type":"bridge"},{"type":"podweir-cni"}]}`,
		"99-broken.json":                  `{`,
		"20-x.conflist.cilium_bak":        plain,
		"notes.txt":                       "hello",
		"06-dir.conflist/inside.conflist": plain,
		"n/60-late.conf":                  `{"type":"late"}`,
		"n/50-early.conf":                 `{"type":"early"}`,
		"n/70-list.conflist":              plain,
		"n/80-broken.conf":                `{"tipe":1}`,
	}))
	var names []string
	for _, f := range d.Files {
		names = append(names, f.Name)
		must.Be(t, f.Name+" has a network", f.Err == nil, f.Network != nil)
	}
	want := []string{"00-podweir-05-a.conflist", "05-a.conf", "10-b.conflist", "99-broken.json"}
	must.Match(t, "files", want, names)
	must.Be(t, "Active()", want[0], d.Active().Name)
	must.Be(t, "Original()", want[1], d.Original().Name)
	must.Match(t, "Effective()", []string{"bridge", "podweir-cni"}, d.Effective(true))
	must.Match(t, "backups", []string{"20-x.conflist.cilium_bak"}, d.Backups)
	var types []string
	for _, c := range d.DropIns["n"] {
		types = append(types, c.Name+" "+c.Type)
	}
	must.Match(t, "drop-ins", []string{"50-early.conf early", "60-late.conf late", "80-broken.conf "}, types)
	must.Fail(t, "the broken drop-in", d.DropIns["n"][2].Err, "n/80-broken.conf")
}

// TestDropInByLibcni proves with the real libcni what a runtime makes of the
// drop-in directory, that ReadDir sees the same, and that what else is in the
// directory of conflists does not matter.
func TestDropInByLibcni(t *testing.T) {
	root := t.TempDir()
	dropIn := must.Get(conflist.DropIn([]byte(entry)))(t)
	confDir := must.Files(t, filepath.Join(root, dir), map[string]string{
		"05-cilium.conflist":              `{"cniVersion":"1.0.0","name":"cilium","plugins":[{"type":"cilium-cni"}]}`,
		"cilium/" + conflist.DropInFile:   string(dropIn),
		"cilium/50-podweir.conf.tmp":      "half written",
		"cilium/README":                   "not a plugin",
		"00-shaper.conflist.cilium_bak":   plain,
		"06-closed.conflist":              `{"name":"closed","loadOnlyInlinedPlugins":true,"plugins":[{"type":"a"}]}`,
		"closed/" + conflist.DropInFile:   string(dropIn),
		"07-dropins-only.conflist":        `{"name":"bare"}`,
		"bare/10-first.conf":              `{"type":"first"}`,
		"bare/" + conflist.DropInFile:     string(dropIn),
		"bare/nested.conf/not-a-conf.txt": "",
	})
	d := readDir(t, os.DirFS(root))
	for i, want := range [][]string{{"cilium-cni", "podweir-cni"}, {"a"}, {"first", "podweir-cni"}} {
		f := d.Files[i]
		list := must.Get(libcni.NetworkConfFromFile(filepath.Join(confDir, f.Name)))(t)
		var byLibcni []string
		for _, p := range list.Plugins {
			byLibcni = append(byLibcni, p.Network.Type)
		}
		must.Match(t, fmt.Sprintf("%s: chain by libcni", f.Name), want, byLibcni)
		alone := conflist.Dir{Files: []conflist.File{f}, DropIns: d.DropIns}
		must.Match(t, fmt.Sprintf("%s: Effective(true)", f.Name), want, alone.Effective(true))
	}
	must.Match(t, "Effective(false)", []string{"cilium-cni"}, d.Effective(false))
}

func TestReadFileOnDisk(t *testing.T) {
	root := t.TempDir()
	path := func(name string) string { return filepath.Join(root, name) }
	must.OK(t, os.WriteFile(path("good.conf"), []byte(plain), 0o644))
	must.OK(t, os.WriteFile(path("huge.conf"), make([]byte, 10<<20), 0o644))
	must.OK(t, os.Symlink("good.conf", path("link.conf")))
	must.OK(t, os.Symlink("nowhere.conf", path("dangling.conf")))
	must.OK(t, os.Symlink("loop.conf", path("loop.conf")))
	must.OK(t, os.Mkdir(path("dir.conf"), 0o755))
	must.OK(t, syscall.Mkfifo(path("pipe.conf"), 0o644))
	for name, want := range map[string]string{
		"good.conf": "", "link.conf": "",
		"huge.conf":     "huge.conf: has 10485760 bytes, want at most 1048576",
		"dangling.conf": "dangling.conf: is gone, or a link that leads nowhere",
		"loop.conf":     "too many levels of symbolic links",
		"dir.conf":      "dir.conf: is no regular file",
		"pipe.conf":     "pipe.conf: is no regular file",
	} {
		raw, err := conflist.ReadFile(os.DirFS(root), name)
		must.Part(t, name+": error", want, must.Text(err))
		if want == "" {
			must.Be(t, name, plain, string(raw))
		}
	}
}

// changing gives other bytes at each of the first readings.
type changing struct {
	fs.FS
	contents []string
	opened   int
}

func (c *changing) Open(string) (fs.File, error) {
	content := c.contents[min(c.opened, len(c.contents)-1)]
	c.opened++
	return fstest.MapFS{"x": {Data: []byte(content)}}.Open("x")
}

func (c *changing) Stat(string) (fs.FileInfo, error) {
	return fs.Stat(fstest.MapFS{"x": {}}, "x")
}

func TestReadFileThatChanges(t *testing.T) {
	settles := &changing{contents: []string{`{"na`, `{"name":"n","plu`, plain}}
	must.Be(t, "what is there in the end", plain, string(must.Get(conflist.ReadFile(settles, "x"))(t)))
	var many []string
	for i := range 100 {
		many = append(many, strings.Repeat("x", i))
	}
	must.Fail(t, "ReadFile()", must.Err(conflist.ReadFile(&changing{contents: many}, "x")), conflist.ErrChanging.Error())
}

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
		must.Be(t, name+": Differences()", tc.want, strings.Join(conflist.Differences([]byte(tc.a), []byte(tc.b)), ","))
	}
}

// TestJoin: what others put into podweir's file is in what podweir writes next, in its
// place, and what the original no longer has is not.
func TestJoin(t *testing.T) {
	const a, b, mesh, bandwidth = `{"type":"a"}`, `{"type":"b"}`, `{"type":"mesh","x":1}`, `{"type":"bandwidth"}`
	list := func(entries ...string) string {
		return `{"name":"n","plugins":[` + strings.Join(entries, ",") + `]}`
	}
	// noted is podweir's file as podweir made it of a and b, changed by another party.
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
		"a setting of the network":     {list(a, b), noted(`"name": "n"`, `"disableCheck": true, "name": "n"`), []string{"a", "b", conflist.Type}, true},
		"bandwidth":                    {list(a, bandwidth), list(a, bandwidth, entry, mesh), []string{"a", conflist.Type, "mesh"}, false},
		"by hand, and a mesh":          {list(a, b), list(a, b, entry, mesh), []string{"a", "b", conflist.Type, "mesh"}, false},
		"by hand, bandwidth is left":   {list(a), list(a, bandwidth, entry), []string{"a", conflist.Type}, false},
		"bandwidth is added":           {list(a, b), noted(entry, entry+","+bandwidth), []string{"a", "b", conflist.Type, "bandwidth"}, true},
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
			action, why := conflist.Decide(s)
			must.Be(t, "left, for "+why, tc.keeps, action == conflist.Leave)
			raw := must.Get(conflist.Join(original.Network, []byte(entry), now, nil))(t)
			joined := fileOf(t, "00-podweir-10-x.conflist", string(raw))
			must.Match(t, "Join()", tc.want, joined.Network.Types())
			if strings.Contains(tc.own, "disableCheck") && !strings.Contains(string(raw), `"disableCheck": true`) {
				t.Errorf("Join() = %s, lacks what was set by hand", raw)
			}
			s.Own = joined
			action, why = conflist.Decide(s)
			must.Be(t, "what is done with what was joined, for "+why, conflist.Leave, action)
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
		raw := must.Get(conflist.Join(original.Network, s.Entry, own, s.Installed))(t)
		return fileOf(t, "00-podweir-10-x.conflist", string(raw))
	}
	decides := func(when string, want conflist.Action) {
		t.Helper()
		got, why := conflist.Decide(s)
		must.Be(t, when+": Decide(), because "+why, want, got)
	}
	wants := func(when string, action conflist.Action, types ...string) {
		t.Helper()
		decides(when, action)
		s.Own = join(s.Own.Network)
		must.Match(t, when, types, s.Own.Network.Types())
		decides(when+", and written", conflist.Leave)
	}
	takesOut := func() {
		t.Helper()
		raw := strings.Replace(string(original.Raw), ","+mesh, "", 1)
		made := fileOf(t, "10-x.conflist", raw)
		out := must.Get(conflist.Join(made.Network, s.Entry, nil, nil))(t)
		// With the note of podweir's own file.
		was := must.Get(json.Marshal(s.Own.Network.Mark))(t)
		now := must.Get(json.Marshal(fileOf(t, "x.conflist", string(out)).Network.Mark))(t)
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

var update = flag.Bool("update", false, "rewrite the golden files")

// FuzzJoin: libcni loads what we made of anything it loads, with the same plugins;
// podweir's file matches its original then, also after another program wrote it as JSON;
// and what we refuse of that is refused for one of the documented reasons.
func FuzzJoin(f *testing.F) {
	for _, raw := range []string{
		`{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"ptp","mtu":1e3},{"type":"bandwidth","capabilities":{"bandwidth":true}}]}`,
		"{\n  \"name\": \"cbr0\",\n  \"plugins\": [\n    {\n      \"type\": \"flannel\"\n    }\n  ]\n}\n",
		`{"name":"n","type":"ptp","Type":"b","plugins":1}`,
		`{"name":"n","plugins":[{"type":"bandwidth"}]}`,
		` { "x" : "}{][,\"" , "name":"n" ,"plugins" : [{"type":"a"} , {"type":"b"}] } `,
		`{"podweir":{"source":"a","sha256":""},"name":"n","plugins":[{"type":"a"},{"type":"podweir-cni"}]}`,
	} {
		f.Add(true, []byte(raw))
		f.Add(false, []byte(raw))
	}
	f.Fuzz(func(t *testing.T, list bool, raw []byte) {
		name := "10-x.conf"
		if list {
			name = "10-x.conflist"
		}
		before := bytes.Clone(raw)
		n, err := conflist.Parse(name, raw)
		if err != nil {
			if _, ok := errors.AsType[*conflist.Error](err); !ok {
				t.Fatalf("Parse() error has type %T: %v", err, err)
			}
			return
		}
		if _, err := libcniNetwork(name, raw); err != nil {
			// We read less of it than libcni: versions, other flags.
			return
		}
		out, err := conflist.Join(n, []byte(entry), nil, nil)
		if !bytes.Equal(before, raw) {
			t.Fatal("Join() changed its input")
		}
		if err != nil {
			return
		}
		for _, written := range [][]byte{out, []byte(canonical(t, out))} {
			own := must.Get(conflist.Parse("00-podweir-10-x.conflist", written))(t)
			action, why := conflist.Decide(conflist.Standing{
				Delivery: profiles.Chain, Original: &conflist.File{Name: name, Raw: raw, Network: n},
				Own: &conflist.File{Name: own.File, Raw: written, Network: own}, Entry: []byte(entry),
			})
			if action == conflist.Write {
				t.Fatalf("Decide(Splice()) = %v, %s\nspliced: %q", action, why, written)
			}
		}
		compareByLibcni(t, name, raw, out)
	})
}
