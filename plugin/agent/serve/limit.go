// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package serve

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// MaxConnections is how many connections a port has at most. The next one is served, and
	// the oldest is reset for it: whoever holds connections keeps out neither the kubelet nor
	// Prometheus, whose requests take milliseconds.
	MaxConnections = 64
	// fewOfSource is how many connections of one source are not yet a flood: one that has more loses
	// its own oldest for its next one, and resets nobody else's.
	fewOfSource = MaxConnections / 4
	// socketBuffer is what the kernel may hold for a connection in each direction, in
	// bytes, of which it takes twice as much. By itself it would take up to 4 MiB for a
	// reader that is slow, from what the agent's container may have.
	socketBuffer = 64 << 10
)

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
}

// Accept implements [net.Listener].
func (l *limiter) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	from, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
	c := &limited{conn, l, from.Addr()}
	l.mu.Lock()
	l.conns = append(l.conns, c)
	var oldest *limited
	if len(l.conns) > MaxConnections {
		oldest = l.oldest(c.from)
	}
	l.mu.Unlock()
	if oldest != nil {
		// At once: an orderly end takes time in the kernel.
		if tcp, ok := oldest.Conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = oldest.Close()
	}
	return c, nil
}

// oldest is the connection that goes for the newest one, which is of this source.
func (l *limiter) oldest(from netip.Addr) *limited {
	var own []*limited
	for _, c := range l.conns {
		if c.from == from {
			own = append(own, c)
		}
	}
	if len(own) > fewOfSource {
		return own[0]
	}
	return l.conns[0]
}

// Close implements [net.Conn].
func (c *limited) Close() error {
	c.of.mu.Lock()
	c.of.conns = slices.DeleteFunc(c.of.conns, func(o *limited) bool { return o == c })
	c.of.mu.Unlock()
	return c.Conn.Close()
}
