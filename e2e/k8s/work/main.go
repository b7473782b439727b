// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Command work is the one program in the pods of e2e/k8s: it makes traffic of a
// bounded rate, takes it, or waits.
//
//	work pause                                  wait for SIGTERM; also the sandbox's program
//	work serve                                  take connections on port 7000
//	work load ADDRESS up|down BITS DURATION     one connection to such a server,
//	                                            at no more than BITS per second
//	work load ADDRESS up-udp|down-udp BITS DURATION
//	                                            the same with datagrams
//	work stop ADDRESS                           end all loads at this address of such a server
//	work reach ADDRESS                          connect to such a server, and no more
//	work ask ADDRESS DURATION                   200 questions per second on one
//	                                            connection; prints the p50, the p99 and
//	                                            the longest time of an answer, in µs
//	work count DURATION                         prints what the pod receives, in bits
//	                                            per second
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// port is where servers listen; it means nothing.
const port = "7000"

// chunk is the most that is written at once, in bytes.
const chunk = 64 << 10

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "work:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "pause":
		pause()
		return nil
	case len(args) == 1 && args[0] == "serve":
		go func() {
			pause()
			os.Exit(0)
		}()
		return serve()
	case len(args) == 5 && args[0] == "load" && ways[args[2]]:
		bits, err := strconv.ParseUint(args[3], 10, 63)
		if err != nil {
			return err
		}
		length, err := time.ParseDuration(args[4])
		if err != nil {
			return err
		}
		return load(args[1], args[2], bits, length)
	case len(args) == 2 && args[0] == "stop":
		return request(args[1], "stop 0 0\n", nil)
	case len(args) == 2 && args[0] == "reach":
		return request(args[1], "", nil)
	case len(args) == 3 && args[0] == "ask":
		length, err := time.ParseDuration(args[2])
		if err != nil {
			return err
		}
		return ask(args[1], length)
	case len(args) == 2 && args[0] == "count":
		length, err := time.ParseDuration(args[1])
		if err != nil {
			return err
		}
		return count(length)
	}
	return errors.New("usage: work pause|serve|load ADDRESS up|down|up-udp|down-udp BITS DURATION|stop ADDRESS|reach ADDRESS|ask ADDRESS DURATION|count DURATION")
}

// ways are those of a load.
var ways = map[string]bool{"up": true, "down": true, "up-udp": true, "down-udp": true}

// pause waits for a signal, and takes in what orphans leave behind, as the
// first process of a pod should.
func pause() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for s := range c {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if pid <= 0 || err != nil {
				break
			}
		}
	}
}

// server holds the connections that "stop" ends.
type server struct {
	mu    sync.Mutex
	conns map[*net.TCPConn]bool
}

func serve() error {
	l, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	s := &server{conns: map[*net.TCPConn]bool{}}
	go sink()
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go s.answer(c.(*net.TCPConn))
	}
}

// answer takes a request of one line: a way with its bits per second and its
// time in nanoseconds, "stop 0 0", or "ask 0 0" before questions. A way of
// datagrams lasts as long as the connection; its datagrams go to and from the
// connection's own addresses.
func (s *server) answer(c *net.TCPConn) {
	defer func() { _ = c.Close() }()
	var way string
	var bits uint64
	var length time.Duration
	if _, err := fmt.Fscanf(c, "%s %d %d\n", &way, &bits, &length); err != nil {
		return
	}
	if way == "stop" {
		s.stop(here(c))
		return
	}
	s.hold(c, true)
	defer s.hold(c, false)
	switch way {
	case "down":
		_ = send(c, bits, length)
	case "ask":
		_, _ = io.Copy(c, c)
	case "down-udp":
		go func() { _ = flood(c.RemoteAddr(), bits, length, c) }()
		fallthrough
	default:
		_, _ = io.Copy(io.Discard, c)
		_ = c.SetLinger(0)
	}
}

func (s *server) hold(c *net.TCPConn, yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if yes {
		s.conns[c] = true
	} else {
		delete(s.conns, c)
	}
}

// stop resets the connections to an address of the pod: what waits in their buffers
// would take its time. Those of its other interfaces go on.
func (s *server) stop(address netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if here(c) == address {
			_ = c.SetLinger(0)
			_ = c.Close()
		}
	}
}

// here is the server's end of a connection.
func here(c *net.TCPConn) netip.Addr { return c.LocalAddr().(*net.TCPAddr).AddrPort().Addr() }

func load(address, way string, bits uint64, length time.Duration) error {
	line := fmt.Sprintf("%s %d %d\n", way, bits, length)
	switch way {
	case "up":
		return request(address, line, func(c *net.TCPConn) error { return send(c, bits, length) })
	case "up-udp":
		return request(address, line, func(c *net.TCPConn) error {
			go func() { _ = flood(c.RemoteAddr(), bits, length, c) }()
			return untilClosed(c, length)
		})
	case "down-udp":
		return request(address, line, func(c *net.TCPConn) error { return untilClosed(c, length) })
	}
	return request(address, line, func(c *net.TCPConn) error {
		// The peer's last bytes may wait in a queue.
		if err := c.SetReadDeadline(time.Now().Add(length + 5*time.Second)); err != nil {
			return err
		}
		_, err := io.Copy(io.Discard, c)
		return err
	})
}

// request sends a line and does the rest.
func request(address, line string, rest func(*net.TCPConn) error) error {
	// Long enough for a first packet that was lost, which is sent again after 1 s.
	c, err := net.DialTimeout("tcp", net.JoinHostPort(address, port), 2500*time.Millisecond)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, line); err != nil || rest == nil {
		return err
	}
	return rest(c.(*net.TCPConn))
}

// send writes for a time, at no more than a rate in bits per second.
func send(c *net.TCPConn, bits uint64, length time.Duration) error {
	end := time.Now().Add(length)
	if err := c.SetWriteDeadline(end); err != nil {
		return err
	}
	buf := make([]byte, chunk)
	cost := time.Duration(chunk * 8 * float64(time.Second) / float64(bits))
	next := time.Now()
	for time.Now().Before(end) {
		if _, err := c.Write(buf); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			return err
		}
		// Time that a full queue took is not made up for.
		next = next.Add(cost)
		if now := time.Now(); next.Before(now) {
			next = now
		}
		<-time.After(time.Until(next))
	}
	// What waits in the socket's buffer goes with the connection.
	return c.SetLinger(0)
}
