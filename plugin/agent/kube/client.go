// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package kube is podweir's client of the API server: it watches the pods of one
// node and posts Events. It speaks the few calls that it needs itself, and
// decodes a list one pod at a time, because memory is bounded
// (docs/reference/agent.md).
package kube

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/podweir/podweir/plugin/version"
)

// Client talks to one API server. It is safe for concurrent use.
type Client struct {
	// hurry divides every pause; tests have more than 1.
	hurry  time.Duration
	config *Config
	server *url.URL

	mu sync.Mutex
	// http is made again when the authorities in the file change.
	http        *http.Client
	authorities []byte
}

// NewClient returns a client; it does not connect yet.
func NewClient(config *Config) (*Client, error) {
	server, err := url.Parse(config.Server)
	if err != nil || server.Host == "" || server.Scheme != "https" && server.Scheme != "http" {
		return nil, fmt.Errorf("API server %q is not an URL such as https://10.0.0.1:6443", config.Server)
	}
	c := &Client{config: config, server: server, hurry: 1}
	_, err = c.transport()
	return c, err
}

// pause is how long to wait in place of d.
func (c *Client) pause(d time.Duration) time.Duration { return d / c.hurry }

// sleep returns after d, or earlier when the context ends or wake receives something. wake may be
// nil.
func sleep(ctx context.Context, wake <-chan struct{}, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-wake:
	case <-time.After(d):
	}
}

// Server is the URL of the API server.
func (c *Client) Server() string { return c.server.String() }

// How long a dead connection is held for a quiet one.
const (
	pingAfter   = 30 * time.Second
	pingTimeout = 15 * time.Second
)

// receiveBuffer is how much the server may send of one answer before it is read, in
// bytes; the default is 4 MiB.
const receiveBuffer = 128 << 10

// transport returns the HTTP client, with the certificate authorities as they
// are in the file now.
func (c *Client) transport() (*http.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	authorities, err := c.config.CA()
	if err != nil {
		return nil, err
	}
	if c.http != nil && bytes.Equal(authorities, c.authorities) {
		return c.http, nil
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(authorities) > 0 {
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, fmt.Errorf("certificate authority of %s: no certificate in PEM form", c.server)
		}
	}
	if c.http != nil {
		c.http.CloseIdleConnections()
	}
	c.authorities = authorities
	c.http = &http.Client{Transport: &http.Transport{
		TLSClientConfig: conf, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
		DialContext:     (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: pingAfter}).DialContext,
		IdleConnTimeout: 90 * time.Second, MaxIdleConns: 2, ResponseHeaderTimeout: time.Minute,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: pingAfter, PingTimeout: pingTimeout, MaxReceiveBufferPerStream: receiveBuffer,
		},
	}}
	return c.http, nil
}

// StatusError is an answer of the API server that is not a success.
type StatusError struct {
	// Code is the HTTP status.
	Code int
	// Message is that of the answer, where it has one.
	Message string
}

func (e *StatusError) Error() string {
	text := e.Message
	if text == "" {
		text = http.StatusText(e.Code)
	}
	return fmt.Sprintf("API server answers %d: %s", e.Code, text)
}

// statusOf returns the HTTP status of an error, 0 if it has none.
func statusOf(err error) int {
	if s, ok := errors.AsType[*StatusError](err); ok {
		return s.Code
	}
	return 0
}

// maxErrorBytes is how much of an answer that is an error is read.
const maxErrorBytes = 16 << 10

// Do sends a request and returns the body of a successful answer, which the
// caller closes. body is JSON, nil for none. Any other answer is a
// [*StatusError].
func (c *Client) Do(ctx context.Context, method, path string, query url.Values, body []byte) (io.ReadCloser, error) {
	h, err := c.transport()
	if err != nil {
		return nil, err
	}
	u := c.server.JoinPath(path)
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("request to %s: %w", u.Redacted(), err)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "podweir/"+version.String())
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	token, err := c.config.Token()
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := h.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode/100 == 2 {
		return res.Body, nil
	}
	defer func() { _ = res.Body.Close() }()
	answer := &StatusError{Code: res.StatusCode}
	text, err := io.ReadAll(io.LimitReader(res.Body, maxErrorBytes))
	if err == nil && json.Unmarshal(text, &struct{ Message *string }{&answer.Message}) != nil {
		answer.Message = strings.TrimSpace(string(text))
	}
	return nil, answer
}
