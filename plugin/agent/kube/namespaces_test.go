// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package kube_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/agent/kube"
	"github.com/podweir/podweir/plugin/netconf"
)

const maxEgress = "podweir.io/max-egress-rate"

type told struct {
	name    string
	rates   netconf.Namespace
	changed bool
}

// namespaces runs what keeps namespaces beside a watch until the test ends.
func (c *cluster) namespaces(t *testing.T, every time.Duration) (*kube.Namespaces, chan told) {
	t.Helper()
	w, changed := c.watch(t)
	n := kube.NewNamespaces(c.client, w, every, c.slog())
	all := make(chan told, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- n.Run(ctx, func(name string, rates netconf.Namespace, changed bool) { all <- told{name, rates, changed} })
	}()
	forwarded := make(chan struct{})
	go func() {
		defer close(forwarded)
		for {
			select {
			case <-ctx.Done():
				return
			case uid := <-changed:
				if p, ok := w.Pod(uid); ok {
					n.Want(p.Namespace)
				}
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-forwarded
		if err := <-done; err != nil {
			t.Errorf("Run = %v, want nil at the end of the context", err)
		}
	})
	return n, all
}

func (c *cluster) podIn(namespace, uid string) {
	p := pod(uid, nil)
	p.Namespace = namespace
	c.Put(p)
}

func expectTold(t *testing.T, all chan told, want told) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		select {
		case got := <-all:
			if got.name == want.name && !got.changed && want.changed {
				continue // the same again
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(told{})); diff != "" {
				t.Fatalf("told (-want +got):\n%s", diff)
			}
			return
		case <-deadline:
			t.Fatalf("not told within 20 s: %+v", want)
		}
	}
}

// The agent asks for the namespaces of its own pods by their names, and for no others,
// however many the cluster has.
func TestNamespacesOfThisNodesPodsAlone(t *testing.T) {
	c := newCluster(t)
	for i := range 100 {
		c.PutNamespace(fmt.Sprintf("other-%d", i), map[string]string{maxEgress: "1M"})
	}
	c.PutNamespace("a", map[string]string{maxEgress: "10M", "podweir.io/default-ingress-rate": "1M", "podweir.io/policy": "flat", "x": "y"})
	c.PutNamespace("b", nil)
	c.podIn("a", "1")
	elsewhere := pod("2", nil)
	elsewhere.Namespace, elsewhere.Node = "other-1", "n2"
	c.Put(elsewhere)
	n, all := c.namespaces(t, time.Hour)
	rates := netconf.Namespace{maxEgress: "10M", "podweir.io/default-ingress-rate": "1M"}
	expectTold(t, all, told{"a", rates, true})
	if got, known := n.Rates("a"); !known || !cmp.Equal(got, rates) {
		t.Errorf("Rates(a) = %v, %v, want %v", got, known, rates)
	}
	c.podIn("b", "3")
	expectTold(t, all, told{"b", nil, true})
	if got, known := n.Rates("b"); !known || len(got) != 0 {
		t.Errorf("Rates(b) = %v, %v, want that it has none", got, known)
	}
	c.podIn("a", "4")
	if got, known := n.Rates("other-1"); known || got != nil {
		t.Errorf("Rates(other-1) = %v, %v, want that it is not known", got, known)
	}
	if got := n.Ask(t.Context(), "other-2"); got[maxEgress] != "1M" {
		t.Errorf("Ask(other-2) = %v, want what is set there", got)
	}
	if asked := c.NamespacesAsked(); !slices.Equal(asked, []string{"a", "b", "other-2"}) {
		t.Errorf("requested %v, want a, b and what Ask was called for, each once", asked)
	}
}

// A change is found at the next look, and a namespace is forgotten with its last pod.
func TestNamespacesAreAskedForAgain(t *testing.T) {
	c := newCluster(t)
	c.PutNamespace("a", map[string]string{maxEgress: "10M"})
	c.podIn("a", "1")
	const every = 10 * time.Millisecond
	n, all := c.namespaces(t, every)
	expectTold(t, all, told{"a", netconf.Namespace{maxEgress: "10M"}, true})
	c.PutNamespace("a", map[string]string{maxEgress: strings.Repeat("9", 1000)})
	expectTold(t, all, told{"a", netconf.Namespace{maxEgress: strings.Repeat("9", netconf.MaxAnnotationBytes+1)}, true})
	c.PutNamespace("a", nil)
	expectTold(t, all, told{"a", nil, true})
	c.Delete("1")
	eventually(t, "it is forgotten", func() bool { _, known := n.Rates("a"); return !known })
	asked := len(c.NamespacesAsked())
	<-time.After(5 * every)
	if now := len(c.NamespacesAsked()); now != asked {
		t.Errorf("%d requests for a namespace without a pod here", now-asked)
	}
}

// What an agent before knew holds until the server answers; a refusal or a server that
// is away takes no maximum away.
func TestNamespacesOfAServerThatRefuses(t *testing.T) {
	c := newCluster(t)
	c.client.Hurry()
	c.podIn("a", "1")
	w, changed := c.watch(t)
	expect(t, changed, "1")
	n := kube.NewNamespaces(c.client, w, 10*time.Millisecond, c.slog())
	before := netconf.Namespace{maxEgress: "1M"}
	n.Remember("a", before)
	if got, known := n.Rates("a"); known || !cmp.Equal(got, before) {
		t.Errorf("Rates = %v, %v, want what was known before", got, known)
	}
	ctx, cancel := context.WithCancel(t.Context())
	all, done := make(chan told, 1000), make(chan error)
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v, want nil at the end of the context", err)
		}
	}()
	c.Fail(http.StatusServiceUnavailable)
	go func() {
		done <- n.Run(ctx, func(name string, rates netconf.Namespace, changed bool) { all <- told{name, rates, changed} })
	}()
	eventually(t, "the log says so", func() bool { return strings.Contains(c.log.String(), "those from before stay") })
	if got, known := n.Rates("a"); known || !cmp.Equal(got, before) || len(all) != 0 {
		t.Errorf("Rates = %v, %v, %d told, want what was known before and nothing told", got, known, len(all))
	}
	c.Fail(http.StatusForbidden)
	expectTold(t, all, told{"a", before, true})
	if !strings.Contains(c.log.String(), "get of namespaces") {
		t.Errorf("the log does not say what is missing:\n%s", c.log)
	}
	c.Fail(0)
	c.PutNamespace("a", map[string]string{maxEgress: "2M"})
	expectTold(t, all, told{"a", netconf.Namespace{maxEgress: "2M"}, true})
}

// A cache that does not have the namespace yet has not answered: what was known stays as
// well known as it was, and the next request comes soon.
func TestNamespaceThatIsNotThereYet(t *testing.T) {
	c := newCluster(t)
	c.podIn("a", "1")
	n, all := c.namespaces(t, 10*time.Millisecond)
	eventually(t, "it is requested", func() bool { return len(c.NamespacesAsked()) >= 3 })
	if got, known := n.Rates("a"); known || got != nil || len(all) != 0 {
		t.Errorf("Rates = %v, %v, %d told, want that nothing is known", got, known, len(all))
	}
	c.PutNamespace("a", map[string]string{maxEgress: "2M"})
	expectTold(t, all, told{"a", netconf.Namespace{maxEgress: "2M"}, true})
}

// The next request comes after some seconds, however long the time between two is.
func TestNamespaceThatIsNotThereIsAskedForSoon(t *testing.T) {
	c := newCluster(t)
	c.client.Hurry()
	c.podIn("a", "1")
	_, all := c.namespaces(t, time.Hour)
	eventually(t, "it is requested", func() bool { return len(c.NamespacesAsked()) >= 1 })
	c.PutNamespace("a", map[string]string{maxEgress: "2M"})
	expectTold(t, all, told{"a", netconf.Namespace{maxEgress: "2M"}, true})
}
