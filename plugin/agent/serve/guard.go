// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package serve

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Review says whether who has a token may get a path. The error says why that cannot be
// told.
type Review func(ctx context.Context, token, path string) (allowed bool, err error)

// Times and limits of reviews. The API server is called as rarely as that, and a source that
// floods keeps no other one waiting.
const (
	// allowedLives and refusedLives are how long an answer counts.
	allowedLives = time.Minute
	refusedLives = 10 * time.Second
	// staleLives is how long a token that was allowed is while nobody can be asked.
	staleLives = 10 * time.Minute
	// reviewPause is the time between two tokens of one source that are not known.
	reviewPause   = time.Second
	reviewTimeout = 5 * time.Second
	// maxKnown bounds the answers, and the sources, that are remembered.
	maxKnown = 64
	// maxToken is longer than a token of a service account, in bytes.
	maxToken = 8 << 10
)

// guard lets those through whose token the API server accepts and allows.
type guard struct {
	next http.Handler
	// token finds the token among the headers of a request, "" if there is none.
	token  func(http.Header) string
	review Review
	log    *slog.Logger

	mu sync.Mutex
	// known are the answers, by the digest of the token: tokens are not kept.
	known map[[sha256.Size]byte]verdict
	// asked is when a token of a source was reviewed last.
	asked map[netip.Addr]time.Time
}

type verdict struct {
	allowed bool
	at      time.Time
}

// bearer is the token where HTTP has it.
func bearer(h http.Header) string {
	if token, ok := strings.CutPrefix(h.Get("Authorization"), "Bearer "); ok {
		return token
	}
	return ""
}

func newGuard(next http.Handler, token func(http.Header) string, review Review, log *slog.Logger) *guard {
	return &guard{
		next: next, token: token, review: review, log: log,
		known: make(map[[sha256.Size]byte]verdict), asked: make(map[netip.Addr]time.Time),
	}
}

// ServeHTTP implements [http.Handler].
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token := g.token(r.Header)
	if token == "" || len(token) > maxToken {
		w.Header().Set("WWW-Authenticate", "Bearer")
		answer(w, http.StatusUnauthorized, "a bearer token is required\n")
		return
	}
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	switch status := g.status(r.Context(), token, r.URL.Path, from.Addr()); status {
	case http.StatusOK:
		g.next.ServeHTTP(w, r)
	default:
		answer(w, status, http.StatusText(status)+"\n")
	}
}

// status answers for a token: 200, 403, 429 if the source has to wait, or 503 if nobody
// can be asked.
func (g *guard) status(ctx context.Context, token, path string, from netip.Addr) int {
	key := sha256.Sum256([]byte(token + "\x00" + path))
	now := time.Now()
	g.mu.Lock()
	old, known := g.known[key]
	age := now.Sub(old.at)
	early := false
	if !known || !old.allowed && age >= refusedLives { // it would be reviewed
		if early = now.Sub(g.asked[from]) < reviewPause; !early {
			dropOldest(g.asked, itself)
			g.asked[from] = now
		}
	}
	g.mu.Unlock()
	switch {
	case known && old.allowed && age < allowedLives:
		return http.StatusOK
	case known && !old.allowed && age < refusedLives:
		return http.StatusForbidden
	case early:
		return http.StatusTooManyRequests
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	allowed, err := g.review(ctx, token, path)
	if err != nil {
		g.log.Error("token not reviewed", "path", path, "from", from.String(), "error", err)
		if known && old.allowed && age < staleLives {
			return http.StatusOK
		}
		return http.StatusServiceUnavailable
	}
	g.mu.Lock()
	dropOldest(g.known, verdict.worth)
	g.known[key] = verdict{allowed, now}
	g.mu.Unlock()
	if !allowed {
		g.log.Debug("token refused", "path", path, "from", from.String())
		return http.StatusForbidden
	}
	return http.StatusOK
}

// worth sorts what is dropped: what was refused goes before all that still counts.
func (v verdict) worth() time.Time {
	if v.allowed {
		return v.at
	}
	return v.at.Add(-staleLives)
}

func itself(t time.Time) time.Time { return t }

// dropOldest makes room for one more.
func dropOldest[K comparable, V any](m map[K]V, at func(V) time.Time) {
	if len(m) < maxKnown {
		return
	}
	var oldest K
	var when time.Time
	for k, v := range m {
		if t := at(v); when.IsZero() || t.Before(when) {
			oldest, when = k, t
		}
	}
	delete(m, oldest)
}

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
