// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/podweir/podweir/plugin/attach"
)

// key names what is worked on: a pod of the API, or an attachment that no pod
// of the API claims.
type key struct {
	uid string
	id  attach.ID
}

// The pause after a failure doubles from the least to the most.
const (
	retryMin = time.Second
	retryMax = 5 * time.Minute
)

// queue hands out keys when they are due, each to one worker at a time. A key
// that is added while it is worked on comes once more.
type queue struct {
	mu    sync.Mutex
	items map[key]*item
	// wake has room for one: there is something earlier to wait for.
	wake chan struct{}
}

type item struct {
	due time.Time
	// waiting says that due counts.
	waiting, running bool
	failures         int
}

func newQueue() *queue {
	return &queue{items: make(map[key]*item), wake: make(chan struct{}, 1)}
}

// add asks for a key to be worked on after a delay, or earlier if that was
// requested before.
func (q *queue) add(k key, delay time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := q.items[k]
	if i == nil {
		i = &item{}
		q.items[k] = i
	}
	due := time.Now().Add(delay)
	if i.waiting && !due.Before(i.due) {
		return
	}
	i.due, i.waiting = due, true
	q.poke()
}

func (q *queue) has(k key) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.items[k] != nil
}

func (q *queue) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// next waits for a key that is due; false means that the context ended.
func (q *queue) next(ctx context.Context) (key, bool) {
	for {
		k, wait, ok := q.take()
		if ok {
			return k, true
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return key{}, false
		case <-q.wake:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// take returns the key that has been due for longest, or how long there is
// none.
func (q *queue) take() (k key, wait time.Duration, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var first *item
	for other, i := range q.items {
		if i.waiting && !i.running && (first == nil || i.due.Before(first.due)) {
			first, k = i, other
		}
	}
	if first == nil {
		return key{}, time.Hour, false
	}
	if wait = time.Until(first.due); wait > 0 {
		return key{}, wait, false
	}
	first.running, first.waiting = true, false
	// Another worker may wait for what is next.
	q.poke()
	return k, 0, true
}

// done ends the work on a key; retry asks for it again after a pause that
// grows with each failure.
func (q *queue) done(k key, retry bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := q.items[k]
	if i == nil {
		return
	}
	i.running = false
	if !retry {
		i.failures = 0
	} else {
		i.failures++
		if due := time.Now().Add(pause(i.failures)); !i.waiting || due.Before(i.due) {
			i.due, i.waiting = due, true
		}
	}
	if i.waiting {
		q.poke()
	} else {
		delete(q.items, k)
	}
}

// pause is up to a tenth longer by chance, so that a node's pods that failed
// together are not tried together for ever.
func pause(failures int) time.Duration {
	d := retryMax
	if failures < 10 {
		d = min(retryMin<<(failures-1), retryMax)
	}
	return d + time.Duration(rand.Int64N(int64(d)/10))
}
