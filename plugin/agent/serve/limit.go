// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package serve

import (
	"net"
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
	of *limiter
}

// Accept implements [net.Listener].
func (l *limiter) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &limited{conn, l}
	l.mu.Lock()
	l.conns = append(l.conns, c)
	var oldest *limited
	if len(l.conns) > MaxConnections {
		oldest = l.conns[0]
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

// Close implements [net.Conn].
func (c *limited) Close() error {
	c.of.mu.Lock()
	c.of.conns = slices.DeleteFunc(c.of.conns, func(o *limited) bool { return o == c })
	c.of.mu.Unlock()
	return c.Conn.Close()
}
