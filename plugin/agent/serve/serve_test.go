// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package serve_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/agent/serve"
	"github.com/podweir/podweir/plugin/testutil/must"
)

func config(more func(*serve.Config)) serve.Config {
	c := serve.Config{
		Address: "127.0.0.1:0", HealthAddress: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler),
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metric 1\n") }),
	}
	if more != nil {
		more(&c)
	}
	return c
}

func get(t *testing.T, h http.Handler, method, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
	return w.Code, w.Body.String()
}

func TestParseAddress(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]int{":9479": 9479, "127.0.0.1:1": 1, "[::1]:32767": 32767, "0.0.0.0:80": 80} {
		if got, err := serve.ParseAddress(address); got != want || err != nil {
			t.Errorf("ParseAddress(%q) = %d, %v, want %d", address, got, err, want)
		}
	}
	for address, want := range map[string]string{
		"":               "no port",
		"9479":           "no port",
		":":              `"" is not a number`,
		":http":          `"http" is not a number`,
		":0":             "no such port",
		":-1":            "no such port",
		":32768":         "connections",
		":65535":         "connections",
		"localhost:9479": `"localhost" is not an IP address`,
	} {
		_, err := serve.ParseAddress(address)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "from 1 to 32767") {
			t.Errorf("ParseAddress(%q) = %v, want %q and what is accepted", address, err, want)
		}
	}
}

func TestParseLoopback(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"127.0.0.1:9478", "[::1]:1", "127.9.9.9:80"} {
		if _, err := serve.ParseLoopback(address); err != nil {
			t.Errorf("ParseLoopback(%q) = %v, want none", address, err)
		}
	}
	for _, address := range []string{":9478", "0.0.0.0:9478", "192.0.2.1:9478", "[::]:9478"} {
		if _, err := serve.ParseLoopback(address); err == nil || !strings.Contains(err.Error(), "127.0.0.1:9478") {
			t.Errorf("ParseLoopback(%q) = %v, want an error that says what is accepted", address, err)
		}
	}
	if _, err := serve.ParseLoopback("127.0.0.1:65535"); err == nil {
		t.Error("a port that the kernel gives to connections is accepted")
	}
}

func TestReadyNamesEveryPartThatFails(t *testing.T) {
	t.Parallel()
	fault := errors.New("watch of pods: 403 Forbidden\nsecond line")
	h := serve.Health(config(func(c *serve.Config) {
		c.Ready = []serve.Check{
			{Name: "delivery", Err: func() error { return nil }},
			{Name: "api", Err: func() error { return fault }},
		}
	}))
	status, body := get(t, h, http.MethodGet, "/readyz")
	const want = "ok: delivery\nnot ready: api: watch of pods: 403 Forbidden; second line\n"
	if status != http.StatusServiceUnavailable || body != want {
		t.Errorf("/readyz = %d %q, want 503 %q", status, body, want)
	}
	fault = nil
	if status, body := get(t, h, http.MethodGet, "/readyz"); status != http.StatusOK || body != "ok: delivery\nok: api\n" {
		t.Errorf("/readyz = %d %q, want 200 and both parts", status, body)
	}
}

func TestHandler(t *testing.T) {
	t.Parallel()
	metrics, plain := serve.Metrics(config(nil)), serve.Health(config(nil))
	profile := serve.Health(config(func(c *serve.Config) { c.Profile = true }))
	for _, test := range []struct {
		h            http.Handler
		method, path string
		status       int
		body         string
	}{
		{metrics, http.MethodGet, "/metrics", http.StatusOK, "metric 1\n"},
		{metrics, http.MethodPost, "/metrics", http.StatusMethodNotAllowed, ""},
		{metrics, http.MethodGet, "/", http.StatusNotFound, ""},
		// Who reaches the node from outside learns nothing else.
		{metrics, http.MethodGet, "/healthz", http.StatusNotFound, ""},
		{metrics, http.MethodGet, "/readyz", http.StatusNotFound, ""},
		{metrics, http.MethodGet, "/debug/pprof/", http.StatusNotFound, ""},
		{plain, http.MethodGet, "/metrics", http.StatusNotFound, ""},
		{plain, http.MethodGet, "/healthz", http.StatusOK, "ok\n"},
		{plain, http.MethodPost, "/healthz", http.StatusMethodNotAllowed, ""},
		{plain, http.MethodGet, "/", http.StatusNotFound, ""},
		{plain, http.MethodGet, "/debug/pprof/", http.StatusNotFound, ""},
		{plain, http.MethodGet, "/debug/pprof/heap", http.StatusNotFound, ""},
		{profile, http.MethodGet, "/debug/pprof/", http.StatusOK, ""},
		{profile, http.MethodGet, "/debug/pprof/goroutine?debug=1", http.StatusOK, ""},
	} {
		status, body := get(t, test.h, test.method, test.path)
		if status != test.status || test.body != "" && body != test.body {
			t.Errorf("%s %s = %d %q, want %d %q", test.method, test.path, status, body, test.status, test.body)
		}
	}
}

// ports are addresses that are free and accepted.
func ports(t *testing.T, n int) (addresses []string) {
	t.Helper()
	for p := 20000; p < 30000; p++ {
		address := fmt.Sprintf("127.0.0.1:%d", p+os.Getpid()%1000)
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
		if err != nil {
			continue
		}
		defer func() { _ = l.Close() }()
		if addresses = append(addresses, address); len(addresses) == n {
			return addresses
		}
	}
	t.Fatal("no port is free")
	return nil
}

// server is one that runs until the test ends.
type server struct{ metrics, health, node string }

// free is held while ports are looked for and taken.
var free sync.Mutex

func start(t *testing.T, more func(*serve.Config)) *server {
	t.Helper()
	return startWith(t, 0, more)
}

// startWith gives clients so much time for a request and an answer, 0 for what they have
// by default.
func startWith(t *testing.T, patience time.Duration, more func(*serve.Config)) *server {
	t.Helper()
	free.Lock()
	defer free.Unlock()
	addresses := ports(t, 2)
	s, err := serve.Listen(t.Context(), config(func(c *serve.Config) {
		c.Address, c.HealthAddress = addresses[0], addresses[1]
		if more != nil {
			more(c)
		}
	}))
	must.OK(t, err)
	if patience > 0 {
		s.SetPatience(patience)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run() = %v, want nil after the end", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("Run does not end")
		}
	})
	up := &server{metrics: addresses[0], health: addresses[1]}
	if node := s.NodeAddr(); node != nil {
		up.node = node.String()
	}
	return up
}

// connect opens a connection from an address of the loopback.
func connect(t *testing.T, from, to string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 10 * time.Second}
	conn, err := d.DialContext(t.Context(), "tcp", to)
	must.OK(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// fetch gets a page over a connection of its own and says how long that took.
func fetch(t *testing.T, from, url string) (body string, took time.Duration) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	client := &http.Client{Transport: &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true}, Timeout: 20 * time.Second}
	began := time.Now()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must.OK(t, err)
	res, err := client.Do(req)
	must.OK(t, err)
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	must.OK(t, err)
	return string(b), time.Since(began)
}

func TestRunServesUntilTheEnd(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	if _, err := serve.Listen(t.Context(), config(func(c *serve.Config) {
		c.Address, c.HealthAddress = s.metrics, ports(t, 1)[0]
	})); err == nil || !strings.Contains(err.Error(), s.metrics) {
		t.Errorf("Listen on a port that is taken = %v, want the address in the error", err)
	}
	if body, _ := fetch(t, "127.0.0.1", "http://"+s.health+"/healthz"); body != "ok\n" {
		t.Errorf("/healthz = %q", body)
	}
	if body, _ := fetch(t, "127.0.0.1", "http://"+s.metrics+"/metrics"); body != "metric 1\n" {
		t.Errorf("/metrics = %q", body)
	}
}

// A client that says nothing does not hold a connection for ever.
func TestSlowClientsAreCutOff(t *testing.T) {
	t.Parallel()
	s := startWith(t, 50*time.Millisecond, nil)
	conn := connect(t, "127.0.0.1", s.metrics)
	if _, err := io.WriteString(conn, "GET /metrics HTTP/1.1\r\n"); err != nil {
		t.Fatal(err)
	}
	must.OK(t, conn.SetReadDeadline(time.Now().Add(30*time.Second)))
	_, err := io.ReadAll(conn)
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		t.Error("the connection of a client that never ends its request stays open")
	}
}
