// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package hostif_test

import (
	"errors"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/rtnl"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// Both ends tell the same, from the host's namespace: what the pod sent and what the
// host received, bytes with their Ethernet headers.
func TestPrivilegedTraffic(t *testing.T) {
	host, pod := testutil.NewNetNS(t), testutil.NewNetNS(t)
	inPod, onHost := testutil.VethPair(t,
		testutil.End{NetNS: pod, Name: "eth0", CIDRs: []string{"10.78.0.2/24"}},
		testutil.End{NetNS: host, Name: "veth0", CIDRs: []string{"10.78.0.1/24"}})
	h := must.Get(hostif.NewHandle(host.NetNS))(t)
	defer h.Close()
	const payload = 1000
	packets := uint64(0)
	before := must.Get(h.Traffic())(t)
	conn := pod.DialUDP(t, "10.78.0.1:9")
	for range 1000 {
		if _, err := conn.Write(make([]byte, payload)); err == nil { // nobody listens, which is told instead
			packets++
		}
	}
	after := must.Get(h.Traffic())(t)
	least := packets * (payload + 8 + 20 + 14)
	got := after[onHost.Index].ReceivedBytes - before[onHost.Index].ReceivedBytes
	must.Within(t, "bytes that the host's end received", least, least+10_000, got)
	id := host.Interface(t, "veth0").PeerNetNSID
	in, index, err := h.TrafficIn(id, "eth0")
	if err != nil || index != inPod.Index {
		t.Fatalf("TrafficIn = ifindex %d, %v, want %d", index, err, inPod.Index)
	}
	must.AtLeast(t, "bytes that the pod's end sent, of those that the host's received", after[onHost.Index].ReceivedBytes, in.SentBytes)
	if _, _, err := h.TrafficIn(id, "eth9"); !errors.Is(err, hostif.ErrNoDevice) {
		t.Errorf("a device that is not there: %v, want ErrNoDevice", err)
	}
	if _, _, err := h.TrafficIn(4711, "eth0"); !errors.Is(err, hostif.ErrNoDevice) {
		t.Errorf("a namespace that is not there: %v, want ErrNoDevice", err)
	}
}

// TestPrivilegedUplinks: what the node reaches others by is told from its pods'
// devices, although all of them are veths whose other end is elsewhere.
func TestPrivilegedUplinks(t *testing.T) {
	host, other := testutil.NewNetNS(t), testutil.NewNetNS(t)
	for name, cidrs := range map[string][]string{
		"address4": {"172.30.1.2/24"}, "address6": {"fd01::2/64"}, "route4": {"169.254.7.1/32"}, "route6": nil, "path1": nil, "path2": nil,
		// Pods as ptp, Calico and Cilium leave them.
		"gateway": {"10.22.0.1/32", "fd02::1/128"}, "linklocal": {"fe80::1/64"}, "bare": nil, "policyroute": nil,
	} {
		testutil.VethPair(t, testutil.End{NetNS: host, Name: name, CIDRs: cidrs}, testutil.End{NetNS: other, Name: name})
	}
	for _, route := range [][]string{
		{"-4", "default", "dev", "route4"},
		{"-6", "default", "via", "fe80::9", "dev", "route6"},
		{"-4", "default", "metric", "9", "nexthop", "dev", "path1", "nexthop", "dev", "path2"},
		{"-4", "10.22.0.9/32", "dev", "bare"},
		{"-4", "default", "dev", "policyroute", "table", "77"},
	} {
		host.Run(t, "ip", append([]string{route[0], "route", "add"}, route[1:]...)...)
	}
	got := must.Get(host.Handle.Uplinks())(t)
	var names []string
	for index := range maps.Keys(got) {
		i := must.Get(host.Handle.InterfaceByIndex(index))(t)
		names = append(names, i.Name)
	}
	slices.Sort(names)
	want := []string{"address4", "address6", "path1", "path2", "route4", "route6"}
	must.Match(t, "Uplinks", want, names)
}

// Rules that drop and count are losses, those that only count are not.
func TestPrivilegedLosses(t *testing.T) {
	testutil.RequireRoot(t)
	if _, err := exec.LookPath("nft"); err != nil {
		testutil.SkipFeature(t, "nft")
	}
	own := testutil.NewNetNS(t)
	own.Run(t, "ip", "link", "set", "lo", "up")
	own.Run(t, "nft", "add table inet filter; add chain inet filter out { type filter hook output priority 0; }; "+
		"add chain inet filter entry { type filter hook input priority 0; policy accept; }; add rule inet filter out udp dport 8 counter accept; add rule inet filter out udp dport 9 counter drop; add rule inet filter out udp dport 10 counter reject")
	ns := must.Get(rtnl.OpenNetNS(own.Path()))(t)
	defer func() { _ = ns.Close() }()
	h := must.Get(hostif.NewHandle(ns))(t)
	defer h.Close()
	must.Be(t, "losses before any packet", 0, len(must.Get(hostif.Losses(ns, h))(t)))
	for _, port := range []string{"8", "9", "10"} {
		_, _ = own.DialUDP(t, "127.0.0.1:"+port).Write(make([]byte, 10)) // what is dropped is an error to the sender
	}
	got := must.Len(t, "Losses", 2, must.Get(hostif.Losses(ns, h))(t))
	for _, l := range got {
		if l.Packets != 1 || !strings.Contains(l.Where, "of chain out in table inet filter") {
			t.Errorf("%+v, want one packet lost by a rule of the chain out", l)
		}
	}
	// What does not count is named, before it drops anything.
	own.Run(t, "nft", "add chain inet filter entry { policy drop; }; add rule inet filter out udp dport 11 drop")
	got = must.Len(t, "Losses, with two rules more", 4, must.Get(hostif.Losses(ns, h))(t))
	for at, where := range map[int]string{2: "of chain out in table inet filter", 3: "nftables policy of chain entry in table inet filter"} {
		if l := got[at]; !l.Uncounted || !strings.Contains(l.Where, where) {
			t.Errorf("%+v, want uncounted, %s", l, where)
		}
	}
}
