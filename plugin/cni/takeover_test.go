// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// successor is another container in the pod's network namespace.
func (p *pod) successor() *pod {
	other := *p
	other.container, other.step = p.container+"-successor", nil
	return &other
}

// neverLess returns a step that fails the test if less than this is on the devices.
func (p *pod) neverLess(t *testing.T, shaped []string) func(step string) {
	t.Helper()
	return func(step string) {
		if got := p.state(t); len(got) < len(shaped) {
			t.Errorf("before %s on the devices: %v, want no less than %v", step, got, shaped)
		}
	}
}

// pinnedBy is how many pins a container has.
func (p *pod) pinnedBy(t *testing.T) (count int) {
	t.Helper()
	for _, pin := range p.node.pinned(t) {
		if strings.HasPrefix(pin, "net/"+p.container+",") {
			count++
		}
	}
	return count
}

// A container that is added to the network namespace of another one has the interface from then on, without a moment in
// which nothing limits it. The DEL of the first takes nothing from it, and leaves nothing of the first.
func TestPrivilegedTakenOver(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "clsact", "ifb")
	for name, first := range map[string]conf{
		"queues": both(nil), "ifb": inIFB(nil), "policing": both(conf{"mode": "clsact-podside", "queue": "none"}),
		"tcx": both(conf{"mode": "tcx-podside", "queue": "none"}),
		// Its egress has a guard, which carries the number of the first slot.
		"elephants": both(conf{"policy": "elephants"}), "elephants, tcx": both(conf{"policy": "elephants", "podHook": "tcx"}), "flat": {"ingressRate": "10M", "policy": "flat"},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.HasSuffix(name, "tcx") {
				testutil.RequireQdisc(t, "tcx")
			}
			p := newNode(t).newPod(t)
			p.must(t, "ADD", p.conf(first))
			shaped := p.state(t)
			second := conf{}
			for k, v := range first {
				second[k] = v
				if v == "10M" {
					second[k] = "20M"
				}
			}
			other := p.successor()
			other.step = p.neverLess(t, shaped)
			c := other.conf(second)
			other.must(t, "ADD", c)
			other.step = nil
			must.Be(t, "pins of the first container after the second ADD", 0, p.pinnedBy(t))
			other.must(t, "CHECK ADD CHECK", c)
			p.must(t, "DEL", p.conf(first))
			wantSeen(t, p, "DEL of the first", shaped)
			other.must(t, "CHECK DEL", c)
			wantClean(t, p.afterIFB(t), "DEL of both")
		})
	}
}

// Killed before any of its steps, the second container's ADD leaves no two attachments that fight for the interface. If the
// first container's DEL comes before that ADD is called again, its programs limit the pod until then.
func TestPrivilegedTakenOverAndKilled(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "clsact")
	for name, more := range map[string]conf{
		"queues": nil, "queues, ADD first": nil, "tcx": {"mode": "tcx-podside", "queue": "none"}, "tcx on the host": {"mode": "tcx-hostside"},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.HasPrefix(name, "tcx") {
				testutil.RequireQdisc(t, "tcx")
			}
			p := newNode(t).newPod(t)
			other := p.successor()
			first, second := p.conf(both(more)), other.conf(both(more))
			second["egressRate"] = "20M"
			for kill, killed := 1, true; killed && !t.Failed(); kill++ {
				p.must(t, "ADD", first)
				shaped := p.state(t)
				_, killed = other.exec(t, "ADD", second.json(t), kill)
				if strings.HasSuffix(name, "ADD first") {
					other.must(t, "ADD", second)
				}
				p.must(t, "DEL", first)
				// The kernel detaches a TCX link that DEL gave up in the background.
				testutil.Eventually(t, 10*time.Second, fmt.Sprintf("killed before step %d: after the first DEL the devices have nothing, or %v with two slots or more", kill, shaped), func() bool {
					on := p.state(t)
					return len(on) == 0 || len(on) >= len(shaped) && p.node.slots(t) >= 2
				})
				other.must(t, "ADD", second)
				p.must(t, "DEL", first)
				wantSeen(t, p, "DEL of the first", shaped)
				must.Be(t, "pins of the first container", 0, p.pinnedBy(t))
				other.must(t, "CHECK DEL", second)
				wantClean(t, p, "DEL of both")
			}
		})
	}
}

// A second container that cannot be limited leaves the first one's limit, which is better than none, without a moment
// in which there is none.
func TestPrivilegedTakenOverInVain(t *testing.T) {
	testutil.RequireQdisc(t, "tbf")
	for name, c := range map[string]struct {
		with conf
		at   string
		fail func(pins string) error
	}{
		"its slot is lost": {nil, "ingress load", os.RemoveAll},
		"its link cannot be pinned": {conf{"mode": "tcx-hostside"}, "egress attach", func(pins string) error {
			return os.Mkdir(filepath.Join(pins, "egress-link-next"), 0o700)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.with != nil {
				testutil.RequireQdisc(t, "tcx")
			}
			p := newNode(t).newPod(t)
			first := p.conf(both(c.with))
			p.must(t, "ADD", first)
			shaped := p.state(t)
			other := p.successor()
			neverLess := p.neverLess(t, shaped)
			other.step = func(step string) {
				neverLess(step)
				_ = os.Remove(filepath.Join(other.dir(), "egress-link-next"))
				if step == c.at {
					must.OK(t, c.fail(other.dir()))
				}
			}
			second := other.conf(both(c.with))
			second["egressRate"] = "20M"
			must.Fail(t, "the second ADD", other.call(t, "ADD", second).err)
			wantSeen(t, p, "after a failed ADD", shaped)
			p.must(t, "CHECK", first)
			must.Be(t, "pins of the second container", 0, other.pinnedBy(t))
			other.must(t, "DEL", other.conf(nil))
			p.must(t, "CHECK", first)
		})
	}
}

// An interface that was limited by hand costs the others nothing. If the limit is not of all directions that the pod asks
// for, or only observes, that is told. What shares the limit has its part beside it. A second network of the
// pod's own may allow more, and may end.
func TestPrivilegedOneOfTwoIsHeld(t *testing.T) {
	testutil.RequireQdisc(t, "tbf")
	for name, c := range map[string]struct {
		byHand    conf
		told      string
		with, own string
	}{
		"both":     {conf{"egressRate": "5M", "ingressRate": "5M"}, "", "each", ""},
		"shared":   {conf{"egressRate": "5M", "ingressRate": "5M"}, "", "shared", ""},
		"egress":   {conf{"egressRate": "5M"}, "net1: an interface is shaped already", "each", ""},
		"observed": {conf{"egressRate": "5M", "ingressRate": "5M", "enforce": "observe"}, "without a limit of egress, without a limit of ingress", "each", ""},
		"higher":   {conf{"egressRate": "11M", "ingressRate": "10M"}, "with 11 Mbit/s of egress in place of 10 Mbit/s", "each", ""},
		"own":      {conf{"egressRate": "11M", "ingressRate": "10M"}, "", "each", "second"},
		"a share":  {conf{"egressRate": "6M", "ingressRate": "5M"}, "with 6 Mbit/s of egress in place of 5 Mbit/s", "shared", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newNode(t).newPod(t)
			byHand, second := p.second(t, "net1")
			second["name"] = cmp.Or(c.own, engine.ManualNetwork)
			maps.Copy(second, c.byHand)
			for _, d := range []string{"egressRate", "ingressRate"} {
				if c.byHand[d] == nil {
					delete(second, d)
				}
			}
			if c.own == "" {
				byHand.container += "-by-hand"
			}
			byHand.must(t, "ADD", second)
			asks := p.conf(both(conf{"onError": "open", "interfaces": c.with, "prevResult": p.tells("eth0", "net1")}))
			wantRate := func(dev string) {
				t.Helper()
				want := map[string]string{"each": "rate 10Mbit", "shared": "rate 5Mbit"}[c.with]
				must.Have(t, dev, queues(t, p.ns, dev), want)
			}
			a := p.must(t, "ADD", asks)
			wantState(t, p, "ADD", shapedBoth(t))
			wantRate("eth0")
			f := must.Get(p.node.paths.Mail().Failures())(t)
			if told := fmt.Sprint(f); (len(f) > 0) != (c.told != "") || !strings.Contains(told, c.told) {
				t.Errorf("failure records %v, want %q", f, c.told)
			}
			if c.told == "" {
				p.must(t, "CHECK", asks)
				a.tells(t, "interface skipped")
			}
			byHand.must(t, "CHECK", second)
			p.must(t, "DEL", asks)
			byHand.must(t, "CHECK", second)
			p.must(t, "ADD", asks)
			byHand.must(t, "DEL", second)
			s := p.status(t)
			v := (&status.Report{Attachments: []status.Attachment{s}}).View(time.Now()).Pods[0]
			if (v.State == view.NotLimited) != (c.own == "") || strings.Contains(v.Cause, "net1 has no limit") != (c.own == "") {
				t.Errorf("status says %v, %q, want that nobody limits net1, and nothing of an own network", v.State, v.Cause)
			}
			if c.own == "" {
				p.repair(t)
				wantRate("net1")
				p.must(t, "CHECK", asks)
			}
		})
	}
}

// What the devices had before podweir is given back by whoever has the interface last.
func TestPrivilegedTakenOverAndGivenBack(t *testing.T) {
	testutil.RequireQdisc(t, "tbf")
	p := newNode(t).newPod(t)
	p.ns.Run(t, "ip", "link", "set", "eth0", "gso_max_size", "30000", "txqueuelen", "700")
	p.node.Run(t, "ip", "link", "set", p.host.Name, "txqueuelen", "600")
	before := p.former(t)
	p.must(t, "ADD", p.conf(both(nil)))
	limited := p.former(t)
	other := p.successor()
	c := other.conf(both(conf{"egressRate": "20M"}))
	other.must(t, "ADD", c)
	p.must(t, "DEL", p.conf(nil))
	other.must(t, "DEL", c)
	if now := p.former(t); limited == before || now != before {
		t.Errorf("the devices have %+v after DEL, want %+v (with limits: %+v)", now, before, limited)
	}
}

// An interface that another attachment has by now costs the other interfaces of the first one no repair.
func TestPrivilegedRepairBesideAnInterfaceOfAnother(t *testing.T) {
	testutil.RequireQdisc(t, "tbf")
	p := newNode(t).newPod(t)
	testutil.VethPair(t, testutil.End{NetNS: p.ns, Name: "net1"}, testutil.End{NetNS: p.node.NetNS, Name: "other1"})
	other := p.successor()
	first, second := p.conf(both(conf{"prevResult": p.tells("eth0", "net1")})), other.conf(both(nil))
	id := attach.ID{Network: "net", ContainerID: p.container, IfName: "eth0"}
	for kill, held := 1, false; !held; kill++ {
		p.must(t, "ADD", first)
		if _, killed := other.exec(t, "ADD", second.json(t), kill); !killed {
			t.Fatal("the second attachment was never half made")
		}
		p.onNode(t, func(n *engine.Node) error {
			records, err := n.Records(id)
			for _, r := range records {
				_, err := n.Refind(r)
				_, is := errors.AsType[*apply.HeldError](err)
				held = held || is
			}
			return err
		})
	}
	p.ns.Run(t, "tc", "qdisc", "del", "dev", "net1", "root")
	p.repair(t)
	must.Have(t, "net1", queues(t, p.ns, "net1"), "tbf")
	p.must(t, "DEL", first)
	other.must(t, "ADD", second)
	p.must(t, "DEL", first)
	other.must(t, "DEL", second)
	wantClean(t, p, "DEL of both")
}

// A program at the host side finds its slot from its first packet on: without one it lets everything pass.
func TestPrivilegedSlotIsBeforeTheProgram(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "tcx")
	p := newNode(t).newPod(t)
	attached, slot := false, uint32(0)
	p.step = func(step string) {
		next := filepath.Join(p.dir(), "egress-link-next")
		if attached { // it goes back
			attached = false
			_ = os.Remove(next)
			slot = must.Get(p.node.slab(t).HostSlot(terms.Egress, p.host.Index))(t)
		}
		if step == "egress attach" { // its link cannot be pinned
			attached = true
			must.OK(t, os.Mkdir(next, 0o700))
		}
	}
	if a := p.call(t, "ADD", p.conf(both(conf{"mode": "tcx-hostside"}))); a.err == nil || slot == 0 {
		t.Errorf("ADD = %v, and the device has slot %d, want an error and a slot", a.err, slot)
	}
	p.step = nil
	wantClean(t, p, "a failed ADD")
}
