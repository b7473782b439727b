// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// guest is the virtual machine of a pod: a namespace with a network stack of its own. Its
// device is a tap device, and what one of the taps gets the other one sends.
type guest struct {
	*testutil.NetNS
	pod *pod
}

// newGuest makes the machine, and its tap device in the pod's namespace.
func newGuest(t *testing.T, p *pod) *guest {
	t.Helper()
	g := &guest{testutil.NewNetNS(t), p}
	pump(t, newTap(t, p.ns, "tap0_kata"), newTap(t, g.NetNS, "eth0"))
	g.Run(t, "ip", "link", "set", "eth0", "address", p.dev.HardwareAddr.String())
	p.ns.Run(t, "ip", "link", "set", "tap0_kata", "up")
	g.Up(t, "eth0")
	g.AddAddr(t, "eth0", p.addr+"/24")
	g.Run(t, "ip", "neigh", "replace", p.gateway, "lladdr", p.host.HardwareAddr.String(), "dev", "eth0")
	return g
}

// start does to the pod's devices what Kata does when it starts the machine, after ADD:
// addQdiscIngress and addRedirectTCFilter of
// src/runtime/virtcontainers/network_linux.go, in that order. The pod starts only if
// each of the steps succeeds.
func (g *guest) start(t *testing.T) error {
	t.Helper()
	tc := func(args ...string) error {
		out, err := g.pod.ns.Command(t, "tc", args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("tc %s: %w: %s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	redirect := func(from, to string) error {
		return tc("filter", "add", "dev", from, "parent", "ffff:", "protocol", "all", "u32", "match", "u8", "0", "0",
			"action", "mirred", "egress", "redirect", "dev", to)
	}
	for _, step := range []func() error{
		func() error { return tc("qdisc", "add", "dev", "tap0_kata", "ingress") },
		func() error { return tc("qdisc", "add", "dev", "eth0", "ingress") },
		func() error { return redirect("eth0", "tap0_kata") },
		func() error { return redirect("tap0_kata", "eth0") },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// wantLimited offers in both directions.
func (g *guest) wantLimited(t *testing.T, when string) {
	t.Helper()
	offer(t, g.pod.node.NetNS, g.NetNS, g.pod.addr).wantCapped(t, when+": ingress")
	offer(t, g.NetNS, g.pod.node.NetNS, g.pod.gateway).wantCapped(t, when+": egress")
}

// newTap makes a tap device and returns its other end.
func newTap(t *testing.T, ns *testutil.NetNS, name string) *os.File {
	t.Helper()
	var fd int
	if err := ns.Do(func() (err error) {
		if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); err != nil {
			return err
		}
		request, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		return unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}); errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		testutil.SkipFeature(t, "tun")
	} else if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), name)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// pump sends what one end gets to the other, both ways, until the ends are closed.
func pump(t *testing.T, a, b *os.File) {
	t.Helper()
	one := func(from, to *os.File) {
		frame := make([]byte, 65536)
		for {
			n, err := from.Read(frame)
			if errors.Is(err, os.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = to.Write(frame[:n]) // a device that is down loses it
			}
		}
	}
	go one(a, b)
	go one(b, a)
}

// A runtime adds an ingress qdisc to the pod's device after ADD, and redirects from there to
// its machine. With podHook tcx that works and the limit holds both ways, wherever ingress is
// limited, in either order, and CHECK, another ADD, repair and DEL leave what is the runtime's.
// On podweir's clsact it fails, and the pod would not start.
func TestPrivilegedRuntimeWithAMachine(t *testing.T) {
	mark.NightlyKernels(t, "sixteen pods, each offered to both ways three times")
	testutil.RequireRoot(t)
	requireTCX(t)
	limited := conf{"egressRate": slow, "ingressRate": slow}
	for name, with := range map[string]conf{
		"ingress at the host":   {"podHook": "tcx"},
		"ingress beside an ifb": {"podHook": "tcx", "ingressPlace": "prefer-ifb"},
		"an ifb by name":        {"podHook": "tcx", "ingressPlace": "ifb"},
		"policed":               {"podHook": "tcx", "queue": "none"},
		"flat":                  {"podHook": "tcx", "policy": "flat"},
		"elephants":             {"podHook": "tcx", "policy": "elephants"},
		"mode tcx-podside":      {"mode": "tcx-podside"},
	} {
		for _, first := range []string{"podweir", "runtime"} {
			t.Run(name+", "+first+" first", func(t *testing.T) {
				p := newNode(t).newPod(t)
				g := newGuest(t, p)
				c := p.conf(limited)
				maps.Copy(c, with)
				if first == "podweir" {
					p.must(t, "ADD", c)
				}
				if err := g.start(t); err != nil {
					t.Fatalf("the pod does not start: %v", err)
				}
				if first == "runtime" {
					offer(t, p.node.NetNS, g.NetNS, p.addr).wantPast(t, "ingress without a limit")
					offer(t, g.NetNS, p.node.NetNS, p.gateway).wantPast(t, "egress without a limit")
					p.must(t, "ADD", c)
				}
				g.wantLimited(t, "ADD")
				p.must(t, "CHECK", c)
				p.must(t, "ADD", c)
				p.repair(t)
				p.must(t, "CHECK", c)
				g.wantLimited(t, "repair")
				p.must(t, "DEL", c)
				// The kernel detaches a TCX program soon after its pin is gone.
				testutil.Eventually(t, 5*time.Second, "nothing on the pod but what is the runtime's", func() bool {
					return !slices.ContainsFunc(p.state(t), func(s string) bool {
						// tc shows the filters of an ingress qdisc for either hook.
						return s != "pod qdisc ingress" && s != "pod clsact ingress mirred" && s != "pod clsact egress mirred"
					})
				})
				offer(t, p.node.NetNS, g.NetNS, p.addr).wantPast(t, "ingress after DEL")
			})
		}
	}
	t.Run("clsact", func(t *testing.T) {
		for name, with := range map[string]conf{"auto": nil, "clsact by name": {"podHook": "clsact"}, "ifb": {"ingressPlace": "ifb"}} {
			p := newNode(t).newPod(t)
			g := newGuest(t, p)
			c := p.conf(limited)
			maps.Copy(c, with)
			p.must(t, "ADD", c)
			if err := g.start(t); err == nil || !strings.Contains(err.Error(), "Exclusivity flag on") {
				t.Errorf("%s: the runtime's start = %v, want that the kernel refuses its ingress qdisc", name, err)
			}
			p.must(t, "DEL", c)
			if err := g.start(t); err != nil && !strings.Contains(err.Error(), "tap0_kata") {
				t.Errorf("%s: after DEL: %v", name, err)
			}
		}
	})
}

// What is on the pod's device moves to TCX when podHook changes, and the guard back
// nowhere: it stays where it was attached.
func TestPrivilegedPodHookChanges(t *testing.T) {
	testutil.RequireRoot(t)
	requireTCX(t)
	for name, with := range map[string]conf{"host": {}, "ifb": {"ingressPlace": "prefer-ifb"}, "guard": {"policy": "elephants"}} {
		p := newNode(t).newPod(t)
		c := p.conf(conf{"egressRate": slow, "ingressRate": slow})
		maps.Copy(c, with)
		p.must(t, "ADD", c)
		if !slices.Contains(p.state(t), "pod qdisc clsact") {
			t.Fatalf("%s: there is no clsact qdisc to begin with: %q", name, p.state(t))
		}
		c["podHook"] = "tcx"
		p.must(t, "ADD", c)
		if state := p.state(t); slices.Contains(state, "pod qdisc clsact") {
			t.Errorf("%s: with podHook tcx a clsact qdisc is left: %q", name, state)
		}
		g := newGuest(t, p)
		if err := g.start(t); err != nil {
			t.Errorf("%s: the pod does not start: %v", name, err)
		}
		g.wantLimited(t, name)
		p.must(t, "CHECK", c)
		p.must(t, "DEL", c)
	}
}

// A running pod of such a runtime is adopted without any setting: what is on its device
// decides.
func TestPrivilegedAdoptsAPodWithAMachine(t *testing.T) {
	testutil.RequireRoot(t)
	requireTCX(t)
	for _, place := range []string{"auto", "prefer-ifb"} {
		p := newNode(t).newPod(t)
		g := newGuest(t, p)
		must.OK(t, g.start(t))
		c := p.conf(conf{"egressRate": slow, "ingressRate": slow, "ingressPlace": place})
		p.must(t, "ADD", c)
		g.wantLimited(t, place)
		p.must(t, "CHECK", c)
		p.must(t, "DEL", c)
	}
}
