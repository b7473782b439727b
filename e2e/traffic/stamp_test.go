// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
)

// A process that stamps its packets itself (SO_TXTIME, which needs no
// privilege) cannot have them leave earlier: podweir's program overwrites the
// stamp. 24 sockets whose stamps were kept broke the cap by 29 %.
func TestPrivilegedOwnStampsDoNotBreakTheCap(t *testing.T) {
	mark.Kernels(t, "it needs fq, and can do with an emulated clock")
	testutil.RequireQdisc(t, "fq")
	const (
		capacity = 10 * mbit
		last     = 4 * time.Second
	)
	r := newRig(t)
	// The sockets do stamp: fq alone keeps what is stamped for later.
	tc(t, r.Free.Netns, "qdisc", "add", "dev", r.Free.IfName, "root", "fq")
	began := wiremeter.Now()
	if err := stampedFlood(t.Context(), r.Free, r.Client, stamped{
		BitsPerSec: capacity, Duration: 200 * time.Millisecond, Ahead: []time.Duration{time.Second},
	}); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, 5*time.Second, "what was stamped has come", func() bool {
		return wiremeter.Now() > began+1500*time.Millisecond
	})
	if early := wire(t, r.Free, began, began+900*time.Millisecond); early > 1000 {
		t.Errorf("%d bytes came before their stamp: the sockets do not stamp", early)
	}
	if all := wire(t, r.Free, began, began+1500*time.Millisecond); all < capacity/8/5/2 {
		t.Errorf("%d bytes came with their stamp, want most of %d", all, capacity/8/5)
	}
	for _, policy := range []string{"flat", "strict"} {
		t.Run(policy, func(t *testing.T) {
			keys := map[string]any{"queue": "fq", "policy": policy}
			if policy == "strict" {
				// The longest that fq has under strict: the bucket of 8 ms over lightShare.
				keys["horizon"] = "8ms"
			}
			pod := shaped(t, r, capacity, keys)
			began := wiremeter.Now()
			err := stampedFlood(t.Context(), pod, r.Client, stamped{
				BitsPerSec: 3 * capacity, Duration: last,
				// Long ago, soon, and all at the same moments.
				Ahead: []time.Duration{-time.Second, 0, 5 * time.Millisecond, 40 * time.Millisecond, together},
			})
			if err != nil {
				t.Fatal(err)
			}
			s, err := pod.Wire(Egress, began, wiremeter.Now())
			if err != nil {
				t.Fatal(err)
			}
			worst := float64(s.Worst(time.Second)) * 8 / capacity
			t.Logf("worst second %.4f of the cap, mean %.4f", worst, s.BitsPerSec()/capacity)
			// An emulated machine is late by 30 ms now and then, and sends then
			// what was due meanwhile.
			if worst > 1.05 || worst < 0.2 {
				t.Errorf("worst second %.4f of the cap, want 0.2 to 1.05", worst)
			}
		})
	}
}

func wire(t *testing.T, pod *Target, from, to time.Duration) uint64 {
	t.Helper()
	s, err := pod.Wire(Egress, from, to)
	if err != nil {
		t.Fatal(err)
	}
	return s.Total()
}

// tc runs tc(8) in a namespace.
func tc(t *testing.T, ns *lab.Netns, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "tc", append([]string{"-n", ns.Name()}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tc %v: %v: %s", args, err, out)
	}
}

const (
	stampedSockets = 24
	stampedPayload = 1200
	// together stamps all packets of a fifth of a second for its end.
	together = time.Duration(1 << 62)
	interval = 200 * time.Millisecond
)

// stamped is a flood whose packets carry departure times of their own.
type stamped struct {
	BitsPerSec uint64
	Duration   time.Duration
	// Ahead are the departure times after now, one socket each, in turns.
	Ahead []time.Duration
}

// stampedFlood sends from many sockets of a pod.
func stampedFlood(ctx context.Context, pod *Target, to *lab.Host, f stamped) error {
	fds := make([]int, stampedSockets)
	err := pod.Netns.Do(func() error {
		for i := range fds {
			var err error
			if fds[i], err = lab.StampingSocket(); err != nil {
				return err
			}
			if err = unix.SetsockoptInt(fds[i], unix.SOL_SOCKET, unix.SO_SNDBUF, 4<<20); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	dest := &unix.SockaddrInet4{Port: 9, Addr: to.V4.As4()}
	payload := make([]byte, stampedPayload)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	start, sent := wiremeter.Now(), 0
	for now := start; now < start+f.Duration; now = wiremeter.Now() {
		due := int(float64(f.BitsPerSec) / 8 / stampedPayload * (now - start).Seconds())
		for ; sent < due; sent++ {
			i := sent % len(fds)
			at := now + f.Ahead[i%len(f.Ahead)]
			if f.Ahead[i%len(f.Ahead)] == together {
				at = now - now%interval + interval
			}
			// A full queue is what a flood meets.
			_ = unix.Sendmsg(fds[i], payload, lab.TxTime(at), dest, unix.MSG_DONTWAIT)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Where nobody has counted the wire bytes of a packet, podweir counts all headers of its segments, also
// those inside a tunnel of the pod's own.
func TestPrivilegedTunnelIsCountedWhole(t *testing.T) {
	const (
		capacity = 10 * gbit // which the tunnel does not reach
		// headers of a segment in a VXLAN over IPv4: outer Ethernet, IPv4, UDP and VXLAN, inner Ethernet, IPv4
		// and TCP with time stamps.
		headers = 14 + 20 + 8 + 8 + 14 + 20 + 32
	)
	r := newRig(t)
	pod := shaped(t, r, capacity, map[string]any{"egressMode": "clsact-hostside"})
	from, to, err := r.Lab.Tunnel(&pod.Host, r.Client)
	if err != nil {
		t.Fatal(err)
	}
	err = from.Netns.Do(func() error {
		link, err := netlink.LinkByName(from.IfName)
		if err != nil {
			return err
		}
		return netlink.LinkSetGSOMaxSegs(link, 64) // large packets, which the kernel cuts behind podweir
	})
	if err != nil {
		t.Fatal(err)
	}
	bytes := func() (sum uint64) {
		for _, c := range egressCounters(t, pod) {
			sum += c.Bytes
		}
		return sum
	}
	before := bytes()
	_, packets := sentBy(t, pod.Netns, pod.IfName)
	run, err := r.Lab.StartElephant(t.Context(), lab.Elephant{From: from, To: to, Duration: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	bulk, err := run.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	counted := float64(bytes() - before)
	_, after := sentBy(t, pod.Netns, pod.IfName)
	payload, mss := 0.0, float64(bulk.MSS)
	for _, i := range bulk.Received {
		payload += i.Bytes
	}
	wire := payload / mss * (headers + mss)
	t.Logf("%.0f bytes of payload, in segments of %.0f and packets of %.0f: %.4f of the wire bytes counted", payload, mss, payload/float64(after-packets), counted/wire)
	if payload/float64(after-packets) < 4*mss {
		t.Errorf("packets of %.0f bytes of payload, so nothing was tested", payload/float64(after-packets))
	}
	if counted < 0.995*wire {
		t.Errorf("%.0f bytes counted, %.4f of what is on the wire", counted, counted/wire)
	}
}
