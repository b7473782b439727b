// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// One client cannot send a request every 10 ms where each takes 20: every
// request counts from when it was due, and one whose turn never comes is an error.
func TestOpenLoopOfFewClientsCountsFromWhenRequestsWereDue(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-time.After(20 * time.Millisecond)
		w.Header().Set("Content-Length", "0")
	}))
	defer server.Close()
	args := httpClientArgs{
		URL: server.URL, PerSecond: 100, Concurrency: 1, Duration: 300 * time.Millisecond, Timeout: 100 * time.Millisecond,
	}
	client := &http.Client{Timeout: args.Timeout}
	got := openBy(client, args, make(chan struct{}))
	if len(got.Samples) != 30 {
		t.Errorf("%d samples, want 30", len(got.Samples))
	}
	if n := got.Errors[errNotSent.Error()]; n == 0 || n >= 30 {
		t.Errorf("%d requests were not sent, want some, whatever else the machine does: errors %v", n, got.Errors)
	}
	if p50 := got.Quantile(0.5); p50 < 60*time.Millisecond {
		t.Errorf("median %v, want that of requests that wait for those before them", p50)
	}
}
