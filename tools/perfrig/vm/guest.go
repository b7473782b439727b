// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package vm

import (
	"context"
	"errors"
	"fmt"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/podweir/podweir/e2e/far"
	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/traffic"
	"github.com/podweir/podweir/tools/perfrig/netns"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
	"github.com/podweir/podweir/tools/vmrig/wire"
)

// Arguments of perfrig that make it a guest's program: that of the machine with
// the pods, which may be followed by the address of the other, and that of the
// clients' machine, with its address.
const (
	GuestCommand   = "guest"
	ClientsCommand = "guest-clients"
)

// IsGuest says whether a command is one of a guest's programs.
func IsGuest(command string) bool { return command == GuestCommand || command == ClientsCommand }

// Guest is the program of an emulated machine. It ends with ctx or the machine.
func Guest(ctx context.Context, root string, args []string) error {
	switch {
	case args[0] == ClientsCommand && len(args) == 2:
		return serveClients(ctx, root, args[1])
	case args[0] == GuestCommand && len(args) <= 2:
		return serve(ctx, root, args[1:])
	default:
		return fmt.Errorf("no program of a guest: %q", args)
	}
}

// starting is how long it takes an emulated machine to start two processes.
const starting = time.Second

// serveClients has the clients of another machine's pods.
func serveClients(ctx context.Context, root, addr string) error {
	return far.Serve(ctx, far.ServeOptions{
		Listen: addr, Device: wire.WireDevice, Out: os.Stderr,
		Lab: lab.Options{PluginDirs: []string{root}},
	})
}

// newSubstrate is the substrate of the machine; peer, if there is one, is where
// its clients are.
func newSubstrate(root string, peer []string) *netns.Substrate {
	s := netns.New(root)
	s.NewRig = func(ctx context.Context, o lab.Options) (r *traffic.Rig, err error) {
		if len(peer) == 0 {
			r, err = traffic.NewRigWith(ctx, o)
		} else {
			r, err = traffic.NewRigApart(ctx, o, wire.WireDevice, peer[0])
		}
		if err == nil {
			r.Starting = starting
		}
		return r, err
	}
	return s
}

// guestService is the name under which its methods are called.
const guestService = "Guest"

// service takes the samples inside a machine. Its exported methods are called by
// the substrate, one at a time.
type service struct {
	ctx context.Context // of serve: net/rpc hands none to methods
	sub *netns.Substrate
}

// serve answers the host.
func serve(ctx context.Context, root string, peer []string) error {
	port, err := openPort(ctx)
	if err != nil {
		return err
	}
	server := rpc.NewServer()
	if err := server.RegisterName(guestService, &service{ctx: ctx, sub: newSubstrate(root, peer)}); err != nil {
		return err
	}
	server.ServeCodec(jsonrpc.NewServerCodec(port))
	return errors.New("the host has hung up")
}

// portsDir has a directory for each of the machine's ports.
const portsDir = "/sys/class/virtio-ports"

// openPort opens the host's serial port. There is no udev that would load the
// driver, or give the port a name of its own.
func openPort(ctx context.Context) (*os.File, error) {
	if out, err := exec.CommandContext(ctx, "/sbin/modprobe", "virtio_console").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("modprobe virtio_console: %w: %s", err, out)
	}
	name, err := findPort(portsDir)
	if err != nil {
		return nil, err
	}
	return os.OpenFile(filepath.Join("/dev", name), os.O_RDWR, 0)
}

// findPort returns the device of the port that the host has named.
func findPort(dir string) (string, error) {
	ports, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, p := range ports {
		raw, err := os.ReadFile(filepath.Join(dir, p.Name(), "name"))
		if err == nil && strings.TrimSpace(string(raw)) == portName {
			return p.Name(), nil
		}
	}
	return "", fmt.Errorf("none of %d ports in %s is called %s", len(ports), dir, portName)
}

// Hello answers as soon as the guest's program does.
func (*service) Hello(struct{}, *struct{}) error { return nil }

// Unavailable is the method of an executor's substrate.
func (g *service) Unavailable(c spec.Cell, why *string) (err error) {
	*why, err = g.sub.Unavailable(g.ctx, &c)
	return err
}

// Run is the method of an executor's substrate.
func (g *service) Run(r spec.Run, into *record.Sample) error {
	return g.sub.Run(g.ctx, &r, into)
}
