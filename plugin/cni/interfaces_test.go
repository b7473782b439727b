// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// tells is a prevResult that names interfaces of the pod.
func (p *pod) tells(names ...string) conf {
	all := []conf{{"name": p.host.Name}}
	for _, name := range names {
		all = append(all, conf{"name": name, "sandbox": p.ns.Path()})
	}
	return conf{"cniVersion": "1.1.0", "interfaces": all}
}

// makeLink makes a device, of a kind that a kernel may lack.
func makeLink(t *testing.T, ns *testutil.NetNS, args ...string) {
	t.Helper()
	if out, err := ns.Command(t, "ip", append([]string{"link"}, args...)...).CombinedOutput(); err != nil {
		if strings.Contains(string(out), "Unknown device type") {
			testutil.SkipFeature(t, args[slices.Index(args, "type")+1])
		}
		t.Fatalf("ip link %v: %v\n%s", args, err, out)
	}
}

// standIn makes the pod that of a virtual machine, as KubeVirt's bridge binding does: the
// pair is renamed and enslaved to a bridge, and another device has its name.
func (p *pod) standIn(t *testing.T, kind, pair string) {
	t.Helper()
	ip := func(args ...string) { p.ns.Run(t, "ip", args...) }
	ip("link", "set", "eth0", "down")
	ip("link", "set", "eth0", "name", pair)
	bridge := "k6t-eth0"
	switch kind {
	case "bridge":
		bridge = "eth0"
	case "tun":
		ip("tuntap", "add", "dev", "eth0", "mode", "tap")
	default:
		makeLink(t, p.ns, "add", "eth0", "type", kind)
	}
	ip("link", "add", bridge, "address", p.dev.HardwareAddr.String(), "type", "bridge")
	ip("link", "set", pair, "master", bridge)
	ip("addr", "flush", "dev", pair)
	ip("addr", "add", p.addr+"/24", "dev", bridge)
	for _, name := range []string{pair, "eth0", bridge} {
		ip("link", "set", name, "up")
	}
	ip("neigh", "replace", p.gateway, "lladdr", p.host.HardwareAddr.String(), "dev", bridge)
}

// A device that stands in for the pod's interface is not limited: the pair is, whose
// other end is on the host. So it is where the pod had a record of the stand-in.
func TestPrivilegedDeviceThatStandsInForTheInterface(t *testing.T) {
	mark.NightlyKernels(t, "it takes an emulated processor half a minute")
	testutil.RequireRoot(t)
	for _, kind := range []string{"bridge", "tun", "dummy"} {
		for _, pair := range []string{"eth0-nic", "tap0-nic"} {
			t.Run(kind+" for "+pair, func(t *testing.T) {
				p := newNode(t).newPod(t)
				p.standIn(t, kind, pair)
				c := p.conf(conf{"egressRate": slow, "ingressRate": slow})
				p.must(t, "ADD", c)
				wantState(t, p, "ADD", shapedBoth(t))
				offer(t, p.node.NetNS, p.ns, p.addr).wantCapped(t, "ingress")
				offer(t, p.ns, p.node.NetNS, p.gateway).wantCapped(t, "egress")
				p.must(t, "CHECK ADD", c)
				must.Be(t, "slots taken", 2, p.node.slots(t))
				p.must(t, "DEL", c)
				wantClean(t, p, "DEL")
			})
		}
	}
}

// Without an interface that leads out of the pod there is nothing to limit: that is an
// error, and never a limit in the wrong place.
func TestPrivilegedNothingLeadsOutOfThePod(t *testing.T) {
	testutil.RequireRoot(t)
	const why = "carries nothing out of the pod by itself"
	for kind, add := range map[string][]string{
		"dummy":              {"add", "eth0", "type", "dummy"},
		"bridge":             {"add", "eth0", "type", "bridge"},
		"ifb":                {"add", "eth0", "type", "ifb"},
		"vxlan":              {"add", "eth0", "type", "vxlan", "id", "7", "dstport", "4789"},
		"veth with itself":   {"add", "eth0", "type", "veth", "peer", "name", "eth1"},
		"macvlan on a pod's": {"add", "link", "lower", "name", "eth0", "type", "macvlan"},
	} {
		t.Run(kind, func(t *testing.T) {
			p := newNode(t).newPod(t)
			p.ns.Run(t, "ip", "link", "del", "eth0")
			p.ns.Run(t, "ip", "link", "add", "lower", "type", "bridge")
			makeLink(t, p.ns, add...)
			c := p.conf(both(conf{"prevResult": p.tells("eth0")}))
			wantCode(t, "ADD that fails closed", p.call(t, "ADD", c).err, 100, "eth0", why)
			c["onError"] = "open"
			a := p.must(t, "ADD", c)
			a.tells(t, "pod starts unshaped", why)
			p.node.wantFailures(t, "ADD", why)
			wantCode(t, "CHECK", p.call(t, "CHECK", c).err, 100, why)
			p.must(t, "DEL", c)
			p.node.wantNoPins(t, "DEL")
		})
	}
}

// Devices that lead out of the pod by themselves are limited although they have no other
// end on the host: those on the device of another namespace, and hardware.
func TestPrivilegedDevicesThatLeadOutByThemselves(t *testing.T) {
	testutil.RequireRoot(t)
	for _, kind := range []string{"macvlan", "ipvlan", "ipvlan mode l3s", "vlan id 7", "vxlan id 7 dstport 4789"} {
		t.Run(kind, func(t *testing.T) {
			p := newNode(t).newPod(t)
			p.ns.Run(t, "ip", "link", "del", "eth0")
			p.node.Run(t, "ip", "link", "add", "uplink", "type", "veth", "peer", "name", "beyond")
			p.node.Run(t, "ip", "link", "set", "uplink", "up")
			makeLink(t, p.node.NetNS, append([]string{"add", "link", "uplink", "name", "sub", "type"}, strings.Fields(kind)...)...)
			p.node.Run(t, "ip", "link", "set", "sub", "netns", filepath.Base(p.ns.Path()))
			p.ns.Run(t, "ip", "link", "set", "sub", "name", "eth0")
			p.ns.Run(t, "ip", "link", "set", "eth0", "up")
			c := p.conf(conf{"egressRate": "10M", "prevResult": p.tells("eth0")})
			p.must(t, "ADD", c)
			must.Have(t, "eth0", queues(t, p.ns, "eth0"), "tbf")
			p.must(t, "CHECK", c)
			c["ingressRate"] = "10M"
			if !strings.HasSuffix(kind, "l3s") {
				p.must(t, "ADD CHECK", c)
			} else { // packets come to it past its hooks
				const why = "ingress is not limited: to an ipvlan device in mode l3s packets come past its hooks"
				wantCode(t, "ADD", p.call(t, "ADD", c).err, 100, why)
				wantCode(t, "CHECK", p.call(t, "CHECK", c).err, 100, why)
			}
			p.must(t, "DEL", c)
		})
	}
}

// The loopback device is never limited, whoever names it, and a name that is gone costs the others nothing, wherever it is
// in the result.
func TestPrivilegedNamesOfNothingToLimit(t *testing.T) {
	testutil.RequireRoot(t)
	for _, names := range [][]string{{"lo", "eth0"}, {"eth0", "lo"}, {"lo"}, {"gone0", "eth0"}, {"eth0", "gone0"}} {
		p := newNode(t).newPod(t)
		c := p.conf(both(conf{"prevResult": p.tells(names...)}))
		a := p.must(t, "ADD", c)
		wantState(t, p, "ADD", shapedBoth(t))
		must.Have(t, fmt.Sprintf("%q: lo", names), p.ns.Run(t, "tc", "qdisc", "show", "dev", "lo"), "!tbf", "!clsact")
		warns := strings.Contains(a.log, "level=WARN msg=\"interface skipped") && strings.Contains(a.log, "gone0")
		if warns != slices.Contains(names, "gone0") || strings.Contains(a.log, "unshaped") {
			t.Errorf("%q: ADD logs %q, want a warning if gone0 was skipped", names, a.log)
		}
		p.node.wantFailures(t, fmt.Sprint(names))
		p.must(t, "CHECK DEL", c)
		wantClean(t, p, "DEL")
	}
}

// The result names the pod's interface by another name that it has: every verb takes it for the same.
func TestPrivilegedInterfaceByAnotherNameOfIt(t *testing.T) {
	testutil.RequireRoot(t)
	p := newNode(t).newPod(t)
	makeLink(t, p.ns, "set", "eth0", "down")
	p.ns.Run(t, "ip", "link", "set", "eth0", "name", "pod0", "up")
	p.ns.Run(t, "ip", "link", "property", "add", "dev", "pod0", "altname", "eth0")
	c := p.conf(both(nil))
	for range 2 {
		p.must(t, "ADD CHECK", c)
		if out := p.ns.Run(t, "tc", "qdisc", "show", "dev", "pod0"); !strings.Contains(out, "tbf") || p.node.slots(t) != 2 {
			t.Errorf("%d slots, queues %q, want a limit in each direction", p.node.slots(t), out)
		}
	}
	p.must(t, "DEL", c)
	wantClean(t, p, "DEL")
}

// An interface that cannot be limited costs the others nothing either, and is told.
func TestPrivilegedInterfaceThatCannotBeLimited(t *testing.T) {
	p := newNode(t).newPod(t)
	testutil.VethPair(t, testutil.End{NetNS: p.ns, Name: "net1"}, testutil.End{NetNS: p.node.NetNS, Name: "other1"})
	p.node.rewrite(t, map[string]any{"tcx": false})
	pin := newCounter(t, "foreign_drop", tcActShot).pinned(t)
	p.ns.Run(t, "tc", "qdisc", "add", "dev", "net1", "clsact")
	p.ns.Run(t, "tc", "filter", "add", "dev", "net1", "egress", "pref", "1", "bpf", "da", "pinned", pin)
	p.ns.Run(t, "tc", "qdisc", "add", "dev", "net1", "root", "bfifo", "limit", "77777")
	c := p.conf(both(conf{"onError": "open", "prevResult": p.tells("net1", "eth0")}))
	a := p.must(t, "ADD", c)
	wantState(t, p, "ADD", shapedBoth(t))
	a.tells(t, "pod starts without all of its limits", "shape net1")
	p.node.wantFailures(t, "ADD", "net1")
	p.must(t, "DEL", c)
}

// Another attachment of the same pod is one of another interface.
func (p *pod) second(t *testing.T, ifName string) (*pod, conf) {
	t.Helper()
	testutil.VethPair(t, testutil.End{NetNS: p.ns, Name: ifName}, testutil.End{NetNS: p.node.NetNS, Name: "other1"})
	other := *p
	other.ifName = ifName
	prev := fmt.Sprintf(`{"cniVersion":"1.1.0","interfaces":[{"name":%q,"sandbox":%q}]}`, ifName, p.ns.Path())
	return &other, p.conf(conf{"name": "second", "egressRate": "5M", "prevResult": json.RawMessage(prev)})
}

// Interfaces that share the limit carry together no more than it, at the same time, in
// either direction; each alone has its part. One alone has all of it.
func TestPrivilegedInterfacesShareTheLimit(t *testing.T) {
	n := newNode(t)
	p := n.newPod(t)
	const addr, gateway = "10.78.1.2", "10.78.1.1"
	pair := func() {
		testutil.VethPair(t, testutil.End{NetNS: p.ns, Name: "v4if0", CIDRs: []string{addr + "/24"}},
			testutil.End{NetNS: n.NetNS, Name: "second", CIDRs: []string{gateway + "/24"}})
	}
	pair()
	wantRates := func(when, want string) {
		t.Helper()
		for _, at := range []struct {
			ns  *testutil.NetNS
			dev string
		}{{p.ns, "eth0"}, {p.ns, "v4if0"}, {n.NetNS, p.host.Name}, {n.NetNS, "second"}} {
			m := tbfIn.FindStringSubmatch(at.ns.Run(t, "tc", "qdisc", "show", "dev", at.dev))
			if m == nil {
				t.Fatalf("no tbf on %s", at.dev)
			}
			must.Be(t, when+": rate of "+at.dev, want, m[3])
		}
	}
	// A result need not name the interface that was asked for. Of another namespace, and aws-cni's note to itself.
	// The namespace may have another path there.
	told := append(p.tells()["interfaces"].([]conf), conf{"name": "v4if0", "sandbox": fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), p.ns.FD())}, conf{"name": "eth9", "sandbox": "/run/netns/another"}, conf{"name": "dummye8cbf0e0b1b", "mac": "0", "sandbox": "0"})
	shared := p.conf(conf{"egressRate": "4M", "ingressRate": "4M", "interfaces": "shared", "prevResult": conf{"cniVersion": "1.1.0", "interfaces": told}})
	p.must(t, "ADD", shared)
	must.Be(t, "slots taken", 4, n.slots(t))
	wantRates("ADD", "2Mbit")
	p.must(t, "CHECK", shared)
	for name, ends := range map[string][2][3]any{
		"ingress": {{n.NetNS, p.ns, p.addr}, {n.NetNS, p.ns, addr}},
		"egress":  {{p.ns, n.NetNS, p.gateway}, {p.ns, n.NetNS, gateway}},
	} {
		var wg sync.WaitGroup
		var both [2]arrival
		for i, e := range ends {
			arrives := offering(t, e[0].(*testutil.NetNS), e[1].(*testutil.NetNS), e[2].(string))
			wg.Go(func() { both[i] = arrives() })
		}
		wg.Wait()
		within := max(both[0].within, both[1].within)
		// 2 % over the limit, and what may come back to back after idle on each of the two.
		most := int(1.02*4e6/8*within.Seconds()) + 2*(9100+4*offeredFrame)
		if sum := both[0].bytes() + both[1].bytes(); sum > most || sum == 0 {
			t.Errorf("%s: %d bytes in %v, want at most %d", name, sum, within, most)
		}
	}
	// A limit that is changed is shared, too, and each has all of it again with the setting.
	shared["egressRate"], shared["ingressRate"] = "8M", "8M"
	p.must(t, "ADD", shared)
	p.repair(t)
	wantRates("a change", "4Mbit")
	delete(shared, "interfaces")
	wantCode(t, "CHECK", p.call(t, "CHECK", shared).err, 101, "want 8 Mbit/s")
	p.must(t, "ADD", shared)
	wantRates("with each", "8Mbit")
	// One that is left has all of it, until the other one comes again.
	shared["interfaces"] = "shared"
	p.must(t, "ADD", shared)
	for _, mend := range []func(){func() { p.repair(t) }, func() { p.must(t, "ADD", shared) }} {
		p.ns.Run(t, "ip", "link", "del", "v4if0")
		wantCode(t, "CHECK", p.call(t, "CHECK", shared).err, 101, "want 8 Mbit/s")
		p.onNode(t, func(n *engine.Node) error {
			rep, err := status.Collect(n)
			if v := rep.View(time.Now()).Pods[0]; v.State != view.Differs || !strings.HasPrefix(v.Cure, "podweir repair") {
				t.Errorf("status says %v, %q, cure %q, want that a repair mends it", v.State, v.Cause, v.Cure)
			}
			return err
		})
		mend()
		p.must(t, "CHECK", shared)
		if s := p.status(t); s.Directions[0].Rate != 8_000_000 || s.Directions[1].Rate != 8_000_000 {
			t.Errorf("eth0 alone has %+v, want 8 Mbit/s", s.Directions)
		}
		pair()
		p.repair(t)
		wantRates("beside one that came again", "4Mbit")
	}
	p.ns.Run(t, "ip", "link", "del", "v4if0") // DEL does the rest
	p.must(t, "DEL", shared)
	wantClean(t, p, "DEL")
}

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
	testutil.RequireQdisc(t, "tcx")
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
				must.OK(t, g.start(t))
				if first == "runtime" {
					offer(t, p.node.NetNS, g.NetNS, p.addr).wantPast(t, "ingress without a limit")
					offer(t, g.NetNS, p.node.NetNS, p.gateway).wantPast(t, "egress without a limit")
					p.must(t, "ADD", c)
				}
				g.wantLimited(t, "ADD")
				p.must(t, "CHECK ADD", c)
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
			must.Fail(t, name+": the runtime's start", g.start(t), "Exclusivity flag on")
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
	testutil.RequireQdisc(t, "tcx")
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
		must.OK(t, g.start(t))
		g.wantLimited(t, name)
		p.must(t, "CHECK DEL", c)
	}
}

// A running pod of such a runtime is adopted without any setting: what is on its device
// decides.
func TestPrivilegedAdoptsAPodWithAMachine(t *testing.T) {
	testutil.RequireQdisc(t, "tcx")
	for _, place := range []string{"auto", "prefer-ifb"} {
		p := newNode(t).newPod(t)
		g := newGuest(t, p)
		must.OK(t, g.start(t))
		c := p.conf(conf{"egressRate": slow, "ingressRate": slow, "ingressPlace": place})
		p.must(t, "ADD", c)
		g.wantLimited(t, place)
		p.must(t, "CHECK DEL", c)
	}
}
