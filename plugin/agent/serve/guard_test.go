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
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podweir/podweir/plugin/agent/serve"
	"github.com/podweir/podweir/plugin/testutil/must"
)

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
		if got := ask(t, h, "192.0.2.1", none); got != http.StatusUnauthorized {
			t.Errorf("Authorization %q = %d, want 401", none, got)
		}
	}
	if n := r.asked.Load(); n != 0 {
		t.Errorf("the API server is called %d times about no token", n)
	}
	if got := ask(t, h, "192.0.2.1", "Bearer good"); got != http.StatusOK {
		t.Errorf("a token that is allowed = %d, want 200", got)
	}
	// It is known now, whoever else floods.
	for i := range 50 {
		if got := ask(t, h, "192.0.2.1", "Bearer bad"+string(rune('a'+i))); got != http.StatusTooManyRequests {
			t.Errorf("another token of the same source at once = %d, want 429", got)
		}
		if got := ask(t, h, "192.0.2.2", "Bearer good"); got != http.StatusOK {
			t.Errorf("a token that is known = %d, want 200", got)
		}
	}
	r.away.Store(true)
	if got := ask(t, h, "192.0.2.1", "Bearer good"); got != http.StatusOK {
		t.Errorf("a token that is known while the API server is away = %d, want 200", got)
	}
	if n := r.asked.Load(); n != 1 {
		t.Errorf("the API server is called %d times, want once", n)
	}
}

func TestGuardRefuses(t *testing.T) {
	t.Parallel()
	r := &reviewer{}
	h := serve.Metrics(config(func(c *serve.Config) { c.Review = r.review }))
	for range 3 {
		if got := ask(t, h, "192.0.2.1", "Bearer bad"); got != http.StatusForbidden {
			t.Errorf("a token that is not allowed = %d, want 403", got)
		}
	}
	if n := r.asked.Load(); n != 1 {
		t.Errorf("the API server is called %d times about one token, want once", n)
	}
	away := &reviewer{}
	away.away.Store(true)
	h = serve.Metrics(config(func(c *serve.Config) { c.Review = away.review }))
	if got := ask(t, h, "192.0.2.1", "Bearer good"); got != http.StatusServiceUnavailable {
		t.Errorf("a token that is not known while the API server is away = %d, want 503", got)
	}
}

// The API server is called once a second for each source, and five times a second at most.
func TestGuardPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reviewer{}
		h := serve.Metrics(config(func(c *serve.Config) { c.Review = r.review }))
		for _, step := range []struct {
			after time.Duration
			from  string
			want  int
		}{
			{0, "192.0.2.1", http.StatusForbidden},
			{100 * time.Millisecond, "192.0.2.2", http.StatusTooManyRequests}, // the pause of all
			{200 * time.Millisecond, "192.0.2.2", http.StatusForbidden},
			{400 * time.Millisecond, "192.0.2.1", http.StatusTooManyRequests}, // the pause of the source
			{250 * time.Millisecond, "192.0.2.1", http.StatusTooManyRequests},
			{100 * time.Millisecond, "192.0.2.1", http.StatusForbidden},
		} {
			<-time.After(step.after)
			token := fmt.Sprintf("Bearer bad-%v", time.Now().UnixNano())
			if got := ask(t, h, step.from, token); got != step.want {
				t.Errorf("%v later a token of %s = %d, want %d", step.after, step.from, got, step.want)
			}
		}
	})
}

// Who floods with tokens has no other's forgotten, and does not keep a source out that
// had one which is allowed.
func TestGuardFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reviewer{}
		review := func(ctx context.Context, token, path string) (bool, error) {
			if token == "rotated" {
				token = "good"
			}
			return r.review(ctx, token, path)
		}
		h := serve.Metrics(config(func(c *serve.Config) { c.Review = review }))
		if got := ask(t, h, "192.0.2.1", "Bearer good"); got != http.StatusOK {
			t.Fatalf("a token that is allowed = %d, want 200", got)
		}
		for i := range 200 {
			<-time.After(200 * time.Millisecond)
			from := fmt.Sprintf("198.51.100.%d", i)
			if got := ask(t, h, from, "Bearer bad"+from); got != http.StatusForbidden {
				t.Fatalf("a token of the flood = %d, want 403", got)
			}
		}
		asked := r.asked.Load()
		if got := ask(t, h, "192.0.2.1", "Bearer good"); got != http.StatusOK || r.asked.Load() != asked {
			t.Errorf("a token that is known = %d after %d reviews, want 200 and none", got, r.asked.Load()-asked)
		}
		if got := ask(t, h, "192.0.2.1", "Bearer rotated"); got != http.StatusOK {
			t.Errorf("the next token of a source that had one which is allowed = %d, want 200", got)
		}
		if got := ask(t, h, "192.0.2.1", "Bearer other"); got != http.StatusTooManyRequests {
			t.Errorf("another one at once = %d, want 429", got)
		}
	})
}

// The state of the node is on a port of its own: over TLS alone, and to who has no token
// it tells nothing, not even which paths there are.
func TestNodeIsForReadersAlone(t *testing.T) {
	t.Parallel()
	review := func(_ context.Context, token, path string) (bool, error) {
		return token == "good" && path == serve.NodePath, nil
	}
	s := start(t, func(c *serve.Config) {
		c.NodeAddress, c.ReviewNode = ports(t, 3)[2], review
		c.Node = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "pods") })
	})
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, //nolint:gosec // as the API server does
	}}
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
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, test.scheme+"://"+s.node+test.path, nil)
		must.OK(t, err)
		req.Header.Set(test.header, test.token)
		res, err := client.Do(req)
		must.OK(t, err)
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != test.status || test.body != "" && string(body) != test.body {
			t.Errorf("%s, %s %q, %s = %d %q, %v, want %d %q", test.scheme, test.header, test.token, test.path, res.StatusCode, body, err, test.status, test.body)
		}
	}
	if body, _ := fetch(t, "127.0.0.1", "http://"+s.metrics+serve.NodePath); body != "404 page not found\n" {
		t.Errorf("the port of metrics answers %q about the node", body)
	}
	// Somebody else's port is no reason for an agent not to work.
	var log strings.Builder
	other := start(t, func(c *serve.Config) {
		c.NodeAddress, c.ReviewNode, c.Node = s.node, review, http.NotFoundHandler()
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	if body, _ := fetch(t, "127.0.0.1", "http://"+other.health+"/healthz"); body != "ok\n" || !strings.Contains(log.String(), s.node) {
		t.Errorf("beside a taken port /healthz = %q, log %q, want ok and the address", body, log.String())
	}
}

// With a reviewer the metrics are TLS alone; the certificate is read again.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(s *httptest.Server) *x509.CertPool {
		t.Helper()
		cert := s.TLS.Certificates[0]
		key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
		must.OK(t, err)
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
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: conf, DisableKeepAlives: true}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.metrics+"/metrics", nil)
		must.OK(t, err)
		req.Header.Set("Authorization", "Bearer good")
		res, err := client.Do(req)
		if err != nil {
			t.Fatalf("certificate of %q: %v", name, err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || string(body) != "metric 1\n" {
			t.Errorf("certificate of %q: %q, %v", name, body, err)
		}
		if body, _ := fetch(t, "127.0.0.1", "http://"+s.health+"/healthz"); body != "ok\n" {
			t.Errorf("/healthz = %q, want it without TLS", body)
		}
	}
	if _, err := serve.Listen(t.Context(), config(func(c *serve.Config) {
		a := ports(t, 2)
		c.Address, c.HealthAddress, c.Review, c.CertDir = a[0], a[1], (&reviewer{}).review, t.TempDir()
	})); err == nil {
		t.Error("a directory without a certificate is accepted")
	}
}
