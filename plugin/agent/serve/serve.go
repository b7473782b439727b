// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package serve answers HTTP for the agent: metrics, whether it lives, whether it
// works, and profiles if the operator wants them.
package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"
	"time"
)

// DefaultAddress is on every address of the node: the agent has the node's network
// namespace. 9479 is nobody's by default among the CNIs that podweir knows.
const DefaultAddress = ":9479"

// MaxPort is the highest port that is accepted. From 32768 on Linux gives ports to
// connections (net.ipv4.ip_local_port_range), and one of those may have ours when
// the agent starts.
const MaxPort = 32767

// Check is one part of the agent that has to work.
type Check struct {
	// Name is one word, part of the answer and of a metric.
	Name string
	// Err says what is wrong and where, nil if nothing is. It answers at once.
	Err func() error
}

// Config is what is served.
type Config struct {
	// Address is as ParseAddress accepts it.
	Address string
	Metrics http.Handler
	// Ready are the parts that have to work for the agent to be ready.
	Ready []Check
	// Profile offers /debug/pprof/.
	Profile bool
	Log     *slog.Logger
}

// ParseAddress returns the port of an address to listen on, such as :9479 or
// 127.0.0.1:9479. The error says what is accepted.
func ParseAddress(address string) (port int, err error) {
	bad := func(why string) error {
		return fmt.Errorf("address %q is not accepted, want an IP address or nothing, a colon and a port from 1 to %d, such as %s: %s",
			address, MaxPort, DefaultAddress, why)
	}
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return 0, bad("it has no port")
	}
	if host != "" && net.ParseIP(host) == nil {
		return 0, bad(strconv.Quote(host) + " is not an IP address")
	}
	port, err = strconv.Atoi(text)
	switch {
	case err != nil:
		return 0, bad(strconv.Quote(text) + " is not a number")
	case port < 1:
		return 0, bad("there is no such port")
	case port > MaxPort:
		return 0, bad("the kernel gives ports from 32768 on to connections, so that it may be taken")
	}
	return port, nil
}

// Limits of a request. An answer is some 400 kB, a profile takes 30 s by default.
const (
	headerTimeout   = 5 * time.Second
	readTimeout     = 10 * time.Second
	writeTimeout    = 30 * time.Second
	profileTimeout  = 2 * time.Minute
	idleTimeout     = time.Minute
	shutdownTimeout = 2 * time.Second
	maxHeaderBytes  = 16 << 10
)

// Server answers requests.
type Server struct {
	http     *http.Server
	listener net.Listener
}

// Listen takes the port. The error names it.
func Listen(ctx context.Context, c Config) (*Server, error) {
	if _, err := ParseAddress(c.Address); err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Address)
	if err != nil {
		return nil, fmt.Errorf("serve HTTP: %w", err)
	}
	s := &http.Server{
		Handler: Handler(c), ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout,
		WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelWarn),
	}
	if c.Profile {
		s.WriteTimeout = profileTimeout
	}
	return &Server{http: s, listener: l}, nil
}

// Addr is the address that was taken.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Run answers until the context ends, and then returns nil when the requests that
// were begun are answered.
func (s *Server) Run(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- s.http.Serve(s.listener) }()
	select {
	case err := <-done:
		return fmt.Errorf("serve HTTP on %v: %w", s.listener.Addr(), err)
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := s.http.Shutdown(end); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("end HTTP on %v: %w", s.listener.Addr(), err)
	}
	return s.http.Close()
}

// Handler answers /metrics, /healthz and /readyz, and /debug/pprof/ if it is asked
// for.
func Handler(c Config) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", c.Metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, "ok\n")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		status, text := ready(c.Ready)
		answer(w, status, text)
	})
	if c.Profile {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	}
	return mux
}

// ready answers with a line for each part, so that who looks sees which one fails
// and why.
func ready(checks []Check) (status int, text string) {
	status = http.StatusOK
	var lines strings.Builder
	for _, c := range checks {
		if err := c.Err(); err != nil {
			status = http.StatusServiceUnavailable
			fmt.Fprintf(&lines, "not ready: %s: %s\n", c.Name, strings.ReplaceAll(err.Error(), "\n", "; "))
			continue
		}
		fmt.Fprintf(&lines, "ok: %s\n", c.Name)
	}
	return status, lines.String()
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // who asked is gone if this fails
}
