// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package serve

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// pageLives is how long an answer is given to further readers. It is far below the
// interval of a scrape: only readers beside each other get the same one.
const pageLives = time.Second

// snapshot is a page, compressed. The metrics of 250 pods are a megabyte of text.
type snapshot struct {
	at time.Time
	gz []byte
}

// Page answers many readers over HTTP with one page that is made when a reader asks and
// kept compressed: a slow reader holds that page, and nothing that another reader or the
// agent waits for. It makes one page at a time.
type Page struct {
	contentType string
	write       func(w io.Writer) error
	log         *slog.Logger
	// one is full while a reader makes a page or looks whether there is one.
	one  chan struct{}
	last *snapshot
}

// NewPage returns a page that write makes; an error of it is logged, and the
// reader gets 503.
func NewPage(contentType string, write func(w io.Writer) error, log *slog.Logger) *Page {
	return &Page{contentType: contentType, write: write, log: log, one: make(chan struct{}, 1)}
}

// get returns the last page if it is new, or makes one.
func (p *Page) get(ctx context.Context) (*snapshot, error) {
	select {
	case p.one <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-p.one }()
	if p.last != nil && time.Since(p.last.at) < pageLives {
		return p.last, nil
	}
	made, err := p.make()
	if err != nil {
		return nil, err
	}
	p.last = made
	return made, nil
}

func (p *Page) make() (*snapshot, error) {
	made := &snapshot{at: time.Now()}
	var b bytes.Buffer
	gz, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if err := p.write(gz); err != nil {
		return nil, err
	}
	if err := gz.Close(); err != nil {
		return nil, err
	}
	made.gz = bytes.Clone(b.Bytes())
	return made, nil
}

// ServeHTTP implements [http.Handler].
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	made, err := p.get(r.Context())
	if r.Context().Err() != nil {
		return // whoever asked is gone
	}
	if err != nil {
		p.log.Error("request failed", "path", r.URL.Path, "error", err)
		http.Error(w, "nothing can be read: the agent's log says why", http.StatusServiceUnavailable)
		return
	}
	head := w.Header()
	head.Set("Content-Type", p.contentType)
	head.Set("Vary", "Accept-Encoding")
	if acceptsGzip(r.Header.Values("Accept-Encoding")) {
		head.Set("Content-Encoding", "gzip")
		head.Set("Content-Length", strconv.Itoa(len(made.gz)))
		_, _ = w.Write(made.gz) // whoever asked is gone if this fails
		return
	}
	if err := made.plain(w); err != nil && r.Context().Err() == nil {
		p.log.Debug("reader left before all was read", "path", r.URL.Path, "error", err)
	}
}

// plain writes the text, a little at a time.
func (s *snapshot) plain(w io.Writer) error {
	gz, err := gzip.NewReader(bytes.NewReader(s.gz))
	if err != nil {
		return err
	}
	// Not the writer's own way of copying, which takes 32 KiB.
	_, err = io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{gz}, make([]byte, 4<<10))
	return err
}

func acceptsGzip(values []string) bool {
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			name, quality, _ := strings.Cut(part, ";")
			name, quality = strings.TrimSpace(name), strings.ReplaceAll(quality, " ", "")
			// q=0 is no, in as many digits as the client likes.
			no := strings.HasPrefix(quality, "q=") && strings.Trim(quality, "q=0.") == ""
			if name == "gzip" && !no {
				return true
			}
		}
	}
	return false
}
