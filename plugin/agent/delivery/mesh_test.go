// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Mesh is the way in which the installer of a service mesh writes.
type Mesh struct {
	// Name says whose way it is; Plugin is the type of its plugin.
	Name, Plugin string
	// Restless says that it writes its own file for ever unless that is the first.
	Restless bool

	run    func(*Installer, context.Context)
	remove func(*Installer)
}

// meshes returns the ways of Istio and Linkerd.
//
// Istio with cni.chained puts its plugin at the end of the first file, again whenever
// anything in the directory changed or another file is the first (sleepCheckInstall and
// checkInstall in istio/istio, cni/pkg/install/install.go). With cni.istioOwnedCNIConfig
// (1.27 and newer) it has a file of its own, made of the first other one, that has to be
// the first of all. At its end it takes its plugin out of the file that it wrote last, or
// removes its own (Cleanup in install.go).
//
// Linkerd's gives every file that it did not write itself its plugin as soon as the kernel
// tells of it, and takes it out of all at its end (sync and cleanup in
// linkerd/linkerd2-proxy-init, cni-plugin/deployment/scripts/install-cni.sh).
//
// Both remove the program of their plugin at their end.
func meshes() []Mesh {
	return []Mesh{
		{Name: "Istio, first file", Plugin: "istio-cni", run: paced((*Installer).intoFirst), remove: (*Installer).takeOutOfLast},
		{Name: "Istio, own file", Plugin: "istio-cni", Restless: true, run: paced((*Installer).intoOwned), remove: (*Installer).removeOwned},
		{Name: "Linkerd", Plugin: "linkerd-cni", run: (*Installer).atOnce, remove: (*Installer).takeOutOfAll},
	}
}

// Installer is a double of a service mesh's installer. It writes the whole file as its
// JSON library does, and by renaming.
type Installer struct {
	mesh     *Mesh
	dir, bin string
	// writes counts the files that it wrote.
	writes atomic.Int64
	// primary is the file that an owned one is made of: the first that was seen.
	primary string
	// wrote is what it last wrote to each file, last the file that it wrote last, and seen
	// what the directory was like then.
	wrote map[string][]byte
	last  string
	seen  string

	cancel context.CancelFunc
	ended  chan struct{}
}

// Start installs a program as the mesh's plugin in bin, and begins to write in dir, until
// [Installer.Stop] or [Installer.Uninstall].
func (m *Mesh) Start(dir, bin string, program []byte) (*Installer, error) {
	if err := os.WriteFile(filepath.Join(bin, m.Plugin), program, 0o755); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	i := &Installer{mesh: m, dir: dir, bin: bin, wrote: map[string][]byte{}, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(i.ended)
		m.run(i, ctx)
	}()
	return i, nil
}

// Writes is how many files it wrote so far.
func (i *Installer) Writes() int64 { return i.writes.Load() }

// Stop leaves everything as it is. It may be called again.
func (i *Installer) Stop() {
	i.cancel()
	<-i.ended
}

// Uninstall stops it, and takes out again what its mesh takes out.
func (i *Installer) Uninstall() error {
	i.Stop()
	i.mesh.remove(i)
	return os.Remove(filepath.Join(i.bin, i.mesh.Plugin))
}

// first is the first network of the directory, "" without one that can be read.
func (i *Installer) first() string {
	for _, name := range i.files() {
		if _, err := i.read(name); err == nil {
			return name
		}
	}
	return ""
}

func (i *Installer) files() []string {
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

func (i *Installer) read(name string) (list map[string]any, err error) {
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

// without returns the plugins of a list that are not the mesh's.
func (i *Installer) without(list map[string]any) []any {
	entries, _ := list["plugins"].([]any)
	return slices.DeleteFunc(entries, func(e any) bool {
		entry, _ := e.(map[string]any)
		return entry["type"] == i.mesh.Plugin
	})
}

// add writes what is in one file, with the plugin at its end, to another.
func (i *Installer) add(from, to string) {
	list, err := i.read(from)
	if err != nil {
		return
	}
	list["plugins"] = append(i.without(list), map[string]any{"type": i.mesh.Plugin, "log_level": "info"})
	i.write(to, list)
}

func (i *Installer) write(name string, list map[string]any) {
	raw, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return
	}
	path := filepath.Join(i.dir, name)
	if os.WriteFile(path+".mesh", raw, 0o644) != nil || os.Rename(path+".mesh", path) != nil {
		return
	}
	i.wrote[name], i.last, i.seen = raw, name, i.state()
	i.writes.Add(1)
}

// state is what the directory is like: names, and when each file was written.
func (i *Installer) state() string {
	entries, err := os.ReadDir(i.dir)
	if err != nil {
		return ""
	}
	var out strings.Builder
	for _, e := range entries {
		if info, err := e.Info(); err == nil && !info.IsDir() {
			fmt.Fprintln(&out, e.Name(), info.ModTime().UnixNano())
		}
	}
	return out.String()
}

func (i *Installer) intoFirst() {
	name := i.first()
	list, err := i.read(name)
	if err == nil && (name != i.last || i.seen != i.state() || !slices.Contains(types(list), i.mesh.Plugin)) {
		i.add(name, name)
	}
}

const owned = "02-istio-cni.conflist"

func (i *Installer) intoOwned() {
	if i.primary == "" {
		if i.primary = i.first(); i.primary == "" || i.primary == owned {
			return
		}
	}
	if list, err := i.read(owned); i.first() == owned && err == nil && slices.Contains(types(list), i.mesh.Plugin) {
		if other, err := i.read(i.primary); err != nil || !slices.ContainsFunc(types(other), func(t string) bool { return !slices.Contains(types(list), t) }) {
			return
		}
	}
	i.add(i.primary, owned)
}

func (i *Installer) removeOwned() { _ = os.Remove(filepath.Join(i.dir, owned)) }

func (i *Installer) takeOutOfLast() { i.takeOut(i.last) }

func (i *Installer) takeOutOfAll() {
	for _, name := range i.files() {
		i.takeOut(name)
	}
}

func (i *Installer) takeOut(name string) {
	if list, err := i.read(name); err == nil && slices.Contains(types(list), i.mesh.Plugin) {
		list["plugins"] = i.without(list)
		i.write(name, list)
	}
}

const istioPace = 100 * time.Millisecond

// paced looks at the directory from time to time.
func paced(look func(*Installer)) func(*Installer, context.Context) {
	return func(i *Installer, ctx context.Context) {
		tick := time.NewTicker(istioPace)
		defer tick.Stop()
		for {
			look(i)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}
}

func (i *Installer) atOnce(ctx context.Context) {
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
