// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/podweir/podweir/plugin/netconf"
)

// Limits of what is asked about Namespaces.
const (
	// namespaceTimeout bounds one request.
	namespaceTimeout = 10 * time.Second
	// notFoundPause is how long an API server's cache may take to have a namespace that
	// a pod of this node is in.
	notFoundPause = 5 * time.Second
	// maxNamespaceBytes is more than an API server stores of one object.
	maxNamespaceBytes = 4 << 20
)

// Namespaces keeps the rates that are set on the Namespaces of this node's pods, and
// asks for no others: each by its name, from the API server's cache, when its first
// pod comes and then again and again (docs/reference/agent.md has what that costs).
type Namespaces struct {
	client *Client
	pods   *Watch
	every  time.Duration
	log    *slog.Logger
	// wake has room for one: there is a namespace to ask for.
	wake chan struct{}

	mu    sync.Mutex
	known map[string]*knownNamespace
}

type knownNamespace struct {
	rates netconf.Namespace
	// answered says that the API server has sent it since the agent began.
	answered bool
	// failed is why it could not be read when it was asked for last.
	failed error
	due    time.Time
}

// NewNamespaces returns what keeps the Namespaces of the pods of a watch; every is the
// time between two requests for the same one.
func NewNamespaces(client *Client, pods *Watch, every time.Duration, log *slog.Logger) *Namespaces {
	return &Namespaces{
		client: client, pods: pods, every: every, log: log,
		wake: make(chan struct{}, 1), known: make(map[string]*knownNamespace),
	}
}

// Remember takes what an agent before this one knew, until the API server answers.
func (n *Namespaces) Remember(name string, rates netconf.Namespace) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known[name] == nil {
		n.known[name] = &knownNamespace{rates: rates}
	}
}

// Want asks for a namespace if it is not known. It does not wait.
func (n *Namespaces) Want(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known[name] != nil {
		return
	}
	n.known[name] = &knownNamespace{}
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// Rates returns what is set on a namespace. If known is false the API server has not
// answered since the agent began, and the rates are what an agent before knew.
func (n *Namespaces) Rates(name string) (rates netconf.Namespace, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	k := n.known[name]
	if k == nil {
		return nil, false
	}
	return k.rates, k.answered
}

// Err says of which namespaces the rates could not be read when they were asked for last: their pods may ask for
// limits of which nobody here knows.
func (n *Namespaces) Err() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var unread []string
	for name, k := range n.known {
		if k.failed != nil {
			unread = append(unread, name)
		}
	}
	if len(unread) == 0 {
		return nil
	}
	first := slices.Min(unread)
	why := n.known[first].failed
	help := hint(why)
	if statusOf(why) == http.StatusForbidden {
		help = namespaceRights
	}
	return fmt.Errorf("rates cannot be read of %d namespaces, such as %s: %s: %w", len(unread), first, help, withoutQuery(why))
}

// namespaceRights is what to do where the API server refuses.
const namespaceRights = "the service account needs get of namespaces, or the agent --namespace-interval 0"

// Ask is [Namespaces.Rates] for whoever can wait until ctx ends.
func (n *Namespaces) Ask(ctx context.Context, name string) netconf.Namespace {
	rates, known := n.Rates(name)
	if known {
		return rates
	}
	if got, err := n.get(ctx, name); err == nil {
		return got
	}
	return rates
}

// Run asks for namespaces until the context ends, whatever the server answers. It calls told
// after each answer: with changed if the rates are others than before, or are known for the
// first time. It is also called with no rates for a namespace that no pod of this node is in
// any more.
func (n *Namespaces) Run(ctx context.Context, told func(name string, rates netconf.Namespace, changed bool)) {
	failures := 0
	for ctx.Err() == nil {
		for _, name := range n.dropUnused() {
			told(name, nil, false)
		}
		name, wait := n.next()
		if name == "" {
			sleep(ctx, n.wake, wait)
			continue
		}
		if n.look(ctx, name, told) {
			failures = 0
			continue
		}
		failures++
		sleep(ctx, nil, n.client.pause(pauseAfter(failures)))
	}
}

// dropUnused forgets the namespaces that no pod needs, and returns their names.
func (n *Namespaces) dropUnused() (dropped []string) {
	if !n.pods.Current() {
		return nil
	}
	n.mu.Lock() // first, so that what is wanted for a new pod meanwhile stays
	defer n.mu.Unlock()
	used := make(map[string]bool)
	for _, p := range n.pods.List() {
		if p.NeedsNamespace() {
			used[p.Namespace] = true
		}
	}
	for name := range n.known {
		if !used[name] {
			delete(n.known, name)
			dropped = append(dropped, name)
		}
	}
	return dropped
}

// NeedsNamespace says that the rates of its namespace matter to a pod.
func (p *Pod) NeedsNamespace() bool { return !p.HostNetwork && !p.Finished }

// next returns the namespace that has been due for longest, or how long there is none.
func (n *Namespaces) next() (name string, wait time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var first time.Time
	for other, k := range n.known {
		if name == "" || k.due.Before(first) {
			name, first = other, k.due
		}
	}
	if name == "" {
		return "", n.every
	}
	if wait = time.Until(first); wait > 0 {
		return "", wait
	}
	return name, 0
}

// look asks for one namespace; false means that the server could not be asked.
func (n *Namespaces) look(ctx context.Context, name string, told func(string, netconf.Namespace, bool)) bool {
	rates, err := n.get(ctx, name)
	code := statusOf(err)
	if code != http.StatusNotFound && ctx.Err() == nil {
		n.note(name, err)
	}
	switch {
	case err == nil:
	case code == http.StatusNotFound:
		// It is being deleted, or the cache is behind: that is no answer.
		n.later(name, min(n.every, n.client.pause(notFoundPause)))
		return true
	case code == http.StatusForbidden:
		n.log.Error("rates of a namespace cannot be read, those from before or of the node are used", "namespace", name, "error", err,
			"hint", namespaceRights)
	default:
		if ctx.Err() == nil {
			n.log.Error("rates of a namespace cannot be read, those from before stay", "namespace", name, "error", err)
		}
		n.later(name, 0) // the others first
		return false
	}
	n.mu.Lock()
	k := n.known[name]
	if k == nil { // its last pod went meanwhile
		n.mu.Unlock()
		return true
	}
	if err != nil {
		rates = k.rates
	}
	changed := !k.answered || !maps.Equal(k.rates, rates)
	k.rates, k.answered = rates, true
	// Nodes that came up together do not ask together for ever.
	k.due = time.Now().Add(n.every - n.every/10 + rand.N(n.every/5+1))
	n.mu.Unlock()
	told(name, rates, changed)
	return true
}

func (n *Namespaces) note(name string, failed error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if k := n.known[name]; k != nil {
		k.failed = failed
	}
}

func (n *Namespaces) later(name string, pause time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if k := n.known[name]; k != nil {
		k.due = time.Now().Add(pause)
	}
}

// get reads the rates of a namespace from the API server's cache, which costs its
// store nothing.
func (n *Namespaces) get(ctx context.Context, name string) (netconf.Namespace, error) {
	ctx, cancel := context.WithTimeout(ctx, namespaceTimeout)
	defer cancel()
	body, err := n.client.Do(ctx, http.MethodGet, "/api/v1/namespaces/"+url.PathEscape(name), url.Values{"resourceVersion": {"0"}}, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	var object struct {
		Kind     string `json:"kind"`
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := json.NewDecoder(io.LimitReader(body, maxNamespaceBytes)).Decode(&object); err != nil {
		return nil, fmt.Errorf("namespace %s: %w", name, err)
	}
	if object.Kind != "Namespace" {
		return nil, fmt.Errorf("namespace %s: the answer is no Namespace but %q", name, object.Kind)
	}
	var rates netconf.Namespace
	for _, key := range netconf.NamespaceAnnotations() {
		value, ok := object.Metadata.Annotations[key]
		if !ok {
			continue
		}
		if rates == nil {
			rates = make(netconf.Namespace)
		}
		rates[key] = netconf.Cut(value)
	}
	return rates, nil
}
