// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/agent/enforce"
	"github.com/podweir/podweir/plugin/agent/reconcile"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// What a pod's device carries past podweir is counted and shown: a pod without a ceiling is
// not limited then, and one with a ceiling is.
func TestPrivilegedStatusCountsWhatGoesPast(t *testing.T) {
	testutil.RequireRoot(t)
	for ceiling, want := range map[string][]string{
		"off": {"NOT LIMITED", "egress of eth0: its device carries", "past podweir, which sees"},
		"on":  {"is limited as it should be", "go past its queue: a process in the pod goes around the queue with a packet socket"},
	} {
		c := newCLI(t)
		c.must(t, append(c.netns(), "attach", "--egress", "10M", "--with", "egressCeiling="+ceiling)...)
		must.Have(t, "status while nothing is sent", c.must(t, "status"), "      0  idle\n")
		c.rawSocket(t)
		out := ""
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
			out, _ = c.do(t, "status")
			if strings.Contains(oneLine(out), want[0]) && strings.Contains(oneLine(out), want[1]) {
				break
			}
		}
		must.Have(t, "status, ceiling "+ceiling, oneLine(out), want...)
	}
}

// A filter or a TCX program of others ahead of the redirect to the ifb, of which it is not
// known what it does with every packet, is named as long as nothing goes past, and a pod
// whose packets it takes is not limited: IPv4, or large packets.
func TestPrivilegedStatusCountsWhatIsTakenAhead(t *testing.T) {
	testutil.RequireQdisc(t, "ifb", "clsact")
	filter := func(t *testing.T, c *cli) {
		t.Helper()
		words := strings.Fields("filter add dev eth0 ingress pref 1 protocol ip u32 match u32 0 0 flowid 1:1")
		if out, err := c.pod.Command(t, "tc", words...).CombinedOutput(); err != nil {
			testutil.SkipFeature(t, "cls_u32: "+string(out))
		}
	}
	program := func(t *testing.T, c *cli) {
		t.Helper()
		testutil.RequireQdisc(t, "tcx")
		c.tcx(t, testutil.LargeProgram(t, "large", 1000))
	}
	for name, ahead := range map[string]struct {
		policy, who string
		put         func(*testing.T, *cli)
	}{
		"a filter, strict": {"strict", "u32 filter at preference 1", filter},
		"a filter, flat":   {"flat", "u32 filter at preference 1", filter},
		"a TCX program":    {"strict", "large (program ", program},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCLI(t)
			c.must(t, append(c.netns(), "attach", "--ingress", "10M", "--with", "ingressPlace=ifb", "--with", "policy="+ahead.policy)...)
			ping := func(bytes string) (stop func()) {
				p := c.node.Command(t, "ping", "-q", "-i", "0.002", "-s", bytes, "-w", "20", "10.78.0.2")
				must.OK(t, p.Start())
				return func() {
					_ = p.Process.Kill()
					_ = p.Wait()
				}
			}
			stop := ping("8000")
			defer func() { stop() }()
			for range 3 {
				c.well(t, []string{"is limited as it should be", "!redirect"}, "status")
			}
			stop()
			ahead.put(t, c)
			c.well(t, []string{"run before podweir's redirect, and packets that they take are not limited: ", ahead.who}, "status")
			if d := parse[status.Report](t, c, "status").Attachments[0].Directions[0]; d.CapHolds || !strings.Contains(d.Ahead, ahead.who) {
				t.Errorf("capHolds = %v, ahead = %q, want false and who it is", d.CapHolds, d.Ahead)
			}
			stop = ping("8000")
			out := ""
			for end := time.Now().Add(15 * time.Second); time.Now().Before(end) && !strings.Contains(out, "NOT LIMITED"); {
				out, _ = c.do(t, "status")
			}
			must.Have(t, "status", oneLine(out), "ingress of eth0: its device carries", "; before the redirect runs ", ahead.who, "podweir explain PW506")
		})
	}
}

// tcx attaches a program of others to the pod's device, ahead of all filters.
func (c *cli) tcx(t *testing.T, p testutil.Program) {
	t.Helper()
	program := must.Get(ebpf.NewProgramFromID(ebpf.ProgramID(p.ID)))(t)
	defer func() { _ = program.Close() }()
	c.pod.AttachTCX(t, c.pod.Interface(t, "eth0").Index, "ingress", program, link.Tail())
}

// What the agent reads each minute shows what goes past, and nothing where nothing does. What
// it saw an hour ago is told, and what it saw just now is a pod that is not limited.
func TestPrivilegedPastOfTheAgent(t *testing.T) {
	c := newCLI(t)
	c.must(t, append(c.netns(), "attach", "--egress", "10M", "--with", "egressCeiling=off")...)
	a := parse[status.Report](t, c, "status").Attachments[0]
	paths := engine.Paths{Pins: c.pins, Run: c.run}
	var k *enforce.Devices
	must.OK(t, c.node.Do(func() (err error) { k, err = enforce.Open(paths); return err }))
	t.Cleanup(k.Close)
	limits := []*reconcile.KeptLimit{{ID: a.ID, Interface: a.Interface, Limit: a.Directions[0].Limit}}
	read := func() []view.Passing {
		t.Helper()
		var all []view.Passing
		must.OK(t, c.node.Do(func() error { all = k.Passing(limits)[0]; return nil }))
		if len(all) != 2 || all[0].Seen[0] > all[0].Device[1] {
			t.Fatalf("passing = %+v, want the queue's and the programs' counters, and no more than the device's", all)
		}
		return all
	}
	before := read()
	c.pod.Run(t, "ping", "-c", "20", "-i", "0.01", "-s", "1000", "10.78.0.1")
	now := read()
	for i := range now {
		if now[i].Seen[0] < before[i].Seen[0]+20_000 || now[i].Past(&before[i]) != 0 {
			t.Errorf("counter %d of 20 pings: %+v, before %+v", i, now[i], before[i])
		}
	}
	c.rawSocket(t)
	// The pod gives its device another name, and another one the name that it had.
	c.pod.Run(t, "ip", "link", "set", "eth0", "down")
	c.pod.Run(t, "ip", "link", "set", "eth0", "name", "lan0", "up")
	c.pod.Run(t, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
	limits[0].Interface = parse[status.Report](t, c, "status").Attachments[0].Interface
	testutil.Eventually(t, 20*time.Second, "both counters show what goes past", func() bool {
		is := read()
		return is[0].Past(&now[0]) > 1<<20 && is[1].Past(&now[1]) > 1<<20
	})
	for ago, want := range map[time.Duration]string{
		2 * time.Hour: "Went past podweir, as the agent saw it: podweir-manual/netns-", time.Second: "packets went past podweir in the minute until",
		-time.Hour: "Went past podweir, as the agent saw it: podweir-manual/netns-", // the clock was set back
	} {
		last := time.Now().Add(-ago)
		past := mailbox.Past{Limit: mailbox.Limit{ID: a.ID, Interface: "eth0", Direction: terms.Name(terms.Egress)}, Past: terms.Past{PastBytes: 465e6, PastSince: last.Add(-time.Minute), PastLast: last}}
		must.OK(t, paths.Mail().RecordPast([]mailbox.Past{past}))
		rep := parseBroken(t, c)
		v := rep.View(time.Now())
		if text := oneLine(v.Summary("this node", false)); !strings.Contains(text, want) || (len(v.Broken()) > 0) != (ago == time.Second) {
			t.Errorf("past %v ago, status has no %q: %s", ago, want, text)
		}
	}
}

// parseBroken is the report of a node that may be broken.
func parseBroken(t *testing.T, c *cli) *status.Report {
	t.Helper()
	var rep *status.Report
	must.OK(t, c.node.Do(func() error {
		node, err := engine.Open(engine.Paths{Pins: c.pins, Run: c.run})
		if err != nil {
			return err
		}
		defer node.Close()
		rep, err = status.Collect(node)
		return err
	}))
	return rep
}

// rawSocket sends past the pod's queue, by a packet socket (packet(7),
// PACKET_QDISC_BYPASS): 40 Mbit/s.
func (c *cli) rawSocket(t *testing.T) {
	t.Helper()
	const size = 1000
	to, from := c.node.Interface(t, "veth1"), c.pod.Interface(t, "eth0")
	frame := make([]byte, size)
	copy(frame, to.HardwareAddr)
	copy(frame[6:], from.HardwareAddr)
	binary.BigEndian.PutUint16(frame[12:], unix.ETH_P_IP)
	ip := frame[14:]
	ip[0], ip[8], ip[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	copy(ip[12:], []byte{10, 78, 0, 2})
	copy(ip[16:], []byte{10, 78, 0, 1})
	fd := -1
	must.OK(t, c.pod.Do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1)
	}))
	t.Cleanup(func() { _ = unix.Close(fd) })
	often(t, 2*time.Millisecond, func() {
		for range 10 {
			_ = unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: from.Index, Halen: 6, Addr: [8]byte(frame[:8])})
		}
	})
}
