// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni_test

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
)

// stall lets the queue of a device send nothing for a while, and next to nothing is
// saved meanwhile: as when the processor of its timer is away.
func stall(t *testing.T, ns *testutil.NetNS, device string, for_ time.Duration) {
	t.Helper()
	was := setRate(t, ns, device, "8kbit")
	<-time.After(for_)
	setRate(t, ns, device, was)
}

// A queue that was not served for a while is as short as before soon after, though what
// it did not send meanwhile is still in it.
func TestPrivilegedQueueThatWasNotServed(t *testing.T) {
	mark.Timed(t, "it judges medians of waits")
	t.Parallel()
	testutil.RequireRoot(t)
	testutil.RequireQdisc(t, "tbf", "pfifo_fast")
	for name, toPod := range map[string]bool{"into the pod": true, "out of the pod": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newNode(t).newPod(t)
			p.must(t, "ADD", p.conf(conf{"egressRate": "10M", "ingressRate": "10M"}))
			s, sent := p.newStamped(t, toPod), make(chan error, 1)
			go func() { sent <- s.send(&source{size: 1514, bits: 13e6}, time.Minute) }()
			<-time.After(2 * time.Second)
			before := wallNS()
			if toPod {
				stall(t, p.node.NetNS, p.host.Name, 200*time.Millisecond)
			} else {
				stall(t, p.ns, "eth0", 200*time.Millisecond)
			}
			after := wallNS() + uint64(time.Second)
			<-time.After(2 * time.Second)
			_ = s.from.Close()
			if err := <-sent; !errors.Is(err, net.ErrClosed) {
				t.Fatal(err)
			}
			s.end(t)
			early, late := s.took(before-1e9, before), s.took(after, after+1e9)
			if len(early) == 0 || len(late) == 0 {
				t.Fatalf("%d packets came before the pause and %d after it", len(early), len(late))
			}
			usual, then := measured(early), measured(late)
			t.Logf("usual %v, after the pause %v (mean, median, p99)", usual, then)
			if then.p50 > usual.p50+usual.p50/4 {
				t.Errorf("packets wait %v long after the queue was not served, and %v before", then.p50, usual.p50)
			}
		})
	}
}
