// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// lossy is a node whose pins are lost: beside the pod there is room for another one.
type lossy struct {
	*noticed
	other *noticed
	// ways are the sockets of floods, from the pod and to it.
	ways, otherWays [2]*way
}

type way struct {
	from net.Conn
	to   net.PacketConn
	// floods is how many there were, which each packet has: those of before are not counted.
	floods byte
}

func newLossy(t *testing.T, conf map[string]any) *lossy {
	t.Helper()
	l := &lossy{noticed: newNoticed(t, conf)}
	other := *l.noticed
	c := *l.cli
	c.pod = testutil.NewNetNS(t)
	other.cli, other.container, other.path, other.name = &c, "c2", c.pod.Path(), "db"
	l.other = &other
	testutil.VethPair(t,
		testutil.End{NetNS: c.pod, Name: "eth0", CIDRs: []string{"10.79.0.2/24"}},
		testutil.End{NetNS: c.node, Name: "veth2", CIDRs: []string{"10.79.0.1/24"}})
	l.ways, l.otherWays = waysOf(t, l.node, l.pod, "veth1", "10.78.0."), waysOf(t, c.node, c.pod, "veth2", "10.79.0.")
	return l
}

func waysOf(t *testing.T, node, pod *testutil.NetNS, host, network string) (all [2]*way) {
	t.Helper()
	// A policer drops ARP, too, when there is a flood.
	pod.Run(t, "ip", "neigh", "replace", network+"1", "dev", "eth0", "nud", "permanent", "lladdr", node.Interface(t, host).HardwareAddr.String())
	node.Run(t, "ip", "neigh", "replace", network+"2", "dev", host, "nud", "permanent", "lladdr", pod.Interface(t, "eth0").HardwareAddr.String())
	for i, end := range []struct {
		receiver, sender *testutil.NetNS
		addr             string
	}{{node, pod, "1"}, {pod, node, "2"}} {
		all[i] = new(way)
		all[i].to = end.receiver.ListenUDP(t, network+end.addr)
		all[i].from = end.sender.DialUDP(t, all[i].to.LocalAddr().String())
	}
	return all
}

// carries says what becomes of 100 kB at once, by what came 20 ms later: the limit lets some 9 kB pass, and 100 bytes in
// each millisecond. It is "" if that took so long that the limit lets all pass.
func (w *way) carries() string {
	const packets, packetBytes, window = 100, 1000, 20 * time.Millisecond
	packet, began := make([]byte, packetBytes), time.Now()
	w.floods++
	packet[0] = w.floods
	raw, _ := w.from.(syscall.Conn).SyscallConn()
	for range packets {
		// What a queue refuses is lost, and a socket that a queue keeps full is not waited for.
		_ = raw.Write(func(fd uintptr) bool { _, _ = unix.Write(int(fd), packet); return true })
	}
	_ = w.to.SetReadDeadline(time.Now().Add(window))
	came, before := 0, 0
	for {
		if _, _, err := w.to.ReadFrom(packet); err != nil {
			break
		}
		if packet[0] == w.floods {
			came++
		} else {
			before++
		}
	}
	passes := 30 + 2*int(time.Since(began).Milliseconds())*100/packetBytes // and as much again
	switch {
	case passes > packets*8/10:
		return ""
	case came+before == 0:
		return outage
	case came <= passes:
		return limited
	default:
		return unlimited
	}
}

// carry says what the ways carry, egress first. What is not wanted counts when it was seen three times.
func carry(ways [2]*way, want string) (got string) {
	for seen := 0; seen < 3; <-time.After(100 * time.Millisecond) { // what waits in a queue goes
		out, in := ways[0].carries(), ways[1].carries()
		if out == "" || in == "" {
			continue
		}
		if got = out + ", " + in; got == want {
			break
		}
		seen++
	}
	return got
}

// pinned are all pins, below the directory of pins.
func (l *lossy) pinned(t *testing.T) (all []string) {
	t.Helper()
	must.OK(t, filepath.WalkDir(l.pins, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			path, err = filepath.Rel(l.pins, path)
			all = append(all, path)
		}
		return err
	}))
	return all
}

// green is "" if CHECK and status find the pod in order, else what they say.
func (l *lossy) green(t *testing.T) (says string) {
	t.Helper()
	if err := l.verb(t, "CHECK"); err != nil {
		says += " CHECK: " + err.Error()
	}
	if out, err := l.do(t, "status", "-o", "json"); err != nil { // one look, not two
		says += " status: " + out
	}
	return says
}

// survives removes pins, and has another pod come, a repair, and an ADD if the record was among them: whatever has no limit
// is told, the other pod has its own, and in the end all is in order.
func (l *lossy) survives(t *testing.T, pins ...string) {
	t.Helper()
	what := strings.Join(pins, " and ")
	record := false
	for _, p := range pins {
		record = record || filepath.Base(p) == "record"
		if dir, base := filepath.Split(p); strings.HasPrefix(base, "slab-") {
			p = dir + "slab-*" // another one may have come
		}
		for _, path := range must.Get(filepath.Glob(filepath.Join(l.pins, p)))(t) { // what nobody needs is not made again
			must.OK(t, os.Remove(path))
		}
	}
	told := func(when string) {
		t.Helper()
		if got := carry(l.ways, same); got != same {
			if says := l.green(t); !strings.Contains(says, "CHECK") || !strings.Contains(says, "status") || l.findings(t) == "" {
				t.Errorf("%s lost%s: %s, and told by %q alone", what, when, got, says)
			}
		}
	}
	told("")
	verb := func(name string) {
		t.Helper()
		if err := l.other.verb(t, name); err != nil {
			t.Errorf("%s lost: %s of another pod: %v", what, name, err)
		}
	}
	verb("ADD")
	must.Be(t, what+" lost: another pod", same, carry(l.otherWays, same))
	verb("CHECK")
	told(", and another pod came")
	out, err := l.do(t, "repair")
	if err != nil && !record {
		t.Errorf("%s lost: repair says %v\n%s", what, err, out)
	}
	if record {
		l.add(t)
	}
	must.Be(t, what+" lost, and repaired", same, carry(l.ways, same))
	must.Be(t, what+" lost, and repaired: says", "", l.green(t))
	holds(t, what+" lost: a second repair", l.say(t, "repair"), nothing)
	verb("DEL")
}

// Whatever pin is lost, alone or with another one, nobody calls a pod limited that is not, a pod that comes has its
// limit, and repair mends what was there.
func TestPrivilegedLostPins(t *testing.T) {
	testutil.RequireRoot(t)
	testutil.RequireQdisc(t, "tbf")
	alone := map[string]any{"shapedSubnets": []string{"10.78.0.0/15"}} // without its subnets the pod has no limit
	for name, conf := range map[string]map[string]any{
		"queues":      {"namespaceRate": "64M"},
		"tcx":         {"hostHook": "tcx", "podHook": "tcx"},
		"on the host": {"mode": "tcx-hostside"},
		"ifb":         {"ingressPlace": "ifb"},
		"exempt":      {"shapedSubnets": nil, "unshapedSubnets": []string{"10.99.0.0/16"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "tcx" || name == "on the host" {
				testutil.RequireQdisc(t, "tcx")
			}
			all := maps.Clone(alone)
			maps.Copy(all, conf)
			maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
			l := newLossy(t, all)
			must.Be(t, "before", same, carry(l.ways, same))
			pins := l.pinned(t)
			if name == "exempt" { // else it is as with queues
				pins = slices.DeleteFunc(pins, func(p string) bool { return filepath.Base(p) != "pw_subnets" })
			}
			for _, p := range pins {
				l.survives(t, p)
			}
			t.Run("pairs", func(t *testing.T) {
				mark.Nightly(t, "some two hundred pairs of pins take minutes")
				for i, p := range pins {
					for _, q := range pins[:i] {
						l.survives(t, p, q)
					}
				}
			})
			must.OK(t, l.verb(t, "DEL"))
			// A busy kernel detaches late.
			testutil.Eventually(t, 5*time.Second, "after DEL: "+free, func() bool { return carry(l.ways, free) == free })
		})
	}
}
