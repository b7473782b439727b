// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package wire boots two kernels at once and joins them by a virtual wire, so
// that one command can talk to another on a different kernel.
//
// The wire is a stream socket between two emulators: frames of 1514 bytes, no
// loss, no bridge or tap on the host, nothing that leaves the machine. A
// second one carries what the two commands have to agree on, so that this
// does not queue behind what is measured.
package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/podweir/podweir/tools/vmrig/vm"
)

// Side is one end of the wire.
type Side int

// The two ends. The leader's command decides when the run is over.
const (
	Leader Side = iota
	Peer
)

// Devices that both machines have, up and with an address each when their
// command begins.
const (
	// WireDevice is what is measured.
	WireDevice = "eth0"
	// ControlDevice is for coordination.
	ControlDevice = "eth1"
)

// WireAddr and ControlAddr are the addresses of a side, of 198.18.0.0/15 (RFC
// 2544, benchmarking).
func (s Side) WireAddr() netip.Addr { return netip.AddrFrom4([4]byte{198, 19, 0, byte(s) + 1}) }

// ControlAddr is the side's address on the device for coordination.
func (s Side) ControlAddr() netip.Addr { return netip.AddrFrom4([4]byte{198, 19, 1, byte(s) + 1}) }

// Options say what runs on which kernels. What a machine needs besides its
// kernel and command is in Machine.
type Options struct {
	// Kernels are the leader's and the peer's, names of vm.Kernels.
	Kernels [2]string
	// Machine sizes both machines; its Timeout bounds the whole run.
	Machine vm.Options
	// LeaderDevices are further arguments of the leader's emulator, such as a
	// device by which the host calls it.
	LeaderDevices []string
	// Command is the leader's, PeerCommand is run by the peer's sh.
	Command     []string
	PeerCommand string
	// Stdout gets the leader's output; everything else goes to Stderr.
	Stdout, Stderr io.Writer
}

// ErrPeerEnded says that the peer's command did not wait for the leader's.
var ErrPeerEnded = errors.New("the peer's command ended before the leader's")

// Result is how a run ended.
type Result struct {
	// Status is the exit status of the leader's command.
	Status int
	// Complaints are faults that the kernels themselves reported, with the
	// kernel's name.
	Complaints []string
}

// Run boots both machines, runs both commands and ends the peer's machine when
// the leader's command has ended. A machine that hangs is killed, and the
// error holds the consoles of both. Nothing is left behind, also when ctx ends.
func Run(ctx context.Context, cache *vm.Cache, o Options) (Result, error) {
	dir, err := os.MkdirTemp("", "vmrig-wire-")
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// One deadline for both: whichever hangs, both consoles are reported.
	ctx, cancel := context.WithTimeout(ctx, o.Machine.Timeout)
	defer cancel()
	// Trials first: a machine that waited for the other's would find no peer.
	var accels [2]vm.Accel
	for s, kernel := range o.Kernels {
		if accels[s], err = cache.Accel(ctx, kernel, o.Machine.Accel, o.Stderr); err != nil {
			return Result{}, err
		}
	}
	ended := make(chan end, 2)
	for _, s := range []Side{Leader, Peer} {
		go func() {
			// The machine's processes die with the thread that started them.
			runtime.LockOSThread()
			m := o.machine(s, dir)
			m.Accel = accels[s]
			result, err := cache.Run(ctx, m)
			ended <- end{s, result, err}
		}()
	}
	first := <-ended
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		cancel()
	}
	return o.conclude(first, <-ended)
}

// end is how a machine ended.
type end struct {
	side   Side
	result vm.Result
	err    error
}

// conclude makes one result of two. The second machine was killed because the
// first had ended, unless both ran out of time.
func (o *Options) conclude(first, second end) (Result, error) {
	var r Result
	for _, e := range []end{first, second} {
		for _, line := range e.result.Complaints {
			r.Complaints = append(r.Complaints, o.Kernels[e.side]+": "+line)
		}
	}
	if errors.Is(second.err, context.Canceled) {
		second.err = nil // it says no more than the first
	}
	if err := errors.Join(first.err, second.err); err != nil {
		return r, err
	}
	if first.side == Peer {
		return r, fmt.Errorf("%w, with status %d", ErrPeerEnded, first.result.Status)
	}
	r.Status = first.result.Status
	return r, nil
}

// machine returns what the virtual machine of a side is and runs.
func (o *Options) machine(s Side, dir string) vm.Options {
	m := o.Machine
	m.Kernel = o.Kernels[s]
	m.Devices = devices(s, dir)
	m.Stdout, m.Stderr = o.Stdout, o.Stderr
	command := o.Command
	if s == Leader {
		m.Devices = append(m.Devices, o.LeaderDevices...)
	}
	if s == Peer {
		m.Stdout = o.Stderr
		command = []string{"sh", "-c", o.PeerCommand}
	}
	m.Args = append([]string{
		"sh", "-ec", setUp, "sh",
		s.WireAddr().String() + "/24", s.ControlAddr().String() + "/24",
	}, command...)
	return m
}

// setUp gives the devices their addresses and becomes the command. There is no
// udev that would load the driver.
var setUp = strings.NewReplacer("WIRE", WireDevice, "CONTROL", ControlDevice).Replace(`
PATH=$PATH:/usr/sbin:/sbin
modprobe virtio_net
ip address add "$1" dev WIRE
ip address add "$2" dev CONTROL
ip link set WIRE up
ip link set CONTROL up
shift 2
exec "$@"
`)

// reconnect is how often the peer's emulator looks for the leader's, which may
// not listen yet.
const reconnect = 50 * time.Millisecond

// devices returns the arguments that give a side's machine its two network
// devices, in the order of their names. The leader's emulator listens.
func devices(s Side, dir string) []string {
	var args []string
	for i, name := range []string{"wire", "control"} {
		backend := fmt.Sprintf("stream,id=%s,addr.type=unix,addr.path=%s", name, filepath.Join(dir, name))
		if s == Leader {
			backend += ",server=on"
		} else {
			backend += fmt.Sprintf(",server=off,reconnect-ms=%d", reconnect.Milliseconds())
		}
		// A locally administered address; no ROM, because nothing boots from it.
		mac := fmt.Sprintf("02:00:00:00:%02x:%02x", i, int(s)+1)
		args = append(args, "-netdev", backend,
			"-device", fmt.Sprintf("virtio-net-pci,netdev=%s,mac=%s,romfile=", name, mac))
	}
	return args
}
