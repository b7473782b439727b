// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/agent/reconcile"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// Whatever somebody takes away or changes, the pod is mended because of the
// kernel's own event.
func TestPrivilegedDriftIsMended(t *testing.T) {
	n := newNode(t)
	n.configure("ingressPlace", "ifb")
	p := n.newPod(t)
	p.annotate(both("10M", "20M"))
	a := n.start(t, never)
	a.has(t, p, 2)
	ifb := fmt.Sprintf("podweir%d", p.dev.Index)
	for name, harm := range map[string]func(){
		"egress queue": func() { p.ns.Run(t, "tc", "qdisc", "del", "dev", "eth0", "root") },
		"egress rate": func() {
			p.ns.Run(t, "tc", "qdisc", "change", "dev", "eth0", "root", "tbf", "rate", "1gbit", "burst", "100k", "limit", "1m")
		},
		"filters":          func() { p.ns.Run(t, "tc", "qdisc", "del", "dev", "eth0", "clsact") },
		"redirect":         func() { p.ns.Run(t, "tc", "filter", "del", "dev", "eth0", "ingress") },
		"ifb":              func() { p.ns.Run(t, "ip", "link", "del", ifb) },
		"ifb taken down":   func() { p.ns.Run(t, "ip", "link", "set", ifb, "down") },
		"queue of the ifb": func() { p.ns.Run(t, "tc", "qdisc", "del", "dev", ifb, "root") },
	} {
		at := time.Now()
		harm()
		testutil.Eventually(t, soon, name+" is mended", func() bool {
			s := a.state(p)
			return s.At.After(at) && s.Outcome == reconcile.Shaped && len(p.attachment(t).Drift) == 0
		})
	}
	if !strings.Contains(n.log.String(), "egress build-queue: eth0: no root qdisc") {
		t.Error("the log does not say what was mended")
	}
}

// An interface of a second network that comes after the pod's first look is looked after
// as well.
func TestPrivilegedInterfaceThatCameLater(t *testing.T) {
	n := newNode(t)
	p := n.newPod(t)
	p.annotate(both("10M", "20M"))
	must.OK(t, p.call(t, "ADD"))
	a := n.start(t, 200*time.Millisecond)
	a.has(t, p, 2)
	testutil.VethPair(t,
		testutil.End{NetNS: p.ns, Name: "net1", CIDRs: []string{"10.80.0.2/24"}},
		testutil.End{NetNS: n.NetNS, Name: "second", CIDRs: []string{"10.80.0.1/24"}})
	must.OK(t, p.callFor(t, "ADD", "second", "net1"))
	a.has(t, p, 4)
	p.ns.Run(t, "tc", "qdisc", "del", "dev", "net1", "root")
	testutil.Eventually(t, soon, "the second interface is mended", func() bool { return rate(t, p.ns, "net1") == "10Mbit" })
	must.OK(t, p.callFor(t, "DEL", "second", "net1"))
	a.has(t, p, 2)
}

// An MTU above the bucket of the TBF would lose every packet (ruling 6).
func TestPrivilegedMTURaised(t *testing.T) {
	n := newNode(t)
	p := n.newPod(t)
	p.annotate(both("1M", "1M"))
	n.start(t, never)
	p.gets(t, "1Mbit", "1Mbit")
	const mtu = 60000
	n.Run(t, "ip", "link", "set", p.host.Name, "mtu", fmt.Sprint(mtu))
	p.ns.Run(t, "ip", "link", "set", "eth0", "mtu", fmt.Sprint(mtu))
	testutil.Eventually(t, soon, "a packet of the new MTU passes", func() bool {
		return p.passes(t, mtu-28)
	})
}

// listen opens a socket on the node's end.
func (p *pod) listen(t *testing.T) net.PacketConn {
	t.Helper()
	var to net.PacketConn
	must.OK(t, p.node.Do(func() (err error) {
		to, err = (&net.ListenConfig{}).ListenPacket(t.Context(), "udp4", p.gateway+":0")
		return err
	}))
	return to
}

// passes says whether a datagram of the pod arrives at the node.
func (p *pod) passes(t *testing.T, size int) bool {
	t.Helper()
	to := p.listen(t)
	defer func() { _ = to.Close() }()
	if err := p.ns.Do(func() error {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "udp4", to.LocalAddr().String())
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		_, err = conn.Write(make([]byte, size))
		return err
	}); err != nil {
		return false
	}
	_ = to.SetReadDeadline(time.Now().Add(time.Second))
	n, _, err := to.ReadFrom(make([]byte, size+1))
	return err == nil && n == size
}

// A netfilter ingress chain comes to a device with a redirect: the redirect
// goes at once, the owner is told, and the pod is policed.
func TestPrivilegedRedirectLeavesForAChain(t *testing.T) {
	n := newNode(t)
	n.configure("ingressPlace", "ifb")
	p := n.newPod(t)
	p.annotate(both("10M", "20M"))
	a := n.start(t, never)
	a.has(t, p, 2)
	p.ns.Run(t, "nft", "add table netdev t; add chain netdev t c { type filter hook ingress device eth0 priority 0; }")
	testutil.Eventually(t, soon, "the redirect is gone", func() bool {
		return !strings.Contains(p.ns.Run(t, "tc", "filter", "show", "dev", "eth0", "ingress"), "pw_redirect")
	})
	if e := p.event(t, "BandwidthPoliced"); !strings.Contains(e.Message, "netfilter ingress chain on eth0") {
		t.Errorf("event %q", e.Message)
	}
	testutil.Eventually(t, soon, "ingress is policed", func() bool {
		s := a.state(p)
		return s.Outcome.Enforced() && len(s.Limits) == 2 && !s.Limits[1].CapHolds
	})
}

// A filter that accepts every packet comes ahead of the redirect: the agent polices ahead of
// it at once, and puts the redirect back when it is gone. Without TCX it says what it cannot do.
func TestPrivilegedStarvedRedirect(t *testing.T) {
	testutil.RequireRoot(t)
	for _, tcx := range []bool{true, false} {
		t.Run(fmt.Sprintf("TCX %v", tcx), func(t *testing.T) {
			n := newNode(t)
			if !tcx {
				n.withoutTCX(t)
			} else if !datapath.HaveTCX() {
				testutil.SkipFeature(t, "TCX")
			}
			n.configure("ingressPlace", "ifb")
			p := n.newPod(t)
			p.annotate(both("10M", "20M"))
			a := n.start(t, never)
			a.has(t, p, 2)
			if out, err := p.ns.Command(t, "tc", strings.Fields("filter add dev eth0 ingress pref 1 protocol all u32 match u32 0 0 flowid 1:1")...).CombinedOutput(); err != nil {
				testutil.SkipFeature(t, "cls_u32: "+string(out))
			}
			redirects := func() bool {
				return strings.Contains(p.ns.Run(t, "tc", "filter", "show", "dev", "eth0", "ingress"), "pw_redirect")
			}
			reason := map[bool]string{true: "BandwidthPoliced", false: "BandwidthNotEnforced"}[tcx]
			if e := p.event(t, reason); !strings.Contains(e.Message, "u32 filter at preference 1 on eth0 ends the chain for every packet") {
				t.Errorf("event %q", e.Message)
			}
			if redirects() == tcx {
				t.Errorf("the redirect is there: %v", !tcx)
			}
			p.ns.Run(t, "tc", "filter", "del", "dev", "eth0", "ingress", "pref", "1")
			testutil.Eventually(t, soon, "the redirect limits again", func() bool {
				s := a.state(p)
				return redirects() && s.Outcome.Enforced() && len(s.Limits) == 2 && s.Limits[1].CapHolds
			})
		})
	}
}

// A limit whose record was lost is adopted for the pod that asks for it, and removed from
// the one that does not.
func TestPrivilegedLeftoversWithoutARecord(t *testing.T) {
	n := newNode(t)
	limited, free := n.newPod(t), n.newPod(t)
	for _, p := range []*pod{limited, free} {
		p.api.Annotations = both("10M", "20M")
		must.OK(t, p.call(t, "ADD"))
	}
	queue := limited.programs(t)
	entries, err := os.ReadDir(n.paths.Pins)
	must.OK(t, err)
	for _, e := range entries {
		must.OK(t, os.RemoveAll(filepath.Join(n.paths.Pins, e.Name())))
	}
	limited.annotate(both("10M", "20M"))
	free.annotate(nil)
	free.gets(t, "10Mbit", "20Mbit")
	a := n.start(t, 300*time.Millisecond)
	a.has(t, limited, 2)
	free.gets(t, "", "")
	limited.gets(t, "10Mbit", "20Mbit")
	handles := regexp.MustCompile(`qdisc tbf [0-9a-f]+:`)
	if now := limited.programs(t); !slices.Equal(handles.FindAllString(now, -1), handles.FindAllString(queue, -1)) {
		t.Errorf("the queues of the pod with a limit are %s, want those from before: %s", now, queue)
	}
	testutil.Eventually(t, soon, "the log tells of it", func() bool {
		return strings.Contains(n.log.String(), "of which there was no record")
	})
}

// A pod that starts while the API server is out of reach gets its limit from the runtime's
// ADD. The agent looks at it without waiting for a full pass, and repairs it from then on.
func TestPrivilegedPodOfWhichTheAPIServerDoesNotTell(t *testing.T) {
	testutil.RequireQdisc(t, "tbf")
	n := newNode(t)
	n.api.Close() // it was never reached
	add := func() *pod {
		p := n.newPod(t)
		p.api.Annotations = both("10M", "10M")
		must.OK(t, p.call(t, "ADD"))
		return p
	}
	before := add()
	a := n.start(t, time.Hour)
	a.becomes(t, before, reconcile.Shaped) // by the first pass, and there is no second one
	later, began := add(), time.Now()
	a.becomes(t, later, reconcile.Shaped)
	t.Logf("looked at after %v", time.Since(began).Round(time.Millisecond))
	later.ns.Run(t, "tc", "qdisc", "del", "dev", "eth0", "root")
	testutil.Eventually(t, soon, "the queue is there again", func() bool {
		return strings.Contains(later.ns.Run(t, "tc", "qdisc", "show", "dev", "eth0"), "tbf")
	})
}
