// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery_test

import (
	"context"
	encoding "encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/agent/delivery"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

const (
	plugin = binDir + "/" + conflist.Type
	state  = "var/lib/podweir"
	// settings is where Cilium's agent has its configuration, seen through its
	// process.
	settings = "proc/77/root/tmp/cilium/config-map"
)

// exclusive is a node with an exclusive Cilium and a runtime that reads drop-ins.
func exclusive(more map[string]string) map[string]string {
	files := map[string]string{
		confDir + "/05-cilium.conflist": network("cilium", 1, "cilium-cni"), binDir + "/cilium-cni": "x",
		"proc/77/comm": "cilium-agent", settings + "/cni-exclusive": "true", settings + "/write-cni-conf-when-ready": "/x",
		settings + "/datapath-mode": "veth",
	}
	maps.Copy(files, more)
	return files
}

func recent(c *delivery.Config) { c.Runtime = "containerd://2.1.3" }

func base64(s string) string { return encoding.StdEncoding.EncodeToString([]byte(s)) }

func simple() map[string]string {
	return map[string]string{confDir + "/" + original: network("n", 1, "ptp", "portmap")}
}

func TestInstallChain(t *testing.T) {
	h := newHost(t, simple())
	m := h.install(t, nil)
	must.Match(t, "chain", []string{"ptp", "portmap", conflist.Type}, h.chain())
	must.Be(t, "the binary", "plugin, first release", h.read(plugin))
	must.Be(t, "mode of the binary", 0o755, must.Get(os.Stat(h.path(plugin)))(t).Mode())
	d := m.Decision()
	works(t, m, profiles.Chain)
	must.Be(t, "profile and directory", "ptp /"+binDir, d.Profile+" "+d.BinDir)
	must.Len(t, "steps of an installation once more", 0, must.Get(m.Install(t.Context()))(t))
}

// CRI-O takes the network that cni_default_network names, in whatever order the files are.
func TestInstallForTheDefaultNetworkOfCRIO(t *testing.T) {
	for version, file := range map[string]string{"cri-o://1.34.0": "b/" + conflist.DropInFile, "cri-o://1.30.0": "00-podweir-20-b.conflist"} {
		h := newHost(t, map[string]string{
			confDir + "/00-a.conflist": network("a", 1, "ptp"), confDir + "/20-b.conflist": network("b", 1, "ptp"),
			"etc/crio/crio.conf.d/10-net.conf": "[crio.network]\ncni_default_network = 'b'\n",
		})
		m := h.install(t, func(c *delivery.Config) { c.Runtime = version })
		if d := m.Decision(); d.Network != "b" || !d.InForce || h.read(confDir+"/"+file) == "" {
			t.Errorf("%s: decision %+v, want the network b and %s", version, d, file)
		}
	}
}

// While no file has the network that CRI-O is told to take, no pod can start: podweir joins
// none, and says so. CRI-O passes over a file that it cannot read, and over one with a plugin that is not installed.
func TestFilesThatCRIOPassesOver(t *testing.T) {
	files := map[string]string{
		confDir + "/00-a.conflist":         network("a", 1, "ptp"),
		"etc/crio/crio.conf.d/10-net.conf": "[crio.network]\ncni_default_network = 'b'\n",
	}
	h := newHost(t, files)
	want := "CRI-O takes the network b (cni_default_network), and no file in /etc/cni/net.d has it"
	config := func(c *delivery.Config) { c.Runtime = "cri-o://1.34.0" }
	must.Fail(t, "Install()", must.Err(h.manager(t, config).Install(t.Context())), want)
	h.write(t, confDir+"/01-broken.conflist", "{")
	h.write(t, confDir+"/20-b.conflist", network("b", 1, "ptp"))
	if d := h.install(t, config).Decision(); d.Network != "b" || !d.InForce {
		t.Errorf("with the network: %+v", d)
	}
	delete(files, "etc/crio/crio.conf.d/10-net.conf")
	h = newHost(t, files)
	h.write(t, confDir+"/00-0.conflist", "{")
	h.write(t, confDir+"/00-1.conflist", network("left", 1, "gone", "ptp"))
	if d := h.install(t, config).Decision(); d.Network != "a" || !d.InForce {
		t.Errorf("behind files that it passes over: %+v", d)
	}
}

// A network may leave all its plugins to drop-ins. Where podweir's would be the first of them no pod would start.
func TestNetworkOfDropIns(t *testing.T) {
	for file, want := range map[string]profiles.Delivery{"10-ptp.conf": profiles.DropIn, "ptp.conf": profiles.NRI} {
		h := newHost(t, map[string]string{confDir + "/10-n.conflist": `{"cniVersion":"1.0.0","name":"n"}`, confDir + "/n/" + file: `{"type":"ptp"}`})
		if d := h.install(t, recent).Decision(); d.Delivery != want || d.InForce != h.shaped() || h.chain()[0] != "ptp" {
			t.Errorf("beside %s: chain %v, decision %+v, want %s", file, h.chain(), d, want)
		}
	}
}

// The directory of drop-ins may be a link of another party's that leads nowhere where podweir runs, as in a container.
func TestDirectoryOfDropInsIsALink(t *testing.T) { synctest.Test(t, directoryOfDropInsIsALink) }

func directoryOfDropInsIsALink(t *testing.T) {
	h := newHost(t, exclusive(nil))
	link := h.path(confDir + "/cilium")
	must.OK(t, os.Symlink("/nowhere/d", link))
	m := h.manager(t, recent)
	must.Fail(t, "Install()", must.Err(m.Install(t.Context())))
	must.OK(t, m.Remove(t.Context()))
	must.OK(t, must.Err(os.Lstat(link))) // it is the other party's
}

// A drop-in of another program that libcni cannot load leaves the node without a network, with a file of podweir's or a
// drop-in: podweir is not in force, and names it.
func TestBrokenDropInOfAnother(t *testing.T) {
	for version, reads := range map[string]bool{"containerd://2.1.3": true, "containerd://1.6.36": false} {
		for _, asked := range []profiles.Delivery{profiles.Chain, profiles.DropIn} {
			if asked == profiles.DropIn && !reads {
				continue
			}
			h := newHost(t, map[string]string{confDir + "/10-n.conflist": network("n", 1, "ptp"), confDir + "/n/90-mesh.conf": "{"})
			m := h.manager(t, func(c *delivery.Config) { c.Runtime, c.Delivery = version, asked })
			_, err := m.Install(t.Context())
			d := m.Decision()
			if told := strings.Contains(d.Problem, "repair or remove n/90-mesh.conf"); d.InForce == reads || told != reads {
				t.Errorf("%s with %s: error %v, decision %+v", asked, version, err, d)
			}
			h.remove(t, confDir+"/n/90-mesh.conf")
			if _, err := m.Install(t.Context()); err != nil || !m.Decision().InForce {
				t.Errorf("%s with %s, the drop-in gone: error %v, decision %+v", asked, version, err, m.Decision())
			}
		}
	}
}

func TestInstallHanded(t *testing.T) {
	h := newHost(t, exclusive(nil))
	old := func(c *delivery.Config) { c.Runtime = "containerd://1.7.20" }
	m := h.install(t, old)
	d := m.Decision()
	if d.Delivery != profiles.Handed || d.InForce || len(d.Do) == 0 || h.read(plugin) == "" {
		t.Errorf("decision %+v", d)
	}
	h.write(t, confDir+"/05-cilium.conflist", network("cilium", 1, "cilium-cni", conflist.Type))
	h.install(t, old)
	must.Fail(t, "Remove()", m.Remove(t.Context()), delivery.ErrInUse.Error(), "05-cilium.conflist")
	h.has(t, plugin) // Cilium's own chain names it
	h.write(t, confDir+"/05-cilium.conflist", network("cilium", 1, "cilium-cni"))
	h.removed(t, m)
}

// TestHandedDefaults: the commands have the node's defaults, and a chain of Cilium's whose
// entry has others is told of, with the commands that change it.
func TestHandedDefaults(t *testing.T) {
	h := newHost(t, exclusive(nil))
	closed := func(c *delivery.Config) {
		c.Runtime, c.Defaults = "containerd://1.7.20", map[string]any{"onError": "closed", "maxRate": "1G"}
	}
	const settings = `,"hostHook":"tcx","ingressPlace":"prefer-ifb","maxRate":"1G","onError":"closed"}`
	entry := strings.TrimSuffix(conflist.DefaultEntry, "}") + settings
	chain := func(entry string) string {
		return `{"cniVersion":"1.0.0","name":"cilium","plugins":[{"type":"cilium-cni"},` + entry + `]}`
	}
	for _, tc := range []struct{ name, chain, do, warning string }{
		{"not yet", network("cilium", 1, "cilium-cni"), "jq '.plugins += [" + entry + "]' ", ""},
		{"without them", chain(conflist.DefaultEntry), " = " + entry + "' ", "hostHook, ingressPlace, maxRate, onError"},
		{"with one of before", chain(strings.Replace(entry, "closed", "open", 1)), " = " + entry + "' ", "other settings than this node: onError"},
		{"with them", chain(entry), entry, ""},
	} {
		h.write(t, confDir+"/05-cilium.conflist", tc.chain)
		d := h.install(t, closed).Decision()
		if d.Delivery != profiles.Handed || len(d.Do) == 0 || !strings.Contains(d.Do[0], tc.do) {
			t.Errorf("%s: decision %+v, want the entry %s in the first command", tc.name, d, tc.do)
		}
		must.Part(t, tc.name+": warning", tc.warning, d.Warning)
	}
}

// TestTwoEntriesByHand: a chain that another party wrote with podweir in it twice stays as it
// is, and a warning says so.
func TestTwoEntriesByHand(t *testing.T) {
	for n, want := range []bool{false, false, true, true} {
		types := []string{"ptp"}
		for range n {
			types = append(types, conflist.Type)
		}
		h := newHost(t, simple())
		h.write(t, confDir+"/"+original, network("n", 1, types...))
		warning := h.install(t, nil).Decision().Warning
		must.Be(t, fmt.Sprintf("%d entries are warned of: %q", n, warning), want, strings.Contains(warning, original+" calls podweir-cni more than once for each pod (ptp, podweir-cni, podweir-cni"))
	}
}

// TestRemoveLeavesNoTrace compares the whole tree before and after, for every
// delivery. What was made by hand under podweir's names is gone with the rest.
func TestRemoveLeavesNoTrace(t *testing.T) {
	with := func(base map[string]string, more ...string) map[string]string {
		for i := 0; i < len(more); i += 2 {
			base[more[i]] = more[i+1]
		}
		return base
	}
	byHand := network("n", 7, "ptp", conflist.Type)
	for name, tc := range map[string]struct {
		files  map[string]string
		config func(*delivery.Config)
		first  func(*host) error
		ours   []string
	}{
		"chain":                     {files: simple()},
		"chain, single plugin":      {files: map[string]string{confDir + "/10-x.conf": `{"name":"n","type":"ptp"}`}},
		"chain, bandwidth replaced": {files: map[string]string{confDir + "/" + original: network("n", 1, "ptp", "bandwidth")}},
		"chain, all by hand": {
			files: with(simple(), plugin, "by hand", confDir+"/"+ours, byHand, confDir+"/00-podweir-99-z.conflist", byHand),
			ours:  []string{plugin, confDir + "/" + ours, confDir + "/00-podweir-99-z.conflist"},
		},
		"chain, state was there":      {files: with(simple(), state+"/notes", "an administrator's")},
		"drop-in":                     {files: exclusive(nil), config: recent},
		"drop-in, others' beside":     {files: exclusive(map[string]string{confDir + "/cilium/60-other.conf": `{"type":"other"}`}), config: recent},
		"drop-in, an empty directory": {files: exclusive(nil), config: recent, first: func(h *host) error { return os.Mkdir(h.path(confDir+"/cilium"), 0o700) }},
		"handed":                      {files: exclusive(nil), config: func(c *delivery.Config) { c.Runtime = "containerd://1.7.20" }},
		"nri":                         {files: simple(), config: func(c *delivery.Config) { c.Delivery = profiles.NRI }},
		"watch":                       {files: simple(), config: func(c *delivery.Config) { c.Delivery = profiles.Watch }},
	} {
		t.Run(name, bubble(tc.files, func(t *testing.T, h *host) {
			t.Helper()
			if tc.first != nil {
				must.OK(t, tc.first(h))
			}
			before := h.tree(t)
			for _, name := range tc.ours {
				delete(before, "/"+name)
			}
			h.install(t, tc.config)
			// A later release, and a primary CNI that rewrites its file.
			must.OK(t, os.WriteFile(h.binary, []byte("plugin, second release"), 0o755))
			m := h.install(t, tc.config)
			if d := m.Decision(); !d.Delivery.ByAgent() && h.read(plugin) != "plugin, second release" {
				t.Errorf("the binary is %q after the second installation", h.read(plugin))
			}
			for range 2 {
				must.OK(t, m.Remove(t.Context()))
				must.Match(t, "after the removal", before, h.tree(t))
			}
		}))
	}
}

// TestBinaryOutlivesTheChain: a pod that is being set up is in a chain with podweir, and
// the runtime has yet to call it.
func TestBinaryOutlivesTheChain(t *testing.T) {
	for name, tc := range map[string]struct {
		files  map[string]string
		remove func(context.Context, *host) error
	}{
		"uninstalled": {map[string]string{confDir + "/" + original: network("n", 1, "ptp", "bandwidth")}, func(ctx context.Context, h *host) error { return h.manager(t, recent).Remove(ctx) }},
		"drop-in":     {exclusive(nil), func(ctx context.Context, h *host) error { return h.manager(t, recent).Remove(ctx) }},
		"to nri": {simple(), func(ctx context.Context, h *host) error {
			_, err := h.manager(t, as(profiles.NRI)).Install(ctx)
			return err
		}},
	} {
		t.Run(name, bubble(tc.files, func(t *testing.T, h *host) {
			t.Helper()
			h.install(t, recent)
			inPause := func(ctx context.Context) <-chan error {
				done := make(chan error, 1)
				go func() { done <- tc.remove(ctx, h) }()
				for synctest.Wait(); h.shaped() && len(done) == 0; synctest.Wait() {
					pause(time.Millisecond)
				}
				if h.shaped() || h.read(plugin) == "" {
					t.Errorf("chain %v, binary %q: want podweir out of the chain, and its binary there", h.chain(), h.read(plugin))
				}
				return done
			}
			began := time.Now()
			if err := <-inPause(t.Context()); err != nil || h.read(plugin) != "" {
				t.Errorf("error %v, binary %q, want it gone", err, h.read(plugin))
			}
			must.AtLeast(t, "how long the binary was there", time.Second, time.Since(began))

			// Whoever has no time leaves the binary to the next removal.
			h.install(t, recent)
			ctx, cancel := context.WithCancel(t.Context())
			done := inPause(ctx)
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) || h.read(plugin) == "" {
				t.Errorf("cut short: error %v, binary %q, want it there", err, h.read(plugin))
			}
			h.removed(t, h.manager(t, recent))
		}))
	}
}

// TestRemoveByAnother removes on the node what an agent installed from a
// container, which sees the node's root elsewhere.
func TestRemoveByAnother(t *testing.T) { synctest.Test(t, removeByAnother) }

func removeByAnother(t *testing.T) {
	h := newHost(t, simple())
	before := h.tree(t)
	link := filepath.Join(t.TempDir(), "host")
	must.OK(t, os.Symlink(h.root, link))
	h.install(t, func(c *delivery.Config) { c.Root = link })
	must.OK(t, h.manager(t, nil).Remove(t.Context()))
	must.Match(t, "after the removal", before, h.tree(t))
}

// TestRemoveBesideAWriter has another installer write again what it had read before.
func TestRemoveBesideAWriter(t *testing.T) { synctest.Test(t, removeBesideAWriter) }

func removeBesideAWriter(t *testing.T) {
	h := newHost(t, simple())
	before := h.tree(t)
	m := h.install(t, nil)
	chain := h.read(confDir + "/" + ours)
	removed := make(chan error)
	go func() { removed <- m.Remove(t.Context()) }()
	synctest.Wait()
	must.Be(t, "podweir's file, which has to be gone for this test", "", h.read(confDir+"/"+ours))
	h.write(t, confDir+"/"+ours, chain)
	must.OK(t, <-removed)
	must.Match(t, "after the removal", before, h.tree(t))
}

// TestRemoveWithoutRecord removes what podweir surely made, and nothing else.
func TestRemoveWithoutRecord(t *testing.T) { synctest.Test(t, removeWithoutRecord) }

func removeWithoutRecord(t *testing.T) {
	h := newHost(t, simple())
	m := h.install(t, nil)
	h.remove(t, state)
	must.OK(t, m.Remove(t.Context()))
	must.Match(t, "chain", []string{"ptp", "portmap"}, h.chain())
	h.has(t, plugin) // nobody remembers having put it there
}

// TestRemoveWhileCRIONeedsIt keeps the binary while CRI-O would call it for DEL.
func TestRemoveWhileCRIONeedsIt(t *testing.T) { synctest.Test(t, removeWhileCRIONeedsIt) }

func removeWhileCRIONeedsIt(t *testing.T) {
	h := newHost(t, simple())
	crio := func(c *delivery.Config) { c.Runtime = "cri-o://1.30.1" }
	m := h.install(t, crio)
	h.write(t, "var/lib/cni/results/n-abc-eth0", `{"kind":"cniCacheV1","containerId":"abc","config":"`+
		base64(network("n", 1, "ptp", conflist.Type))+`"}`)
	must.Fail(t, "Remove()", m.Remove(t.Context()), delivery.ErrInUse.Error(), "1 containers")
	if h.shaped() || h.read(plugin) == "" {
		t.Errorf("chain %v, binary %q: want out of the chain, and the binary there", h.chain(), h.read(plugin))
	}
	h.remove(t, "var/lib/cni/results/n-abc-eth0")
	m = h.manager(t, recent)
	h.write(t, confDir+"/n/60-by-hand.conf", conflist.DefaultEntry)
	must.Fail(t, "Remove() beside a drop-in that calls it", m.Remove(t.Context()), "n/60-by-hand.conf")
	h.remove(t, confDir+"/n/60-by-hand.conf")
	h.removed(t, m)
}

// TestAWrongDirectoryLeavesAnInstallation: the chain that works goes on working.
func TestAWrongDirectoryLeavesAnInstallation(t *testing.T) {
	for name, config := range map[string]func(*delivery.Config){
		"of plugins":   func(c *delivery.Config) { c.BinDir = "/nope" },
		"of conflists": func(c *delivery.Config) { c.ConfDir = "/nope" },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, simple())
			h.install(t, nil)
			h.refuses(t, h.manager(t, config), "/nope")
		})
	}
}

// TestInstallKeepsDefaults: what one installation was told the next one keeps, shows,
// changes one by one, and takes back.
func TestInstallKeepsDefaults(t *testing.T) { synctest.Test(t, installKeepsDefaults) }

func installKeepsDefaults(t *testing.T) {
	h := newHost(t, simple())
	install := func(defaults map[string]any) (entry string) {
		m := h.install(t, func(c *delivery.Config) { c.Defaults = defaults })
		must.OK(t, must.Err(m.Plan(t.Context())))
		return m.Decision().Entry
	}
	h.install(t, func(c *delivery.Config) {
		c.Defaults, c.Runtime = map[string]any{"policy": "flat", "podAnnotations": []string{"policy=elephants"}}, "containerd://1.7.2"
	})
	for _, step := range []struct {
		given         map[string]any
		want, wantNot string
	}{
		{nil, `"podAnnotations":["policy=elephants"],"policy":"flat"`, "maxRate"},
		{map[string]any{"maxRate": "1G"}, `"maxRate":"1G","podAnnotations":["policy=elephants"],"policy":"flat"`, "x"},
		{map[string]any{"policy": "strict", "podAnnotations": ""}, `"maxRate":"1G","policy":"strict"`, "podAnnotations"},
		{nil, `"maxRate":"1G","policy":"strict"`, "podAnnotations"},
	} {
		must.Have(t, fmt.Sprint("the decision with ", step.given), install(step.given), step.want)
		must.Have(t, fmt.Sprint("the file with ", step.given), h.read(confDir+"/"+ours), step.want, `!"`+step.wantNot+`"`)
	}
	m := h.manager(t, nil)
	must.Len(t, "steps of an installation once more", 0, must.Get(m.Install(t.Context()))(t))
	must.Match(t, "defaults of before", map[string]any{"maxRate": "1G", "policy": "strict"}, m.Decision().Defaults)
	must.Be(t, "runtime of before", "containerd 1.7.2", m.Decision().Runtime)
	must.OK(t, m.Remove(t.Context()))
	must.Be(t, "the record after the removal", "", h.read(state+"/installed.json"))
	must.Have(t, "the entry after an uninstallation", install(nil), "!maxRate")
}

// Two directories of plugins: the runtime takes the first binary that it finds, which may be podweir's of before.
func TestBinaryOfBefore(t *testing.T) {
	h := newHost(t, map[string]string{
		confDir + "/" + original: network("n", 1, "elsewhere"), "usr/libexec/cni/elsewhere": "x", plugin: "of before",
		"etc/containerd/config.toml": "[plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dirs = ['/opt/cni/bin', '/usr/libexec/cni']\n",
	})
	m := h.install(t, recent)
	if steps, err := m.Plan(t.Context()); len(steps) > 0 || err != nil || h.read(plugin) != "plugin, first release" || h.read("usr/libexec/cni/podweir-cni") != h.read(plugin) {
		t.Errorf("the first directory has %q, steps %v, %v, want podweir's of now, and no more to do", h.read(plugin), steps, err)
	}
}

func TestInstallRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		files   map[string]string
		missing string
		config  func(*delivery.Config)
		want    []string
	}{
		"no directory of plugins":   {missing: binDir, want: []string{binDir, "does not exist", "--cni-bin-dir"}},
		"no directory of conflists": {missing: confDir, want: []string{confDir, "is not there yet"}},
		"no conflist":               {missing: confDir + "/" + original, want: []string{confDir, "has no network"}},
		"a broken conflist":         {files: map[string]string{confDir + "/" + original: "{"}, want: []string{original, "unexpected end of JSON"}},
		"a directory as conflist":   {files: map[string]string{confDir + "/" + ours + "/x": ""}, want: []string{ours, "is a directory"}},
		"a directory as binary":     {files: map[string]string{plugin + "/x": ""}, want: []string{plugin, "is a directory"}},
		"no binary to install":      {config: func(c *delivery.Config) { c.Binary += "-not" }, want: []string{"podweir-cni-not", "--binary"}},
		"a file as state":           {files: map[string]string{state: "x"}, want: []string{state, "not a directory"}},
		"a broken record":           {files: map[string]string{state + "/installed.json": "{"}, want: []string{"installed.json"}},
		"a later record":            {files: map[string]string{state + "/installed.json": `{"version":9}`}, want: []string{"installed.json", "version 9"}},
		"a delivery that cannot be": {config: func(c *delivery.Config) { c.Delivery = profiles.Handed }, want: []string{"handed", "ptp"}},
	} {
		t.Run(name, func(t *testing.T) {
			files := simple()
			maps.Copy(files, tc.files)
			h := newHost(t, files)
			if tc.missing != "" {
				h.remove(t, tc.missing)
			}
			h.refuses(t, h.manager(t, tc.config), tc.want...)
		})
	}
}

// mount puts a file system of its own over a directory, with what was in it.
func (h *host) mount(t *testing.T, dir, options string) {
	t.Helper()
	files := map[string]string{}
	entries := must.Get(os.ReadDir(h.path(dir)))(t)
	for _, e := range entries {
		files[e.Name()] = h.read(dir + "/" + e.Name())
	}
	must.OK(t, unix.Mount("tmpfs", h.path(dir), "tmpfs", 0, options))
	t.Cleanup(func() { must.OK(t, unix.Unmount(h.path(dir), unix.MNT_DETACH)) })
	for name, content := range files {
		h.write(t, dir+"/"+name, content)
	}
}

// asNobody runs f on a thread without any privilege.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const keep, nobody = ^uintptr(0), 65534
	effective := func(uid uintptr) {
		// Of this thread alone: the saved id brings root back.
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uid, keep); errno != 0 {
			t.Fatal(errno)
		}
	}
	effective(nobody)
	defer effective(0)
	f()
}

// refuses installs and wants an error with these parts, and the node as it was. refused wants no podweir in its chain.
func (h *host) refuses(t *testing.T, m *delivery.Manager, parts ...string) {
	t.Helper()
	before := h.tree(t)
	_, err := m.Install(t.Context())
	must.Fail(t, "Install()", err, parts...)
	must.Match(t, "after the refusal", before, h.tree(t))
}

func (h *host) refused(t *testing.T, m *delivery.Manager, parts ...string) {
	t.Helper()
	if h.refuses(t, m, parts...); h.shaped() {
		t.Error("podweir is in the chain")
	}
}

func TestPrivilegedReadOnly(t *testing.T) {
	testutil.RequireRoot(t)
	for _, dir := range []string{binDir, confDir} {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			h := newHost(t, simple())
			h.mount(t, dir, "size=1m")
			must.OK(t, unix.Mount("", h.path(dir), "", unix.MS_REMOUNT|unix.MS_RDONLY, "size=1m"))
			m := h.manager(t, nil)
			h.refused(t, m, h.path(dir), "read-only file system", "mounted writable")
			if d := m.Decision(); d.Delivery != profiles.NRI || !strings.Contains(d.Why, h.path(dir)) {
				t.Errorf("decision %+v, want nri because of %s", d, h.path(dir))
			}
			asked := h.manager(t, func(c *delivery.Config) { c.Delivery = profiles.Chain })
			h.refused(t, asked, "delivery", `"chain"`, h.path(dir), "read-only file system")
		})
	}
}

// TestPrivilegedFull has no room for the binary in the one directory, and for the record in
// the other: podweir is not in the chain, and a removal leaves no trace.
func TestPrivilegedFull(t *testing.T) {
	testutil.RequireRoot(t)
	big := strings.Repeat("x", 1<<20)
	for name, dir := range map[string]string{"plugins": binDir, "state": "var/lib"} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, simple())
			must.OK(t, os.WriteFile(h.binary, []byte(big), 0o755))
			h.mount(t, dir, "size=96k")
			if name == "state" {
				h.write(t, dir+"/full", big[:96<<10])
			}
			before, m := h.tree(t), h.manager(t, nil)
			if steps, err := m.Install(t.Context()); !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), h.path(dir)) || h.shaped() || h.read(plugin) != "" {
				t.Errorf("Install() = %v, %v, chain %v: want no space left in %s, and no podweir", steps, err, h.chain(), dir)
			}
			must.OK(t, m.Remove(t.Context()))
			must.Match(t, "after the removal", before, h.tree(t))
		})
	}
}

// TestPrivilegedFullOverAnInstallation has no room for the conflist, after the new
// binary was put in place: the chain of before is there, and a binary for it.
func TestPrivilegedFullOverAnInstallation(t *testing.T) {
	testutil.RequireRoot(t)
	h := newHost(t, simple())
	h.mount(t, confDir, "size=32k")
	h.install(t, nil)
	h.write(t, confDir+"/full.tmp", "")
	for err := error(nil); err == nil; {
		var f *os.File
		if f, err = os.OpenFile(h.path(confDir+"/full.tmp"), os.O_APPEND|os.O_WRONLY, 0); err == nil {
			_, err = f.WriteString(strings.Repeat("x", 1<<10))
			err = errors.Join(err, f.Close())
		}
	}
	must.OK(t, os.WriteFile(h.binary, []byte("plugin, second release"), 0o755))
	chain := h.read(confDir + "/" + ours)
	m := h.manager(t, func(c *delivery.Config) { c.Defaults = map[string]any{"policy": "flat"} })
	steps, err := m.Install(t.Context())
	if !errors.Is(err, unix.ENOSPC) || len(steps) != 1 || h.read(plugin) != "plugin, second release" || h.read(confDir+"/"+ours) != chain {
		t.Errorf("Install() = %v, %v, want no space left, the new binary, and the chain of before", steps, err)
	}
	h.remove(t, confDir+"/full.tmp")
	must.OK(t, must.Err(m.Install(t.Context())))
	must.Have(t, "the chain with room", h.read(confDir+"/"+ours), "flat")
}

func TestPrivilegedNoPermission(t *testing.T) {
	testutil.RequireRoot(t)
	h := newHost(t, simple())
	for _, dir := range []string{filepath.Dir(h.root), filepath.Dir(h.binary), filepath.Dir(filepath.Dir(h.binary))} {
		must.OK(t, os.Chmod(dir, 0o755))
	}
	m := h.manager(t, nil)
	want := []string{"permission denied", "root that owns it or has CAP_DAC_OVERRIDE"}
	asNobody(t, func() { h.refused(t, m, append(want, h.path(confDir))...) })
	// Root is as anybody else there.
	for _, path := range []string{confDir, binDir} {
		must.OK(t, os.Chown(h.path(path), 65534, 65534))
		must.Fail(t, "Install()", testutil.WithoutCapabilities(t, func() error { return must.Err(m.Install(t.Context())) }), append(want, path)...)
		must.OK(t, os.Chown(h.path(path), 0, 0))
	}
	must.OK(t, must.Err(m.Install(t.Context())))
}

// TestPrivilegedWrongNodeKeepsRunning has the agent's part go on where nothing
// can be written, and install when that is over.
func TestPrivilegedWrongNodeKeepsRunning(t *testing.T) {
	testutil.RequireRoot(t)
	h := newHost(t, simple())
	h.mount(t, binDir, "size=1m")
	remount := func(flags uintptr) {
		must.OK(t, unix.Mount("", h.path(binDir), "", unix.MS_REMOUNT|flags, "size=1m"))
	}
	remount(unix.MS_RDONLY)
	m, _ := h.run(t, func(c *delivery.Config) { c.Delivery = profiles.Chain })
	h.eventually(t, "the problem is told", func() bool {
		return strings.Contains(m.Decision().Problem, h.path(binDir)+" cannot be written: read-only file system")
	})
	must.Be(t, "plugins of the chain", 2, len(h.chain()))
	remount(0)
	h.eventually(t, "podweir is in the chain", func() bool { return h.shaped() && m.Decision().Problem == "" })
}
