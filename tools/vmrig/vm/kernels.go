// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package vm boots Debian's kernels with the host's files, under KVM where that works and
// by emulation elsewhere, and runs one command on them.
package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/podweir/podweir/tools/vmrig/archive"
)

// Kernel is a kernel that the rig can boot.
type Kernel struct {
	// Name is what the command line calls it.
	Name string
	// Suite is the release of Debian whose default cloud kernel it is.
	Suite string
	// Prefix is what the kernel's own version must begin with.
	Prefix string
	// Lacks are the features, as plugin/testutil names them, that it is known
	// not to have. A test that is skipped for the lack of another has found a
	// fault of the rig or of the probe.
	Lacks []string
}

// Kernels lists the oldest kernel that podweir is tested on (it has no TCX; it
// is Debian 12's and Amazon Linux 2023's), one with TCX and netkit, and the
// newest that Debian has.
func Kernels() []Kernel {
	return []Kernel{
		{Name: "6.1", Suite: "bookworm", Prefix: "6.1.", Lacks: []string{"tcx", "netkit", "bpf_redirect to an ifb"}},
		{Name: "6.12", Suite: "trixie", Prefix: "6.12."},
		{Name: "newest", Suite: "sid"},
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

// metaPackage depends on the newest cloud kernel of a release. Cloud kernels
// are small and have what a dataplane needs: BTF, netkit where the version has
// it, every qdisc as a module.
const metaPackage = "linux-image-cloud-amd64"

// hostSuite is the release whose emulator and file server run the machines, by
// its own loader and libraries: Debian 12 has no virtiofsd, and its qemu (7.2)
// breaks cmpxchg16b, on which kernels from 6.12 on die.
const hostSuite = "trixie"

// hostPackages are the emulator and the file server.
var hostPackages = []string{"qemu-system-x86", "virtiofsd"}

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
// fails for a name that is none, and before Fetch.
func (c *Cache) Release(name string) (string, error) {
	if _, err := Named(name); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(filepath.Join(c.kernelDir(name), "lib/modules"))
	if err != nil {
		return "", fmt.Errorf("kernel %s is not there yet (vmrig setup): %w", name, err)
	}
	if len(entries) != 1 {
		return "", fmt.Errorf("%s holds modules of %d kernels, want 1", c.kernelDir(name), len(entries))
	}
	return entries[0].Name(), nil
}

// Fetch brings every kernel and what runs them into the cache from the archive and
// says on w what it took. What is there stays, unless update is set.
//
// source is asked only where something has to be fetched.
func (c *Cache) Fetch(ctx context.Context, source func() (archive.Source, error), update bool, w io.Writer) error {
	missing := c.missing(update)
	if len(missing) == 0 {
		return nil
	}
	src, err := source()
	if err != nil {
		return err
	}
	// Unpacking keeps one processor busy; apt locks a release's state, so one
	// release is fetched by one at a time.
	ended := make(chan error, len(missing))
	for _, fetches := range missing {
		go func() {
			for _, fetch := range fetches {
				if err := fetch(ctx, src); err != nil {
					ended <- err
					return
				}
			}
			ended <- nil
		}()
	}
	for range missing {
		err = errors.Join(err, <-ended)
	}
	if err != nil {
		return err
	}
	for _, k := range Kernels() {
		version, err := c.Release(k.Name)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "kernel %s is %s, of Debian %s\n", k.Name, version, k.Suite)
	}
	return nil
}

// missing returns what fetches what is not there, by release; all of it for an
// update.
func (c *Cache) missing(update bool) map[string][]func(context.Context, archive.Source) error {
	all := map[string][]func(context.Context, archive.Source) error{}
	for _, k := range Kernels() {
		if _, err := c.Release(k.Name); err != nil || update {
			all[k.Suite] = append(all[k.Suite], func(ctx context.Context, src archive.Source) error {
				if err := c.fetchKernel(ctx, src, k); err != nil {
					return fmt.Errorf("kernel %s: %w", k.Name, err)
				}
				return nil
			})
		}
	}
	if _, err := os.Stat(c.hostDir()); err != nil || update {
		all[hostSuite] = append(all[hostSuite], c.fetchHost)
	}
	return all
}

func (c *Cache) fetchHost(ctx context.Context, src archive.Source) error {
	// Libraries, and what qemu's own packages are split into.
	follow := func(name string) bool {
		return strings.HasPrefix(name, "lib") || strings.HasPrefix(name, "qemu-system-") || name == "seabios"
	}
	if err := c.fetch(ctx, src, hostSuite, hostPackages, c.hostDir(), follow, nil); err != nil {
		return fmt.Errorf("emulator and file server: %w", err)
	}
	return nil
}

func (c *Cache) fetchKernel(ctx context.Context, src archive.Source, k Kernel) error {
	// Newer releases split the image: linux-image depends on linux-binary,
	// linux-modules and, for the list of what is built in, linux-base.
	follow := func(name string) bool {
		for _, prefix := range []string{"linux-image-", "linux-binary-", "linux-modules-", "linux-base-"} {
			if strings.HasPrefix(name, prefix) {
				return true
			}
		}
		return false
	}
	return c.fetch(ctx, src, k.Suite, []string{metaPackage}, c.kernelDir(k.Name), follow, func(dir string) error {
		return arrange(ctx, dir, k.Prefix)
	})
}

// fetch unpacks packages and those they need and follow accepts into dest,
// whole or not at all. finish, if any, works on the files before they appear
// there.
func (c *Cache) fetch(ctx context.Context, src archive.Source, suite string, packages []string, dest string, follow func(string) bool, finish func(dir string) error) error {
	release, err := archive.NewRelease(ctx, filepath.Join(c.dir, "apt"), src, suite)
	if err != nil {
		return err
	}
	names, err := release.Closure(ctx, packages, follow)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dest), 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dest), "unpacking-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := release.Unpack(ctx, tmp, names...); err != nil {
		return err
	}
	if finish != nil {
		if err := finish(tmp); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(dest); err != nil {
		return err
	}
	return os.Rename(tmp, dest)
}

// arrange brings an unpacked kernel into the form that the rig uses: vmlinuz
// and lib/modules/<release> at the top, modules plain and indexed.
func arrange(ctx context.Context, dir, prefix string) error {
	modules := filepath.Join(dir, "lib/modules")
	if _, err := os.Stat(modules); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(modules), 0o755); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(dir, "usr/lib/modules"), modules); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(modules)
	if err != nil {
		return err
	}
	if len(entries) != 1 || !strings.HasPrefix(entries[0].Name(), prefix) {
		return fmt.Errorf("the packages hold modules of %v, want one of %s*", entries, prefix)
	}
	version := entries[0].Name()
	images, err := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
	if err != nil {
		return err
	}
	images = append(images, filepath.Join(modules, version, "vmlinuz"))
	if err := os.Rename(images[0], filepath.Join(dir, "vmlinuz")); err != nil {
		return err
	}
	return index(ctx, dir, version)
}

// index decompresses modules, so that every kernel can load them as they are,
// and writes the tables that modprobe reads.
func index(ctx context.Context, dir, version string) error {
	var packed []string
	err := filepath.WalkDir(filepath.Join(dir, "lib/modules"), func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".ko.xz") {
			packed = append(packed, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	const batch = 200 // well below the limit of a command line
	for len(packed) > 0 {
		n := min(batch, len(packed))
		if err := command(ctx, "xz", append([]string{"-d", "--"}, packed[:n]...)...); err != nil {
			return err
		}
		packed = packed[n:]
	}
	return command(ctx, "depmod", "-b", dir, version)
}

func command(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}
