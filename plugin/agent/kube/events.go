// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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
	// maxPodName is how much of a pod's name the name of an Event has room for, in bytes.
	maxPodName = 253 - len(".0123456789abcdef")
	// eventQueue is how many wait while the API server is away. More are
	// dropped.
	eventQueue = 256
)

// Recorder posts Events, each once as long as what it says lasts.
type Recorder struct {
	client *Client
	node   string
	run    string
	log    *slog.Logger
	queue  chan posted

	mu sync.Mutex
	// last is what was emitted last, by topic.
	last map[string]said
}

type said struct {
	Event
	at time.Time
}

type posted struct {
	pod Pod
	said
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

// OfLimits is how the reasons begin of what becomes of a pod's limits.
const OfLimits = "Bandwidth"

// topic is what a reason is about. What becomes of a pod's limits is one topic, every other
// reason is its own.
func topic(uid, reason string) string {
	if strings.HasPrefix(reason, OfLimits) {
		return uid
	}
	return uid + " " + reason
}

// Emit posts an Event of a pod, unless it is what was emitted last for the pod and the topic of
// its reason, within the hour that an API server keeps it. It does not wait.
func (r *Recorder) Emit(pod *Pod, e Event) {
	now := time.Now()
	e.Message = terms.Runnable(e.Message, r.run)
	k := topic(pod.kubeletUID(), e.Reason)
	r.mu.Lock()
	maps.DeleteFunc(r.last, func(_ string, s said) bool { return now.Sub(s.at) >= eventLives })
	same := r.last[k].Event == e
	if !same {
		r.last[k] = said{e, now}
	}
	r.mu.Unlock()
	if !same {
		r.put(&posted{pod: *pod, said: said{e, now}})
	}
}

// Over forgets what was emitted of a pod on the topic of a reason: the next Event is posted whatever it says.
func (r *Recorder) Over(uid, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, topic(uid, reason))
}

// put has an Event posted, for the first time or again.
func (r *Recorder) put(p *posted) {
	select {
	case r.queue <- *p:
	default:
		r.drop(p, errors.New("too many are waiting"))
	}
}

// drop gives an Event up. It is posted if it is emitted again.
func (r *Recorder) drop(p *posted, why error) {
	r.Over(p.pod.kubeletUID(), p.Reason)
	r.log.Error("event not posted", "pod", p.pod.Key(), "reason", p.Reason, "message", p.Message, "error", why)
}

// Run posts what is emitted until the context ends, and returns nil. What the server refuses is not tried
// again, and what it does not answer until nobody would see it any more.
func (r *Recorder) Run(ctx context.Context) error {
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case p := <-r.queue:
			err := r.post(ctx, &p)
			switch code := statusOf(err); {
			case err == nil, code == http.StatusConflict: // it was taken before, and the answer got lost
				failures = 0
			case ctx.Err() != nil:
			case code/100 == 4 && code != http.StatusTooManyRequests && code != http.StatusUnauthorized, time.Since(p.at) >= eventLives:
				r.drop(&p, err)
			default:
				failures++
				sleep(ctx, nil, r.client.pause(pauseAfter(min(failures, 5))))
				r.put(&p)
			}
		}
	}
}

func (r *Recorder) post(ctx context.Context, p *posted) error {
	body, err := json.Marshal(r.object(p))
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	answer, err := r.client.Do(ctx, http.MethodPost, "/api/v1/namespaces/"+p.pod.Namespace+"/events", nil, body)
	if err != nil {
		return err
	}
	return answer.Close()
}

func (r *Recorder) object(p *posted) map[string]any {
	kind := "Normal"
	if p.Warning {
		kind = "Warning"
	}
	at := p.at.UTC().Format(time.RFC3339)
	name := strings.TrimRight(p.pod.Name[:min(len(p.pod.Name), maxPodName)], "-.")
	return map[string]any{
		"apiVersion": "v1", "kind": "Event",
		"metadata": map[string]any{
			"namespace": p.pod.Namespace, "name": fmt.Sprintf("%s.%x", name, p.at.UnixNano()),
		},
		"involvedObject": map[string]any{
			"apiVersion": "v1", "kind": "Pod",
			"namespace": p.pod.Namespace, "name": p.pod.Name, "uid": p.pod.kubeletUID(),
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
