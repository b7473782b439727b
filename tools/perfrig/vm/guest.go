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

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/traffic"
	"github.com/podweir/podweir/tools/perfrig/netns"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

// GuestCommand is the argument of perfrig that makes it a guest's program.
const GuestCommand = "guest"

// starting is how long it takes an emulated machine to start two processes.
const starting = time.Second

// newSubstrate is the substrate of the machine.
func newSubstrate(root string) *netns.Substrate {
	s := netns.New(root)
	s.NewRig = func(ctx context.Context, o lab.Options) (*traffic.Rig, error) {
		r, err := traffic.NewRigWith(ctx, o)
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

// Guest is the program of an emulated machine: it answers the host, and ends with ctx or
// the machine.
func Guest(ctx context.Context, root string) error {
	port, err := openPort(ctx)
	if err != nil {
		return err
	}
	server := rpc.NewServer()
	if err := server.RegisterName(guestService, &service{ctx: ctx, sub: newSubstrate(root)}); err != nil {
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
