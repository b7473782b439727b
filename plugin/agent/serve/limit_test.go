// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package serve_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/agent/serve"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// patient is how long what is served at once may take on a machine that has much else to
// do. Who waited for silent connections would wait for minutes.
const patient = 10 * time.Second

// left says how many connections the other end still has, once there are no more than so
// many and a moment later: what it resets is known at once.
func left(t *testing.T, conns []net.Conn, atMost int) int {
	t.Helper()
	testutil.Eventually(t, patient, fmt.Sprintf("at most %d connections are left", atMost), func() bool { return open(t, conns) <= atMost })
	<-time.After(50 * time.Millisecond)
	return open(t, conns)
}

// open counts the connections that the other end has neither reset nor ended.
func open(t *testing.T, conns []net.Conn) (n int) {
	t.Helper()
	for _, c := range conns {
		raw, err := c.(syscall.Conn).SyscallConn()
		must.OK(t, err)
		var size int
		var state error
		must.OK(t, raw.Control(func(fd uintptr) {
			size, _, state = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		}))
		if size > 0 || errors.Is(state, unix.EAGAIN) {
			n++
		}
	}
	return n
}

// Who opens connections and says nothing has a few, and keeps nobody out.
func TestIdleConnectionsAreLimited(t *testing.T) {
	t.Parallel()
	s := startWith(t, 5*time.Minute, nil)
	for port, page := range map[string]string{s.metrics: "/metrics", s.health: "/healthz"} {
		var one, many []net.Conn
		for range 3 * serve.MaxPerSource {
			one = append(one, connect(t, "127.0.1.1", port))
		}
		if body, took := fetch(t, "127.0.0.1", "http://"+port+page); took > patient || body == "" {
			t.Errorf("%s: %q after %v, want it at once", page, body, took)
		}
		if n := left(t, one, serve.MaxPerSource); n != serve.MaxPerSource {
			t.Errorf("%d connections of one source, want %d", n, serve.MaxPerSource)
		}
		for i := range 3 * serve.MaxConnections {
			many = append(many, connect(t, fmt.Sprintf("127.0.2.%d", i+1), port))
		}
		// The same source as one of theirs, and one of its own.
		for _, from := range []string{"127.0.2.9", "127.0.0.1"} {
			if body, took := fetch(t, from, "http://"+port+page); took > patient || body == "" {
				t.Errorf("%s: %q after %v, want it at once", page, body, took)
			}
		}
		if n := left(t, append(many, one...), serve.MaxConnections); n < serve.MaxConnections/2 {
			t.Errorf("%d connections in all, want about %d", n, serve.MaxConnections)
		}
	}
}

// Of a full house the connection that says nothing is reset first, then the reader that
// has been reading for longest.
func TestSlowestReaderGoesFirst(t *testing.T) {
	t.Parallel()
	const size, sources = 1 << 19, serve.MaxConnections/serve.MaxPerSource - 1
	answering := make(chan struct{}, serve.MaxConnections)
	// So slow may the machine be, and nobody is cut off for another reason.
	s := startWith(t, 5*time.Minute, func(c *serve.Config) {
		c.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			answering <- struct{}{}
			_, _ = io.WriteString(w, strings.Repeat("x", size))
		})
	})
	var silent, slow []net.Conn
	for range serve.MaxPerSource {
		silent = append(silent, connect(t, "127.0.4.1", s.metrics))
	}
	for i := range sources * serve.MaxPerSource {
		conn := connect(t, fmt.Sprintf("127.0.3.%d", i%sources+1), s.metrics)
		if _, err := io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		slow = append(slow, conn)
		<-answering
	}
	// One source after the other has the most connections, and loses one.
	for i := range 3 {
		_ = connect(t, fmt.Sprintf("127.0.5.%d", i+1), s.metrics)
	}
	if body, took := fetch(t, "127.0.0.1", "http://"+s.metrics+"/metrics"); took > patient || len(body) != size {
		t.Errorf("%d bytes after %v, want %d at once", len(body), took, size)
	}
	if n := left(t, silent, serve.MaxPerSource-1); n != serve.MaxPerSource-1 {
		t.Errorf("%d silent connections are left, want one less than %d", n, serve.MaxPerSource)
	}
	for i, conn := range slow {
		must.OK(t, conn.SetReadDeadline(time.Now().Add(30*time.Second)))
		_, err := io.Copy(io.Discard, conn)
		// Two for the newcomers, one for the last reader.
		if was, want := err != nil, i < 3; was != want {
			t.Errorf("reader %d was reset: %v (%v), want %v", i, was, err, want)
		}
	}
}
