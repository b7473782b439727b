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
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
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
	greedy.told(t, "BandwidthAboveMaximum", `annotation kubernetes.io/egress-bandwidth: "100M"`, "at most 30 Mbit/s", "podweir.io/max-egress-rate", "at most 40 Mbit/s")
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
	must.OK(t, next.call(t, "ADD"))
	next.limits(t, "after ADD", "30Mbit", "40Mbit")
	must.OK(t, next.call(t, "CHECK"))
	n.api.Put(next.api)
	must.Be(t, "why the agent changes what ADD made", "", a.becomes(t, next, reconcile.Shaped).Reason)

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
	n := newNode(t)
	n.namespaces = 100 * time.Millisecond
	n.api.PutNamespace("team", bothRates("max", "30M", "40M"))
	p := n.podIn(t, "team")
	p.annotate(both("100M", "100M"))
	first := n.start(t, never)
	p.gets(t, "30Mbit", "40Mbit")
	first.has(t, p, 2)
	first.stop()

	n.api.FailNamespace("team", http.StatusServiceUnavailable)
	a := n.start(t, 50*time.Millisecond)
	testutil.Eventually(t, soon, "the pod is looked at", func() bool { return a.state(p).Outcome == reconcile.Shaped })
	// Even without the record of the agent before.
	must.OK(t, os.RemoveAll(filepath.Join(n.paths.Run, "namespaces")))
	a.stop()
	a = n.start(t, 50*time.Millisecond)
	since := time.Now()
	testutil.Eventually(t, soon, "looks at the pod", func() bool { return a.state(p).At.After(since.Add(500 * time.Millisecond)) })
	p.limits(t, "while the API server does not tell", "30Mbit", "40Mbit")
	n.api.PutNamespace("team", bothRates("max", "5M", "6M"))
	n.api.FailNamespace("team", 0)
	p.gets(t, "5Mbit", "6Mbit")
}

// TestPrivilegedRuntimeWithoutAnnotations: podweir-cni does not see podweir's own
// annotations where the runtime passes none; the agent applies them when it looks.
func TestPrivilegedRuntimeWithoutAnnotations(t *testing.T) {
	n := newNode(t)
	n.configure("defaultRate", "50M")
	p := n.newPod(t)
	p.api.PodIP = ""
	must.OK(t, p.call(t, "ADD"))
	p.gets(t, "50Mbit", "50Mbit")
	p.api.PodIP = p.addr
	p.annotate(map[string]string{"podweir.io/egress-rate": "5M", "podweir.io/ingress-rate": "6M"})
	a := n.start(t, never)
	p.gets(t, "5Mbit", "6Mbit")
	a.has(t, p, 2)
	p.annotate(map[string]string{"podweir.io/egress-rate": "7M"})
	p.gets(t, "7Mbit", "50Mbit")
}

// TestPrivilegedObserve: what the operator says of a node and a Namespace reaches pods
// that run, there and back. Whoever takes the program away that observes is no tamperer: it
// is put back.
func TestPrivilegedObserve(t *testing.T) {
	n := newNode(t)
	n.namespaces = 100 * time.Millisecond
	n.configure("enforce", "observe")
	p := n.podIn(t, "team")
	p.annotate(both("10M", "20M"))
	a := n.start(t, never)
	observed := func(when string) {
		t.Helper()
		testutil.Eventually(t, soon, when+" the pod is observed and has no queue", func() bool {
			// The state last: the agent writes it after the look that took the queues away.
			if rate(t, p.ns, "eth0") != "" || rate(t, n.NetNS, p.host.Name) != "" {
				return false
			}
			s := a.state(p)
			return len(s.Limits) == 2 && s.Limits[0].Observed() && s.Limits[1].Observed()
		})
		if status := p.attachment(t); len(status.Drift) != 0 || status.Directions[0].Enforce.Is != terms.EnforceObserve {
			t.Errorf("%s status has drift %v and %+v, want none and observe", when, status.Drift, status.Directions)
		}
	}
	observed("at first,")
	p.told(t, "BandwidthObserved", "nothing is held")
	must.Be(t, "type of the event", "Normal", p.event(t, "BandwidthObserved").Type)
	for range 4 { // three are tampering where a limit is enforced
		p.ns.Run(t, "tc", "filter", "del", "dev", "eth0", "egress")
		testutil.Eventually(t, soon, "the program is back", func() bool {
			return strings.Contains(p.ns.Run(t, "tc", "filter", "show", "dev", "eth0", "egress"), "pw_police")
		})
	}
	must.Len(t, "tampering where there is no limit to take away", 0, a.state(p).Tampered)
	n.api.PutNamespace("team", map[string]string{"podweir.io/enforce": "limit"})
	p.gets(t, "10Mbit", "20Mbit")
	n.api.PutNamespace("team", nil)
	observed("without the annotation,")
	n.configure("enforce", "limit")
	a.Again()
	p.gets(t, "10Mbit", "20Mbit")
}

// TestPrivilegedLimitsLeftToCilium: the node's entry leaves annotations to
// Cilium's bandwidth manager while pods run, one direction first.
func TestPrivilegedLimitsLeftToCilium(t *testing.T) {
	n := newNode(t)
	p := n.newPod(t)
	p.annotate(both("10M", "20M"))
	a := n.start(t, 200*time.Millisecond)
	p.gets(t, "10Mbit", "20Mbit")

	n.configure("egressShaper", "cilium")
	p.gets(t, "", "20Mbit")
	a.has(t, p, 1)
	att := p.attachment(t)
	must.Have(t, "the notes of status", strings.Join(att.Notes, " "), "10 Mbit/s of egress is left to Cilium's bandwidth manager")
	must.Len(t, "drift", 0, att.Drift)

	n.configure("ingressShaper", "cilium")
	p.gets(t, "", "")
	s := a.becomes(t, p, reconcile.Deferred)
	must.Have(t, "the reason", s.Reason, "10 Mbit/s of egress is left", "20 Mbit/s of ingress is left")
	must.OK(t, s.Err)
	p.unlimited(t, "with all limits left to Cilium")

	n.configure("shaper", "podweir")
	n.configure("egressShaper", nil)
	n.configure("ingressShaper", nil)
	p.gets(t, "10Mbit", "20Mbit")
}
