// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package metrics_test

import (
	"compress/gzip"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/podweir/podweir/plugin/agent/metrics"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// counted counts how often the pods are read.
type counted struct {
	pods
	n atomic.Int32
}

func (c *counted) Read() ([]metrics.Interface, int, error) {
	c.n.Add(1)
	return c.pods.Read()
}

// Readers beside each other get one page, and a slow one keeps no other waiting.
func TestReadersShareAPage(t *testing.T) {
	t.Parallel()
	c := &counted{pods: *onePod()}
	h := metrics.New(metrics.Config{Log: slog.New(slog.DiscardHandler), Pods: c}).Handler()
	stuck := make(chan struct{})
	var wg sync.WaitGroup
	for range 8 {
		begun := make(chan struct{})
		wg.Go(func() {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
			h.ServeHTTP(&slowWriter{ResponseRecorder: httptest.NewRecorder(), begun: begun, until: stuck}, r)
		})
		<-begun
	}
	for range 8 {
		if text := scrape(t, h); !strings.Contains(text, "podweir_shaped_pods 1\n") {
			t.Errorf("scrape = %q", text)
		}
	}
	if n := c.n.Load(); n < 1 || n > 8 {
		t.Errorf("the pods are read %d times for 16 readers", n)
	}
	close(stuck)
	wg.Wait()
}

// slowWriter says when it gets the first bytes, and takes them when it may.
type slowWriter struct {
	*httptest.ResponseRecorder
	begun, until chan struct{}
	once         sync.Once
}

func (w *slowWriter) Write(b []byte) (int, error) {
	w.once.Do(func() { close(w.begun) })
	<-w.until
	return w.ResponseRecorder.Write(b)
}

func TestPageIsCompressedForWhoAccepts(t *testing.T) {
	t.Parallel()
	h := full(onePod()).Handler()
	plain := scrape(t, h)
	for accepted, want := range map[string]bool{
		"gzip": true, "deflate, gzip;q=0.5": true, "gzip ; q=1": true, "": false, "identity": false, "gzip;q=0": false, "gzip; q=0.00": false,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
		r.Header.Set("Accept-Encoding", accepted)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		var body io.Reader = w.Body
		if got := w.Header().Get("Content-Encoding") == "gzip"; got != want {
			t.Errorf("Accept-Encoding %q: compressed %v, want %v", accepted, got, want)
			continue
		}
		if want {
			gz, err := gzip.NewReader(w.Body)
			must.OK(t, err)
			body = gz
		}
		b, err := io.ReadAll(body)
		if err != nil || string(b) != plain {
			t.Errorf("Accept-Encoding %q: %d bytes, %v, want the text of %d", accepted, len(b), err, len(plain))
		}
		if kind := w.Header().Get("Content-Type"); !strings.HasPrefix(kind, "text/plain; version=0.0.4") {
			t.Errorf("Content-Type %q", kind)
		}
	}
}
