// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package serve answers HTTP for the agent, on three ports: metrics for Prometheus, on
// addresses that others reach; on the loopback, for the kubelet, whether the agent
// lives, whether it works, and profiles if the operator wants them; and the state of the
// node, over TLS and only to whoever shows a token, for the command that asks all nodes.
package serve

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Where the agent serves by default: on the loopback of the node, whose network namespace it
// has. The kubelet shares that; who else is to read metrics, the operator says. These
// ports are nobody's by default among the CNIs that podweir knows.
const (
	DefaultAddress       = "127.0.0.1:9479"
	DefaultHealthAddress = "127.0.0.1:9478"
)

// NodePath is where the state of the node is. The token is in a header of its own:
// the API server, through which requests come, takes Authorization for itself and does
// not hand it on.
const (
	NodePath    = "/v1/node"
	TokenHeader = "Podweir-Token"
)

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
	// Note says that what Err tells does not keep the agent from working.
	Note bool
	// Is says in a word how it works; it may be nil.
	Is func() string
}

// Config is what is served.
type Config struct {
	// Address is that of the metrics, as [CheckAddress] accepts it.
	Address string
	Metrics http.Handler
	// Review makes the metrics TLS, and is asked about who reads them; nil lets
	// everybody read them.
	Review Review
	// CertDir has the certificate for TLS, as tls.crt and tls.key, which are read anew
	// when they change; the agent makes one if it is empty.
	CertDir string
	// HealthAddress is as [CheckLoopback] accepts it.
	HealthAddress string
	// Ready are the parts that have to work for the agent to be ready.
	Ready []Check
	// Profile offers /debug/pprof/, beside health.
	Profile bool
	// NodeAddress is where Node is served, to those whom ReviewNode allows; "" is
	// nowhere. The port always speaks TLS, by a certificate that the agent signs: who
	// reads goes through the API server, which verifies none.
	NodeAddress string
	Node        http.Handler
	ReviewNode  Review
	Log         *slog.Logger
}

// CheckAddress says what is wrong with an address to listen on, and what is accepted, such as :9479 or
// 127.0.0.1:9479.
func CheckAddress(address string) error { return check(address, DefaultAddress) }

func check(address, example string) error {
	bad := func(why string) error {
		return fmt.Errorf("address %q is not accepted, want an IP address or nothing, a colon and a port from 1 to %d, such as %s: %s",
			address, MaxPort, example, why)
	}
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return bad("it has no port")
	}
	port, err := strconv.Atoi(text)
	switch {
	case host != "" && net.ParseIP(host) == nil:
		return bad(strconv.Quote(host) + " is not an IP address")
	case err != nil:
		return bad(strconv.Quote(text) + " is not a number")
	case port < 1:
		return bad("there is no such port")
	case port > MaxPort:
		return bad("the kernel gives ports from 32768 on to connections, so that it may be taken")
	}
	return nil
}

// CheckLoopback is [CheckAddress] for an address that only the node itself reaches.
func CheckLoopback(address string) error {
	if err := check(address, DefaultHealthAddress); err != nil {
		return err
	}
	if host, _, _ := net.SplitHostPort(address); !net.ParseIP(host).IsLoopback() {
		return fmt.Errorf("address %q is not accepted, want a loopback address such as %s: others must not reach it", address, DefaultHealthAddress)
	}
	return nil
}

// Limits of a request. An answer is some 60 kB, and twenty times that for whoever does not
// accept gzip; a profile takes 30 s by default.
const (
	headerTimeout   = 5 * time.Second
	readTimeout     = 10 * time.Second
	writeTimeout    = 10 * time.Second
	profileTimeout  = 2 * time.Minute
	idleTimeout     = time.Minute
	shutdownTimeout = 2 * time.Second
	maxHeaderBytes  = 16 << 10
)

// Server answers requests; node is nil if nobody may ask for the node.
type Server struct{ metrics, health, node *port }

// port is one of them.
type port struct {
	http     *http.Server
	listener net.Listener
}

// Listen takes the ports of addresses that were checked. The error names the one that it could not take. Without that
// for the node's state the agent does its work all the same, and the log says so.
func Listen(ctx context.Context, c Config) (*Server, error) {
	health, err := listen(ctx, c.HealthAddress, Health(c), c.Log)
	if err != nil {
		return nil, err
	}
	if c.Profile {
		health.http.WriteTimeout = profileTimeout
	}
	metrics, err := listen(ctx, c.Address, Metrics(c), c.Log)
	if err == nil && c.Review != nil {
		err = metrics.secure(c.CertDir)
	}
	if err != nil {
		_ = health.listener.Close()
		return nil, err
	}
	s := &Server{metrics: metrics, health: health}
	if c.NodeAddress != "" {
		if s.node, err = listenNode(ctx, c); err != nil {
			c.Log.Error("port for the state of the node not opened: kubectl podweir does not see this node", "error", err)
		}
	}
	return s, nil
}

func listenNode(ctx context.Context, c Config) (*port, error) {
	node, err := listen(ctx, c.NodeAddress, Node(c), c.Log)
	if err != nil {
		return nil, err
	}
	if err := node.secure(""); err != nil {
		return nil, err
	}
	return node, nil
}

func listen(ctx context.Context, address string, h http.Handler, log *slog.Logger) (*port, error) {
	l, err := (&net.ListenConfig{Control: control}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve HTTP: %w", err)
	}
	return &port{listener: &limiter{Listener: l}, http: &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout,
		WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		// HTTP/2 would let one connection have hundreds of requests.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}}, nil
}

func (p *port) secure(certDir string) error {
	certificates, err := newCertificates(certDir)
	if err != nil {
		_ = p.listener.Close()
		return err
	}
	p.listener = tls.NewListener(p.listener, &tls.Config{
		MinVersion: tls.VersionTLS12, GetCertificate: certificates.get, NextProtos: []string{"http/1.1"},
	})
	return nil
}

// Addr is the address that was taken for metrics, HealthAddr that for health.
func (s *Server) Addr() net.Addr { return s.metrics.listener.Addr() }

// HealthAddr is the address that was taken for health.
func (s *Server) HealthAddr() net.Addr { return s.health.listener.Addr() }

// Run answers until the context ends, and then returns nil when the requests that
// were begun are answered.
func (s *Server) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range []*port{s.metrics, s.health, s.node} {
		if p != nil {
			group.Go(func() error { return p.run(ctx) })
		}
	}
	return group.Wait()
}

func (p *port) run(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- p.http.Serve(p.listener) }()
	select {
	case err := <-done:
		return fmt.Errorf("serve HTTP on %v: %w", p.listener.Addr(), err)
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := p.http.Shutdown(end); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("end HTTP on %v: %w", p.listener.Addr(), err)
	}
	return p.http.Close()
}

// Metrics answers /metrics, to those whom [Config.Review] allows.
func Metrics(c Config) http.Handler {
	h := c.Metrics
	if c.Review != nil {
		h = newGuard(h, bearer, c.Review, c.Log)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", h)
	return mux
}

// Node answers [NodePath] to those whom [Config.ReviewNode] allows. Whoever has no token
// learns not even which paths there are.
func Node(c Config) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET "+NodePath, c.Node)
	return newGuard(mux, func(h http.Header) string { return h.Get(TokenHeader) }, c.ReviewNode, c.Log)
}

// Health answers /healthz and /readyz, and /debug/pprof/ if it is requested.
func Health(c Config) http.Handler {
	mux := http.NewServeMux()
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
			kind := "note"
			if !c.Note {
				kind, status = "not ready", http.StatusServiceUnavailable
			}
			fmt.Fprintf(&lines, "%s: %s: %s\n", kind, c.Name, strings.ReplaceAll(err.Error(), "\n", "; "))
			continue
		}
		lines.WriteString("ok: " + c.Name)
		if c.Is != nil {
			lines.WriteString(": " + c.Is())
		}
		lines.WriteString("\n")
	}
	return status, lines.String()
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // whoever asked is gone if this fails
}

// certificates gives the certificate for TLS: that of a directory as it is now, or one
// that the agent signed itself.
type certificates struct {
	dir string

	mu sync.Mutex
	// cert was made of the texts.
	cert            *tls.Certificate
	certPEM, keyPEM []byte
}

// Files in a directory with a certificate, as a Secret of the type kubernetes.io/tls has
// them.
const (
	certFile = "tls.crt"
	keyFile  = "tls.key"
)

// newCertificates reads the certificate of a directory, or makes one if dir is empty.
func newCertificates(dir string) (*certificates, error) {
	c := &certificates{dir: dir}
	if dir == "" {
		cert, err := selfSigned()
		if err != nil {
			return nil, fmt.Errorf("make a certificate: %w", err)
		}
		c.cert = cert
		return c, nil
	}
	_, err := c.get(nil)
	return c, err
}

// selfSignedLives is above the longest time that an agent runs.
const selfSignedLives = 10 * 365 * 24 * time.Hour

func selfSigned() (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "podweir"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(selfSignedLives),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{"podweir"}, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// get is [tls.Config.GetCertificate]. A certificate that cannot be read any more is kept.
func (c *certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dir == "" {
		return c.cert, nil
	}
	err := c.read()
	if c.cert == nil {
		return nil, fmt.Errorf("certificate in %s: %w", c.dir, err)
	}
	return c.cert, nil
}

func (c *certificates) read() error {
	certPEM, err := os.ReadFile(filepath.Join(c.dir, certFile))
	if err != nil {
		return err
	}
	keyPEM, err := os.ReadFile(filepath.Join(c.dir, keyFile))
	if err != nil {
		return err
	}
	if c.cert != nil && bytes.Equal(certPEM, c.certPEM) && bytes.Equal(keyPEM, c.keyPEM) {
		return nil
	}
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return err
	}
	c.cert, c.certPEM, c.keyPEM = &cert, certPEM, keyPEM
	return nil
}
