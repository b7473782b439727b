// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/podweir/podweir/plugin/terms"
)

// Event is something that the owner of a pod should know.
type Event struct {
	// Warning is false for news that ask for nothing.
	Warning bool
	// Reason is one word in CamelCase, the same for the same kind of event.
	Reason  string
	Message string
}

// Limits of what is posted.
const (
	// eventLives is how long an API server keeps an Event by default
	// (--event-ttl): what lasts is said again after it.
	eventLives = time.Hour
	// maxMessage is the longest note that an Event may have, in bytes.
	maxMessage = 1024
	// eventQueue is how many wait while the API server is away. More are
	// dropped: as long as it lasts, the same is emitted again.
	eventQueue = 256
	// eventAttempts is how often one is posted before it is dropped.
	eventAttempts = 5
)

// Recorder posts Events, each once as long as what it says lasts.
type Recorder struct {
	client *Client
	node   string
	run    string
	log    *slog.Logger
	queue  chan posted

	mu   sync.Mutex
	last map[string]said
}

type said struct {
	Event
	at time.Time
}

type posted struct {
	pod Pod
	Event
	at time.Time
}

// NewRecorder returns a recorder for the pods of a node, which posts while
// [Recorder.Run] runs. Run is how podweir's program is run by whoever reads Events; see
// [terms.Runnable].
func NewRecorder(client *Client, node, run string, log *slog.Logger) *Recorder {
	return &Recorder{
		client: client, node: node, run: run, log: log,
		queue: make(chan posted, eventQueue), last: make(map[string]said),
	}
}

// Emit posts an Event of a pod, unless it is what was emitted for the pod last,
// within the hour that an API server keeps it. It does not wait.
func (r *Recorder) Emit(pod *Pod, e Event) {
	now := time.Now()
	e.Message = terms.Runnable(e.Message, r.run)
	r.mu.Lock()
	old, ok := r.last[pod.UID]
	same := ok && old.Event == e && now.Sub(old.at) < eventLives
	if !same {
		r.last[pod.UID] = said{e, now}
	}
	r.mu.Unlock()
	if same {
		return
	}
	select {
	case r.queue <- posted{*pod, e, now}:
	default:
		r.Clear(pod.UID)
		r.log.Error("event dropped: too many are waiting", "pod", pod.Key(), "reason", e.Reason, "message", e.Message)
	}
}

// Clear forgets what was emitted for a pod, so that the next event is posted whatever it says:
// the pod is in order, or gone.
func (r *Recorder) Clear(uid string) {
	r.mu.Lock()
	delete(r.last, uid)
	r.mu.Unlock()
}

// Run posts what is emitted until the context ends, and returns nil.
func (r *Recorder) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case p := <-r.queue:
			if err := r.post(ctx, &p); err != nil && ctx.Err() == nil {
				r.Clear(p.pod.UID)
				r.log.Error("event not posted", "pod", p.pod.Key(), "reason", p.Reason, "message", p.Message, "error", err)
			}
		}
	}
}

// post tries a few times. What the server refuses is not tried again.
func (r *Recorder) post(ctx context.Context, p *posted) error {
	body, err := json.Marshal(r.object(p))
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	for attempt := 1; ; attempt++ {
		answer, err := r.client.Do(ctx, http.MethodPost, "/api/v1/namespaces/"+p.pod.Namespace+"/events", nil, body)
		if err == nil {
			return answer.Close()
		}
		code := statusOf(err)
		refused := code/100 == 4 && code != http.StatusTooManyRequests && code != http.StatusUnauthorized
		if refused || attempt == eventAttempts {
			return err
		}
		if sleep(ctx, nil, r.client.pause(retryMin<<(attempt-1))); ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// object is a core/v1 Event.
func (r *Recorder) object(p *posted) map[string]any {
	kind := "Normal"
	if p.Warning {
		kind = "Warning"
	}
	at := p.at.UTC().Format(time.RFC3339)
	return map[string]any{
		"apiVersion": "v1", "kind": "Event",
		"metadata": map[string]any{
			"namespace": p.pod.Namespace, "name": fmt.Sprintf("%s.%x", p.pod.Name, p.at.UnixNano()),
		},
		"involvedObject": map[string]any{
			"apiVersion": "v1", "kind": "Pod",
			"namespace": p.pod.Namespace, "name": p.pod.Name, "uid": p.pod.UID,
		},
		"type": kind, "reason": p.Reason, "message": clip(p.Message),
		"firstTimestamp": at, "lastTimestamp": at, "count": 1,
		"source":             map[string]any{"component": "podweir", "host": r.node},
		"reportingComponent": "podweir.io/agent", "reportingInstance": r.node,
	}
}

func clip(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage-3], "") + "..."
}
