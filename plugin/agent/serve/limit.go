// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package serve

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Limits of the connections to one port. Whoever comes last is served, and another party's
// connection is reset for it: a full house would keep out the kubelet and Prometheus.
const (
	// MaxConnections is how many there are in all.
	MaxConnections = 64
	// MaxPerSource is how many there are of one source address: a pair of Prometheus
	// servers behind one address has two.
	MaxPerSource = 4
	// socketBuffer is what the kernel may hold for a connection in each direction, in
	// bytes, of which it takes twice as much. By itself it would take up to 4 MiB for a
	// reader that is slow, from what the agent's container may have.
	socketBuffer = 64 << 10
	// resetWait is how long the next connection waits until one that was reset is
	// done with. It bounds what a flood of connections holds.
	resetWait = 10 * time.Millisecond
)

// limiter bounds the connections of a listener.
type limiter struct {
	net.Listener

	mu sync.Mutex
	// conns are in the order in which they came.
	conns []*limited
}

// limited is a connection that counts.
type limited struct {
	net.Conn
	of   *limiter
	from netip.Addr
	// busy is when its request began to be answered, zero while there is none.
	busy time.Time
	done chan struct{}
	once sync.Once
}

// control sets the buffers of a listening socket, which connections inherit.
func control(_, _ string, c syscall.RawConn) error {
	var err error
	outer := c.Control(func(fd uintptr) {
		if err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, socketBuffer); err == nil {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, socketBuffer)
		}
	})
	if outer != nil {
		return outer
	}
	return err
}

// Accept implements [net.Listener].
func (l *limiter) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &limited{Conn: conn, of: l, from: source(conn.RemoteAddr()), done: make(chan struct{})}
	l.mu.Lock()
	victim := l.victim(c.from)
	l.conns = append(l.conns, c)
	l.mu.Unlock()
	if victim != nil {
		victim.reset()
	}
	return c, nil
}

// source is the address that a connection comes from, as IPv4 where it is.
func source(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap().WithZone("")
}

// victim returns the connection that goes for one of a source, nil if there is room: of
// the source itself if that has too many, else of the source that has most of them.
func (l *limiter) victim(from netip.Addr) *limited {
	count := make(map[netip.Addr]int)
	most := 0
	for _, c := range l.conns {
		count[c.from]++
		most = max(most, count[c.from])
	}
	var found *limited
	for _, c := range l.conns {
		switch {
		case count[from] >= MaxPerSource:
			if c.from != from {
				continue
			}
		case len(l.conns) < MaxConnections || count[c.from] < most:
			continue
		}
		if found == nil || c.before(found) {
			found = c
		}
	}
	return found
}

// before says whether a connection goes before one that came earlier: one without a
// request before one that is being answered, and of those the one that takes longest.
func (c *limited) before(o *limited) bool {
	if c.busy.IsZero() || o.busy.IsZero() {
		return c.busy.IsZero() && !o.busy.IsZero()
	}
	return c.busy.Before(o.busy)
}

// state follows a connection of a server on the listener; it is [http.Server.ConnState].
func (l *limiter) state(conn net.Conn, s http.ConnState) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	c, ok := conn.(*limited)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if s != http.StateActive {
		c.busy = time.Time{}
	} else if c.busy.IsZero() {
		c.busy = time.Now()
	}
}

// reset ends a connection without the time that an orderly end takes in the kernel, and
// waits a little for whoever serves it.
func (c *limited) reset() {
	c.forget()
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Conn.Close()
	timer := time.NewTimer(resetWait)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
	}
}

// Close implements [net.Conn].
func (c *limited) Close() error {
	c.once.Do(func() { close(c.done) })
	c.forget()
	return c.Conn.Close()
}

func (c *limited) forget() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	for i, o := range c.of.conns {
		if o == c {
			c.of.conns = append(c.of.conns[:i], c.of.conns[i+1:]...)
			return
		}
	}
}
