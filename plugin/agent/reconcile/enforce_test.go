// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf/asm"

	"github.com/podweir/podweir/plugin/agent/enforce"
	"github.com/podweir/podweir/plugin/agent/kube"
	"github.com/podweir/podweir/plugin/agent/reconcile"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// asKnown are the pods as the agent knows them at some time. Nobody mends anything.
type asKnown struct {
	mu     sync.Mutex
	states []reconcile.PodState
	events []kube.Event
	looks  int
}

// Snapshot implements enforce.Pods.
func (a *asKnown) Snapshot() []reconcile.PodState {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]reconcile.PodState(nil), a.states...)
}

// LookAt implements enforce.Pods.
func (a *asKnown) LookAt(*reconcile.PodState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.looks++
	for i := range a.states {
		a.states[i].At = time.Now()
	}
}

// Emit implements reconcile.Events.
func (a *asKnown) Emit(_ *kube.Pod, e kube.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events = append(a.events, e)
}

// Over implements reconcile.Events.
func (*asKnown) Over(string, string) {}

func (a *asKnown) told() []kube.Event {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]kube.Event(nil), a.events...)
}

// watch runs the watch of the rate over pods that nobody mends.
func (n *node) watch(t *testing.T, states []reconcile.PodState, every time.Duration) (*enforce.Watcher, *asKnown) {
	t.Helper()
	pods := &asKnown{states: states}
	w := enforce.New(enforce.Config{
		Pods: pods, Events: pods, Paths: n.paths, Every: every, Log: slog.New(slog.NewTextHandler(n.log, nil)),
		Open: func() (enforce.Counters, error) { return enforce.Open(n.paths) },
	})
	testutil.During(t, func(ctx context.Context) error { return n.Do(func() error { return w.Run(ctx) }) })
	return w, pods
}

// stream has one end send to the other over TCP as fast as it can, until stop.
func (n *node) stream(t *testing.T, from, to *testutil.NetNS, addr string) (stop func()) {
	t.Helper()
	var listener net.Listener
	must.OK(t, to.Do(func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp4", addr+":0")
		return err
	}))
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	wg.Go(func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		// The sender's end may take a minute to come through a limit that is full.
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		_, _ = io.Copy(io.Discard, conn)
	})
	var conn net.Conn
	must.OK(t, from.Do(func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(t.Context(), "tcp4", listener.Addr().String())
		return err
	}))
	wg.Go(func() {
		for full := make([]byte, 1<<16); ; {
			if _, err := conn.Write(full); err != nil {
				return
			}
		}
	})
	return func() {
		cancel()
		_ = conn.Close()
		_ = listener.Close()
		wg.Wait()
	}
}

// What a limit lets through is never taken for more, whatever is offered; what is
// beyond it is said within 10 s.
func TestPrivilegedRateIsWatched(t *testing.T) {
	testutil.RequireRoot(t)
	t.Parallel()
	const soonEnough = 10 * time.Second
	for _, tt := range []struct {
		name      string
		direction string
		keys      map[string]any
		// harm is run in the pod or on the node.
		harm     string
		onNode   bool
		exceeded bool
		// flows are so many that each have six tenths of the limit.
		flows int
		// variant says that it differs from another case by one setting.
		variant bool
	}{
		{name: "egress", direction: "egress"},
		{name: "egress, one band", direction: "egress", keys: map[string]any{"policy": "flat"}, variant: true},
		{name: "egress, policing", direction: "egress", keys: map[string]any{"egressQueue": "none"}},
		{name: "egress, policing on the host side", direction: "egress", keys: map[string]any{"egressMode": "tcx-hostside"}, variant: true},
		{name: "egress, everything is beside the limit", direction: "egress", keys: map[string]any{"unshapedSubnets": []string{"10.0.0.0/8"}}},
		{name: "egress, light flows are beside the limit", direction: "egress", keys: map[string]any{"policy": "elephants", "heavyThreshold": "100%"}, flows: 4},
		{name: "egress without a queue, with a ceiling", direction: "egress", keys: map[string]any{"policy": "flat"}, harm: "tc qdisc del dev eth0 root"},
		{
			name: "egress without a queue and a ceiling", direction: "egress", keys: map[string]any{"policy": "flat", "egressCeiling": "off"},
			harm: "tc qdisc del dev eth0 root", exceeded: true, variant: true,
		},
		{name: "ingress", direction: "ingress"},
		{name: "ingress, policing", direction: "ingress", keys: map[string]any{"ingressQueue": "none"}},
		{name: "ingress without a queue", direction: "ingress", keys: map[string]any{"policy": "flat"}, harm: "tc qdisc del dev veth2 root", onNode: true, exceeded: true},
		{
			// Where some flows have no limit the root has a way past it.
			name: "ingress past the queue by a filter of another party on its root", direction: "ingress", keys: map[string]any{"policy": "elephants"},
			harm: `root=$(tc qdisc show dev veth2 root | sed -n '1s/^qdisc [a-z]* \([0-9a-f]*:\).*/\1/p')
				tc filter add dev veth2 parent $root protocol all prio 1 bpf bytecode '1,6 0 0 4294967295' flowid $root$(test prio = $(tc qdisc show dev veth2 root | awk '{print $2; exit}') && echo 1)`,
			onNode: true, exceeded: true,
		},
		{name: "ingress by an ifb", direction: "ingress", keys: map[string]any{"ingressPlace": "ifb"}},
		{
			name: "ingress by an ifb without a queue", direction: "ingress", keys: map[string]any{"ingressPlace": "ifb", "policy": "flat"},
			harm: "tc qdisc del dev $(ip -br link | grep -o '^[^ ]*podweir[^ ]*') root", exceeded: true, variant: true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.variant {
				mark.Nightly(t, "it differs from other cases by one setting")
			}
			n := newNode(t)
			for k, v := range tt.keys {
				n.configure(k, v)
			}
			if n.pods == 0 {
				n.pods = 1 // so that the device is veth2
			}
			p := n.newPod(t)
			annotation, from, to, addr := egress, p.ns, n.NetNS, p.gateway
			if tt.direction == "ingress" {
				annotation, from, to, addr = ingress, n.NetNS, p.ns, p.addr
			}
			p.annotate(map[string]string{annotation: "50M"})
			a := n.start(t, never)
			states := []reconcile.PodState{a.has(t, p, 1)}
			a.stop()
			every, last := 500*time.Millisecond, 5*time.Second
			if tt.exceeded {
				every, last = enforce.DefaultEvery, soonEnough
			}
			w, pods := n.watch(t, states, every)
			defer n.stream(t, from, to, addr)()
			for range tt.flows {
				defer p.flow(t, from, to, addr, 30_000_000)()
			}
			if tt.flows == 0 {
				defer p.flood(t, from, to, addr)()
			}
			<-time.After(2 * time.Second)
			if tt.harm != "" {
				ns := p.ns
				if tt.onNode {
					ns = n.NetNS
				}
				ns.Run(t, "sh", "-c", tt.harm)
			}
			began := time.Now()
			// The record follows the event, when all pods have been looked at.
			records, err := n.paths.Mail().Unenforced()
			for time.Since(began) < last && (len(pods.told()) == 0 || len(records) == 0) {
				<-time.After(100 * time.Millisecond)
				records, err = n.paths.Mail().Unenforced()
			}
			took := time.Since(began)
			told := pods.told()
			must.OK(t, err)
			one := map[bool]int{true: 1}[tt.exceeded]
			must.Len(t, fmt.Sprintf("events after %v", took), one, told)
			must.Len(t, "records", one, records)
			must.Be(t, "enforced", !tt.exceeded, must.Len(t, "states", 1, w.States())[0].Enforced)
			if tt.exceeded {
				t.Logf("told after %v: %+v", took.Round(100*time.Millisecond), told)
				return
			}
			t.Logf("suspected %d times", pods.looks)
			if tt.keys != nil || tt.harm != "" {
				return
			}
			reached, err := n.paths.Mail().Reached()
			// Busy processors send late, and then the queue is held late.
			for end := time.Now().Add(20 * time.Second); len(reached) == 1 && *reached[0].HeldShare < 0.3 && time.Now().Before(end); {
				<-time.After(500 * time.Millisecond)
				reached, err = n.paths.Mail().Reached()
			}
			if err != nil || len(reached) != 1 || reached[0].Direction.String() != tt.direction || *reached[0].HeldShare < 0.3 {
				t.Errorf("reached = %+v, %v, want some time of %s", reached, err, tt.direction)
			}
		})
	}
}

// What a foreign program hands to the pod past the host side's device, the queue on it
// and every counter of it is seen at the pod's own.
func TestPrivilegedRateOfRedirectPeer(t *testing.T) {
	testutil.RequireRoot(t)
	t.Parallel()
	n := newNode(t)
	p := n.newPod(t)
	p.annotate(map[string]string{ingress: "50M"})
	a := n.start(t, never)
	states := []reconcile.PodState{a.has(t, p, 1)}
	a.stop()
	far := testutil.NewNetNS(t)
	_, uplink := testutil.VethPair(t,
		testutil.End{NetNS: far, Name: "eth0", CIDRs: []string{"10.80.0.2/24"}},
		testutil.End{NetNS: n.NetNS, Name: "uplink", CIDRs: []string{"10.80.0.1/24"}})
	w, pods := n.watch(t, states, 0)
	defer p.flood(t, far, n.NetNS, "10.80.0.1")()
	<-time.After(2 * time.Second)
	pin := filepath.Join(testutil.BPFFS(t), "peer")
	must.OK(t, testutil.Load(t, "", asm.Instructions{
		asm.Mov.Imm(asm.R1, int32(p.host.Index)), asm.Mov.Imm(asm.R2, 0), asm.FnRedirectPeer.Call(), asm.Return(),
	}).Pin(pin))
	n.Run(t, "tc", "qdisc", "add", "dev", uplink.Name, "clsact")
	n.Run(t, "tc", "filter", "add", "dev", uplink.Name, "ingress", "bpf", "da", "pinned", pin)
	began := time.Now()
	testutil.Eventually(t, soon, "an event", func() bool { return len(pods.told()) > 0 })
	t.Logf("told after %v: %+v", time.Since(began).Round(100*time.Millisecond), pods.told())
	must.Have(t, "the event", fmt.Sprint(pods.told()[0]), "LimitExceeded", "bpf_redirect_peer")
	must.Be(t, "enforced", false, must.Len(t, "states", 1, w.States())[0].Enforced)
}
