// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package serve_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/agent/serve"
	"github.com/podweir/podweir/plugin/testutil"
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

func TestCheckAddress(t *testing.T) {
	t.Parallel()
	for _, address := range []string{":9479", "127.0.0.1:1", "[::1]:32767", "0.0.0.0:80"} {
		must.OK(t, serve.CheckAddress(address))
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
		must.Fail(t, "CheckAddress of "+address, serve.CheckAddress(address), want, "from 1 to 32767")
	}
}

func TestCheckLoopback(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"127.0.0.1:9478", "[::1]:1", "127.9.9.9:80"} {
		must.OK(t, serve.CheckLoopback(address))
	}
	for _, address := range []string{":9478", "0.0.0.0:9478", "192.0.2.1:9478", "[::]:9478"} {
		must.Fail(t, "CheckLoopback of "+address, serve.CheckLoopback(address), "127.0.0.1:9478")
	}
	must.Fail(t, "CheckLoopback of a port that the kernel gives to connections", serve.CheckLoopback("127.0.0.1:65535"))
}

func TestReadyNamesEveryPartThatFails(t *testing.T) {
	t.Parallel()
	fault, note := errors.New("watch of pods: 403 Forbidden\nsecond line"), errors.New("others")
	h := serve.Health(config(func(c *serve.Config) {
		c.Ready = []serve.Check{
			{Name: "delivery", Err: func() error { return nil }, Is: func() string { return "nri" }},
			{Name: "api", Err: func() error { return fault }},
			{Name: "settings", Note: true, Err: func() error { return note }},
		}
	}))
	status, body := get(t, h, http.MethodGet, "/readyz")
	const want = "ok: delivery: nri\nnot ready: api: watch of pods: 403 Forbidden; second line\nnote: settings: others\n"
	must.Be(t, "/readyz", fmt.Sprint(http.StatusServiceUnavailable, want), fmt.Sprint(status, body))
	fault = nil
	status, body = get(t, h, http.MethodGet, "/readyz")
	must.Be(t, "/readyz", fmt.Sprint(http.StatusOK, "ok: delivery: nri\nok: api\nnote: settings: others\n"), fmt.Sprint(status, body))
	note = nil
	_, body = get(t, h, http.MethodGet, "/readyz")
	must.Be(t, "/readyz", "ok: delivery: nri\nok: api\nok: settings\n", body)
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
		// Whoever reaches the node from outside learns nothing else.
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

// server is one that runs until the test ends.
type server struct{ metrics, health, node string }

func start(t *testing.T, more func(*serve.Config)) *server {
	t.Helper()
	return startWith(t, 0, more)
}

// startWith gives clients so much time for a request and an answer, 0 for what they have
// by default.
func startWith(t *testing.T, patience time.Duration, more func(*serve.Config)) *server {
	t.Helper()
	s := must.Get(serve.Listen(t.Context(), config(more)))(t)
	if patience > 0 {
		s.SetPatience(patience)
	}
	testutil.During(t, s.Run)
	up := &server{metrics: s.Addr().String(), health: s.HealthAddr().String()}
	if node := s.NodeAddr(); node != nil {
		up.node = node.String()
	}
	return up
}

func connect(t *testing.T, to string) net.Conn {
	t.Helper()
	conn := must.Get((&net.Dialer{Timeout: 10 * time.Second}).DialContext(t.Context(), "tcp", to))(t)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// fetch gets a page over a connection of its own and says how long that took.
func fetch(t *testing.T, url string) (body string, took time.Duration) {
	t.Helper()
	began := time.Now()
	_, body = request(t, nil, url, "X", "")
	return body, time.Since(began)
}

// request is fetch with a header, over TLS as conf says.
func request(t *testing.T, conf *tls.Config, url, header, value string) (status int, body string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: conf}, Timeout: 20 * time.Second}
	req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))(t)
	req.Header.Set(header, value)
	res, err := client.Do(req)
	must.OK(t, err)
	defer func() { _ = res.Body.Close() }()
	return res.StatusCode, string(must.Get(io.ReadAll(res.Body))(t))
}

// says fails the test unless a page is this text.
func says(t *testing.T, url, want string) {
	t.Helper()
	body, _ := fetch(t, url)
	must.Be(t, url, want, body)
}

func TestRunServesUntilTheEnd(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	taken := config(func(c *serve.Config) { c.Address = s.metrics })
	must.Fail(t, "Listen() of a port that is taken", must.Err(serve.Listen(t.Context(), taken)), s.metrics)
	says(t, "http://"+s.health+"/healthz", "ok\n")
	says(t, "http://"+s.metrics+"/metrics", "metric 1\n")
}

// A client that says nothing does not hold a connection for ever.
func TestSlowClientsAreCutOff(t *testing.T) {
	t.Parallel()
	s := startWith(t, 50*time.Millisecond, nil)
	conn := connect(t, s.metrics)
	must.OK(t, must.Err(io.WriteString(conn, "GET /metrics HTTP/1.1\r\n")))
	must.OK(t, conn.SetReadDeadline(time.Now().Add(30*time.Second)))
	_, err := io.ReadAll(conn)
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		t.Error("the connection of a client that never ends its request stays open")
	}
}

// reviewer allows the token "good".
type reviewer struct {
	asked atomic.Int32
	away  atomic.Bool
}

func (r *reviewer) review(_ context.Context, token, path string) (bool, error) {
	r.asked.Add(1)
	if r.away.Load() {
		return false, errors.New("the API server is away")
	}
	return token == "good" && path == "/metrics", nil
}

func ask(t *testing.T, h http.Handler, from, authorization string) int {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
	req.RemoteAddr = from + ":1234"
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w.Code
}

func TestGuard(t *testing.T) {
	t.Parallel()
	r := &reviewer{}
	h := serve.Metrics(config(func(c *serve.Config) { c.Review = r.review }))
	for _, none := range []string{"", "Basic good", "Bearer ", "good"} {
		must.Be(t, fmt.Sprintf("Authorization %q", none), http.StatusUnauthorized, ask(t, h, "192.0.2.1", none))
	}
	must.Be(t, "calls of the API server about no token", 0, r.asked.Load())
	must.Be(t, "a token that is allowed", http.StatusOK, ask(t, h, "192.0.2.1", "Bearer good"))
	// It is known now, whoever else floods.
	for i := range 50 {
		must.Be(t, "another token of the same source at once", http.StatusTooManyRequests, ask(t, h, "192.0.2.1", "Bearer bad"+string(rune('a'+i))))
		must.Be(t, "a token that is known", http.StatusOK, ask(t, h, "192.0.2.2", "Bearer good"))
	}
	r.away.Store(true)
	must.Be(t, "a token that is known while the API server is away", http.StatusOK, ask(t, h, "192.0.2.1", "Bearer good"))
	must.Be(t, "calls of the API server", 1, r.asked.Load())
}

func TestGuardRefuses(t *testing.T) {
	t.Parallel()
	r := &reviewer{}
	h := serve.Metrics(config(func(c *serve.Config) { c.Review = r.review }))
	for range 3 {
		must.Be(t, "a token that is not allowed", http.StatusForbidden, ask(t, h, "192.0.2.1", "Bearer bad"))
	}
	must.Be(t, "calls of the API server about one token", 1, r.asked.Load())
	away := &reviewer{}
	away.away.Store(true)
	h = serve.Metrics(config(func(c *serve.Config) { c.Review = away.review }))
	must.Be(t, "a token that is not known while the API server is away", http.StatusServiceUnavailable, ask(t, h, "192.0.2.1", "Bearer good"))
}

// The API server is called once a second for each source. A flood from others keeps no
// source waiting, and has no token forgotten that is allowed.
func TestGuardPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reviewer{}
		h := serve.Metrics(config(func(c *serve.Config) { c.Review = r.review }))
		must.Be(t, "a token that is allowed", http.StatusOK, ask(t, h, "192.0.2.1", "Bearer good"))
		for i := range 200 {
			from := fmt.Sprintf("198.51.100.%d", i)
			for n, want := range []int{http.StatusForbidden, http.StatusTooManyRequests} {
				must.Be(t, fmt.Sprintf("token %d of %s", n, from), want, ask(t, h, from, fmt.Sprintf("Bearer bad%d-%d", i, n)))
			}
			<-time.After(100 * time.Millisecond)
		}
		asked := r.asked.Load()
		must.Be(t, "a token that is known", http.StatusOK, ask(t, h, "192.0.2.1", "Bearer good"))
		must.Be(t, "reviews", asked, r.asked.Load())
		must.Be(t, "a token of a source that waited", http.StatusForbidden, ask(t, h, "198.51.100.0", "Bearer other"))
	})
}

// A token that is known to be refused takes no turn of its source: all who ask through the API server have one address.
func TestGuardRefusedTokenTakesNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := serve.Metrics(config(func(c *serve.Config) { c.Review = (&reviewer{}).review }))
		for range 2 {
			must.Be(t, "a token that is not allowed", http.StatusForbidden, ask(t, h, "192.0.2.1", "Bearer bad"))
			<-time.After(1100 * time.Millisecond)
		}
		_ = ask(t, h, "192.0.2.1", "Bearer bad")
		must.Be(t, "another token of its source", http.StatusOK, ask(t, h, "192.0.2.1", "Bearer good"))
	})
}

// The state of the node is on a port of its own: over TLS alone, and to whoever has no token
// it tells nothing, not even which paths there are.
func TestNodeIsForReadersAlone(t *testing.T) {
	t.Parallel()
	review := func(_ context.Context, token, path string) (bool, error) {
		return token == "good" && path == serve.NodePath, nil
	}
	s := start(t, func(c *serve.Config) {
		c.NodeAddress, c.ReviewNode = "127.0.0.1:0", review
		c.Node = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "pods") })
	})
	conf := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // as the API server does
	for _, test := range []struct {
		scheme, header, token, path string
		status                      int
		body                        string
	}{
		{scheme: "https", header: serve.TokenHeader, token: "good", path: serve.NodePath, status: http.StatusOK, body: "pods"},
		// Each from the same source: one token a second is reviewed.
		{scheme: "https", header: serve.TokenHeader, token: "bad", path: serve.NodePath, status: http.StatusTooManyRequests},
		{scheme: "https", header: serve.TokenHeader, path: serve.NodePath, status: http.StatusUnauthorized},
		{scheme: "https", header: "Authorization", token: "Bearer good", path: serve.NodePath, status: http.StatusUnauthorized},
		{scheme: "https", header: "X", path: "/", status: http.StatusUnauthorized},
		{scheme: "http", header: serve.TokenHeader, token: "good", path: serve.NodePath, status: http.StatusBadRequest},
	} {
		status, body := request(t, conf, test.scheme+"://"+s.node+test.path, test.header, test.token)
		if status != test.status || test.body != "" && body != test.body {
			t.Errorf("%s, %s %q, %s = %d %q, want %d %q", test.scheme, test.header, test.token, test.path, status, body, test.status, test.body)
		}
	}
	says(t, "http://"+s.metrics+serve.NodePath, "404 page not found\n")
	// Another party's port is no reason for an agent not to work.
	var log strings.Builder
	other := start(t, func(c *serve.Config) {
		c.NodeAddress, c.ReviewNode, c.Node = s.node, review, http.NotFoundHandler()
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	says(t, "http://"+other.health+"/healthz", "ok\n")
	must.Have(t, "the log beside a taken port", log.String(), s.node)
}

// With a reviewer the metrics are TLS alone; the certificate is read again.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(s *httptest.Server) *x509.CertPool {
		t.Helper()
		cert := s.TLS.Certificates[0]
		key := must.Get(x509.MarshalPKCS8PrivateKey(cert.PrivateKey))(t)
		for name, b := range map[string]*pem.Block{
			"tls.crt": {Type: "CERTIFICATE", Bytes: cert.Certificate[0]}, "tls.key": {Type: "PRIVATE KEY", Bytes: key},
		} {
			must.OK(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(b), 0o600))
		}
		pool := x509.NewCertPool()
		pool.AddCert(s.Certificate())
		return pool
	}
	own := httptest.NewTLSServer(nil)
	own.Close()
	pool := write(own)
	for name, conf := range map[string]*tls.Config{
		dir: {RootCAs: pool, ServerName: "example.com"}, "": {InsecureSkipVerify: true}, //nolint:gosec // its own signature is what is tried
	} {
		s := start(t, func(c *serve.Config) { c.Review, c.CertDir = (&reviewer{}).review, name })
		_, body := request(t, conf, "https://"+s.metrics+"/metrics", "Authorization", "Bearer good")
		must.Be(t, "metrics with the certificate of "+name, "metric 1\n", body)
		says(t, "http://"+s.health+"/healthz", "ok\n") // without TLS
	}
	none := config(func(c *serve.Config) { c.Review, c.CertDir = (&reviewer{}).review, t.TempDir() })
	must.Fail(t, "Listen() of a directory without a certificate", must.Err(serve.Listen(t.Context(), none)))
}

// patient is how long what is served at once may take on a machine that has much else to
// do. Whoever waited for silent connections would wait for minutes.
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
		raw := must.Get(c.(syscall.Conn).SyscallConn())(t)
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

// Whoever opens connections and says nothing keeps nobody out: the oldest goes.
func TestIdleConnectionsAreLimited(t *testing.T) {
	t.Parallel()
	s := startWith(t, 5*time.Minute, nil)
	for port, page := range map[string]string{s.metrics: "/metrics", s.health: "/healthz"} {
		var many []net.Conn
		for range 3 * serve.MaxConnections {
			many = append(many, connect(t, port))
		}
		if body, took := fetch(t, "http://"+port+page); took > patient || body == "" {
			t.Errorf("%s: %q after %v, want it at once", page, body, took)
		}
		must.AtLeast(t, "connections", serve.MaxConnections-1, left(t, many, serve.MaxConnections))
		if open(t, many[:serve.MaxConnections]) > 0 || open(t, many[len(many)-1:]) != 1 {
			t.Error("of the connections others than the oldest were reset")
		}
	}
}
