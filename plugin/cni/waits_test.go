// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// stamped is a flow of which every datagram carries the time at which it was sent, and
// the kernel notes when it arrived.
type stamped struct {
	from *net.UDPConn
	to   *net.UDPConn
	came []delivery
	done chan error
}

// delivery is when a datagram was sent, by the wall clock, and how long it took.
type delivery struct {
	sentNS uint64
	took   time.Duration
}

func wallNS() uint64 { return uint64(time.Now().UnixNano()) }

// newStamped makes one to the pod or from it, and collects what arrives.
func (p *pod) newStamped(t *testing.T, toPod bool) *stamped {
	t.Helper()
	f := p.newFlow(t, toPod)
	s := &stamped{from: f.from.(*net.UDPConn), to: f.to.(*net.UDPConn), done: make(chan error, 1)}
	raw, err := s.to.SyscallConn()
	must.OK(t, err)
	must.OK(t, errors.Join(raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
	}), err, s.to.SetReadBuffer(8<<20), s.from.SetWriteBuffer(8<<20)))
	go func() { s.done <- s.collect() }()
	return s
}

func (s *stamped) collect() error {
	payload, control := make([]byte, 2000), make([]byte, 200)
	for {
		n, c, _, _, err := s.to.ReadMsgUDP(payload, control)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return err
		}
		messages, err := unix.ParseSocketControlMessage(control[:c])
		if err != nil || len(messages) == 0 || n < 8 {
			return errors.New("a datagram without a time")
		}
		sent := binary.NativeEndian.Uint64(payload)
		if sent == 0 { // a segment behind the first
			continue
		}
		sec, nsec := binary.NativeEndian.Uint64(messages[0].Data), binary.NativeEndian.Uint64(messages[0].Data[8:])
		s.came = append(s.came, delivery{sent, time.Duration(sec*1e9 + nsec - sent)})
	}
}

// source is what the flows of a band send.
type source struct {
	flows int
	// size of a packet with its Ethernet header, bits what a flow sends in a
	// second.
	size int
	bits float64
	// burst packets go at once.
	burst int
	// segments are so many packets that the sender hands over as one.
	segments int
	// Of every second it sends so long only.
	on time.Duration
}

// gap is the time from one burst to the next.
func (s *source) gap() time.Duration {
	return time.Duration(float64(max(s.burst, 1)*max(s.segments, 1)*s.size) * 8e9 / s.bits)
}

func (s *stamped) send(from *source, during time.Duration) error {
	segments := max(from.segments, 1)
	payload := make([]byte, (from.size-42)*segments)
	if from.segments > 0 {
		raw, err := s.from.SyscallConn()
		if err != nil {
			return err
		}
		if err := errors.Join(raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, from.size-42)
		}), err); err != nil {
			return err
		}
	}
	burst, gap := max(from.burst, 1), from.gap()
	start := time.Now()
	for next := time.Duration(0); next < during; next += gap {
		if from.on > 0 && next%time.Second > from.on {
			continue
		}
		if wait := next - time.Since(start); wait > 200*time.Microsecond {
			<-time.After(wait)
		}
		for range burst {
			binary.NativeEndian.PutUint64(payload, wallNS())
			if _, err := s.from.Write(payload); err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EPERM) {
				return err
			}
		}
	}
	return nil
}

// end waits for what is still queued.
func (s *stamped) end(t *testing.T) []time.Duration {
	t.Helper()
	must.OK(t, s.to.SetReadDeadline(time.Now().Add(time.Second)))
	must.OK(t, <-s.done)
	return s.took(0, math.MaxUint64)
}

// took is how long the datagrams took that were sent between two times, in order.
func (s *stamped) took(fromNS, toNS uint64) []time.Duration {
	var all []time.Duration
	for _, a := range s.came {
		if a.sentNS >= fromNS && a.sentNS < toNS {
			all = append(all, a.took)
		}
	}
	slices.Sort(all)
	return all
}

// waited is how long packets took: the mean, and quantiles.
type waited struct{ mean, p50, p99 time.Duration }

func measured(sorted []time.Duration) (w waited) {
	for _, d := range sorted {
		w.mean += d
	}
	n := len(sorted)
	return waited{w.mean / time.Duration(n), sorted[n/2], sorted[n*99/100]}
}

func estimated(w *datapath.Wait) waited {
	s := func(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
	return waited{s(w.Seconds / float64(max(w.Packets, 1))), s(w.P50), s(w.P99)}
}

// The way through the kernel and to the socket is a part of what a datagram takes, and
// no part of its wait.
const wayBesideWait = 150 * time.Microsecond

func wantWaits(t *testing.T, band string, got, want waited, median bool) {
	t.Helper()
	t.Logf("%s: estimated %v, measured %v (mean, median, p99)", band, got, want)
	compared := map[string][2]time.Duration{"mean": {got.mean, want.mean}}
	if median {
		compared["median"] = [2]time.Duration{got.p50, want.p50}
	}
	for name, of := range compared {
		must.Within(t, fmt.Sprintf("%s: the %s", band, name), of[1]-of[1]/10-wayBesideWait, of[1]+of[1]/10+wayBesideWait, of[0])
	}
}

// How long packets wait is what their own time stamps say.
func TestPrivilegedWaits(t *testing.T) {
	mark.Timed(t, "it compares times of packets")
	t.Parallel()
	testutil.RequireQdisc(t, "tbf", "pfifo_fast")
	bulk := func(bits float64) source { return source{flows: 1, size: 1514, bits: 1.3 * bits} }
	calls := func(flows int, bits float64) source { return source{flows: flows, size: 200, bits: bits} }
	for _, tt := range []struct {
		name, rate   string
		heavy, light source
		toPod        bool
	}{
		{"bulk at 10M", "10M", bulk(10e6), source{}, false},
		{"bulk at 100M", "100M", bulk(100e6), source{}, false},
		{"a call beside bulk at 10M", "10M", bulk(10e6), calls(1, 200e3), true},
		{"a call beside bulk at 100M", "100M", bulk(100e6), calls(1, 1e6), true},
		{"light flows with a third of 10M", "10M", bulk(10e6), calls(8, 400e3), false},
		{"light bursts at 10M", "10M", bulk(10e6), source{flows: 10, size: 1014, bits: 200e3, burst: 5}, false},
		{"large offloaded packets at 100M", "100M", source{flows: 1, size: 1514, bits: 130e6, segments: 20}, source{}, false},
		{"bulk that comes and goes at 100M", "100M", source{flows: 1, size: 1514, bits: 130e6, on: 300 * time.Millisecond}, calls(1, 1e6), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.light.flows > 1 {
				mark.Nightly(t, "few pods have such a load")
			}
			t.Parallel()
			p := newNode(t).newPod(t)
			p.must(t, "ADD", p.conf(conf{"egressRate": tt.rate, "ingressRate": tt.rate}))
			took := [2][]time.Duration{}
			var all [2][]*stamped
			errs := make(chan error)
			for band, from := range []source{tt.light, tt.heavy} {
				for i := range from.flows {
					s := p.newStamped(t, tt.toPod)
					all[band] = append(all[band], s)
					// Not in step, unless they burst: the estimate does not see that single packets
					// came within a timer interrupt.
					var late time.Duration
					if from.burst == 0 {
						late = from.gap() * time.Duration(i) / time.Duration(from.flows)
					}
					go func() {
						<-time.After(late)
						errs <- s.send(&from, 6*time.Second)
					}()
				}
			}
			for range tt.light.flows + tt.heavy.flows {
				must.OK(t, <-errs)
			}
			waits := p.waits(t, tt.toPod)
			for band, flows := range all {
				for _, s := range flows {
					took[band] = append(took[band], s.end(t)...)
				}
				slices.Sort(took[band])
				if len(flows) == 0 {
					continue
				}
				// The share of light packets is taken for even. Beside bursts of them the
				// mean of the heavy ones is right, and their median is not.
				even := tt.light.burst == 0 || waits[band].Band == "light"
				wantWaits(t, waits[band].Band, estimated(&waits[band]), measured(took[band]), even)
			}
		})
	}
}

func (p *pod) waits(t *testing.T, toPod bool) []datapath.Wait {
	t.Helper()
	for _, d := range p.status(t).Directions {
		if (d.Direction.Is == terms.Ingress) == toPod {
			return must.Len(t, "bands whose waits "+d.Direction.String()+" has", 2, d.Waits)
		}
	}
	t.Fatal("no such direction")
	return nil
}

// TestPrivilegedNamespaceOfTheAgent: ADD uses what the agent left of the pod's
// namespace, also for pods that ask for nothing; without it, or with half of it, the
// node's rates.
func TestPrivilegedNamespaceOfTheAgent(t *testing.T) {
	n := newNode(t)
	rates := func(p *pod) (all []uint64) {
		for _, d := range p.status(t).Directions {
			all = append(all, uint64(d.Rate))
		}
		return all
	}
	p := n.newPod(t)
	c := p.conf(conf{"defaultRate": "50M"})
	p.must(t, "ADD", c)
	must.Match(t, "limits before the agent knows the namespace", []uint64{50e6, 50e6}, rates(p))
	must.OK(t, n.paths.Mail().RecordNamespace("default", netconf.Namespace{
		"podweir.io/default-egress-rate": "20M", "podweir.io/max-ingress-rate": "5M",
	}))
	wantCode(t, "CHECK", p.call(t, "CHECK", c).err, 101, "egress")
	p.must(t, "ADD", c)
	must.Match(t, "limits by the namespace's default of egress and its maximum of ingress", []uint64{20e6, 5e6}, rates(p))
	p.must(t, "CHECK", c)
	must.Match(t, "RecordedNamespaces()", []string{"default"}, must.Get(n.paths.Mail().RecordedNamespaces())(t))
	must.OK(t, os.WriteFile(filepath.Join(n.paths.Run, "namespaces", "default.json"), []byte(`{"podweir.io/`), 0o600))
	a := p.must(t, "ADD", c)
	if got := rates(p); !slices.Equal(got, []uint64{50e6, 50e6}) || !strings.Contains(a.log, "namespaces/default.json") {
		t.Errorf("limits %v, log %q, want the node's rates and an error that names the file", got, a.log)
	}
}

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
			must.Is(t, "the sender's end", net.ErrClosed, <-sent)
			s.end(t)
			early, late := s.took(before-1e9, before), s.took(after, after+1e9)
			if len(early) == 0 || len(late) == 0 {
				t.Fatalf("%d packets came before the pause and %d after it", len(early), len(late))
			}
			usual, then := measured(early), measured(late)
			t.Logf("usual %v, after the pause %v (mean, median, p99)", usual, then)
			must.AtMost(t, "how long packets wait after the queue was not served, beside before", usual.p50+usual.p50/4, then.p50)
		})
	}
}
