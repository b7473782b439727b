// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package uninstall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// EventKind is what happened to a DaemonSet.
type EventKind uint8

// The kinds of events.
const (
	// Exists: it was made or changed.
	Exists EventKind = iota + 1
	// Gone: it is no longer there.
	Gone
)

// Event is one change that the API server announced.
type Event struct {
	Kind   EventKind
	Object Object
}

// API is what is asked of the API server about the DaemonSet of one name.
type API interface {
	// List returns the DaemonSet in a complete and authorised answer, none if there
	// is none by the name, and the version to watch from. Everything else, 401, 403
	// and 404 for the whole resource among it, is an error.
	List(ctx context.Context) (found []Object, version string, err error)
	// Watch calls f with each change after a version, until the answer ends or
	// fails. An error event of the stream is an error.
	Watch(ctx context.Context, version string, f func(Event)) error
}

// The pauses between two attempts to reach the API server. Within Window there is
// time for several.
const (
	pauseMin = 250 * time.Millisecond
	pauseMax = 5 * time.Second
)

// Watcher keeps a watch on the agent's DaemonSet open.
type Watcher struct {
	api API
	log *slog.Logger

	mu      sync.Mutex
	state   State
	err     error
	changed chan struct{}
	urgent  chan struct{}
	once    sync.Once
}

// New returns a watcher.
func New(api API, log *slog.Logger) *Watcher {
	return &Watcher{api: api, log: log, changed: make(chan struct{}, 1), urgent: make(chan struct{})}
}

// Run watches until the context ends. It goes on after SIGTERM: give it a context
// that outlives it.
func (w *Watcher) Run(ctx context.Context) {
	pause := pauseMin
	for ctx.Err() == nil {
		began := time.Now()
		err := w.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		w.note(err)
		if time.Since(began) > pauseMax {
			pause = pauseMin
		}
		if err != nil {
			w.log.Warn("watch of the agent's own DaemonSet failed", "error", err, "retryIn", pause.String())
		}
		w.rest(ctx, pause)
		pause = min(2*pause, pauseMax)
	}
}

// rest waits between two attempts. SIGTERM ends a long pause and leaves pauseMin.
func (w *Watcher) rest(ctx context.Context, pause time.Duration) {
	urgent := w.urgent
	select {
	case <-urgent:
		pause, urgent = pauseMin, nil
	default:
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-urgent:
	}
}

func (w *Watcher) follow(ctx context.Context) error {
	found, version, err := w.api.List(ctx)
	if err != nil {
		return err
	}
	w.update(func(s *State) {
		for _, o := range found {
			s.Seen(o)
		}
		if len(found) == 0 {
			s.Absent()
		}
	})
	w.note(nil)
	return w.api.Watch(ctx, version, func(e Event) {
		w.update(func(s *State) {
			if e.Kind == Gone {
				s.Deleted(e.Object)
			} else {
				s.Seen(e.Object)
			}
		})
	})
}

func (w *Watcher) update(f func(*State)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.state
	f(&w.state)
	if w.state == before {
		return
	}
	w.log.Info("the agent's own DaemonSet changed", "uid", w.state.own, "deleted", w.state.deleted, "successor", w.state.successor)
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

func (w *Watcher) note(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

// Err says why the DaemonSet cannot be watched now, nil if it can.
func (w *Watcher) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Ask is called once, when SIGTERM came, and says whether podweir is being
// uninstalled. It takes Window at most, and Keep if the context ends before.
func (w *Watcher) Ask(ctx context.Context) Verdict {
	term := time.Now()
	w.once.Do(func() { close(w.urgent) })
	for {
		w.mu.Lock()
		since := time.Since(term)
		verdict := w.state.Decide(since)
		deleted := w.state.deleted
		w.mu.Unlock()
		if verdict != Wait {
			return verdict
		}
		until := Window
		if deleted {
			until = Settle
		}
		timer := time.NewTimer(until - since)
		select {
		case <-ctx.Done():
			timer.Stop()
			return Keep
		case <-w.changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// Doer sends a request to the API server and returns the body of a successful
// answer; every other answer is an error.
type Doer interface {
	Do(ctx context.Context, method, path string, query url.Values, body []byte) (io.ReadCloser, error)
}

// DaemonSets implements [API] for the DaemonSet of one name. It needs list and
// watch on daemonsets in its namespace, which may be limited to the name.
type DaemonSets struct {
	client          Doer
	namespace, name string
}

// NewDaemonSets returns the API for a DaemonSet.
func NewDaemonSets(client Doer, namespace, name string) *DaemonSets {
	return &DaemonSets{client, namespace, name}
}

// ParseName splits "namespace/name".
func ParseName(s string) (namespace, name string, err error) {
	namespace, name, ok := strings.Cut(s, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", "", fmt.Errorf("DaemonSet %q is not accepted, want namespace/name", s)
	}
	return namespace, name, nil
}

// watchSeconds is how long the server is asked to keep a watch: as long as it does
// by default at most (--min-request-timeout, times two).
const watchSeconds = 3600

// metadata is all that is read of a DaemonSet.
type metadata struct {
	Metadata struct {
		Name              string `json:"name"`
		UID               string `json:"uid"`
		ResourceVersion   string `json:"resourceVersion"`
		DeletionTimestamp string `json:"deletionTimestamp"`
	} `json:"metadata"`
}

func (m *metadata) object() Object {
	return Object{UID: m.Metadata.UID, Deleting: m.Metadata.DeletionTimestamp != ""}
}

func (d *DaemonSets) do(ctx context.Context, query url.Values) (io.ReadCloser, error) {
	query.Set("fieldSelector", "metadata.name="+d.name)
	body, err := d.client.Do(ctx, http.MethodGet,
		"/apis/apps/v1/namespaces/"+url.PathEscape(d.namespace)+"/daemonsets", query, nil)
	if err != nil {
		return nil, fmt.Errorf("DaemonSet %s/%s: %w", d.namespace, d.name, err)
	}
	return body, nil
}

// List implements [API].
func (d *DaemonSets) List(ctx context.Context) ([]Object, string, error) {
	body, err := d.do(ctx, url.Values{})
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = body.Close() }()
	var list struct {
		Kind     string `json:"kind"`
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Items []metadata `json:"items"`
	}
	if err := json.NewDecoder(body).Decode(&list); err != nil {
		return nil, "", fmt.Errorf("DaemonSet %s/%s: read the list: %w", d.namespace, d.name, err)
	}
	// Half an answer, or another party's, must not look like an empty list.
	if list.Kind != "DaemonSetList" || list.Metadata.ResourceVersion == "" {
		return nil, "", fmt.Errorf("DaemonSet %s/%s: the answer is no list of DaemonSets but %q", d.namespace, d.name, list.Kind)
	}
	var found []Object
	for i := range list.Items {
		if list.Items[i].Metadata.Name == d.name {
			found = append(found, list.Items[i].object())
		}
	}
	return found, list.Metadata.ResourceVersion, nil
}

// Watch implements [API].
func (d *DaemonSets) Watch(ctx context.Context, version string, f func(Event)) error {
	body, err := d.do(ctx, url.Values{
		"watch": {"1"}, "resourceVersion": {version}, "timeoutSeconds": {strconv.Itoa(watchSeconds)},
	})
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	decoder := json.NewDecoder(body)
	for {
		var e struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		err := decoder.Decode(&e)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("DaemonSet %s/%s: watch: %w", d.namespace, d.name, err)
		}
		if e.Type == "ERROR" {
			return fmt.Errorf("DaemonSet %s/%s: watch: %s", d.namespace, d.name, e.Object)
		}
		var m metadata
		if err := json.Unmarshal(e.Object, &m); err != nil {
			return fmt.Errorf("DaemonSet %s/%s: watch: %w", d.namespace, d.name, err)
		}
		if m.Metadata.Name != d.name {
			continue // a bookmark, or another party's
		}
		switch e.Type {
		case "ADDED", "MODIFIED":
			f(Event{Exists, m.object()})
		case "DELETED":
			f(Event{Gone, m.object()})
		}
	}
}
