// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package detect

import (
	"fmt"
	"io/fs"
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
	// MaxConfNum is how many networks containerd loads, 0 for all; nil if it is not set.
	MaxConfNum *int64
	// NRI says whether the runtime's NRI plugin is on.
	NRI profiles.Answer
	// Sandboxed are the names of the handlers (RuntimeClasses) whose pods do not use the
	// kernel's own network stack, by what they run.
	Sandboxed map[string]Sandboxed
	// Problems are files that cannot be read as TOML.
	Problems []error
}

// Sandboxed is a runtime whose pods take packets from the pod's device in another way
// than processes do.
type Sandboxed string

// Those that are known.
const (
	// Kata redirects what comes to the pod's device to that of a virtual machine, from an
	// ingress qdisc that it adds after ADD.
	Kata Sandboxed = "Kata"
	// GVisor reads the pod's device by a packet socket, which is ahead of every tc hook.
	GVisor Sandboxed = "gVisor"
)

// addHandler notes a handler by the words that tell what it runs.
func (c *RuntimeConfig) addHandler(name string, words ...any) {
	for _, word := range append(words, name) {
		text, _ := word.(string)
		for part, what := range map[string]Sandboxed{"kata": Kata, "runsc": GVisor, "gvisor": GVisor} {
			if strings.Contains(path.Base(text), part) {
				if c.Sandboxed == nil {
					c.Sandboxed = map[string]Sandboxed{}
				}
				c.Sandboxed[name] = what
				return
			}
		}
	}
}

// addHandlers notes those of a table of a runtime's.
func (c *RuntimeConfig) addHandlers(table any) {
	handlers, _ := table.(map[string]any)
	for name, v := range handlers {
		h, _ := v.(map[string]any)
		c.addHandler(name, h["runtime_type"], h["runtime_path"])
	}
}

// The default places of the runtimes' files.
const (
	containerdFile = "etc/containerd/config.toml"
	crioFile       = "etc/crio/crio.conf"
	crioDropIns    = "etc/crio/crio.conf.d"
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
		c.ConfDir = flagFile(args, "", "--cni-conf-dir")
		c.addBinDirs(strings.Split(flagOf(args, "--cni-bin-dir"), ","))
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
	plugins, _ := all["plugins"].(map[string]any)
	for _, name := range []string{"io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"} {
		plugin, _ := plugins[name].(map[string]any)
		cni, _ := plugin["cni"].(map[string]any)
		if dir, _ := cni["conf_dir"].(string); dir != "" {
			c.ConfDir = clean(dir)
		}
		// The list is the newer way, and counts alone where it is set.
		dirs := texts(cni["bin_dirs"])
		if len(dirs) == 0 {
			dirs = texts(cni["bin_dir"])
		}
		c.addBinDirs(dirs)
		if n, ok := cni["max_conf_num"].(int64); ok {
			c.MaxConfNum = &n
		}
		containerd, _ := plugin["containerd"].(map[string]any)
		c.addHandlers(containerd["runtimes"])
	}
	nri, _ := plugins["io.containerd.nri.v1.nri"].(map[string]any)
	if off, ok := nri["disable"].(bool); ok {
		c.NRI = profiles.Is(!off)
	}
	for _, name := range texts(all["disabled_plugins"]) {
		if name == "io.containerd.nri.v1.nri" {
			c.NRI = profiles.No
		}
	}
}

func (c *RuntimeConfig) fromCRIO(all map[string]any) {
	crio, _ := all["crio"].(map[string]any)
	network, _ := crio["network"].(map[string]any)
	if dir, _ := network["network_dir"].(string); dir != "" {
		c.ConfDir = clean(dir)
	}
	c.addBinDirs(texts(network["plugin_dirs"]))
	runtime, _ := crio["runtime"].(map[string]any)
	c.addHandlers(runtime["runtimes"])
	nri, _ := crio["nri"].(map[string]any)
	if on, ok := nri["enable_nri"].(bool); ok {
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
