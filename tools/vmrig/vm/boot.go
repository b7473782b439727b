// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package vm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Files of a job's directory that only the host uses.
const (
	rootSocket = "root.sock"
	jobSocket  = "job.sock"
)

// boot runs the machine until it powers off or ctx ends. Every process it
// starts has ended when it returns.
func (c *Cache) boot(ctx context.Context, dir string, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The host's files do not change while a test runs on them, so the guest
	// may keep what it has read; the job's do.
	root, err := c.share(ctx, filepath.Join(dir, rootSocket), "/", "--readonly", "--cache=always")
	if err != nil {
		return err
	}
	defer root.end(cancel)
	job, err := c.share(ctx, filepath.Join(dir, jobSocket), dir, "--cache=never")
	if err != nil {
		return err
	}
	defer job.end(cancel)
	for _, s := range []*server{root, job} {
		if err := s.wait(ctx); err != nil {
			return err
		}
	}
	var stderr bytes.Buffer
	qemu := c.hostProgram(ctx, "usr/bin/qemu-system-x86_64", c.qemuArgs(dir, o)...)
	qemu.Env = append(os.Environ(), "QEMU_MODULE_DIR="+filepath.Join(c.hostDir(), hostLib, "qemu"))
	qemu.Stdout, qemu.Stderr = &stderr, &stderr
	if err := qemu.Run(); err != nil {
		return fmt.Errorf("qemu: %w\n%s", err, stderr.Bytes())
	}
	return nil
}

// tbMiB is the size of qemu's cache of translated code. Smaller ones are
// flushed while Go programs run.
const tbMiB = 256

// kernelArgs: reboot at once on a panic, so that qemu ends (-no-reboot); no
// mitigations and no address randomisation, which emulation only makes slow;
// seeds from the machine's processor, because little else happens at boot; no
// look at whether the timer interrupt arrives, which it does not in time when
// the host is busy, and the kernel panics of that.
// init.sh is the process 1.
const kernelArgs = "console=ttyS0 loglevel=5 panic=-1 mitigations=off nokaslr no_timer_check random.trust_cpu=on net.ifnames=0"

func (c *Cache) qemuArgs(dir string, o Options) []string {
	in := func(name string) string { return filepath.Join(dir, name) }
	mem := fmt.Sprintf("%dM", o.MemMiB)
	args := []string{
		"-L", filepath.Join(c.hostDir(), "usr/share/qemu"), "-L", filepath.Join(c.hostDir(), "usr/share/seabios"),
		"-machine", "q35,memory-backend=mem,graphics=off,usb=off,vmport=off",
		"-smp", fmt.Sprint(o.CPUs), "-m", mem,
		// virtiofsd reads and writes the guest's memory.
		"-object", "memory-backend-memfd,id=mem,share=on,size=" + mem,
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-serial", "file:" + in(consoleFile),
		"-chardev", "socket,id=root,path=" + in(rootSocket),
		"-device", "vhost-user-fs-pci,chardev=root,queue-size=1024,tag=vmrig-root",
		"-chardev", "socket,id=job,path=" + in(jobSocket),
		"-device", "vhost-user-fs-pci,chardev=job,tag=vmrig-job",
		"-kernel", filepath.Join(c.kernelDir(o.Kernel), "vmlinuz"),
		"-initrd", filepath.Join(c.kernelDir(o.Kernel), "initramfs"),
		"-append", fmt.Sprintf("%s hostname=vm-%s VMRIG_MODULES=%s", kernelArgs, strings.ReplaceAll(o.Kernel, ".", "-"), c.kernelDir(o.Kernel)),
	}
	return slices.Concat(args, o.Accel.args(), o.Devices)
}

// server is a running virtiofsd.
type server struct {
	cmd    *exec.Cmd
	socket string
	stderr bytes.Buffer
	// err is how it ended, once ended is closed.
	err   error
	ended chan struct{}
}

// share starts a virtiofsd for a directory.
func (c *Cache) share(ctx context.Context, socket, dir string, args ...string) (*server, error) {
	s := &server{socket: socket, ended: make(chan struct{})}
	// No sandbox: the guest is ours, and the share of the root is read-only.
	s.cmd = c.hostProgram(ctx, "usr/libexec/virtiofsd", append([]string{
		"--socket-path=" + socket, "--shared-dir=" + dir,
		"--sandbox=none", "--seccomp=none", "--inode-file-handles=never", "--no-announce-submounts", "--log-level=error",
	}, args...)...)
	s.cmd.Stderr = &s.stderr
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("virtiofsd: %w", err)
	}
	go func() {
		s.err = s.cmd.Wait()
		close(s.ended)
	}()
	return s, nil
}

// wait returns when the server listens.
func (s *server) wait(ctx context.Context) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(s.socket); err == nil {
			return nil
		}
		select {
		case <-s.ended:
			return fmt.Errorf("virtiofsd: %w\n%s", s.err, strings.TrimSpace(s.stderr.String()))
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// end cancels the context the server runs under, and waits for its end.
func (s *server) end(cancel context.CancelFunc) {
	cancel()
	<-s.ended
}

// hostLib is where Debian's packages for amd64 have libraries and loader.
const hostLib = "usr/lib/x86_64-linux-gnu"

// hostProgram returns the command of a cached program, to be run by the loader
// it was built for.
func (c *Cache) hostProgram(ctx context.Context, path string, args ...string) *exec.Cmd {
	lib := filepath.Join(c.hostDir(), hostLib)
	return child(ctx, filepath.Join(lib, "ld-linux-x86-64.so.2"),
		append([]string{"--library-path", lib, filepath.Join(c.hostDir(), path)}, args...)...)
}

// child returns a command that gets no signal of the terminal, is killed when
// ctx ends, and dies with the thread that started it, so that nothing is left
// behind when this program is killed.
func child(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}
