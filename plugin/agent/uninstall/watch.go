// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package uninstall

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Event is one change that the API server announced: the object is there, or Gone.
type Event struct {
	Object

	Gone bool
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
	return w.api.Watch(ctx, version, func(e Event) {
		w.update(func(s *State) {
			if e.Gone {
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

// ParseName splits "namespace/name".
func ParseName(s string) (namespace, name string, err error) {
	namespace, name, ok := strings.Cut(s, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", "", fmt.Errorf("DaemonSet %q is not accepted, want namespace/name", s)
	}
	return namespace, name, nil
}
