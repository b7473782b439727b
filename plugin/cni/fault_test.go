// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// Killed before any of its steps, by SIGKILL, ADD and DEL leave what the next
// ADD, DEL or GC brings in order. The steps are counted by the process itself:
// the test goes on until it lives.
func TestPrivilegedKilledAtEveryStep(t *testing.T) {
	mark.NightlyKernels(t, "it takes an emulated processor minutes")
	testutil.RequireQdisc(t, "tbf", "htb", "pfifo_fast", "ifb")
	scenarios := []struct {
		name string
		// first is what ADD did before the one that is killed.
		first, with conf
		verb        string
		// least is the number of steps below which the test tests nothing.
		least int
	}{
		{"ADD of both directions", nil, both(nil), "ADD", 7},
		{"ADD with an ifb", nil, inIFB(nil), "ADD", 9},
		{"ADD on TCX hooks", nil, both(conf{"mode": "tcx-podside"}), "ADD", 6},
		{"ADD with filters", nil, both(conf{"egressRate": "100M", "unshapedSubnets": []string{"10.99.0.0/16"}}), "ADD", 7},
		{"ADD of other limits", both(nil), both(conf{"egressRate": "20M", "ingressRate": "20M"}), "ADD", 4},
		{"ADD of another mode", both(nil), both(conf{"mode": "clsact-podside", "queue": "none"}), "ADD", 7},
		{"ADD of queues over policing", both(conf{"mode": "tcx-podside", "queue": "none"}), both(nil), "ADD", 9},
		{"ADD of other subnets", both(conf{"unshapedSubnets": []string{"10.98.0.0/16"}}), both(conf{"unshapedSubnets": []string{"10.99.0.0/16"}}), "ADD", 9},
		{"ADD to the ifb", both(nil), inIFB(nil), "ADD", 6},
		{"ADD over another build", both(nil), both(nil), "ADD", 4},
		{"ADD over another build with an ifb", inIFB(nil), inIFB(nil), "ADD", 5},
		{"DEL", both(nil), both(nil), "DEL", 3},
		{"DEL with an ifb", inIFB(nil), inIFB(nil), "DEL", 3},
	}
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			if strings.Contains(s.name, "TCX") {
				testutil.RequireQdisc(t, "tcx")
			}
			n := newNode(t)
			p := n.newPod(t)
			c := p.conf(s.with)
			p.must(t, "ADD", c)
			shaped := p.state(t)
			p.must(t, "DEL", c)
			wantClean(t, p.afterIFB(t), "before")
			steps := 0
			for _, next := range []string{"ADD", "DEL", "GC"} {
				for kill := 1; ; kill++ {
					if s.first != nil {
						p.must(t, "ADD", p.conf(s.first))
					}
					if strings.Contains(s.name, "another build") {
						p.fromOtherBuild(t)
					}
					_, killed := p.exec(t, s.verb, c.json(t), kill)
					what := fmt.Sprintf("%s killed at step %d, then %s", s.verb, kill, next)
					all := p.conf(s.with)
					all["cni.dev/valid-attachments"] = []conf{}
					p.must(t, next, all)
					if next == "ADD" {
						p.must(t, "CHECK", c)
						wantState(t, p, what, shaped)
						p.must(t, "DEL", c)
					}
					wantClean(t, p.afterIFB(t), what)
					if t.Failed() {
						return
					}
					if !killed {
						steps = kill - 1
						break
					}
				}
			}
			must.AtLeast(t, "steps of "+s.verb+", so that the test looks at something", s.least, steps)
		})
	}
}

// Killed inside of the step that attaches: the clsact qdisc is there, the filter
// is not.
func TestPrivilegedKilledBeforeTheFilter(t *testing.T) {
	testutil.RequireQdisc(t, "clsact")
	p := newNode(t).newPod(t)
	c := p.conf(conf{"egressRate": "10M", "queue": "none"})
	// record, load, attach: the third is not taken.
	if _, killed := p.exec(t, "ADD", c.json(t), 3); !killed {
		t.Fatal("ADD has fewer than three steps")
	}
	p.ns.Run(t, "tc", "qdisc", "add", "dev", "eth0", "clsact")
	p.must(t, "DEL", c)
	wantClean(t, p, "DEL")
}

func TestPrivilegedConcurrentADD(t *testing.T) {
	mark.Kernels(t, "most nodes have prio, and with it another tree of queues")
	testutil.RequireRoot(t)
	const different, same = 20, 5
	n := newNode(t)
	pods := make([]*pod, different)
	for i := range pods {
		pods[i] = n.newPod(t)
	}
	answers := make([]answer, different)
	var wg sync.WaitGroup
	for i, p := range pods {
		c := p.conf(both(nil)).json(t)
		wg.Go(func() { answers[i] = p.callRaw("ADD", c) })
	}
	wg.Wait()
	for i, p := range pods {
		if answers[i].err != nil {
			t.Errorf("ADD %d of %d at once: %s", i, different, describe(answers[i].err))
			continue
		}
		p.must(t, "CHECK", p.conf(both(nil)))
	}
	must.Be(t, "slots taken", 2*different, n.slots(t))
	must.Match(t, "the node's programs", treesHere(t).programs(), slices.Sorted(maps.Keys(n.programs(t))))
	for i, p := range pods {
		c := p.conf(nil).json(t)
		wg.Go(func() { answers[i] = p.callRaw("DEL", c) })
	}
	wg.Wait()
	for i, p := range pods {
		if answers[i].err != nil {
			t.Errorf("DEL %d of %d at once: %s", i, different, describe(answers[i].err))
		}
		wantState(t, p, "DEL", []string{})
	}
	n.wantNoPins(t, "DEL")
	// The same attachment: processes, as a runtime that retries would start.
	p := pods[0]
	c := p.conf(both(nil)).json(t)
	for i := range same {
		wg.Go(func() { answers[i], _ = p.exec(t, "ADD", c, 0) })
	}
	wg.Wait()
	for i := range same {
		if answers[i].err != nil {
			t.Errorf("ADD %d of the same at once: %s", i, describe(answers[i].err))
		}
	}
	wantState(t, p, "ADD of the same at once", shapedBoth(t))
	p.must(t, "CHECK", p.conf(both(nil)))
	// ADD and DEL at once end in either, not in between.
	for i := range same {
		wg.Go(func() { answers[i], _ = p.exec(t, []string{"ADD", "DEL"}[i%2], c, 0) })
	}
	wg.Wait()
	p.must(t, "DEL", p.conf(nil))
	wantClean(t, p, "ADD and DEL at once, then DEL")
}
