// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/otherbuild"
)

// fromOtherBuild makes a pod one that another build attached.
func (p *pod) fromOtherBuild(t *testing.T) {
	t.Helper()
	otherbuild.Put(t, p.dir(), p.ns, p.node.NetNS)
}

// current counts the directions whose pinned programs are of this build and those
// of another one.
func (p *pod) current(t *testing.T) (current, other int) {
	t.Helper()
	for _, d := range shaping.Directions {
		dp, err := datapath.Programs(p.dir(), d)
		if err != nil {
			t.Fatal(err)
		}
		if dp.Outdated == "" {
			current++
		} else {
			other++
		}
	}
	return current, other
}

// shapes are the ways in which programs are attached.
var shapes = map[string]conf{
	"filter and link":  both(nil),
	"ifb and redirect": inIFB(nil),
	"class and guard":  both(conf{"egressRate": "100M", "egressQueue": "htb"}),
	"TCX inside":       both(conf{"mode": "tcx-podside"}),
	"policing":         both(conf{"mode": "clsact-podside", "queue": "none"}),
}

// Programs of another build are replaced where they are: by an ADD, as by the
// agent and `podweir repair`, while packets pass, without touching a queue.
func TestPrivilegedOtherBuildIsReplaced(t *testing.T) {
	testutil.RequireRoot(t)
	testutil.RequireQdisc(t, "tbf", "pfifo_fast", "ifb", "htb")
	for name, with := range shapes {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(name, "TCX") {
				requireTCX(t)
			}
			p := newNode(t).newPod(t)
			c := p.conf(with)
			p.must(t, "ADD", c)
			shaped, queues := p.state(t), p.qdiscs(t)
			in, out := p.newFlow(t, true), p.newFlow(t, false)
			for round := range 5 {
				p.fromOtherBuild(t)
				if _, other := p.current(t); other != 2 {
					t.Fatalf("%d directions are of another build, want both: the test looks at nothing", other)
				}
				before := p.counted(t)
				wantCode(t, "CHECK", p.call(t, "CHECK", c).err, 101, "egress reload: pw_", "of another build", "ingress reload: pw_")
				if drift := p.drift(t); !strings.Contains(strings.Join(drift, ";"), "of another build") {
					t.Errorf("status tells of the drift %q, want another build", drift)
				}
				sent := exchange(t, in, out, func() error { return p.call(t, "ADD", c).err })
				p.must(t, "CHECK", c)
				if current, _ := p.current(t); current != 2 {
					t.Errorf("%d directions are of this build, want both", current)
				}
				wantState(t, p, fmt.Sprintf("round %d", round), shaped)
				if now := p.qdiscs(t); !slices.Equal(now, queues) {
					t.Errorf("the queues are %q, they were %q", now, queues)
				}
				// Neighbours ask for each other, too.
				if after := p.counted(t); after < before+uint64(sent) {
					t.Errorf("%d packets are counted, %d before %d more: some met no program, or counters were lost", after, before, sent)
				}
			}
			p.must(t, "DEL", c)
			wantClean(t, p.afterIFB(t), "DEL")
		})
	}
}

// exchange sends datagrams in both directions, each when the one before has
// arrived, while something is done, and some more. It returns how many.
func exchange(t *testing.T, in, out *flow, during func() error) (sent int) {
	t.Helper()
	const least = 200
	result := make(chan error, 1)
	go func() { result <- during() }()
	for ended := false; !ended || sent < least; {
		for _, f := range []*flow{in, out} {
			text := fmt.Sprint(sent)
			f.send(t, text)
			if got := f.receive(t); got != text {
				t.Fatalf("datagram %q arrived, want %q", got, text)
			}
			sent++
		}
		select {
		case err := <-result:
			if err != nil {
				t.Fatal(describe(err))
			}
			ended = true
		default:
		}
	}
	return sent
}

// counted is the number of packets that both directions counted.
func (p *pod) counted(t *testing.T) uint64 {
	t.Helper()
	var all uint64
	for _, d := range shaping.Directions {
		counters, err := datapath.Counters(p.dir(), d)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range counters {
			all += c.Packets
		}
	}
	return all
}

// qdiscs are the queues of a pod with their handles.
func (p *pod) qdiscs(t *testing.T) []string {
	t.Helper()
	names := []string{"eth0", hostif.IFBName(p.dev.Index), p.host.Name}
	var all []string
	for _, ns := range []*testutil.NetNS{p.ns, p.node.NetNS} {
		for line := range strings.Lines(ns.Run(t, "tc", "qdisc", "show")) {
			// "qdisc tbf 8001: dev eth0 ..."
			if f := strings.Fields(line); slices.Contains(names, f[4]) && f[1] != "noqueue" {
				all = append(all, strings.Join(f[1:5], " "))
			}
		}
	}
	return all
}

// Maps of another layout are replaced with the programs.
func TestPrivilegedOtherABI(t *testing.T) {
	testutil.RequireRoot(t)
	p := newNode(t).newPod(t)
	c := p.conf(both(nil))
	p.must(t, "ADD", c)
	shaped, queues := p.state(t), p.qdiscs(t)
	m, err := ebpf.LoadPinnedMap(filepath.Join(p.dir(), "egress-pw_config"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	for i := range m.MaxEntries() {
		b, err := m.LookupBytes(i)
		if err != nil {
			t.Fatal(err)
		}
		b[0]++ // abi_version, the first field
		if err := m.Put(i, b); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, "CHECK of another ABI", p.call(t, "CHECK", c).err, 101, "egress reload: maps have ABI version")
	in, out := p.newFlow(t, true), p.newFlow(t, false)
	exchange(t, in, out, func() error { return p.call(t, "ADD", c).err })
	p.must(t, "CHECK", c)
	wantState(t, p, "ADD replaces the maps", shaped)
	if now := p.qdiscs(t); !slices.Equal(now, queues) {
		t.Errorf("the queues are %q, they were %q", now, queues)
	}
	p.must(t, "DEL", c)
	wantClean(t, p, "DEL")
}
