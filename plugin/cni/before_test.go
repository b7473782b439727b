// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni_test

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/testutil"
)

// An empty bpffs comes over the pins, and with the records what podweir remembers of the
// devices. What it has set itself is not what was there before.
func TestPrivilegedValuesOfBeforeALostRecord(t *testing.T) {
	testutil.RequireRoot(t)
	testutil.RequireQdisc(t, "tbf", "pfifo_fast", "clsact")
	n := newNode(t)
	p := n.newPod(t)
	before := p.former(t)
	lose := func(at conf) {
		p.must(t, "ADD", p.conf(at))
		if p.former(t) == before {
			t.Fatalf("with %v the devices are as they were before, so that nothing can be lost", at)
		}
		dir := filepath.Dir(n.paths.Pins)
		if err := unix.Mount("bpf", dir, "bpf", 0, "mode=0700"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	}
	lose(both(nil))
	p.must(t, "ADD", p.conf(both(conf{"egressRate": "1G"})))
	if got := p.former(t).gso; got != before.gso {
		t.Errorf("at a higher rate TCP makes packets of up to %v, want %v as before", got, before.gso)
	}
	p.must(t, "ADD", p.conf(nil))
	if got := p.former(t); got != before {
		t.Errorf("without limits: %+v, want %+v as before", got, before)
	}
	lose(both(nil))
	p.must(t, "ADD", p.conf(conf{"ingressRate": "100M"}))
	if got := p.former(t).gso; got != before.gso || strings.Contains(p.ns.Run(t, "tc", "qdisc", "show", "dev", "eth0"), "tbf") {
		t.Errorf("the limit out of the pod, which nothing requests any more, is still there; TCP makes packets of up to %v", got)
	}
	p.must(t, "CHECK", p.conf(conf{"ingressRate": "100M"}))
	p.must(t, "ADD", p.conf(nil))
	if got := p.former(t); got != before {
		t.Errorf("after one direction, without limits: %+v, want %+v as before", got, before)
	}
	lose(both(nil))
	p.must(t, "DEL", p.conf(nil))
	if got := p.former(t); got != before {
		t.Errorf("after DEL: %+v, want %+v as before", got, before)
	}
	lose(both(nil))
	if err := n.Do(func() error {
		node, err := engine.Open(n.paths)
		if err != nil {
			return err
		}
		defer node.Close()
		_, err = node.RemoveLost(t.Context())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if got := p.former(t); got != before {
		t.Errorf("after gc: %+v, want %+v as before", got, before)
	}
}

// former is what a pod's devices have, and podweir changes.
type former struct {
	gso     [2]uint32
	lengths [2]int
	clsact  [2]bool
}

func (p *pod) former(t *testing.T) former {
	t.Helper()
	dev, host := p.ns.Interface(t, "eth0"), p.node.Interface(t, p.host.Name)
	has := func(ns *testutil.NetNS, name string) bool {
		return strings.Contains(ns.Run(t, "tc", "qdisc", "show", "dev", name), "clsact")
	}
	return former{
		gso: [2]uint32{dev.GSOMaxSize, dev.GSOIPv4MaxSize}, lengths: [2]int{dev.TxQueueLen, host.TxQueueLen},
		clsact: [2]bool{has(p.ns, "eth0"), has(p.node.NetNS, host.Name)},
	}
}
