// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/e2e/step"
)

const (
	// Offered is what a load sends by default, in bits per second: 20 times the
	// largest cap that the scenarios request, and little enough for two
	// processors to carry beside a cluster.
	Offered = 800_000_000
	// burst is the time of the cap that may leave at once, and maxPacket the
	// least bucket, which counts as one packet (design: rulings 1 and 6).
	burst     = 10 * time.Millisecond
	maxPacket = 9_100
	// stall is how late packets may come that wait for a processor behind the
	// queue: the cluster, the load and the meter share two. What was late comes at
	// once. Narrower bars are those of e2e/traffic, on a machine that is idle.
	stall = 20 * time.Millisecond
	// leastUse is loose: the machine has the cluster to run as well.
	leastUse = 0.9
	// settle is how long TCP gets to find the cap. Datagrams look for none.
	settle = 1500 * time.Millisecond
	// chunk is what is written to TCP at once, and datagram the payload of one, which fits
	// into an MTU of 1,400, in bytes.
	chunk    = 64 << 10
	datagram = 1300
	// late is how much of the time that a full queue, or a busy machine, took is made up for.
	late = 20 * time.Millisecond
)

// Load sends to a pod and lets it send, at the same time, from and to a peer.
type Load struct {
	Pod, Peer *Pod
	// Bits is what is offered in each direction, in bits per second; [Offered]
	// if it is 0.
	Bits uint64
	// UDP sends datagrams, whatever arrives; otherwise it is one TCP connection
	// in each direction.
	UDP bool
	// At is where they send to on another interface of the pod than eth0.
	At *Interface
}

// Interface is a further interface of a pod.
type Interface struct {
	Name string
	IP   netip.Addr
	// Outbound is the name of the interface's end on the node, if no peer can connect to the
	// pod there. Then the pod connects to the peer, and what it sends is counted at that end.
	Outbound string
}

// Traffic is what passed a pod, in wire bytes at the receivers.
type Traffic struct {
	In, Out *wiremeter.Series
	// settle is how long the load got to find the cap.
	settle time.Duration
}

// For loads the pod for a time.
func (l Load) For(ctx context.Context, length time.Duration) (Traffic, error) {
	return l.While(ctx, Wait(length))
}

// While counts what arrives while f runs.
func (l Load) While(ctx context.Context, f func(ctx context.Context) error) (t Traffic, err error) {
	defer step.End(&err)
	at := l.at()
	in := step.Get(wiremeter.Attach(l.Pod.NS, at.Name, wiremeter.Delivered))
	defer step.Close(in.Close)
	sent, device := l.Peer.NS, "eth0"
	client, server, address := l.Peer, l.Pod, at.IP
	if at.Outbound != "" {
		sent, device = l.Pod.Node.Netns(), at.Outbound
		client, server, address = l.Pod, l.Peer, l.Peer.IP
	}
	out := step.Get(wiremeter.Attach(sent, device, wiremeter.Delivered))
	defer step.Close(out.Close)
	r := &running{ends: make(chan error, 2)}
	defer r.stop()
	l.start(ctx, r, client, server, address)
	begun := wiremeter.Now()
	// Both are connected when more has come than a handshake.
	err = cluster.Eventually(ctx, 20*time.Second, func(context.Context) error {
		return step.Run(func() {
			step.OK(r.failed())
			if a, b := step.Get(in.Read(begun, wiremeter.Now())), step.Get(out.Read(begun, wiremeter.Now())); min(a.Total(), b.Total()) < 50_000 {
				step.OK(fmt.Errorf("%d and %d bytes", a.Total(), b.Total()))
			}
		})
	})
	step.Say(err, "load")
	from := wiremeter.Now()
	step.OK(f(ctx))
	to := wiremeter.Now()
	step.Say(r.failed(), "the load ended")
	if !l.UDP {
		t.settle = settle
	}
	t.In, t.Out = step.Get(in.Read(from, to)), step.Get(out.Read(from, to))
	return t, nil
}

// at is the pod's interface.
func (l Load) at() Interface {
	if l.At != nil {
		return *l.At
	}
	return Interface{Name: "eth0", IP: l.Pod.IP}
}

// running is a load in progress: both ways of it.
type running struct {
	conns []net.Conn
	// ends gets an error for each way when it ends.
	ends chan error
}

// start begins to send between two pods, from one that connects to one that listens at an
// address. Both ends are of this process, in the network namespaces of the pods.
func (l Load) start(ctx context.Context, r *running, client, server *Pod, address netip.Addr) {
	connect := r.stream
	if l.UDP {
		connect = r.datagrams
	}
	for _, up := range []bool{true, false} {
		from, to := connect(ctx, client, server, netip.AddrPortFrom(address, 0).String())
		if !up {
			from, to = to, from
		}
		go func() { _, _ = io.Copy(io.Discard, to) }()
		go func() { r.ends <- l.send(from) }()
	}
}

// stream is a connection of TCP: the client's end and the server's.
func (r *running) stream(ctx context.Context, client, server *Pod, address string) (near, far net.Conn) {
	var listener net.Listener
	step.OK(server.NS.Do(func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		return err
	}))
	defer func() { _ = listener.Close() }()
	near = step.Get(client.NS.Dial(ctx, "tcp", listener.Addr().String()))
	r.conns = append(r.conns, near)
	far = step.Get(listener.Accept())
	r.conns = append(r.conns, far)
	return near, far
}

// answering is a socket of UDP that sends to who has sent to it.
type answering struct {
	*net.UDPConn
	to net.Addr
}

func (a answering) Write(b []byte) (int, error) { return a.WriteTo(b, a.to) }

// datagrams are two sockets of UDP: the client's end and the server's.
func (r *running) datagrams(ctx context.Context, client, server *Pod, address string) (near, far net.Conn) {
	var socket net.PacketConn
	step.OK(server.NS.Do(func() (err error) {
		socket, err = (&net.ListenConfig{}).ListenPacket(ctx, "udp", address)
		return err
	}))
	end := answering{UDPConn: socket.(*net.UDPConn)}
	r.conns = append(r.conns, end)
	near = step.Get(client.NS.Dial(ctx, "udp", end.LocalAddr().String()))
	r.conns = append(r.conns, near)
	step.OK(cluster.Eventually(ctx, 5*time.Second, func(context.Context) (err error) {
		if _, err := near.Write([]byte{0}); err != nil {
			return err
		}
		if err := end.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		_, end.to, err = end.ReadFrom(make([]byte, 1))
		return err
	}))
	step.OK(end.SetReadDeadline(time.Time{}))
	return near, end
}

// send writes at the load's rate until it cannot.
func (l Load) send(to net.Conn) error {
	size := chunk
	if l.UDP {
		size = datagram
	}
	buf := make([]byte, size)
	cost := time.Duration(float64(size) * 8 * float64(time.Second) / float64(cmp.Or(l.Bits, Offered)))
	for next := time.Now(); ; next = next.Add(cost) {
		if early := time.Until(next); early > time.Millisecond {
			<-time.After(early)
		} else if early < -late {
			next = time.Now().Add(-late)
		}
		if _, err := to.Write(buf); err != nil && (!l.UDP || errors.Is(err, net.ErrClosed)) {
			return err
		}
	}
}

// stop resets connections: what waits in their buffers would take its time.
func (r *running) stop() {
	for _, c := range r.conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
}

// failed looks at what has ended and leaves it there.
func (r *running) failed() error {
	select {
	case err := <-r.ends:
		r.ends <- err
		return err
	default:
		return nil
	}
}

// Wait does nothing for a time.
func Wait(length time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(length):
			return nil
		}
	}
}

// Direction is one direction of a measurement.
type Direction struct {
	Name   string
	Series *wiremeter.Series
	// Bits is the cap in bits per second; 0 is none.
	Bits uint64

	settle time.Duration
}

// Directions are both directions with their caps, in bits per second; 0 is no
// cap: then at least a quarter of [Offered] has to pass.
func (t Traffic) Directions(ingress, egress uint64) []Direction {
	return []Direction{{"ingress", t.In, ingress, t.settle}, {"egress", t.Out, egress, t.settle}}
}

// Err says whether both directions keep to their caps and use them.
func (t Traffic) Err(ingress, egress uint64) error {
	var errs []error
	for _, d := range t.Directions(ingress, egress) {
		errs = append(errs, d.Err())
	}
	return errors.Join(errs...)
}

// TooLittle says whether a cap is not used, or a pod without one is slow, and no cap is exceeded:
// then the machine may have been busy.
func (t Traffic) TooLittle(ingress, egress uint64) bool {
	for _, d := range t.Directions(ingress, egress) {
		if d.Bits != 0 && d.Above() != nil {
			return false
		}
	}
	return t.Err(ingress, egress) != nil
}

func (d Direction) String() string {
	if d.Bits == 0 {
		return fmt.Sprintf("%s without a cap: %.1f Mbit/s", d.Name, d.Series.BitsPerSec()/1e6)
	}
	return fmt.Sprintf("%s %.0fM: worst second %.4f of the cap, excess %.0f bytes, used %.3f", d.Name, float64(d.Bits)/1e6,
		d.WorstSecond(), d.Series.Excess(float64(d.Bits)), d.Used())
}

// WorstSecond is the fullest second as a share of the cap.
func (d Direction) WorstSecond() float64 {
	return float64(d.Series.Worst(time.Second)) * 8 / float64(d.Bits)
}

// Used is the mean after the start, as a share of the cap.
func (d Direction) Used() float64 {
	late := wiremeter.Series{Bytes: d.Series.Bytes[min(int(d.settle/time.Millisecond), len(d.Series.Bytes)):]}
	return late.BitsPerSec() / float64(d.Bits)
}

// Err says whether the direction keeps to its cap and uses it.
func (d Direction) Err() error {
	if d.Bits == 0 {
		if got := d.Series.BitsPerSec(); got < Offered/4 {
			return fmt.Errorf("%s without a cap: %.1f Mbit/s of %.0f offered", d.Name, got/1e6, Offered/1e6)
		}
		return nil
	}
	errs := []error{d.Above()}
	if used := d.Used(); used < leastUse {
		errs = append(errs, fmt.Errorf("%s %d bits/s: %.3f of the cap used", d.Name, d.Bits, used))
	}
	return errors.Join(errs...)
}

// Above says whether the direction keeps to its cap, which it may use or not.
func (d Direction) Above() error {
	var errs []error
	bytesPerSec := float64(d.Bits) / 8
	if excess, most := d.Series.Excess(float64(d.Bits)), bytesPerSec*(burst+stall).Seconds()+maxPacket; excess > most {
		errs = append(errs, fmt.Errorf("%s %d bits/s: %.0f bytes above the cap, at most %.0f expected", d.Name, d.Bits, excess, most))
	}
	if worst := d.WorstSecond(); worst > 1.01+stall.Seconds() {
		errs = append(errs, fmt.Errorf("%s %d bits/s: a second had %.4f of the cap", d.Name, d.Bits, worst))
	}
	return errors.Join(errs...)
}

// Tenths are the rates in each 100 ms, in Mbit/s.
func Tenths(s *wiremeter.Series) []float64 {
	var rates []float64
	for ms := 100; ms <= len(s.Bytes); ms += 100 {
		part := wiremeter.Series{Bytes: s.Bytes[ms-100 : ms]}
		rates = append(rates, part.BitsPerSec()/1e6)
	}
	return rates
}
