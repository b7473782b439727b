// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package vm

import (
	"bufio"
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/podweir/podweir/tools/vmrig/guest"
)

// bootModules reach the host's files; some are built into some kernels.
var bootModules = []string{"virtio_pci", "virtiofs", "overlay"}

// writeInitramfs writes the initial file system: this program as init, and the
// modules that reach the host's files.
func writeInitramfs(w io.Writer, modulesDir string, modules []string) error {
	files, err := moduleFiles(modulesDir, modules)
	if err != nil {
		return err
	}
	init, err := staticSelf()
	if err != nil {
		return err
	}
	out := &cpio{w: bufio.NewWriter(w)}
	for _, dir := range []string{"dev", "proc", "sys", "lower", "written", "new"} {
		out.add(dir, cpioDir, nil)
	}
	// The kernel opens it for process 1 before init mounts anything.
	out.add("dev/console", cpioConsole, nil)
	out.add(strings.TrimPrefix(guest.InitPath, "/"), cpioFile, init)
	var list bytes.Buffer
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name := path.Base(file)
		out.add(name, cpioFile, data)
		fmt.Fprintln(&list, "/"+name)
	}
	out.add(strings.TrimPrefix(guest.ModulesFile, "/"), cpioFile, list.Bytes())
	return out.close()
}

// staticSelf returns the file of this program. It fails if that needs a
// dynamic linker, which the initial file system lacks.
func staticSelf() ([]byte, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(self)
	if err != nil {
		return nil, err
	}
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return nil, fmt.Errorf("%s is not static: build it with CGO_ENABLED=0", self)
	}
	return data, nil
}

// moduleFiles returns the files of modules and of what they depend on, in
// loading order, without those that are built in. dir is
// lib/modules/<release>.
func moduleFiles(dir string, names []string) ([]string, error) {
	deps, err := os.ReadFile(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return nil, err
	}
	builtin, err := os.ReadFile(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		return nil, err
	}
	var files []string
	for _, name := range names {
		line, found := moduleLine(string(deps), name)
		if !found {
			if _, found := moduleLine(string(builtin), name); !found {
				return nil, fmt.Errorf("%s has no module %s", dir, name)
			}
			continue
		}
		// "file: what it needs", the last needed being the first to load.
		file, rest, _ := strings.Cut(line, ":")
		needed := strings.Fields(rest)
		slices.Reverse(needed)
		for _, f := range append(needed, file) {
			if f = filepath.Join(dir, f); !slices.Contains(files, f) {
				files = append(files, f)
			}
		}
	}
	return files, nil
}

// moduleLine returns the line of a module in modules.dep or modules.builtin.
func moduleLine(table, name string) (string, bool) {
	for line := range strings.Lines(table) {
		file, _, _ := strings.Cut(strings.TrimSpace(line), ":")
		base := strings.TrimSuffix(path.Base(file), ".ko")
		if strings.ReplaceAll(base, "-", "_") == name {
			return strings.TrimSpace(line), true
		}
	}
	return "", false
}

// Modes of what the initial file system holds: a file that may be executed, a
// directory, a character device.
const (
	cpioFile    = 0o100755
	cpioDir     = 0o040755
	cpioConsole = 0o020600
)

// cpio writes the "newc" archive that the kernel unpacks, as its
// Documentation/driver-api/early-userspace/buffer-format.rst has it.
type cpio struct {
	w     *bufio.Writer
	inode int
	err   error
}

func (c *cpio) add(name string, mode int, data []byte) {
	if c.err != nil {
		return
	}
	c.inode++
	var major, minor int
	if mode == cpioConsole {
		major, minor = 5, 1
	}
	const links, checksum = 1, 0
	fields := []int{c.inode, mode, 0, 0, links, 0, len(data), 0, 0, major, minor, len(name) + 1, checksum}
	header := []byte("070701")
	for _, f := range fields {
		header = fmt.Appendf(header, "%08X", f)
	}
	c.padded(append(header, name+"\x00"...))
	c.padded(data)
}

// padded writes data up to the next multiple of four bytes.
func (c *cpio) padded(data []byte) {
	data = append(slices.Clip(data), make([]byte, -len(data)&3)...)
	if _, err := c.w.Write(data); err != nil && c.err == nil {
		c.err = err
	}
}

func (c *cpio) close() error {
	c.add("TRAILER!!!", 0, nil)
	if c.err != nil {
		return c.err
	}
	return c.w.Flush()
}
