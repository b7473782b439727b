// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package vm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/podweir/podweir/plugin/testutil/logged"
	rig "github.com/podweir/podweir/tools/vmrig/vm"
)

const (
	memoryMiB = 1024
	// bootTime bounds the boot; it takes 15 s where nothing else runs.
	bootTime = 5 * time.Minute
	// lifeTime is longer than any campaign: each run has its own limit.
	lifeTime = 7 * 24 * time.Hour
	// portName names the serial port by which the host calls the guest. It is
	// no network device: what is measured is not on it, nor is it in the way.
	portName = "org.podweir.perfrig"
)

// machines are those that run.
type machines struct {
	client *rpc.Client
	stop   context.CancelFunc
	dir    string
	said   output // by the guests' programs
	err    error  // how they ended, once ended is closed
	ended  chan struct{}
}

// output keeps what two programs write.
type output struct{ logged.Log }

// last is the end of it, which says what was the matter.
func (o *output) last() string {
	const enough = 2000
	all := strings.TrimSpace(o.String())
	return all[max(0, len(all)-enough):]
}

// boot returns when the guest's program answers. If it fails, nothing is left.
func boot(ctx context.Context, cache *rig.Cache, kernel, root, self string) (*machines, error) {
	dir, err := os.MkdirTemp("", "perfrig-vm-")
	if err != nil {
		return nil, err
	}
	// The machines outlive the call; end cancels this.
	life, stop := context.WithCancel(context.Background())
	m := &machines{stop: stop, dir: dir, ended: make(chan struct{})}
	socket := filepath.Join(dir, "port")
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "unix", socket)
	if err != nil {
		stop()
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go func() {
		// The machines' processes die with the thread that started them.
		runtime.LockOSThread()
		m.err = m.run(life, cache, kernel, root, self, socket)
		close(m.ended)
	}()
	if err := m.connect(ctx, listener); err != nil {
		return nil, errors.Join(err, m.end())
	}
	return m, nil
}

// run boots and returns when the machines have ended.
func (m *machines) run(ctx context.Context, cache *rig.Cache, kernel, root, self, socket string) error {
	o := rig.Options{
		// The record and its page say that the machines are emulated.
		Accel: rig.AccelTCG, Kernel: kernel, CPUs: processors, MemMiB: memoryMiB, Timeout: lifeTime,
		Devices: portDevices(socket), Dir: root, Env: os.Environ(),
		Args: []string{self, GuestCommand}, Stdout: &m.said, Stderr: &m.said,
	}
	result, err := cache.Run(ctx, o)
	if err == nil {
		err = fmt.Errorf("the guest's program ended with %d", result.Status)
	}
	return err
}

// portDevices are the emulator's arguments for the serial port.
func portDevices(socket string) []string {
	return []string{
		"-chardev", "socket,id=perfrig,path=" + socket,
		"-device", "virtio-serial-pci",
		"-device", "virtserialport,chardev=perfrig,name=" + portName,
	}
}

// connect waits for the emulator, then for the guest's program.
func (m *machines) connect(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithTimeout(ctx, bootTime)
	defer cancel()
	// Accept ends with the listener, and the listener when the guest has
	// answered, or will not.
	defer func() { _ = listener.Close() }()
	conns := make(chan net.Conn, 1)
	go func() {
		if conn, err := listener.Accept(); err == nil {
			conns <- conn
		}
	}()
	select {
	case conn := <-conns:
		m.client = jsonrpc.NewClient(conn)
	case <-m.ended:
		return m.gone()
	case <-ctx.Done():
		return fmt.Errorf("boot: %w", ctx.Err())
	}
	_, err := call[struct{}](ctx, m, "Hello", struct{}{})
	return err
}

// gone says how the machines ended by themselves.
func (m *machines) gone() error {
	return fmt.Errorf("the machine has ended: %w: %s", m.err, m.said.last())
}

// end ends the machines and removes what they had.
func (m *machines) end() error {
	m.stop()
	<-m.ended
	var err error
	if m.client != nil {
		// That the other end is gone already is no matter.
		if err = m.client.Close(); errors.Is(err, rpc.ErrShutdown) {
			err = nil
		}
	}
	return errors.Join(err, os.RemoveAll(m.dir))
}

// call calls a method of the guest's program, whose result is a T.
func call[T any](ctx context.Context, m *machines, method string, args any) (T, error) {
	var reply, none T
	done := m.client.Go(guestService+"."+method, args, &reply, make(chan *rpc.Call, 1)).Done
	select {
	case c := <-done:
		if c.Error != nil {
			return none, c.Error
		}
		return reply, nil
	case <-m.ended:
		return none, m.gone()
	case <-ctx.Done():
		// The reply may still be written to.
		return none, fmt.Errorf("%s: %w", method, ctx.Err())
	}
}
