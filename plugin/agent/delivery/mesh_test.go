// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/agent/delivery"
	"github.com/podweir/podweir/plugin/testutil/mark"
)

// installer is a double of a service mesh's installer. It puts its plugin at the end of a
// list that lacks it, by renaming, and writes the whole file as its JSON library does.
type installer struct {
	dir, plugin string
	// writes counts the files that it wrote.
	writes atomic.Int64
	// primary is the file that an owned one is made of: the first that was seen.
	primary string
	// wrote is what it last wrote to each file.
	wrote map[string][]byte
}

// first is the first network of the directory, "" without one that can be read.
func (i *installer) first() string {
	for _, name := range i.files() {
		if _, err := i.read(name); err == nil {
			return name
		}
	}
	return ""
}

func (i *installer) files() []string {
	entries, err := os.ReadDir(i.dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if slices.Contains([]string{".conf", ".conflist"}, filepath.Ext(e.Name())) {
			out = append(out, e.Name())
		}
	}
	return out
}

func (i *installer) read(name string) (list map[string]any, err error) {
	raw, err := os.ReadFile(filepath.Join(i.dir, name))
	if err != nil {
		return nil, err
	}
	return list, json.Unmarshal(raw, &list)
}

// types are the plugins of a list.
func types(list map[string]any) []string {
	var out []string
	entries, _ := list["plugins"].([]any)
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		name, _ := entry["type"].(string)
		out = append(out, name)
	}
	return out
}

// add writes what is in one file, with the plugin at its end, to another.
func (i *installer) add(from, to string) {
	list, err := i.read(from)
	if err != nil {
		return
	}
	entries, _ := list["plugins"].([]any)
	entries = slices.DeleteFunc(entries, func(e any) bool {
		entry, _ := e.(map[string]any)
		return entry["type"] == i.plugin
	})
	list["plugins"] = append(entries, map[string]any{"type": i.plugin, "log_level": "info"})
	raw, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return
	}
	path := filepath.Join(i.dir, to)
	if os.WriteFile(path+".tmp", raw, 0o644) != nil || os.Rename(path+".tmp", path) != nil {
		return
	}
	i.wrote[to] = raw
	i.writes.Add(1)
}

// intoFirst is Istio's way with cni.chained: its plugin is in the first file, and the
// first file is looked at again at its own pace (istio/istio, cni/pkg/install).
func (i *installer) intoFirst() {
	name := i.first()
	if list, err := i.read(name); err == nil && !slices.Contains(types(list), i.plugin) {
		i.add(name, name)
	}
}

const owned = "02-istio-cni.conflist"

// intoOwned is Istio's way with cni.istioOwnedCNIConfig (1.27 and newer): a file of its
// own, made of the first other one, that has to be the first of all.
func (i *installer) intoOwned() {
	if i.primary == "" {
		if i.primary = i.first(); i.primary == "" || i.primary == owned {
			return
		}
	}
	if list, err := i.read(owned); i.first() == owned && err == nil && slices.Contains(types(list), i.plugin) {
		if other, err := i.read(i.primary); err != nil || !slices.ContainsFunc(types(other), func(t string) bool { return !slices.Contains(types(list), t) }) {
			return
		}
	}
	i.add(i.primary, owned)
}

// paced looks at the directory from time to time.
func (i *installer) paced(look func()) func(context.Context) {
	return func(ctx context.Context) {
		for ctx.Err() == nil {
			look()
			pause(istioPace)
		}
	}
}

const istioPace = 100 * time.Millisecond

// atOnce is Linkerd's way: every file that somebody else wrote gets the plugin as soon as
// the kernel tells of it (linkerd2-proxy-init, install-cni.sh).
func (i *installer) atOnce(ctx context.Context) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return
	}
	defer func() { _ = w.Close() }()
	if w.Add(i.dir) != nil {
		return
	}
	sync := func(name string) {
		raw, err := os.ReadFile(filepath.Join(i.dir, name))
		if err == nil && slices.Contains(i.files(), name) && !bytes.Equal(raw, i.wrote[name]) {
			i.add(name, name)
		}
	}
	for _, name := range i.files() {
		sync(name)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-w.Events:
			if e.Has(fsnotify.Create) || e.Has(fsnotify.Write) {
				sync(filepath.Base(e.Name))
			}
		}
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

// looks counts looks at the chain in force, as the runtime takes it.
type looks struct{ all, mesh, podweir int }

// look looks at the chain in force for a while.
func (h *host) look(plugin string, span time.Duration) (l looks) {
	for end := time.Now().Add(span); time.Now().Before(end); pause(2 * time.Millisecond) {
		chain := h.chain()
		l.all++
		if slices.Contains(chain, plugin) {
			l.mesh++
		}
		if slices.Contains(chain, conflist.Type) {
			l.podweir++
		}
	}
	return l
}

// TestBesideAMesh runs the agent beside the installers of Istio and Linkerd, whoever comes
// first. Both come to rest, with both plugins in the chain in force, and what the primary
// CNI changes still arrives.
func TestBesideAMesh(t *testing.T) {
	mark.Slow(t, "it watches who writes for seconds")
	t.Parallel()
	ways := map[string]struct {
		plugin string
		run    func(*installer) func(context.Context)
		// restless says that the installer writes its own file for ever unless that is the
		// first.
		restless bool
	}{
		"Istio, first file": {"istio-cni", func(i *installer) func(context.Context) { return i.paced(i.intoFirst) }, false},
		"Istio, own file":   {"istio-cni", func(i *installer) func(context.Context) { return i.paced(i.intoOwned) }, true},
		"Linkerd":           {"linkerd-cni", func(i *installer) func(context.Context) { return i.atOnce }, false},
	}
	for _, runtime := range []string{"containerd://1.7.20", "containerd://2.1.3"} {
		for _, name := range slices.Sorted(maps.Keys(ways)) {
			for _, podweirFirst := range []bool{true, false} {
				order := map[bool]string{true: "podweir first", false: "mesh first"}[podweirFirst]
				t.Run(strings.Join([]string{runtime[13:], name, order}, ", "), func(t *testing.T) {
					t.Parallel()
					h := newHost(t, simple())
					way := ways[name]
					i := &installer{dir: h.path(confDir), plugin: way.plugin, wrote: map[string][]byte{}}
					ctx, cancel := context.WithCancel(t.Context())
					ended := make(chan struct{})
					install := func() {
						go func() {
							defer close(ended)
							way.run(i)(ctx)
						}()
						h.eventually(t, "the installer wrote", func() bool { return i.writes.Load() > 0 })
					}
					t.Cleanup(func() {
						cancel()
						<-ended
					})
					if !podweirFirst {
						install()
					}
					var writes atomic.Int64
					m, _ := h.run(t, func(c *delivery.Config) {
						c.Runtime = runtime
						c.Log = slog.New(counted{c.Log.Handler(), &writes})
					})
					if podweirFirst {
						h.eventually(t, "podweir is in the chain", h.shaped)
						install()
					}
					both := func() bool { return h.shaped() && slices.Contains(h.chain(), way.plugin) }
					l := h.look(way.plugin, 2*time.Second)
					t.Logf("in the first 2 s: %d looks, mesh in %d %%, podweir in %d %%, writes/s: podweir %.1f, mesh %.1f", l.all,
						100*l.mesh/l.all, 100*l.podweir/l.all, float64(writes.Load())/2, float64(i.writes.Load())/2)
					h.eventually(t, "both are in the chain", both)
					// What was left of a former name goes after a pause.
					for rest := int64(-1); rest != writes.Load(); {
						rest = writes.Load()
						pause(1500 * time.Millisecond)
					}
					before, theirs := writes.Load(), i.writes.Load()
					l = h.look(way.plugin, 2*time.Second)
					t.Logf("afterwards: %d looks, mesh in %d %%, podweir in %d %%, writes/s: podweir %.1f, mesh %.1f", l.all,
						100*l.mesh/l.all, 100*l.podweir/l.all, float64(writes.Load()-before)/2, float64(i.writes.Load()-theirs)/2)
					if l.mesh < l.all || l.podweir < l.all {
						t.Errorf("of %d looks at the chain in force %d have %s and %d podweir, want all", l.all, l.mesh, way.plugin, l.podweir)
					}
					rests := !way.restless || m.Decision().Delivery != profiles.Chain
					if writes.Load() > before || rests && i.writes.Load() > theirs {
						t.Errorf("podweir wrote %d times and the installer %d, want none", writes.Load()-before, i.writes.Load()-theirs)
					}
					if !way.restless {
						if err := renames(h.path(confDir+"/"+original), network("n", 2, "ptp", "portmap")); err != nil {
							t.Fatal(err)
						}
						h.eventually(t, "what the primary CNI changes arrives", func() bool { return both() && h.inForce() == 2 })
					}
					if d := m.Decision(); d.Problem != "" || !d.InForce {
						t.Errorf("decision %+v", d)
					}
				})
			}
		}
	}
}
