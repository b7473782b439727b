// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/agent/delivery"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// TestFight has another program undo what podweir writes, each time: podweir stops after
// three rewrites, says which file and what happens to it, follows the primary CNI even so,
// and comes back when the other one is gone.
func TestFight(t *testing.T) {
	mark.Slow(t, "it reads the files of a node 120,000 times")
	dropIn := confDir + "/n/" + conflist.DropInFile
	for name, tc := range map[string]struct {
		file   string
		config func(*delivery.Config)
		undo   func(path string) error
		change string
	}{
		"chain, removed": {confDir + "/" + ours, nil, os.Remove, "removes or renames it"},
		"chain, renamed": {confDir + "/" + ours, nil, func(path string) error { return os.Rename(path, path+".off") }, "removes or renames it"},
		"chain, podweir taken out": {confDir + "/" + ours, nil, func(path string) error {
			return renames(path, network("n", 1, "ptp", "portmap", "other"))
		}, "takes out or changes podweir-cni, so that its chain is ptp, portmap, other"},
		"chain, broken":    {confDir + "/" + ours, nil, func(path string) error { return renames(path, "{") }, "leaves it broken"},
		"drop-in, removed": {dropIn, recent, os.Remove, "removes or renames it"},
		"drop-in, told less": {dropIn, recent, func(path string) error {
			return renames(path, `{"type":"podweir-cni","capabilities":{"bandwidth":true}}`)
		}, "replaces its content"},
		"drop-in, replaced": {dropIn, recent, func(path string) error { return renames(path, `{"type":"other"}`) }, "replaces its content"},
	} {
		t.Run(name, bubble(simple(), func(t *testing.T, h *host) {
			t.Helper()
			h.tick = 5 * time.Second // a look reads a hundred files, and the test lasts a quarter of an hour
			m, _ := h.run(t, tc.config)
			h.eventually(t, "podweir is in the chain", func() bool { return h.shaped() && m.Decision().Problem == "" })
			noted := func() *conflist.Fight {
				told, _ := delivery.Told(h.root)
				return told.Fight
			}
			if path := h.path(tc.file); tc.config != nil { // written otherwise it is the same
				entry := strings.ReplaceAll(h.read(tc.file), ",", ", ")
				must.OK(t, renames(path, entry))
				pause(10 * time.Second)
				must.Be(t, "the drop-in as another program writes it", entry, h.read(tc.file))
			}
			var undone atomic.Int64
			undo := func() {
				if !strings.Contains(h.read(tc.file), "pod-annotations") {
					return
				}
				must.OK(t, tc.undo(h.path(tc.file)))
				undone.Add(1)
			}
			for range 40 {
				undo()
				pause(500 * time.Millisecond)
			}
			must.Be(t, "times undone", 4, undone.Load())
			d := m.Decision()
			if d.Fight == nil || d.Fight.File != "/"+tc.file || !strings.Contains(d.Fight.Change, tc.change) ||
				!strings.Contains(d.Problem, "/"+tc.file) || !strings.Contains(d.Problem, tc.change) || d.InForce != h.shaped() {
				t.Errorf("decision %+v, want a fight over %s: %s", d, tc.file, tc.change)
			}
			if told := noted(); told == nil || told.File != "/"+tc.file {
				t.Errorf("the record has the fight %+v", told)
			}
			// Another situation is tried once, and no more often.
			must.OK(t, renames(h.path(confDir+"/"+original), network("n", 2, "ptp", "portmap", "more")))
			for range 40 {
				undo()
				pause(500 * time.Millisecond)
			}
			must.AtMost(t, "times that it was undone after the original changed", 5, undone.Load())
			// The other one is gone: podweir is back by itself, and content after a while.
			for range 14 * 60 {
				pause(time.Second)
			}
			if d := m.Decision(); d.Problem != "" || d.Fight != nil || !d.InForce || noted() != nil {
				t.Errorf("without the other: decision %+v, record %+v", d, noted())
			}
		}))
	}
}

// TestFirstFileOfAnother: a name of podweir's that is not the first is never written.
func TestFirstFileOfAnother(t *testing.T) {
	for _, file := range []string{"00-hybridnet.conflist", "0-x.conflist"} {
		bubble(map[string]string{confDir + "/" + file: network("n", 1, "ptp", "portmap")}, func(t *testing.T, h *host) {
			t.Helper()
			before := h.tree(t)
			m, _ := h.run(t, func(c *delivery.Config) { c.Runtime = "containerd://1.6.36" })
			h.eventually(t, "podweir decided", func() bool { return m.Decision().Delivery != "" })
			if d := m.Decision(); d.Delivery != profiles.Watch || d.Problem != "" || len(before) != len(h.tree(t)) {
				t.Errorf("beside %s: decision %+v, want watch and no file", file, d)
			}
		})(t)
	}
}

// counted counts podweir's writes by its log.
type counted struct {
	slog.Handler

	writes *atomic.Int64
}

func (c counted) Handle(ctx context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "path" && strings.HasPrefix(r.Message, "files of podweir changed") && strings.Contains(a.Value.String(), "net.d") {
			c.writes.Add(1)
		}
		return true
	})
	return c.Handler.Handle(ctx, r)
}

// looks counts looks at the chain in force.
type looks struct {
	// all is how many there were; mesh and podweir found the plugin of the mesh and podweir's.
	all, mesh, podweir int
	// without has the last chain that lacked one of both, with its time.
	without string
}

// look looks at the chain in force for a while.
func (h *host) look(plugin string, span time.Duration) (l looks) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(span); time.Now().Before(end); <-tick.C {
		chain := h.chain()
		mesh, podweir := slices.Contains(chain, plugin), slices.Contains(chain, conflist.Type)
		l.all++
		if mesh {
			l.mesh++
		}
		if podweir {
			l.podweir++
		}
		if !mesh || !podweir {
			l.without = time.Now().Format(time.TimeOnly) + " " + strings.Join(chain, ", ")
		}
	}
	return l
}

// besideAMesh is a run of the agent beside an installer.
type besideAMesh struct {
	*host

	mesh      Mesh
	installer *Installer
	manager   *delivery.Manager
	// stop ends the agent.
	stop func()
	// writes are podweir's.
	writes atomic.Int64
}

// TestBesideAMesh runs the agent beside the installers of Istio and Linkerd, whoever comes
// first. Both come to rest, with both plugins in the chain in force; what the primary
// CNI changes still arrives; and whoever goes leaves a chain in which every plugin is there.
func TestBesideAMesh(t *testing.T) {
	mark.Slow(t, "it watches who writes for seconds")
	t.Parallel()
	const readsDropIns = "containerd://2.1.3"
	for _, runtime := range []string{"containerd://1.7.20", readsDropIns} {
		for _, mesh := range meshes() {
			for _, order := range []string{"podweir first", "mesh first"} {
				for _, goes := range []string{"mesh goes", "podweir goes"} {
					if runtime == readsDropIns && (order == "mesh first") != (goes == "mesh goes") {
						continue // who came first makes no difference there
					}
					t.Run(strings.Join([]string{runtime[13:], mesh.Name, order, goes}, ", "), func(t *testing.T) {
						t.Parallel()
						b := &besideAMesh{host: newHost(t, simple()), mesh: mesh}
						for _, plugin := range []string{"portmap", "other"} {
							b.write(t, binDir+"/"+plugin, "another plugin")
						}
						if order == "mesh first" {
							b.installs(t)
						}
						b.runs(t, runtime)
						if order == "podweir first" {
							b.eventually(t, "podweir is in the chain", b.shaped)
							b.installs(t)
						}
						b.settles(t)
						if goes == "mesh goes" {
							b.meshGoes(t)
						} else {
							b.follows(t)
							b.podweirGoes(t)
						}
					})
				}
			}
		}
	}
}

// installs brings the mesh.
func (b *besideAMesh) installs(t *testing.T) {
	t.Helper()
	var err error
	if b.installer, err = b.mesh.Start(b.path(confDir), b.path(binDir), []byte("the mesh's plugin")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.installer.Stop)
	b.eventually(t, "the installer wrote", func() bool { return b.installer.Writes() > 0 })
}

// runs brings podweir.
func (b *besideAMesh) runs(t *testing.T, runtime string) {
	t.Helper()
	b.manager, b.stop = b.run(t, func(c *delivery.Config) {
		c.Runtime = runtime
		c.Log = slog.New(counted{c.Log.Handler(), &b.writes})
	})
}

func (b *besideAMesh) meshed() bool { return slices.Contains(b.chain(), b.mesh.Plugin) }

func (b *besideAMesh) both() bool { return b.shaped() && b.meshed() }

// settles wants both to come to rest with both plugins in force.
func (b *besideAMesh) settles(t *testing.T) {
	t.Helper()
	b.eventually(t, "both are in the chain", b.both)
	// What was left of a former name goes after a pause.
	for rest := int64(-1); rest != b.writes.Load(); {
		rest = b.writes.Load()
		pause(1500 * time.Millisecond)
	}
	before, theirs := b.writes.Load(), b.installer.Writes()
	l := b.look(b.mesh.Plugin, time.Second)
	t.Logf("%d looks, mesh in %d %%, podweir in %d %%; podweir wrote %d times and the mesh %d", l.all,
		100*l.mesh/l.all, 100*l.podweir/l.all, b.writes.Load()-before, b.installer.Writes()-theirs)
	if l.mesh < l.all || l.podweir < l.all {
		t.Errorf("of %d looks at the chain in force %d have %s and %d podweir, want all; one: %s", l.all, l.mesh, b.mesh.Plugin, l.podweir, l.without)
	}
	rests := !b.mesh.Restless || b.manager.Decision().Delivery != profiles.Chain
	if b.writes.Load() > before || rests && b.installer.Writes() > theirs {
		t.Errorf("podweir wrote %d times and the installer %d, want none", b.writes.Load()-before, b.installer.Writes()-theirs)
	}
	if d := b.manager.Decision(); d.Problem != "" || !d.InForce {
		t.Errorf("decision %+v", d)
	}
}

// follows wants what the primary CNI changes to arrive.
func (b *besideAMesh) follows(t *testing.T) {
	t.Helper()
	if b.mesh.Restless {
		return // its own file has a copy of what the primary CNI wrote first
	}
	must.OK(t, renames(b.path(confDir+"/"+original), network("n", 2, "ptp", "portmap")))
	b.eventually(t, "what the primary CNI changes arrives", func() bool { return b.both() && b.inForce() == 2 })
}

// meshGoes uninstalls the mesh: podweir stays, and the runtime finds every plugin.
func (b *besideAMesh) meshGoes(t *testing.T) {
	t.Helper()
	must.OK(t, b.installer.Uninstall())
	// The program goes after the entry, which podweir may put back in between.
	b.eventually(t, "podweir without the mesh", func() bool {
		without := b.shaped() && !b.meshed()
		pause(200 * time.Millisecond)
		return without && b.shaped() && !b.meshed()
	})
	l := b.look(b.mesh.Plugin, time.Second)
	if l.mesh > 0 || l.podweir < l.all {
		t.Errorf("without the mesh: of %d looks %d have its plugin and %d podweir: %s", l.all, l.mesh, l.podweir, l.without)
	}
	if d := b.manager.Decision(); d.Problem != "" || !d.InForce {
		t.Errorf("without the mesh: decision %+v", d)
	}
}

// podweirGoes uninstalls podweir: the mesh stays. A file of the mesh's own that it made of
// podweir's goes on calling podweir's plugin, which then stays.
func (b *besideAMesh) podweirGoes(t *testing.T) {
	t.Helper()
	b.stop()
	err := b.manager.Remove(t.Context())
	if b.read(plugin) != "" {
		if !b.mesh.Restless || !errors.Is(err, delivery.ErrInUse) || !b.both() {
			t.Errorf("Remove() = %v, chain %v: podweir's plugin stays", err, b.chain())
		}
		return
	}
	must.OK(t, err)
	b.eventually(t, "the mesh without podweir", func() bool { return b.meshed() && !b.shaped() })
}
