// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile_test

import (
	"context"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

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
			if e := p.event(t, "BandwidthTampered"); !strings.Contains(e.Message, held) || !strings.Contains(e.Message, "CAP_NET_ADMIN") {
				t.Errorf("event %q, want %q in it", e.Message, held)
			}
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
		v, err := strconv.ParseUint(fields[slices.Index(names, "InOctets")], 10, 64)
		must.OK(t, err)
		return v
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
	var sink net.PacketConn
	must.OK(t, to.Do(func() (err error) {
		sink, err = (&net.ListenConfig{}).ListenPacket(t.Context(), "udp4", addr+":0")
		return err
	}))
	var conn net.Conn
	must.OK(t, from.Do(func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(t.Context(), "udp4", sink.LocalAddr().String())
		return err
	}))
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
