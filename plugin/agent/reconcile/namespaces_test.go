// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/agent/reconcile"
	"github.com/podweir/podweir/plugin/testutil"
)

// podIn makes the network of a pod of a namespace.
func (n *node) podIn(t *testing.T, namespace string) *pod {
	t.Helper()
	p := n.newPod(t)
	p.api.Namespace = namespace
	return p
}

// bothRates are the annotations of a Namespace for both directions.
func bothRates(which, out, in string) map[string]string {
	return map[string]string{"podweir.io/" + which + "-egress-rate": out, "podweir.io/" + which + "-ingress-rate": in}
}

// TestPrivilegedNamespaceRates: what is set on a Namespace reaches pods that run, at
// once those that podweir-cni is called for, and their owners.
func TestPrivilegedNamespaceRates(t *testing.T) {
	testutil.RequireRoot(t)
	n := newNode(t)
	n.namespaces = 100 * time.Millisecond
	n.configure("defaultRate", "50M")
	n.api.PutNamespace("team", bothRates("default", "10M", "20M"))
	quiet, greedy, elsewhere := n.podIn(t, "team"), n.podIn(t, "team"), n.newPod(t)
	quiet.annotate(nil)
	greedy.annotate(both("100M", "100M"))
	elsewhere.annotate(nil)
	a := n.start(t, never)
	quiet.gets(t, "10Mbit", "20Mbit")
	greedy.gets(t, "100Mbit", "100Mbit")
	elsewhere.gets(t, "50Mbit", "50Mbit")

	n.api.PutNamespace("team", bothRates("max", "30M", "40M"))
	quiet.gets(t, "30Mbit", "40Mbit") // the node's default, and not more than the maximum
	greedy.gets(t, "30Mbit", "40Mbit")
	e := greedy.event(t, "BandwidthAboveMaximum")
	for _, want := range []string{`annotation kubernetes.io/egress-bandwidth: "100M"`, "at most 30 Mbit/s", "podweir.io/max-egress-rate", "at most 40 Mbit/s"} {
		if !strings.Contains(e.Message, want) {
			t.Errorf("event %q, want %q in it", e.Message, want)
		}
	}
	if s := a.state(greedy); s.Err != nil || !s.Outcome.Enforced() {
		t.Errorf("state %+v, want that its limits are enforced", s)
	}
	for _, e := range n.api.Events() {
		if e.InvolvedObject.UID == quiet.api.UID {
			t.Errorf("event of a pod that asks for nothing: %+v", e)
		}
	}
	// Its own annotations are held to the maximum, too.
	greedy.annotate(map[string]string{"podweir.io/egress-rate": "25M", "podweir.io/ingress-rate": "1G", egress: "100M"})
	greedy.gets(t, "25Mbit", "40Mbit")

	// podweir-cni has it before the agent has looked at the pod.
	next := n.podIn(t, "team")
	next.api.Annotations = both("100M", "100M")
	if err := next.call(t, "ADD"); err != nil {
		t.Fatal(err)
	}
	if out, in := rate(t, next.ns, "eth0"), rate(t, n.NetNS, next.host.Name); out != "30Mbit" || in != "40Mbit" {
		t.Errorf("after ADD %s and %s, want the namespace's maximum", out, in)
	}
	if err := next.call(t, "CHECK"); err != nil {
		t.Errorf("CHECK = %v", err)
	}
	n.api.Put(next.api)
	if s := a.becomes(t, next, reconcile.Shaped); s.Reason != "" {
		t.Errorf("the agent changes what ADD made: %+v", s)
	}

	// The record is on tmpfs: whoever deletes it does no harm for long.
	record := filepath.Join(n.paths.Run, "namespaces", "team.json")
	testutil.Eventually(t, soon, "the records are removed, while the agent may write one", func() bool {
		return os.RemoveAll(filepath.Dir(record)) == nil
	})
	testutil.Eventually(t, soon, "the record is back", func() bool { _, err := os.Stat(record); return err == nil })
	n.api.PutNamespace("team", nil)
	testutil.Eventually(t, soon, "a namespace without rates has no record", func() bool { _, err := os.Stat(record); return os.IsNotExist(err) })
	quiet.gets(t, "50Mbit", "50Mbit")
}

// TestPrivilegedNamespaceNotKnownYet: an agent that begins changes no limit before the
// API server has said what the pod's namespace has, and begins with what was known.
func TestPrivilegedNamespaceNotKnownYet(t *testing.T) {
	testutil.RequireRoot(t)
	n := newNode(t)
	n.namespaces = 100 * time.Millisecond
	n.api.PutNamespace("team", bothRates("max", "30M", "40M"))
	p := n.podIn(t, "team")
	p.annotate(both("100M", "100M"))
	first := n.start(t, never)
	p.gets(t, "30Mbit", "40Mbit")
	first.has(t, p, 2)
	first.stop()

	n.api.FailNamespaces(http.StatusServiceUnavailable)
	a := n.start(t, 50*time.Millisecond)
	testutil.Eventually(t, soon, "the pod is looked at", func() bool { return a.state(p).Outcome == reconcile.Shaped })
	// Even without the record of the agent before.
	if err := os.RemoveAll(filepath.Join(n.paths.Run, "namespaces")); err != nil {
		t.Fatal(err)
	}
	a.stop()
	a = n.start(t, 50*time.Millisecond)
	since := time.Now()
	testutil.Eventually(t, soon, "looks at the pod", func() bool { return a.state(p).At.After(since.Add(500 * time.Millisecond)) })
	if out, in := rate(t, p.ns, "eth0"), rate(t, n.NetNS, p.host.Name); out != "30Mbit" || in != "40Mbit" {
		t.Errorf("%s and %s while the API server does not tell, want what was there", out, in)
	}
	n.api.PutNamespace("team", bothRates("max", "5M", "6M"))
	n.api.FailNamespaces(0)
	p.gets(t, "5Mbit", "6Mbit")
}

// TestPrivilegedRuntimeWithoutAnnotations: podweir-cni does not see podweir's own
// annotations where the runtime passes none; the agent applies them when it looks.
func TestPrivilegedRuntimeWithoutAnnotations(t *testing.T) {
	testutil.RequireRoot(t)
	n := newNode(t)
	n.configure("defaultRate", "50M")
	p := n.newPod(t)
	p.api.PodIP = ""
	if err := p.call(t, "ADD"); err != nil {
		t.Fatal(err)
	}
	p.gets(t, "50Mbit", "50Mbit")
	p.api.PodIP = p.addr
	p.annotate(map[string]string{"podweir.io/egress-rate": "5M", "podweir.io/ingress-rate": "6M"})
	a := n.start(t, never)
	p.gets(t, "5Mbit", "6Mbit")
	a.has(t, p, 2)
	p.annotate(map[string]string{"podweir.io/egress-rate": "7M"})
	p.gets(t, "7Mbit", "50Mbit")
}
