// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// Watch keeps the pods of one node, stripped to what the agent needs.
type Watch struct {
	client *Client
	node   string
	log    *slog.Logger

	mu      sync.Mutex
	pods    map[string]Pod
	current bool
	// failed is why the last attempt to list or watch failed.
	failed error
}

// NewWatch returns a watch of the pods on a node, by the node's name.
func NewWatch(client *Client, node string, log *slog.Logger) *Watch {
	return &Watch{client: client, node: node, log: log, pods: make(map[string]Pod)}
}

// Pod returns a pod by its UID.
func (w *Watch) Pod(uid string) (Pod, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, ok := w.pods[uid]
	return p, ok
}

// List returns all pods in the order of their names.
func (w *Watch) List() []Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]Pod, 0, len(w.pods))
	for _, p := range w.pods {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Pod) int { return strings.Compare(a.Key(), b.Key()) })
	return all
}

// Current says that the list was read and that the watch has not failed since.
func (w *Watch) Current() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current
}

// Err says why the pods are not known, or were known some time ago; nil if [Watch.Current].
func (w *Watch) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.current:
		return nil
	case w.failed == nil:
		return errors.New("the pods of the node are not listed yet")
	}
	return fmt.Errorf("the pods of the node are not watched: %s (%s): %w", hint(w.failed), w.client.Server(), withoutQuery(w.failed))
}

func withoutQuery(err error) error {
	if of, ok := errors.AsType[*url.Error](err); ok {
		return of.Err
	}
	return err
}

func (w *Watch) setCurrent(current bool) (before bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, w.current = w.current, current
	return before
}

// nowCurrent says that the list is what the server has, and tells of all pods
// if it was not: who looked at one in between could not know what it asks for.
// The changes that brought the list there are told only now for the same reason.
func (w *Watch) nowCurrent(news []string, changed func(string)) {
	if !w.setCurrent(true) {
		w.log.Info("watch of pods started", "server", w.client.Server(), "node", w.node)
		for _, p := range w.List() {
			changed(p.UID)
		}
		news = slices.DeleteFunc(news, func(uid string) bool { _, told := w.Pod(uid); return told })
	}
	for _, uid := range news {
		changed(uid)
	}
}

// The pause after a failure, which doubles from the least to the most; a watch
// that lived for watchLives begins again with the least.
const (
	retryMin   = 500 * time.Millisecond
	retryMax   = 30 * time.Second
	watchLives = 10 * time.Second
	// watchFor is how long the server is asked to keep a watch, at least; up to twice as long
	// by chance, so that nodes do not come all at once.
	watchFor = 5 * time.Minute
)

// Run reads the list and then watches until the context ends, whatever the
// server answers. It calls changed with the UID of every pod
// that came, went, or changed in what is kept of it; the pods that are there are
// new at first. After a failure the list stays what it was, and when that is
// over changed is called for all pods.
func (w *Watch) Run(ctx context.Context, changed func(uid string)) {
	since, failures := "", 0
	for ctx.Err() == nil {
		started := time.Now()
		err := w.once(ctx, &since, changed)
		if err == nil || time.Since(started) > watchLives {
			failures = 0
		}
		if errors.Is(err, errExpired) || statusOf(err) == http.StatusGone {
			since = ""
			if failures == 0 {
				// One list at once; a server whose lists are expired already
				// is not asked without a pause.
				failures++
				w.log.Info("watch expired: pods are listed again")
				continue
			}
		}
		if err != nil && ctx.Err() == nil {
			w.mu.Lock()
			w.current, w.failed = false, err
			w.mu.Unlock()
			failures++
			w.wait(ctx, failures, err)
		}
	}
}

// once lists, if there is no version to watch from, and follows the changes
// until the watch ends.
func (w *Watch) once(ctx context.Context, since *string, changed func(string)) error {
	if *since == "" {
		pods, version, err := w.list(ctx)
		if err != nil {
			return err
		}
		*since = version
		w.nowCurrent(w.replace(pods), changed)
	}
	var err error
	*since, err = w.watch(ctx, *since, changed)
	return err
}

func (w *Watch) wait(ctx context.Context, failures int, err error) {
	pause := pauseAfter(failures)
	w.log.Error("watch of pods failed: pods that are shaped stay shaped", "server", w.client.Server(), "node", w.node,
		"error", err, "hint", hint(err), "again", pause.Round(time.Millisecond))
	sleep(ctx, nil, w.client.pause(pause))
}

// pauseAfter is the pause after so many failures in a row, at least one.
func pauseAfter(failures int) time.Duration {
	pause := retryMax
	if failures < 8 {
		pause = min(retryMin<<(failures-1), retryMax)
	}
	return pause + time.Duration(rand.Int64N(int64(pause)/5))
}

// hint says what an operator can do about an error.
func hint(err error) string {
	switch statusOf(err) {
	case 0:
		return "the API server is not reached"
	case http.StatusUnauthorized:
		return "the token is not accepted; it is read again for each request"
	case http.StatusForbidden:
		return "the service account needs list and watch of pods"
	default:
		return "the API server does not answer as it should"
	}
}

func (w *Watch) query() url.Values {
	return url.Values{"fieldSelector": {"spec.nodeName=" + w.node}}
}

const podsPath = "/api/v1/pods"

// list reads all pods. It returns them by their UIDs, and the version that they are of.
func (w *Watch) list(ctx context.Context) (pods map[string]Pod, version string, err error) {
	q := w.query()
	// From the server's cache, which costs it no read of its store.
	q.Set("resourceVersion", "0")
	pods = make(map[string]Pod)
	version, err = w.client.list(ctx, podsPath, q, "PodList", func(m *manifest) { pods[m.Metadata.UID] = m.pod() })
	return pods, version, err
}

// replace keeps a list in place of the one before, and returns the UIDs of the
// pods that came, changed or went.
func (w *Watch) replace(pods map[string]Pod) (news []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for uid := range w.pods {
		if _, ok := pods[uid]; !ok {
			news = append(news, uid)
		}
	}
	for uid, p := range pods {
		if old, known := w.pods[uid]; !known || !old.equal(&p) {
			news = append(news, uid)
		}
	}
	w.pods = pods
	slices.Sort(news)
	return news
}

// watch follows the changes since a version and returns the last one that it
// came to. A watch that the server ended in order is no error.
func (w *Watch) watch(ctx context.Context, since string, changed func(string)) (string, error) {
	opened := func() { w.nowCurrent(nil, changed) }
	return w.client.follow(ctx, podsPath, w.query(), since, watchFor+rand.N(watchFor), opened, func(m *manifest, gone bool) {
		if gone {
			w.drop(m.Metadata.UID, changed)
			return
		}
		w.put(m.pod(), changed)
	})
}

func (w *Watch) put(p Pod, changed func(string)) {
	w.mu.Lock()
	old, known := w.pods[p.UID]
	same := known && old.equal(&p)
	w.pods[p.UID] = p
	w.mu.Unlock()
	if !same {
		changed(p.UID)
	}
}

func (w *Watch) drop(uid string, changed func(string)) {
	w.mu.Lock()
	_, known := w.pods[uid]
	delete(w.pods, uid)
	w.mu.Unlock()
	if known {
		changed(uid)
	}
}
