// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/plugin/testutil/otherbuild"
)

// fromOtherBuild makes a pod one that another build attached.
func (p *pod) fromOtherBuild(t *testing.T) {
	t.Helper()
	otherbuild.Put(t, p.node.nodeDir(t), p.dir(), p.ns, p.node.NetNS)
}

// shapes are the ways in which programs are attached.
var shapes = map[string]conf{
	"filters":          both(nil),
	"TCX at the host":  both(conf{"hostHook": "tcx"}),
	"ifb and redirect": inIFB(nil),
	"class and guard":  both(conf{"egressRate": "100M", "unshapedSubnets": []string{"10.99.0.0/16"}}),
	"TCX inside":       both(conf{"mode": "tcx-podside"}),
	"policing":         both(conf{"mode": "clsact-podside", "queue": "none"}),
}

// Programs of another build are replaced where they are: by an ADD, as by the
// agent and `podweir repair`, while packets pass, without touching a queue.
func TestPrivilegedOtherBuildIsReplaced(t *testing.T) {
	mark.NightlyKernels(t, "it takes an emulated processor minutes")
	testutil.RequireQdisc(t, "tbf", "pfifo_fast", "ifb", "htb")
	for name, with := range shapes {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(name, "TCX") {
				testutil.RequireQdisc(t, "tcx")
			}
			p := newNode(t).newPod(t)
			c := p.conf(with)
			p.must(t, "ADD", c)
			shaped, queues := p.state(t), p.qdiscs(t)
			in, out := p.newFlow(t, true), p.newFlow(t, false)
			for round := range 5 {
				p.fromOtherBuild(t)
				before := p.counted(t)
				wantCode(t, "CHECK", p.call(t, "CHECK", c).err, 101, "egress ", "ingress ", "is of another build")
				must.Have(t, "the drift of status", strings.Join(p.status(t).Drift, ";"), "of another build")
				sent := exchange(t, in, out, func() error { return p.call(t, "ADD", c).err })
				p.must(t, "CHECK", c)
				wantState(t, p, fmt.Sprintf("round %d", round), shaped)
				must.Match(t, "the queues", queues, p.qdiscs(t))
				// Neighbours ask for each other, too.
				must.AtLeast(t, "packets counted, of which none met no program", before+uint64(sent), p.counted(t))
			}
			p.goes(t, c)
		})
	}
}

// What a release with another layout shared goes when no program of it is attached any
// more, and not before.
func TestPrivilegedOtherLayoutIsRemoved(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "pfifo_fast")
	p := newNode(t).newPod(t)
	c := p.conf(both(nil))
	p.must(t, "ADD", c)
	other := filepath.Join(p.node.paths.Pins, "node,4")
	must.OK(t, os.MkdirAll(other, 0o700))
	must.OK(t, datapath.WriteRecord(other, []byte("a map of another layout")))
	p.fromOtherBuild(t)
	remove := func(want []string) {
		t.Helper()
		var dirs []string
		p.onNode(t, func(n *engine.Node) (err error) { dirs, err = n.RemoveUnusedLayouts(); return err })
		must.Match(t, "RemoveUnusedLayouts", want, dirs)
		must.Be(t, other+" is there after RemoveUnusedLayouts", want == nil, must.Err(os.Stat(other)) == nil)
	}
	remove(nil)
	p.must(t, "ADD", c)
	remove([]string{other})
	p.must(t, "CHECK DEL", c)
}

// exchange sends datagrams in both directions, each when the one before has
// arrived, while something is done, and some more. It returns how many.
func exchange(t *testing.T, in, out *flow, during func() error) (sent int) {
	t.Helper()
	const least, leastAfter = 200, 20
	result := make(chan error, 1)
	go func() { result <- during() }()
	ended := false
	for after := 0; after < leastAfter || sent < least; {
		if ended {
			after++
		}
		for _, f := range []*flow{in, out} {
			text := fmt.Sprint(sent)
			f.send(t, text)
			must.Be(t, "datagram that arrived", text, f.receive(t))
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
	for _, d := range terms.Directions {
		counters := must.Get(p.node.slab(t).Counters(p.dir(), d))(t)
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
