// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package hostif_test

import (
	"math"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/rtnl"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

func TestPrivilegedFindPair(t *testing.T) {
	host, pod := testutil.NewNetNS(t), testutil.NewNetNS(t)
	podIf, hostIf := testutil.VethPair(t,
		testutil.End{NetNS: pod, Name: "eth0"}, testutil.End{NetNS: host, Name: "vethx"})

	p := must.Get(hostif.FindPair(pod.Handle, host.Handle, pod.NetNS, host.NetNS, "eth0"))(t)
	if p.Pod.Index != podIf.Index || p.Host.Index != hostIf.Index || p.Host.Name != "vethx" {
		t.Errorf("FindPair = %d and %d %q, want %d and %d \"vethx\"",
			p.Pod.Index, p.Host.Index, p.Host.Name, podIf.Index, hostIf.Index)
	}
	if p.Pod.Kind != terms.DeviceVeth || p.Pod.MTU != 1500 || p.Pod.TxQueueLen != 1000 || p.Pod.L3Only ||
		!p.Pod.Up || len(p.Pod.HardwareAddr) != 6 || p.Pod.GSOMaxSize < 65536 {
		t.Errorf("FindPair gives the pod's interface as %+v", p.Pod)
	}

	_, err := hostif.FindPair(pod.Handle, host.Handle, pod.NetNS, host.NetNS, "eth1")
	must.Is(t, "FindPair(absent)", hostif.ErrNoDevice, err, `"eth1"`, pod.Path())
	_, err = hostif.FindPair(pod.Handle, host.Handle, pod.NetNS, host.NetNS, "lo")
	must.Is(t, "FindPair(lo)", hostif.ErrNoPeer, err)
}

// The host has a pair device with the ifindex that the pod's end names, and it
// names the pod's ifindex, but each is the other end of something else.
func TestPrivilegedFindPairElsewhere(t *testing.T) {
	host, pod := testutil.NewNetNS(t), testutil.NewNetNS(t)
	third, fourth := testutil.NewNetNS(t), testutil.NewNetNS(t)
	a, b := testutil.VethPair(t, testutil.End{NetNS: pod, Name: "eth0"}, testutil.End{NetNS: third, Name: "x"})
	c, d := testutil.VethPair(t, testutil.End{NetNS: fourth, Name: "eth0"}, testutil.End{NetNS: host, Name: "x"})
	if a.Index != c.Index || b.Index != d.Index || d.PeerIndex != a.Index {
		t.Fatalf("the pairs are %d-%d and %d-%d, want the same numbers", a.Index, b.Index, c.Index, d.Index)
	}
	p, err := hostif.FindPair(pod.Handle, host.Handle, pod.NetNS, host.NetNS, "eth0")
	must.Is(t, "FindPair(peer in a third namespace)", hostif.ErrNoPeer, err)
	must.Be(t, "the pod's end that FindPair finds", a.Index, p.Pod.Index)
	// Both ends in one namespace: a pair, but not one of pod and host.
	testutil.VethPair(t, testutil.End{NetNS: pod, Name: "in0"}, testutil.End{NetNS: pod, Name: "in1"})
	must.Is(t, "FindPair(both ends in the pod)", hostif.ErrNoPeer, must.Err(hostif.FindPair(pod.Handle, host.Handle, pod.NetNS, host.NetNS, "in0")))
}

func TestPrivilegedIFB(t *testing.T) {
	testutil.RequireQdisc(t, "ifb")
	pod := testutil.NewNetNS(t)
	testutil.VethPair(t, testutil.End{NetNS: pod, Name: "eth0"}, testutil.End{NetNS: pod, Name: "peer"})
	pod.Run(t, "ip", "link", "set", "eth0", "mtu", "9000", "gso_max_size", "100000", "txqueuelen", "0")
	dev := pod.Interface(t, "eth0")

	must.Is(t, "IFB before it is made", hostif.ErrNoDevice, must.Err(pod.Handle.IFB(dev.Index)))
	ifb := must.Get(pod.Handle.EnsureIFB(dev))(t)
	if ifb.Name != hostif.IFBName(dev.Index) || ifb.Kind != terms.DeviceIFB || !ifb.Up || ifb.MTU != hostif.IFBMTU ||
		ifb.TxQueueLen != 1000 || ifb.NumTxQueues != 1 {
		t.Errorf("EnsureIFB = %+v", ifb)
	}
	// Some kernels do not let an ifb have more than 64 KiB.
	if ifb.GSOMaxSize != 100000 && ifb.GSOMaxSize != 65536 {
		t.Errorf("EnsureIFB: gso_max_size %d, want the device's 100000, or 65536", ifb.GSOMaxSize)
	}
	must.Be(t, "IPv6 addresses of the ifb", "", pod.Run(t, "ip", "-6", "addr", "show", "dev", ifb.Name))
	must.Match(t, "EnsureIFB again", ifb, must.Get(pod.Handle.EnsureIFB(dev))(t))
	// One of an older podweir has the device's MTU, and IPv6 for it.
	pod.Run(t, "ip", "link", "set", ifb.Name, "mtu", "1500")
	must.Be(t, "MTU after EnsureIFB of one with 1500", hostif.IFBMTU, must.Get(pod.Handle.EnsureIFB(dev))(t).MTU)
	if out, err := pod.Command(t, "ls", "/proc/sys/net/ipv6/conf/"+ifb.Name).CombinedOutput(); err == nil {
		t.Errorf("the ifb has IPv6 state, want none:\n%s", out)
	}
	for range 2 {
		must.OK(t, pod.Handle.DeleteIFB(dev.Index)) // also if it is gone
	}
	must.Is(t, "IFB after DeleteIFB", hostif.ErrNoDevice, must.Err(pod.Handle.IFB(dev.Index)))
	far := dev
	for _, far.Index = range []int{99_999_999, 100_000_000, math.MaxInt32} {
		must.OK(t, must.Err(pod.Handle.EnsureIFB(far)))
		must.OK(t, pod.Handle.DeleteIFB(far.Index))
	}
	pod.Run(t, "ip", "link", "add", hostif.IFBName(dev.Index), "type", "veth")
	must.Is(t, "EnsureIFB beside a veth of its name", hostif.ErrForeignDevice, must.Err(pod.Handle.EnsureIFB(dev)))
	must.Is(t, "DeleteIFB of a veth", hostif.ErrForeignDevice, pod.Handle.DeleteIFB(dev.Index))
	pod.Interface(t, hostif.IFBName(dev.Index))
}

func TestPrivilegedNetfilterIngress(t *testing.T) {
	ns := testutil.NewNetNS(t)
	testutil.VethPair(t, testutil.End{NetNS: ns, Name: "eth0"}, testutil.End{NetNS: ns, Name: "eth1"})
	steps := []struct {
		name, rules string
		want        bool
	}{
		{"nothing", "", false},
		{"chains of other hooks", "add table inet a\nadd chain inet a b { type filter hook input priority 0; }", false},
		{"ingress of another device", "add table netdev a\nadd chain netdev a b { type filter hook ingress device eth1 priority 0; }", false},
		{"egress of this device", "add chain netdev a c { type filter hook egress device eth0 priority 0; }", false},
		{"ingress of this device", "add chain netdev a d { type filter hook ingress device eth0 priority 0; }", true},
		{"that chain removed", "delete chain netdev a d", false},
		{"ingress of several devices", "add chain netdev a e { type filter hook ingress devices = { eth1, eth0 } priority 0; }", true},
		{"that removed", "delete chain netdev a e", false},
		{"ingress in the inet family", "add chain inet a i { type filter hook ingress device eth0 priority 0; }", true},
	}
	for _, s := range steps {
		if s.rules != "" {
			ns.Run(t, "nft", s.rules)
		}
		must.Be(t, s.name+": HasNetfilterIngress", s.want, must.Get(hostif.HasNetfilterIngress(ns.NetNS, "eth0"))(t))
	}
}

// No kernel that the tests run on has tunnels of other kinds than vxlan.
func TestTunnelsAreNotLimited(t *testing.T) {
	for kind, want := range map[terms.DeviceKind]string{
		"wireguard": "wireguard tunnel, which podweir limits only by an interface in the pod that carries it", "bridge": "bridge device",
	} {
		one := hostif.Interface{Kind: kind, PeerNetNSID: 1}
		must.Be(t, string(kind)+": what it is", want, one.NotLimited())
		must.Be(t, string(kind)+" leads out", false, one.LeadsOut())
	}
}

// Without the capability the answer is an error, not "no chain".
func TestPrivilegedNetfilterIngressNeedsCapability(t *testing.T) {
	ns := testutil.NewNetNS(t)
	err := testutil.WithoutCapabilities(t, func() error { return must.Err(hostif.HasNetfilterIngress(ns.NetNS, "eth0")) })
	must.Is(t, "HasNetfilterIngress without CAP_NET_ADMIN", rtnl.ErrPermission, err)
}

func TestPrivilegedInterfaces(t *testing.T) {
	ns := testutil.NewNetNS(t)
	testutil.VethPair(t, testutil.End{NetNS: ns, Name: "eth0"}, testutil.End{NetNS: ns, Name: "eth1"})
	all := must.Get(ns.Handle.Interfaces())(t)
	names := map[string]bool{}
	for _, i := range all {
		names[i.Name] = true
	}
	must.Match(t, "Interfaces", map[string]bool{"lo": true, "eth0": true, "eth1": true}, names)
	must.Is(t, "InterfaceByIndex(absent)", hostif.ErrNoDevice, must.Err(ns.Handle.InterfaceByIndex(4711)))
	must.Is(t, "InterfaceByName(too long)", hostif.ErrNoDevice, must.Err(ns.Handle.InterfaceByName(strings.Repeat("x", 40))))
	eth0 := ns.Interface(t, "eth0")
	must.OK(t, ns.Handle.SetTxQueueLen(eth0.Index, 333))
	must.Be(t, "txqueuelen that was set", 333, ns.Interface(t, "eth0").TxQueueLen)
}

// L3-only devices: a tun device has no link layer header.
func TestPrivilegedL3Only(t *testing.T) {
	ns := testutil.NewNetNS(t)
	cmd := ns.Command(t, "ip", "tuntap", "add", "dev", "tun0", "mode", "tun")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Logf("%s", out)
		testutil.SkipFeature(t, "tun")
	}
	if i := ns.Interface(t, "tun0"); !i.L3Only || i.Kind != "tun" || i.PeerIndex != 0 {
		t.Errorf("tun0 = %+v, want an L3-only device of another kind", i)
	}
}
