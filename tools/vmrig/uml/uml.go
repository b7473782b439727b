// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package uml runs commands on User-Mode Linux, a kernel that is a process of
// the host. It is no emulation: it boots in a second and carries gigabits, so
// it shows pacing at rates that an emulated processor cannot. It has one
// processor, no netkit, no BTF and no JIT compiler for BPF.
package uml

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/podweir/podweir/tools/vmrig/archive"
	"github.com/podweir/podweir/tools/vmrig/guest"
	"github.com/podweir/podweir/tools/vmrig/vm"
)

// Name is what the command line calls the kernel.
const Name = "uml"

// suite is the release of Debian whose package it is. The kernels of 13 and
// before it cannot restore the registers of a processor with AMX (host errno
// 14 at the first process).
const suite = "sid"

// loader is where the program looks for its dynamic loader: below the
// directory that it is started in, because it wants a newer C library than
// Debian 12's. A loader that is called with the program as argument will not
// do: User-Mode Linux executes itself again.
const loader = "lib/ld.so"

// interpreter is the loader that Debian's program names.
const interpreter = "/lib64/ld-linux-x86-64.so.2"

// Fetch brings the kernel into the cache, which must have been fetched. What is
// there stays, unless update is set.
func Fetch(ctx context.Context, cache *vm.Cache, source func() (archive.Source, error), update bool) error {
	if _, err := os.Stat(cache.Dir(Name)); err == nil && !update {
		return nil
	}
	src, err := source()
	if err != nil {
		return err
	}
	return cache.Unpack(ctx, src, suite, "user-mode-linux", Name, func(dir string) error {
		return arrange(ctx, dir, cache.HostLib())
	})
}

// arrange makes of the unpacked package: linux, lib/modules/<release>, and
// beside them the loader and the C library.
func arrange(ctx context.Context, dir, hostLib string) error {
	program, err := os.ReadFile(filepath.Join(dir, "usr/bin/linux.uml"))
	if err != nil {
		return err
	}
	if program, err = withLoader(program); err != nil {
		return err
	}
	lib := filepath.Join(dir, "lib")
	if err := os.Mkdir(lib, 0o755); err != nil {
		return err
	}
	for from, to := range map[string]string{"ld-linux-x86-64.so.2": loader, "libc.so.6": "lib/libc.so.6"} {
		data, err := os.ReadFile(filepath.Join(hostLib, from))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, to), data, 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "linux"), program, 0o755); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(dir, "usr/lib/uml/modules"), filepath.Join(lib, "modules")); err != nil {
		return err
	}
	release, err := modulesOf(dir)
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "depmod", "-b", dir, release).CombinedOutput()
	if err != nil {
		return fmt.Errorf("depmod: %w\n%s", err, out)
	}
	return nil
}

// withLoader returns a program with another loader. The name must not be longer
// than the one it replaces, which stands in the file once.
func withLoader(program []byte) ([]byte, error) {
	old := []byte(interpreter + "\x00")
	if n := bytes.Count(program, old); n != 1 {
		return nil, fmt.Errorf("the program names its loader %d times, want 1", n)
	}
	return bytes.Replace(program, old, append([]byte(loader), make([]byte, len(old)-len(loader))...), 1), nil
}

// modulesOf returns the kernel's release.
func modulesOf(dir string) (string, error) {
	entries, err := os.ReadDir(filepath.Join(dir, "lib/modules"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("kernel %s is not there yet (vmrig setup): %w", Name, err)
	}
	if err != nil {
		return "", err
	}
	if len(entries) != 1 {
		return "", fmt.Errorf("%s holds modules of %d kernels, want 1", dir, len(entries))
	}
	return entries[0].Name(), nil
}

// On returns what runs commands as [vm.Cache.Run] does, on User-Mode Linux. It
// has one processor, whatever the options say, and no further devices.
func On(cache *vm.Cache) func(context.Context, vm.Options) (vm.Result, error) {
	return func(ctx context.Context, o vm.Options) (vm.Result, error) {
		dir := cache.Dir(Name)
		release, err := modulesOf(dir)
		if err != nil {
			return vm.Result{}, err
		}
		return cache.RunBy(ctx, o, vm.Booter{
			// hostfs is built in.
			Root: dir, Release: release, Modules: []string{"overlay"},
			Boot: func(ctx context.Context, job string) error { return boot(ctx, dir, job, o.MemMiB) },
		})
	}
}

// boot runs the kernel until it powers off or ctx ends.
func boot(ctx context.Context, dir, job string, memMiB int) error {
	console, err := os.OpenFile(filepath.Join(job, vm.ConsoleFile), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer func() { _ = console.Close() }()
	cmd := exec.CommandContext(ctx, "./linux", arguments(job, memMiB)...)
	// The guest's memory is a file there, to be executed.
	cmd.Env = append(os.Environ(), "TMPDIR=/dev/shm", "LD_LIBRARY_PATH="+filepath.Join(dir, "lib"))
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, console, console
	// Every process of the guest is one of the host's, in this group.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("User-Mode Linux: %w", err)
	}
	return nil
}

// arguments of the kernel: no consoles but the one that goes to a file, and
// where the guest's files are.
func arguments(job string, memMiB int) []string {
	return slices.Concat(
		[]string{fmt.Sprintf("mem=%dM", memMiB), "initrd=" + filepath.Join(job, vm.InitramfsFile)},
		[]string{"con=null", "con0=null,fd:1", "ssl=null", "panic=-1", "loglevel=5"},
		[]string{guest.HostJobEnv + "=" + job},
	)
}
