// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package vm boots Debian's kernels with the host's files, under KVM where that works and
// by emulation elsewhere, and runs one command on them.
package vm

import (
	"fmt"
	"os"
	"path/filepath"
)

// Kernel is a kernel that the rig can boot.
type Kernel struct {
	// Name is what the command line calls it.
	Name string
	// Lacks are the features, as plugin/testutil names them, that it is known
	// not to have. A test that is skipped for the lack of another has found a
	// fault of the rig or of the probe.
	Lacks []string
}

// Kernels lists those that setup.sh fetches: the oldest kernel that podweir is tested on (it
// has no TCX; it is Debian 12's and Amazon Linux 2023's), one with TCX and netkit, and the
// newest that Debian has.
func Kernels() []Kernel {
	return []Kernel{
		{Name: "6.1", Lacks: []string{"tcx", "netkit", "bpf_redirect to an ifb"}},
		{Name: "6.12"},
		{Name: "newest"},
	}
}

// Named returns the kernel of a name.
func Named(name string) (Kernel, error) {
	for _, k := range Kernels() {
		if k.Name == name {
			return k, nil
		}
	}
	return Kernel{}, fmt.Errorf("kernel %q is none of 6.1, 6.12, newest", name)
}

// Cache is where kernels, the emulator and the file server are kept between
// runs.
type Cache struct {
	dir string
}

// OpenCache returns the cache in $XDG_CACHE_HOME/podweir-vmrig, or in
// /var/cache/podweir-vmrig without that variable, and makes the directory.
func OpenCache() (*Cache, error) {
	base := os.Getenv("XDG_CACHE_HOME")
	if base == "" {
		base = "/var/cache"
	}
	c := &Cache{filepath.Join(base, "podweir-vmrig")}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Cache) kernelDir(name string) string { return filepath.Join(c.dir, "kernels", name) }
func (c *Cache) hostDir() string              { return filepath.Join(c.dir, "host") }

// Release returns the version of a cached kernel as uname -r prints it. It
// fails for a name that is none, and before setup.sh has run.
func (c *Cache) Release(name string) (string, error) {
	if _, err := Named(name); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(filepath.Join(c.kernelDir(name), "lib/modules"))
	if err != nil {
		return "", fmt.Errorf("kernel %s is not there yet (tools/vmrig/setup.sh): %w", name, err)
	}
	if len(entries) != 1 {
		return "", fmt.Errorf("%s holds modules of %d kernels, want 1", c.kernelDir(name), len(entries))
	}
	return entries[0].Name(), nil
}
