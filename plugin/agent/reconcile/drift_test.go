// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/agent/cri"
	"github.com/podweir/podweir/plugin/agent/kube/apitest"
	"github.com/podweir/podweir/plugin/agent/reconcile"
	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/queue"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// Whatever another party takes away or changes, the pod is mended because of the
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
			p.ns.Run(t, "tc", strings.Fields("qdisc change dev eth0 "+p.tbf(t)+" rate 1gbit burst 100k limit 1m")...)
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
	must.Have(t, "the log", n.log.String(), "egress build-queue: eth0: no root qdisc", "egress change-queue: eth0: ")
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

// A pod's eth0 goes, and another one comes long after, when the agent would look for it only every few
// minutes: it is limited as soon as it is there. So is one of two interfaces of an attachment.
func TestPrivilegedInterfaceIsMadeAnew(t *testing.T) {
	for _, two := range []bool{false, true} {
		t.Run(fmt.Sprintf("two interfaces %v", two), func(t *testing.T) {
			n := newNode(t)
			n.overdue = time.Millisecond
			p := n.newPod(t)
			p.annotate(both("10M", "20M"))
			limits := 2
			if two {
				testutil.VethPair(t, testutil.End{NetNS: p.ns, Name: "v4if0"}, testutil.End{NetNS: n.NetNS, Name: "second"})
				n.sandbox.set(p.api.UID, cri.Sandbox{ID: p.container, NetNSPath: p.ns.Path(), Interfaces: []string{"eth0", "v4if0"}})
				limits = 4
			}
			a := n.start(t, never)
			a.has(t, p, limits)
			p.ns.Run(t, "ip", "link", "del", "eth0")
			if two {
				a.has(t, p, 2)
			} else {
				at := a.becomes(t, p, reconcile.Overdue).At
				for range 10 { // each one makes the pause longer
					s := a.state(p)
					a.LookAt(&s)
					testutil.Eventually(t, soon, "another look", func() bool { s = a.state(p); return s.At.After(at) })
					at = s.At
				}
			}
			p.dev, p.host = testutil.VethPair(t,
				testutil.End{NetNS: p.ns, Name: "eth0", CIDRs: []string{p.addr + "/24"}},
				testutil.End{NetNS: n.NetNS, Name: "anew", CIDRs: []string{p.gateway + "/24"}})
			a.has(t, p, limits)
			p.gets(t, "10Mbit", "20Mbit")
		})
	}
}

// An MTU above the bucket of the TBF would lose every packet (ruling 6): the queue follows it. Whoever changes the MTU again
// and again does not take the limit away, also where a queue has no slot beside it. One who changes podweir's queue in the
// same step does.
func TestPrivilegedMTUChangesAreNoFight(t *testing.T) {
	testutil.RequireQdisc(t, "tbf")
	for name, tt := range map[string]struct {
		policy string
		harm   string
		fight  bool
	}{
		"strict": {policy: "strict"}, "flat": {policy: "flat"},
		"a rate":  {policy: "strict", harm: "rate 1gbit burst 100k limit 1m", fight: true},
		"a burst": {policy: "strict", harm: "rate 8mbit burst 10m limit 1m", fight: true},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.configure("policy", tt.policy)
			p := n.newPod(t)
			p.annotate(both("8M", "8M"))
			a := n.start(t, never)
			a.has(t, p, 2)
			for _, mtu := range []string{"60000", "1500", "60000", "1500", "60000"} {
				before := a.state(p).At
				if tt.harm != "" { // first: a look that is under way could undo it unseen, with the MTU's mend
					p.ns.Run(t, "tc", strings.Fields("qdisc change dev eth0 "+p.tbf(t)+" "+tt.harm)...)
				}
				n.Run(t, "ip", "link", "set", p.host.Name, "mtu", mtu)
				p.ns.Run(t, "ip", "link", "set", "eth0", "mtu", mtu)
				testutil.Eventually(t, soon, "the queue fits an MTU of "+mtu, func() bool {
					return a.state(p).At.After(before) && len(p.attachment(t).Drift) == 0
				})
			}
			if s := a.state(p); len(s.Tampered) > 0 != tt.fight {
				t.Errorf("tampered: %+v, want a fight: %v", s.Tampered, tt.fight)
			}
			testutil.Eventually(t, soon, "a packet of the last MTU passes", func() bool { return p.passes(t, 60000-28) })
		})
	}
}

// tbf is what tc(8) calls the queue that holds the pod's egress: it may be the root or, where the kernel has prio, below one.
func (p *pod) tbf(t *testing.T) string {
	t.Helper()
	out := p.ns.Run(t, "tc", "qdisc", "show", "dev", "eth0")
	found := must.Len(t, "tbf in "+out, 3, regexp.MustCompile(`qdisc tbf (\w+:) (root|parent \w+:\w+)`).FindStringSubmatch(out))
	return found[2] + " handle " + found[1] + " tbf"
}

// passes says whether a datagram of the pod arrives at the node.
func (p *pod) passes(t *testing.T, size int) bool {
	t.Helper()
	to := p.node.ListenUDP(t, p.gateway)
	if _, err := p.ns.DialUDP(t, to.LocalAddr().String()).Write(make([]byte, size)); err != nil {
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
	must.Be(t, "redirected", true, p.redirected(t))
	p.ns.Run(t, "nft", "add table netdev t; add chain netdev t c { type filter hook ingress device eth0 priority 0; }")
	testutil.Eventually(t, soon, "the redirect is gone", func() bool { return !p.redirected(t) })
	p.told(t, "BandwidthPoliced", "netfilter ingress chain on eth0")
	testutil.Eventually(t, soon, "ingress is policed", func() bool {
		s := a.state(p)
		return s.Outcome.Enforced() && len(s.Limits) == 2 && !s.Limits[1].CapHolds
	})
}

// redirected says that podweir's redirect is on the pod's device: its program or, where that loses packets, the kernel's mirred.
func (p *pod) redirected(t *testing.T) bool {
	t.Helper()
	return strings.Contains(p.ns.Run(t, "tc", "filter", "show", "dev", "eth0", "ingress"), fmt.Sprintf("pref %d ", queue.RedirectPref))
}

// A filter that accepts every packet comes ahead of the redirect: the agent polices ahead of
// it at once, and puts the redirect back when it is gone. Without TCX it says what it cannot do.
func TestPrivilegedStarvedRedirect(t *testing.T) {
	testutil.RequireRoot(t)
	for _, tcx := range []bool{true, false} {
		t.Run(fmt.Sprintf("TCX %v", tcx), func(t *testing.T) {
			n := newNode(t)
			if tcx {
				testutil.RequireQdisc(t, "tcx")
			} else {
				n.withoutTCX(t)
			}
			n.configure("ingressPlace", "ifb")
			p := n.newPod(t)
			p.annotate(both("10M", "20M"))
			a := n.start(t, never)
			a.has(t, p, 2)
			if out, err := p.ns.Command(t, "tc", strings.Fields("filter add dev eth0 ingress pref 1 protocol all u32 match u32 0 0 flowid 1:1")...).CombinedOutput(); err != nil {
				testutil.SkipFeature(t, "cls_u32: "+string(out))
			}
			reason := map[bool]string{true: "BandwidthPoliced", false: "BandwidthNotEnforced"}[tcx]
			p.told(t, reason, "u32 filter at preference 1 on eth0 ends the chain for every packet")
			if p.redirected(t) == tcx {
				t.Errorf("the redirect is there: %v", !tcx)
			}
			p.ns.Run(t, "tc", "filter", "del", "dev", "eth0", "ingress", "pref", "1")
			testutil.Eventually(t, soon, "the redirect limits again", func() bool {
				s := a.state(p)
				return p.redirected(t) && s.Outcome.Enforced() && len(s.Limits) == 2 && s.Limits[1].CapHolds
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
	before := limited.programs(t)
	entries := must.Get(os.ReadDir(n.paths.Pins))(t)
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
	must.Match(t, "queues of the pod with a limit", handles.FindAllString(before, -1), handles.FindAllString(limited.programs(t), -1))
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

// The kubelet makes the mirror of a static pod anew while the pod runs: it is looked after meanwhile, too.
func TestPrivilegedMirrorIsMadeAnew(t *testing.T) {
	testutil.RequireQdisc(t, "tbf")
	n := newNode(t)
	p := n.newPod(t)
	n.sandbox.set("static", cri.Sandbox{ID: p.container, NetNSPath: p.ns.Path(), Interfaces: []string{"eth0"}})
	mirror := func(uid, limit string) {
		p.api.UID = uid
		all := both(limit, limit)
		all["kubernetes.io/config.mirror"] = "static"
		p.annotate(all)
	}
	mirror("first", "10M")
	a := n.start(t, never)
	a.has(t, p, 2)
	mirror("first", "5M") // from then on the attachment is known as the pod's
	p.gets(t, "5Mbit", "5Mbit")
	n.api.Delete("first")
	testutil.Eventually(t, soon, "the agent knows of no pod", func() bool { return a.state(p).UID == "" })
	p.ns.Run(t, "tc", "qdisc", "del", "dev", "eth0", "root")
	p.gets(t, "5Mbit", "5Mbit")
	mirror("second", "20M")
	p.gets(t, "20Mbit", "20Mbit")
}

// moves has the runtime and the API server say that a pod is in the sandbox of another one.
func (n *node) moves(p, to *pod) {
	n.sandbox.set(p.api.UID, cri.Sandbox{ID: to.container, NetNSPath: to.ns.Path(), Interfaces: []string{"eth0"}})
	p.api.PodIP = to.addr
	p.annotate(both("10M", "10M"))
}

// The kubelet may make another sandbox for a pod while the network of the first one is there yet. It may have the
// address of the first: then all containers are started again, the init containers first.
func TestPrivilegedSecondSandbox(t *testing.T) {
	testutil.RequireQdisc(t, "tbf")
	for name, starts := range map[string]func(p *apitest.Pod){
		"another address": nil, "the same address": func(p *apitest.Pod) { p.Restarts++ },
		"the same address, with an init container": func(p *apitest.Pod) { p.InitRestarts++ },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			first := n.newPod(t)
			first.annotate(both("10M", "10M"))
			a := n.start(t, never)
			a.has(t, first, 2)
			second := n.newPod(t)
			if starts != nil {
				second.addr = first.api.PodIP
				starts(&first.api)
			}
			n.moves(first, second)
			second.gets(t, "10Mbit", "10Mbit")
			first.ns.Run(t, "ip", "link", "del", "eth0")
			a.has(t, first, 2)
			second.ns.Run(t, "tc", "qdisc", "del", "dev", "eth0", "root")
			second.gets(t, "10Mbit", "10Mbit")
		})
	}
}

// It may do so while no agent runs, and what is in the new sandbox may be another party's: the limit of the first sandbox
// is none of the second, however often the agent looks.
func TestPrivilegedSecondSandboxOfAnotherParty(t *testing.T) {
	testutil.RequireQdisc(t, "tbf")
	n := newNode(t)
	n.configure("egressQueue", "tbf")
	n.withoutTCX(t)
	first := n.newPod(t)
	first.annotate(both("10M", "10M"))
	a := n.start(t, never)
	a.has(t, first, 2)
	a.stop()
	second := n.newPod(t)
	second.refuse(t)
	n.moves(first, second)
	a = n.start(t, never)
	s := a.becomes(t, first, reconcile.Refused)
	for range 2 {
		a.Again()
		testutil.Eventually(t, soon, "a later look", func() bool { return a.state(first).At.After(s.At) })
		if s = a.state(first); s.Outcome != reconcile.Refused {
			t.Fatalf("the pod is %v while its second sandbox has no limit", s.Outcome)
		}
	}
	second.accept(t)
	a.Again()
	second.gets(t, "10Mbit", "10Mbit")
}

// Another bpffs in the place of the one that had the pins has no records: pods are adopted without waiting for a full pass.
func TestPrivilegedPinsAreElsewhere(t *testing.T) {
	testutil.RequireQdisc(t, "tbf")
	n := newNode(t)
	p := n.newPod(t)
	p.annotate(both("10M", "10M"))
	a := n.start(t, never)
	a.has(t, p, 2)
	dir := filepath.Dir(n.paths.Pins)
	must.OK(t, unix.Unmount(dir, unix.MNT_DETACH))
	must.OK(t, unix.Mount("bpf", dir, "bpf", 0, "mode=0700"))
	must.OK(t, os.Mkdir(n.paths.Pins, 0o700))
	testutil.Eventually(t, soon, "a record is there", func() bool {
		at := p.attachment(t)
		return at != nil && len(at.Drift) == 0
	})
}

const (
	// fightTime is how long a pod takes its limit away, again and again.
	fightTime = 12 * time.Second
	// mostInFight is what it may get meanwhile, as a share of the cap.
	mostInFight = 1.2
	fightLimit  = 10_000_000
	// fightSpeed is how fast it sends, in bits per second.
	fightSpeed = 1_600_000_000
)

// A pod with CAP_NET_ADMIN takes away what holds it, again and again, while it sends
// far beyond its limit.
func TestPrivilegedDeleteLoop(t *testing.T) {
	testutil.RequireRoot(t)
	t.Parallel()
	const (
		root   = "tc qdisc del dev eth0 root"
		clsact = "tc qdisc del dev eth0 clsact"
		filter = "tc filter del dev eth0 egress"
	)
	for _, tt := range []struct {
		name, policy, queue, remove string
		noTCX, uncovered            bool
	}{
		// The queue alone keeps the limit: under strict a program may drop the rest.
		{name: "root qdisc", policy: "flat", queue: "auto", remove: root},
		{name: "root qdisc without TCX", policy: "flat", queue: "auto", remove: root, noTCX: true},
		// A program on the hook alone keeps the limit.
		{name: "clsact", policy: "strict", queue: "none", remove: clsact},
		{name: "filter", policy: "strict", queue: "none", remove: filter},
		// Nothing holds the limit but what is put back.
		{name: "without a ceiling", policy: "flat", queue: "auto", remove: root, uncovered: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			n.configure("egressQueue", tt.queue)
			n.configure("policy", tt.policy)
			if tt.noTCX {
				n.withoutTCX(t)
			}
			if tt.uncovered {
				n.configure("egressCeiling", "off")
			}
			// A node has filters somewhere. Where there is none at all, the kernel switches
			// the hooks on with the first TCX program, an RCU wait after it is attached.
			n.Run(t, "tc", "qdisc", "add", "dev", "lo", "clsact")
			p := n.newPod(t)
			p.annotate(map[string]string{egress: strconv.Itoa(fightLimit)})
			a := n.start(t, never)
			a.has(t, p, 1)
			if got := p.fights(t, tt.remove, fightLimit); got > mostInFight && !tt.uncovered {
				t.Errorf("the pod got %.3f of its cap in %v, want at most %.1f", got, fightTime, mostInFight)
			}
			s := a.state(p)
			if len(s.Tampered) != 1 || s.Tampered[0].By != mailbox.TakerPod || len(s.Limits) != 1 || s.Limits[0].Side.Is != terms.SidePod {
				t.Errorf("state = %+v, want a limit in the pod that is taken away there", s)
			}
			held := "the ceiling on the host side holds it"
			if tt.uncovered {
				held = "it is put back each time"
				testutil.Eventually(t, soon, "the queue is back", func() bool { return rate(t, p.ns, "eth0") == "10Mbit" })
			}
			p.told(t, "BandwidthTampered", held, "CAP_NET_ADMIN")
		})
	}
}

// fights returns what the node received of the pod, as a share of its cap, while the
// pod floods it and runs a command in a loop; limit is the cap in bits per second.
func (p *pod) fights(t *testing.T, remove string, limit int) float64 {
	t.Helper()
	share := func(bytes uint64, d time.Duration) float64 { return 8 * float64(bytes) / d.Seconds() / float64(limit) }
	stop := p.flow(t, p.ns, p.node.NetNS, p.gateway, fightSpeed)
	defer stop()
	// A flood that is held to the cap from the start is what the loop begins with.
	<-time.After(500 * time.Millisecond)
	loop := p.ns.Command(t, "sh", "-c", "while :; do "+remove+" 2>/dev/null; done")
	before, began := p.node.received(t), time.Now()
	must.OK(t, loop.Start())
	for end := began.Add(fightTime); time.Now().Before(end); {
		from, at := p.node.received(t), time.Now()
		<-time.After(time.Second)
		t.Logf("after %4.1f s: %.3f of the cap", time.Since(began).Seconds(), share(p.node.received(t)-from, time.Since(at)))
	}
	got := share(p.node.received(t)-before, time.Since(began))
	_ = loop.Process.Kill()
	_ = loop.Wait()
	t.Logf("%.3f of the cap over %v", got, fightTime)
	return got
}

// received is what IP got on the node, in bytes: behind every hook of its devices.
func (n *node) received(t *testing.T) uint64 {
	t.Helper()
	var text []byte
	must.OK(t, n.Do(func() (err error) { text, err = os.ReadFile("/proc/thread-self/net/netstat"); return err }))
	var names []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "IpExt:" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		return must.Get(strconv.ParseUint(fields[slices.Index(names, "InOctets")], 10, 64))(t)
	}
	t.Fatal("no IpExt in netstat")
	return 0
}

// flood has one end send datagrams to the other as fast as it can, until stop.
func (p *pod) flood(t *testing.T, from, to *testutil.NetNS, addr string) (stop func()) {
	t.Helper()
	return p.flow(t, from, to, addr, 0)
}

// flow has one end send datagrams to the other, so many bits a second or as fast as it
// can, until stop.
func (p *pod) flow(t *testing.T, from, to *testutil.NetNS, addr string, bitsPerSecond int) (stop func()) {
	t.Helper()
	sink := to.ListenUDP(t, addr)
	conn := from.DialUDP(t, sink.LocalAddr().String())
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		full := make([]byte, 1472)
		tick := time.Tick(time.Millisecond)
		for left := 0; ctx.Err() == nil; {
			more := len(full)
			if bitsPerSecond > 0 {
				<-tick
				more = bitsPerSecond / 8 / 1000
			}
			// What a queue held back is not made up for: else a limit that is gone for a moment would
			// let through what was sent long before.
			for left = min(left, 0) + more; left > 0; left -= len(full) {
				_, _ = conn.Write(full) // a queue that is full refuses it
			}
		}
	})
	return func() {
		cancel()
		_ = conn.Close()
		wg.Wait()
		_ = sink.Close()
	}
}
