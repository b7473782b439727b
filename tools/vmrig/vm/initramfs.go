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
	"os/exec"
	"path"
	"slices"
	"strings"

	"github.com/podweir/podweir/tools/vmrig/guest"
)

// bootModules reach the host's files; some are built into some kernels.
var bootModules = []string{"virtio_pci", "virtiofs", "overlay"}

// writeInitramfs writes the initial file system: this program as init, and the
// modules that reach the host's files.
func writeInitramfs(w io.Writer, kernelDir, version string) error {
	files, err := moduleFiles(kernelDir, version, bootModules)
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

// moduleFiles returns the files of modules of a kernel and of what they depend on, in
// loading order, without those that are built in.
func moduleFiles(kernelDir, version string, names []string) ([]string, error) {
	var files []string
	for _, name := range names {
		out, err := exec.Command("modprobe", "-d", kernelDir, "-S", version, "--show-depends", name).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("modprobe --show-depends %s: %w: %s", name, err, out)
		}
		for line := range strings.Lines(string(out)) {
			// "insmod file options"
			if f := strings.Fields(line); len(f) > 1 && f[0] == "insmod" && !slices.Contains(files, f[1]) {
				files = append(files, f[1])
			}
		}
	}
	return files, nil
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
