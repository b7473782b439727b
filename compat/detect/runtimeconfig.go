// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package detect

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/podweir/podweir/compat/profiles"
)

// RuntimeConfig is what the container runtime or its files say; "", nil and unknown for
// what they do not.
type RuntimeConfig struct {
	// ConfDir has the conflists, BinDirs the plugins; below the root.
	ConfDir string
	BinDirs []string
	// CacheDir is libcni's, below the root; "" for its default.
	CacheDir string
	// Network is the name of the network that CRI-O takes; "" for that of the first file.
	Network string
	// MaxConfNum is how many networks containerd loads, 0 for all; nil if it is not set.
	MaxConfNum *int64
	// NRI says whether the runtime's NRI plugin is on.
	NRI profiles.Answer
	// Sandboxed are the names of the handlers (RuntimeClasses) whose pods do not use the
	// kernel's own network stack, by what they run.
	Sandboxed map[string]Sandboxed
	// Apart are the handlers whose pods have their network from a directory that is set for them.
	Apart map[string]Apart
	// Default is the handler of pods that name none, "" if the files do not say.
	Default string
	// Problems are files that cannot be read as TOML.
	Problems []error
}

// Sandboxed is a runtime whose pods take packets from the pod's device in another way
// than processes do.
type Sandboxed string

// Apart is a directory of conflists, below the root, and how many networks containerd loads from it
// for the pods of one handler, 0 for as many as from its others.
type Apart struct {
	Dir      string
	Networks int64
}

// Networks is how many networks the runtime loads from the node's directory for pods of one handler or
// another, 0 for all.
func (n *Node) Networks() int64 {
	if m := n.Config.MaxConfNum; m != nil && *m != 1 {
		return *m
	}
	most := int64(1)
	for _, a := range n.Config.Apart {
		if a.Dir == n.ConfDir {
			most = max(most, a.Networks)
		}
	}
	return most
}

// Those that are known.
const (
	// Kata redirects what comes to the pod's device to that of a virtual machine, from an
	// ingress qdisc that it adds after ADD (addQdiscIngress and addRedirectTCFilter of
	// src/runtime/virtcontainers/network_linux.go); so does urunc.
	Kata  Sandboxed = "Kata"
	Urunc Sandboxed = "urunc"
	// GVisor reads the pod's device by a packet socket, which is ahead of every tc hook.
	GVisor Sandboxed = "gVisor"
)

// sandboxedBy tells by a word in the name of a runtime or of its program what it is.
var sandboxedBy = map[string]Sandboxed{"kata": Kata, "urunc": Urunc, "runsc": GVisor, "gvisor": GVisor}

// redirectTap is a chained plugin that does for Firecracker what Kata does by itself.
const redirectTap = "tc-redirect-tap"

// Redirects says that it adds an ingress qdisc to the pod's device.
func (s Sandboxed) Redirects() bool { return s == Kata || s == Urunc }

// Handlers names those that a condition holds for, in order, each with what it runs.
func (c *RuntimeConfig) Handlers(of func(Sandboxed) bool) []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(c.Sandboxed)) {
		if what := c.Sandboxed[name]; of(what) {
			all = append(all, fmt.Sprintf("%s (%s)", name, what))
		}
	}
	return all
}

// Runtimes are those of the node that decide where podweir attaches.
func (n *Node) Runtimes() profiles.Runtimes {
	r := profiles.Runtimes{TCX: n.TCX}
	for _, what := range n.Config.Sandboxed {
		r.Redirects = r.Redirects || what.Redirects()
		r.GVisor = r.GVisor || what == GVisor
	}
	if network := n.Conf.Network(); network != nil {
		r.Redirects = r.Redirects || network.Index(redirectTap) >= 0
	}
	return r
}

// Runs says what a handler runs, "" for processes; with no name, the default one.
func (c *RuntimeConfig) Runs(handler string) Sandboxed {
	return c.Sandboxed[cmp.Or(handler, c.Default)]
}

func (c *RuntimeConfig) addHandler(name string, words ...any) {
	for _, word := range append(words, name) {
		for part, what := range sandboxedBy {
			if strings.Contains(strings.ToLower(path.Base(text(word))), part) {
				if c.Sandboxed == nil {
					c.Sandboxed = map[string]Sandboxed{}
				}
				c.Sandboxed[name] = what
				return
			}
		}
	}
}

func (c *RuntimeConfig) addHandlers(table any) {
	handlers, _ := table.(map[string]any)
	for name, h := range handlers {
		if dir := text(at(h, "cni_conf_dir")); dir != "" {
			networks, _ := at(h, "cni_max_conf_num").(int64)
			if c.Apart == nil {
				c.Apart = map[string]Apart{}
			}
			c.Apart[name] = Apart{clean(dir), networks}
		}
		// runtime_engine and Runtime are of containerd 1, path is dockerd's.
		c.addHandler(name, at(h, "runtime_type"), at(h, "runtime_path"), at(h, "runtime_engine"), at(h, "runtimeType"), at(h, "path"),
			at(h, "options", "BinaryName"), at(h, "options", "Runtime"), at(h, "options", "TypeUrl"))
	}
}

// at is what a table has under a key, in the table that it has under another, nil if there is
// no such thing.
func at(table any, keys ...string) any {
	for _, key := range keys {
		t, _ := table.(map[string]any)
		table = t[key]
	}
	return table
}

// text is a value that is one, "" if it is not.
func text(v any) string {
	s, _ := v.(string)
	return s
}

// The default places of the runtimes' files.
const (
	containerdFile = "etc/containerd/config.toml"
	// containerdDropIns are imported by containerd 2.2 and newer beside that file, whether
	// or not it says so, and without it.
	containerdDropIns = "etc/containerd/conf.d"
	dockerdFile       = "etc/docker/daemon.json"
	crioFile          = "etc/crio/crio.conf"
	crioDropIns       = "etc/crio/crio.conf.d"
)

// maxImports bounds the files that are read: imports may import each other.
const maxImports = 64

// ReadRuntimeConfig reads the files of the runtime that runs on a node: containerd's with
// all that it imports, or CRI-O's with its drop-ins. cri-dockerd has flags alone.
func ReadRuntimeConfig(root fs.FS, processes []Process) RuntimeConfig {
	c := RuntimeConfig{}
	merged := map[string]any{}
	// The containerd beside it is dockerd's, which makes no pods by itself.
	if args, seen := argsOf(processes, "cri-dockerd"); seen {
		c.ConfDir, c.CacheDir = flagFile(args, "", "--cni-conf-dir"), flagFile(args, "var/lib/cni/cache", "--cni-cache-dir")
		c.addBinDirs(strings.Split(flagOf(args, "--cni-bin-dir"), ","))
		c.fromDockerd(root)
		return c
	}
	containerd, _ := argsOf(processes, "containerd")
	crio, _ := argsOf(processes, "crio")
	if containerd == nil && (crio != nil || !there(root, containerdFile) && there(root, path.Dir(crioFile))) {
		c.read(root, flagFile(crio, crioFile, "--config", "-c"), merged)
		for _, name := range matches(root, flagFile(crio, crioDropIns, "--config-dir", "-d")+"/*") {
			c.read(root, name, merged)
		}
		c.fromCRIO(merged)
		c.ConfDir = flagFile(crio, c.ConfDir, "--cni-config-dir")
		c.Network = cmp.Or(flagOf(crio, "--cni-default-network"), c.Network)
		return c
	}
	c.imports(root, flagFile(containerd, containerdFile, "--config", "-c"), merged)
	c.fromContainerd(merged)
	return c
}

// says takes over what the runtime itself says, nil for nothing.
func (c *RuntimeConfig) says(n *RuntimeNetwork) {
	if n == nil {
		return
	}
	if n.ConfDir != "" {
		c.ConfDir = clean(n.ConfDir)
	}
	if len(n.BinDirs) > 0 {
		c.BinDirs = nil
		c.addBinDirs(n.BinDirs)
	}
	c.MaxConfNum = &n.MaxConfNum
}

func there(root fs.FS, name string) bool {
	_, err := fs.Stat(root, name)
	return err == nil
}

// matches lists the files of a pattern, in the order of their names.
func matches(root fs.FS, pattern string) []string {
	names, err := fs.Glob(root, pattern)
	if err != nil {
		return nil
	}
	return names
}

// read merges a file into what was read before, as runtimes do: tables by their keys,
// the rest by the last file. It returns the file's own content.
func (c *RuntimeConfig) read(root fs.FS, name string, into map[string]any) map[string]any {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return nil
	}
	one := map[string]any{}
	if err := toml.Unmarshal(b, &one); err != nil {
		c.Problems = append(c.Problems, fmt.Errorf("/%s is not TOML: %w", name, err))
		return nil
	}
	merge(into, one)
	return one
}

func merge(into, from map[string]any) {
	for k, v := range from {
		table, ok := v.(map[string]any)
		have, is := into[k].(map[string]any)
		if !ok || !is {
			into[k] = v
			continue
		}
		merge(have, table)
	}
}

// imports reads a file of containerd's and all that it imports, the imported ones later:
// they win.
func (c *RuntimeConfig) imports(root fs.FS, first string, into map[string]any) {
	pending, seen := []string{first}, map[string]bool{}
	if first == containerdFile {
		pending = append(pending, matches(root, containerdDropIns+"/*.toml")...)
	}
	for len(pending) > 0 && len(seen) < maxImports {
		name := pending[0]
		pending = pending[1:]
		if seen[name] {
			continue
		}
		seen[name] = true
		one := c.read(root, name, into)
		for _, pattern := range texts(one["imports"]) {
			if !path.IsAbs(pattern) {
				pattern = path.Join("/"+path.Dir(name), pattern)
			}
			pending = append(pending, matches(root, clean(pattern))...)
		}
	}
}

func (c *RuntimeConfig) fromContainerd(all map[string]any) {
	// Of the versions 1, 2 and 3 of the file.
	for _, name := range []string{"cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"} {
		plugin := at(all, "plugins", name)
		if dir := text(at(plugin, "cni", "conf_dir")); dir != "" {
			c.ConfDir = clean(dir)
		}
		// The list is the newer way, and counts alone where it is set.
		dirs := texts(at(plugin, "cni", "bin_dirs"))
		if len(dirs) == 0 {
			dirs = texts(at(plugin, "cni", "bin_dir"))
		}
		c.addBinDirs(dirs)
		if n, ok := at(plugin, "cni", "max_conf_num").(int64); ok {
			c.MaxConfNum = &n
		}
		containerd := at(plugin, "containerd")
		c.addHandlers(at(containerd, "runtimes"))
		c.Default = cmp.Or(text(at(containerd, "default_runtime_name")), c.Default)
		// Two more that have no name of their own, until 1.7.
		c.addHandlers(map[string]any{"default_runtime": at(containerd, "default_runtime"), "untrusted": at(containerd, "untrusted_workload_runtime")})
	}
	const nri = "io.containerd.nri.v1.nri"
	if off, ok := at(all, "plugins", nri, "disable").(bool); ok {
		c.NRI = profiles.Is(!off)
	}
	if slices.Contains(texts(all["disabled_plugins"]), nri) {
		c.NRI = profiles.No
	}
}

// fromDockerd reads the runtimes of dockerd, whose names are the handlers of cri-dockerd.
func (c *RuntimeConfig) fromDockerd(root fs.FS) {
	b, err := fs.ReadFile(root, dockerdFile)
	if err != nil {
		return
	}
	var all struct {
		Runtimes map[string]any `json:"runtimes"`
		Default  string         `json:"default-runtime"`
	}
	if err := json.Unmarshal(b, &all); err != nil {
		c.Problems = append(c.Problems, fmt.Errorf("/%s is not JSON: %w", dockerdFile, err))
		return
	}
	c.addHandlers(all.Runtimes)
	c.Default = cmp.Or(all.Default, c.Default)
}

func (c *RuntimeConfig) fromCRIO(all map[string]any) {
	crio := all["crio"]
	if dir := text(at(crio, "network", "network_dir")); dir != "" {
		c.ConfDir = clean(dir)
	}
	c.addBinDirs(texts(at(crio, "network", "plugin_dirs")))
	c.Network = text(at(crio, "network", "cni_default_network"))
	c.addHandlers(at(crio, "runtime", "runtimes"))
	c.Default = cmp.Or(text(at(crio, "runtime", "default_runtime")), c.Default)
	if on, ok := at(crio, "nri", "enable_nri").(bool); ok {
		c.NRI = profiles.Is(on)
	}
}

func (c *RuntimeConfig) addBinDirs(dirs []string) {
	for _, dir := range dirs {
		if dir = clean(dir); dir != "" && !slices.Contains(c.BinDirs, dir) {
			c.BinDirs = append(c.BinDirs, dir)
		}
	}
}

// texts are the strings of a value that is one, or a list of them.
func texts(v any) []string {
	if s, ok := v.(string); ok {
		return []string{s}
	}
	list, _ := v.([]any)
	var out []string
	for _, one := range list {
		if s, ok := one.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// argsOf are the arguments of the first process with this name, and whether there is one.
func argsOf(processes []Process, name string) (args []string, seen bool) {
	for _, p := range processes {
		if p.Name == name {
			return p.Args, true
		}
	}
	return nil, false
}

// flagOf returns the value of a flag, given as --name=value or --name value, by any of
// its names.
func flagOf(args []string, names ...string) string {
	for i, a := range args {
		for _, name := range names {
			if value, ok := strings.CutPrefix(a, name+"="); ok {
				return value
			}
			if a == name && i+1 < len(args) {
				return args[i+1]
			}
		}
	}
	return ""
}

// flagFile is the file that a flag names, below the root.
func flagFile(args []string, otherwise string, names ...string) string {
	if value := flagOf(args, names...); value != "" {
		return clean(value)
	}
	return otherwise
}
