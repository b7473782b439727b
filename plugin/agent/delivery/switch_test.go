// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/agent/delivery"
	"github.com/podweir/podweir/plugin/testutil/must"
)

func as(d profiles.Delivery) func(*delivery.Config) {
	return func(c *delivery.Config) { recent(c); c.Delivery = d }
}

// contents are the tree without times: a file that came back has its content.
func (h *host) contents(t *testing.T) map[string]string {
	t.Helper()
	out := h.tree(t)
	for name, text := range out {
		if before, after, ok := strings.Cut(text, " of "); ok {
			_, content, _ := strings.Cut(after, ": ")
			out[name] = before + " " + content
		}
	}
	return out
}

// TestSwitchToNRI leaves nothing of the former delivery, and the former delivery in
// order until the runtime calls the agent.
func TestSwitchToNRI(t *testing.T) {
	for name, files := range map[profiles.Delivery]map[string]string{profiles.Chain: simple(), profiles.DropIn: exclusive(nil)} {
		t.Run(string(name), bubble(files, func(t *testing.T, h *host) {
			t.Helper()
			before := h.contents(t)
			h.install(t, as(name))
			var hooked atomic.Bool
			m, _ := h.run(t, func(c *delivery.Config) {
				as(profiles.NRI)(c)
				c.Hooked = hooked.Load
			})
			h.eventually(t, "the files stay", func() bool {
				return strings.Contains(m.Decision().Warning, "the files of the delivery "+string(name)+" stay until the runtime calls the agent")
			})
			if !h.shaped() || !m.Decision().InForce {
				t.Errorf("chain %v before the runtime calls the agent, want podweir in it", h.chain())
			}
			if name == profiles.Chain {
				next := network("n", 2, "ptp")
				h.write(t, confDir+"/"+original, next)
				h.eventually(t, "the original is followed", func() bool { return h.inForce() == 2 })
				h.write(t, confDir+"/"+original, files[confDir+"/"+original])
			}
			hooked.Store(true)
			h.eventually(t, "podweir is out of the chain", func() bool { return !h.shaped() && m.Decision().Warning == "" })
			must.Match(t, "left over", before, h.contents(t))
			if d := m.Decision(); d.Delivery != profiles.NRI || d.Problem != "" {
				t.Errorf("decision %+v", d)
			}
		}))
	}
}

// TestSecondNetworkGoesAtOnce: where the runtime loads several networks, podweir's file is one beside its original. It
// does not wait until the runtime calls the agent, but it does where there is no agent.
func TestSecondNetworkGoesAtOnce(t *testing.T) {
	bubble(exclusive(map[string]string{settings + "/cni-exclusive": "false"}), func(t *testing.T, h *host) {
		t.Helper()
		h.install(t, as(profiles.Chain))
		h.write(t, "etc/containerd/config.toml", "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\n  max_conf_num = 0\n")
		m, stop := h.run(t, as(profiles.Handed))
		h.eventually(t, "podweir stays", func() bool { return strings.Contains(m.Decision().Warning, "delivery chain stay until") && h.shaped() })
		stop()
		m, _ = h.run(t, func(c *delivery.Config) { as(profiles.NRI)(c); c.Hooked = func() bool { return false } })
		h.eventually(t, "podweir is out of the chain", func() bool { return !h.shaped() && h.read(confDir+"/00-podweir-05-.conflist") == "" })
		must.Be(t, "problem", "", m.Decision().Problem)
		must.Have(t, "the warning", m.Decision().Warning, "only once they run, until the runtime calls the agent")
	})(t)
}

// TestSwitchToHanded keeps the drop-in until Cilium's own chain has podweir in it.
func TestSwitchToHanded(t *testing.T) {
	bubble(exclusive(nil), func(t *testing.T, h *host) {
		t.Helper()
		h.install(t, as(profiles.DropIn))
		dropIn := confDir + "/cilium/" + conflist.DropInFile
		m, stop := h.run(t, as(profiles.Handed))
		h.eventually(t, "the drop-in stays", func() bool {
			return strings.Contains(m.Decision().Warning, "the files of the delivery drop-in stay until 05-cilium.conflist has podweir in it")
		})
		if h.read(dropIn) == "" || !m.Decision().InForce {
			t.Errorf("the drop-in is gone before Cilium's chain has podweir in it")
		}
		h.write(t, confDir+"/05-cilium.conflist", network("cilium", 2, "cilium-cni", conflist.Type))
		h.eventually(t, "the drop-in goes", func() bool { return h.read(dropIn) == "" })
		must.Match(t, "chain", []string{"cilium-cni", conflist.Type}, h.chain())
		h.has(t, plugin)
		stop()

		// What Cilium's own chain names has to stay.
		m, _ = h.run(t, as(profiles.NRI))
		h.eventually(t, "the binary is said to be needed", func() bool {
			d := m.Decision()
			return d.Problem == "" && strings.Contains(d.Warning, "05-cilium.conflist names it")
		})
		h.has(t, plugin) // Cilium's chain names it
	})(t)
}

// TestMultusCallsPodweir: Multus comes to a node with a chain of podweir's and makes its file, which
// sorts first, of podweir's own: a copy of its chain (thin), or its name (the daemon). What it
// calls stays until it calls the primary CNI's file, and then goes by itself.
func TestMultusCallsPodweir(t *testing.T) {
	delegates := func(raw string) string {
		return `{"cniVersion":"1.0.0","name":"multus-cni-network","type":"multus","delegates":[` + raw + `]}`
	}
	daemon := func(name string) string {
		return `{"cniVersion":"1.0.0","name":"multus-cni-network","type":"multus-shim","clusterNetwork":"/host/etc/cni/net.d/` + name + `"}`
	}
	const multus = confDir + "/00-multus.conf"
	for name, tc := range map[string]struct {
		release string
		of      func(h *host, name string) string
		stays   []string
	}{
		"thin":             {"containerd://1.6.36", func(h *host, name string) string { return delegates(h.read(confDir + "/" + name)) }, []string{plugin}},
		"daemon":           {"containerd://1.6.36", func(_ *host, name string) string { return daemon(name) }, []string{plugin, confDir + "/" + ours}},
		"daemon, with NRI": {"containerd://1.7.27", func(_ *host, name string) string { return daemon(name) }, []string{plugin, confDir + "/" + ours}},
	} {
		t.Run(name, bubble(simple(), func(t *testing.T, h *host) {
			t.Helper()
			h.write(t, binDir+"/multus", "x")
			h.write(t, binDir+"/multus-shim", "x")
			// NRI may be on, and the runtime does not call the agent yet.
			config := func(c *delivery.Config) { c.Runtime, c.Hooked = tc.release, func() bool { return false } }
			m, stop := h.run(t, config)
			h.eventually(t, "podweir is in the chain", func() bool { return h.shaped() && m.Decision().InForce })
			h.write(t, multus, tc.of(h, ours))
			h.eventually(t, "it is said what is needed", func() bool {
				d := m.Decision()
				return d.Delivery.ByAgent() && d.Problem == "" && strings.Contains(d.Warning, "00-multus.conf")
			})
			pause(2 * time.Minute)
			// A node's image is made anew, and the primary CNI is upgraded.
			h.remove(t, plugin)
			if len(tc.stays) > 1 {
				h.write(t, confDir+"/"+original, network("n", 2, "ptp"))
			}
			pause(2 * time.Minute)
			h.has(t, tc.stays...) // Multus calls them
			if len(tc.stays) > 1 {
				must.Have(t, "what Multus calls", h.read(confDir+"/"+ours), `"number":2`) // as the primary CNI has it
			}
			stop()
			err := h.manager(t, nil).Remove(t.Context())
			must.Fail(t, "Remove()", err, delivery.ErrInUse.Error(), "00-multus.conf")
			if _, planned := h.manager(t, nil).PlanRemove(t.Context()); errors.Is(err, delivery.ErrCalled) && (planned == nil || planned.Error() != err.Error() || !strings.HasSuffix(err.Error(), "then run podweir uninstall again")) {
				t.Errorf("PlanRemove() = %v, want the error of Remove(): %v", planned, err)
			}
			h.has(t, tc.stays...)
			// With a chain of its own file Multus would call itself at its next start.
			must.Be(t, "a chain of Multus' own file", "", h.read(confDir+"/00-podweir-00-multus.conflist"))
			m, _ = h.run(t, config)
			h.write(t, multus, tc.of(h, original))
			pause(2 * time.Minute)
			for _, file := range tc.stays {
				must.Be(t, file+", which nobody calls", "", h.read(file))
			}
			must.Be(t, "problem", "", m.Decision().Problem)
			must.Have(t, "the warning", m.Decision().Warning, "!00-multus.conf")
		}))
	}
}

// TestPrivilegedTurnsReadOnly: a file system that turned read-only takes nobody out of the chain, and is no former
// delivery.
func TestPrivilegedTurnsReadOnly(t *testing.T) {
	for name, release := range map[profiles.Delivery]string{profiles.Chain: "containerd://1.7.27", profiles.DropIn: "containerd://2.1.3"} {
		h := newHost(t, simple())
		config := func(c *delivery.Config) { c.Runtime = release }
		h.install(t, config)
		readOnly(t, h)
		for _, asked := range []profiles.Delivery{delivery.Auto, name} {
			m := h.manager(t, func(c *delivery.Config) { config(c); c.Delivery = asked })
			steps, err := m.Plan(t.Context())
			if d := m.Decision(); err != nil || len(steps) > 0 || d.Delivery != name || !d.InForce || d.Problem != "" || !strings.Contains(d.Warning, "read-only file system") {
				t.Errorf("%s, asked for %s: %v, %v, decision %+v, want it as it was, and a warning", name, asked, steps, err, d)
			}
		}
	}
}

// readOnly has the directories of conflists and plugins read-only.
func readOnly(t *testing.T, h *host) {
	t.Helper()
	for _, dir := range []string{confDir, binDir} {
		must.OK(t, unix.Mount(h.path(dir), h.path(dir), "", unix.MS_BIND, ""))
		t.Cleanup(func() { must.OK(t, unix.Unmount(h.path(dir), unix.MNT_DETACH)) })
		must.OK(t, unix.Mount("", h.path(dir), "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	}
}

// TestPrivilegedSwitchReadOnly has files of a former delivery where the agent may
// not write: it says which, and what to do.
func TestPrivilegedSwitchReadOnly(t *testing.T) {
	h := newHost(t, simple())
	h.install(t, as(profiles.Chain))
	readOnly(t, h)
	m := h.manager(t, as(profiles.NRI))
	_, err := m.Plan(t.Context())
	if !errors.Is(err, unix.EROFS) || strings.Count(err.Error(), h.root) != 3 {
		t.Fatalf("Plan() = %v, want the binary, the conflist and the record that are left", err)
	}
	must.Fail(t, "Plan()", err, ours, conflist.Type, "cleanUp.formerDelivery=true", "podweir uninstall")
	if d := m.Decision(); d.Delivery != profiles.NRI || !d.InForce {
		t.Errorf("decision %+v, want nri, and podweir in the chain still", d)
	}
}

// TestVersionNotKnown: when the primary CNI comes to a CNI version that podweir-cni does
// not speak, podweir leaves the chain and does not wait for NRI, because with it no pod
// would start.
func TestVersionNotKnown(t *testing.T) {
	for name, tc := range map[profiles.Delivery]struct {
		files      map[string]string
		file, next string
	}{
		profiles.Chain:  {map[string]string{confDir + "/" + original: network("n", 1, "ptp", "bandwidth")}, original, network("n", 2, "ptp")},
		profiles.DropIn: {exclusive(nil), "05-cilium.conflist", network("cilium", 2, "cilium-cni")},
	} {
		t.Run(string(name), bubble(tc.files, func(t *testing.T, h *host) {
			t.Helper()
			m, _ := h.run(t, func(c *delivery.Config) {
				recent(c)
				c.Hooked = func() bool { return false }
			})
			h.eventually(t, "podweir is in the chain", h.shaped)
			must.Be(t, "delivery", name, m.Decision().Delivery)
			h.write(t, confDir+"/"+tc.file, strings.Replace(tc.next, "1.0.0", "7.0.0", 1))
			h.eventually(t, "podweir is out of the chain", func() bool { return !h.shaped() && m.Decision().Delivery == profiles.NRI })
			if d := m.Decision(); !strings.Contains(d.Why, `"7.0.0"`) || d.Problem != "" || d.Warning != "" {
				t.Errorf("decision %+v, want it because of the version", d)
			}
		}))
	}
	h := newHost(t, map[string]string{confDir + "/" + original: strings.Replace(simple()[confDir+"/"+original], "1.0.0", "7.0.0", 1)})
	h.refuses(t, h.manager(t, as(profiles.Chain)), `"7.0.0"`)
}

// TestRenamedFilesGo: what Cilium renamed would stay the source of its own file in a
// chaining mode, and what the target CNI changes would never arrive. A person's file stays.
func TestRenamedFilesGo(t *testing.T) {
	const bak = confDir + "/" + ours + conflist.BackupSuffix
	byHand := confDir + "/00-podweir-99-z.conflist" + conflist.BackupSuffix
	made := `{"podweir":{"source":"10-x.conflist","sha256":""},"name":"n","plugins":[{"type":"ptp"},{"type":"podweir-cni"}]}`
	for name, config := range map[string]func(*delivery.Config){
		"drop-in": recent, "handed": func(c *delivery.Config) { c.Runtime = "containerd://1.7.20" }, "nri": as(profiles.NRI), "watch": as(profiles.Watch),
	} {
		t.Run(name, bubble(exclusive(map[string]string{bak: made, byHand: network("n", 1, "ptp")}), func(t *testing.T, h *host) {
			t.Helper()
			h.run(t, config)
			h.eventually(t, "the renamed file goes", func() bool { return h.read(bak) == "" })
			h.has(t, byHand) // podweir did not make it
		}))
	}
}

// containerd loads the networks of a node when the real one does: at its start, and when
// something in the directory of conflists, but not below it, is written, renamed or
// removed (internal/cri/server/cni_conf_syncer.go, v2.4.2).
type containerd struct {
	mu    sync.Mutex
	chain []string
	loads int
}

func (h *host) startRuntime(t *testing.T) *containerd {
	t.Helper()
	w, err := fsnotify.NewWatcher()
	if err == nil {
		err = w.Add(h.path(confDir))
	}
	must.OK(t, err)
	t.Cleanup(func() { _ = w.Close() })
	r := &containerd{}
	r.load(h)
	go func() {
		for e := range w.Events {
			if !e.Has(fsnotify.Chmod) && !e.Has(fsnotify.Create) {
				r.load(h)
			}
		}
	}()
	return r
}

func (r *containerd) load(h *host) {
	chain := h.chain()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.chain, r.loads = chain, r.loads+1
}

func (r *containerd) calls() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.chain, conflist.Type)
}

func (r *containerd) loaded() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.loads
}

// The runtime learns of the drop-in, of its change and of its end.
func TestTheRuntimeIsToldOfTheDropIn(t *testing.T) {
	t.Parallel()
	h := newHost(t, exclusive(nil))
	r := h.startRuntime(t)
	m := h.install(t, recent)
	h.eventually(t, "the runtime calls podweir", r.calls)

	h.remove(t, confDir+"/cilium/"+conflist.DropInFile)
	r.load(h)
	_, stop := h.run(t, recent)
	h.eventually(t, "the runtime calls podweir again", r.calls)
	h.remove(t, confDir+"/cilium/"+conflist.DropInFile)
	r.load(h)
	h.eventually(t, "the runtime calls podweir after a removal that the agent saw", r.calls)
	stop()

	must.OK(t, m.Remove(t.Context()))
	h.eventually(t, "the runtime no longer calls podweir", func() bool { return !r.calls() })
}

// A drop-in that a release before this one wrote may never have been read: an agent
// tells the runtime when it starts, and only then.
func TestTheRuntimeIsToldAtTheStart(t *testing.T) {
	t.Parallel()
	h := newHost(t, exclusive(nil))
	h.tick = soon
	h.install(t, recent)
	r := h.startRuntime(t)
	r.mu.Lock()
	r.chain = nil // as if it had not seen the drop-in
	r.mu.Unlock()
	before := h.tree(t)
	m, stop := h.run(t, recent)
	h.eventually(t, "the runtime calls podweir", r.calls)
	h.eventually(t, "decision", func() bool { return m.Decision().InForce })
	told := r.loaded()
	// A change that is nobody's business makes the agent look again.
	must.OK(t, os.WriteFile(h.path("etc/cni/net.d/README"), []byte("x"), 0o600))
	h.eventually(t, "the runtime heard of it", func() bool { return r.loaded() > told })
	settled := r.loaded()
	pause(4 * soon) // passes that nothing requested
	must.AtMost(t, "times that the runtime was made to load with nothing changed", settled+1, r.loaded())
	stop()
	h.remove(t, "etc/cni/net.d/README")
	for name, text := range h.tree(t) {
		must.Be(t, name, text, before[name])
	}
}
