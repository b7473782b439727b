// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package serve_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/agent/serve"
	"github.com/podweir/podweir/plugin/testutil/short"
)

func config(more func(*serve.Config)) serve.Config {
	c := serve.Config{
		Address: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler),
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

func TestReadyNamesEveryPartThatFails(t *testing.T) {
	t.Parallel()
	fault := errors.New("watch of pods: 403 Forbidden\nsecond line")
	h := serve.Handler(config(func(c *serve.Config) {
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
	plain := serve.Handler(config(nil))
	profile := serve.Handler(config(func(c *serve.Config) { c.Profile = true }))
	for _, test := range []struct {
		h            http.Handler
		method, path string
		status       int
		body         string
	}{
		{plain, http.MethodGet, "/metrics", http.StatusOK, "metric 1\n"},
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

// port finds one that is free and accepted.
func port(t *testing.T) string {
	t.Helper()
	for p := range 200 {
		address := net.JoinHostPort("127.0.0.1", []string{"31", "30", "29"}[p%3]+string(rune('0'+p/3%10))+"17")
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
		if err == nil {
			_ = l.Close()
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}

func TestRunServesUntilTheEnd(t *testing.T) {
	t.Parallel()
	address := port(t)
	s, err := serve.Listen(t.Context(), config(func(c *serve.Config) { c.Address = address }))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := serve.Listen(t.Context(), config(func(c *serve.Config) { c.Address = address })); err == nil || !strings.Contains(err.Error(), address) {
		t.Errorf("Listen on a port that is taken = %v, want the address in the error", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("Run() = %v, want nil after the end", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Run does not end")
	}
	if l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address); err != nil {
		t.Errorf("the port is still taken: %v", err)
	} else {
		_ = l.Close()
	}
}

// A client that says nothing does not hold a connection for ever.
func TestSlowClientsAreCutOff(t *testing.T) {
	short.LeaveOut(t, "it waits for the end of a connection's time")
	t.Parallel()
	address := port(t)
	s, err := serve.Listen(t.Context(), config(func(c *serve.Config) { c.Address = address }))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = s.Run(ctx) }()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, err = io.ReadAll(conn)
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		t.Error("the connection of a client that never ends its request stays open")
	}
}
