// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package kube_test

import (
	"context"
	"encoding/pem"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/agent/kube"
	"github.com/podweir/podweir/plugin/agent/kube/apitest"
	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/testutil/logged"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// cluster is an API server and a client of it in a pod.
type cluster struct {
	*apitest.Server
	client *kube.Client
	log    *logged.Log
	dir    string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{Server: apitest.New(), log: &logged.Log{}, dir: t.TempDir()}
	t.Cleanup(c.Close)
	// A watch would keep the server from closing.
	t.Cleanup(c.CloseClientConnections)
	c.write(t, "token", apitest.Token+"\n")
	c.write(t, "ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate().Raw})))
	host, port, _ := strings.Cut(strings.TrimPrefix(c.URL, "https://"), ":")
	t.Setenv("KUBERNETES_SERVICE_HOST", host)
	t.Setenv("KUBERNETES_SERVICE_PORT", port)
	conf, err := kube.InCluster(c.dir)
	must.OK(t, err)
	if c.client, err = kube.NewClient(conf); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *cluster) write(t *testing.T, name, text string) {
	t.Helper()
	must.OK(t, os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600))
}

func (c *cluster) slog() *slog.Logger { return slog.New(slog.NewTextHandler(c.log, nil)) }

// watch runs a watch until the test ends and returns it with what it tells. Who
// is told of a pod while the list is not current could not act on it, and would
// not be told again.
func (c *cluster) watch(t *testing.T) (*kube.Watch, chan string) {
	t.Helper()
	w := kube.NewWatch(c.client, "n1", c.slog())
	changed := make(chan string, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- w.Run(ctx, func(uid string) {
			if !w.Current() {
				t.Errorf("changed(%q) while the list is not current", uid)
			}
			changed <- uid
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v, want nil at the end of the context", err)
		}
	})
	return w, changed
}

func expect(t *testing.T, changed chan string, uids ...string) {
	t.Helper()
	for _, uid := range uids {
		select {
		case got := <-changed:
			if got != uid {
				t.Fatalf("changed(%q), want %q", got, uid)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("no change of %q within 20 s", uid)
		}
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

const limit = "kubernetes.io/egress-bandwidth"

func pod(uid string, annotations map[string]string) apitest.Pod {
	return apitest.Pod{
		Namespace: "default", Name: "pod-" + uid, UID: uid, Node: "n1", PodIP: "10.0.0.2", Annotations: annotations, Fat: 2000,
	}
}

func TestWatchFollowsThePodsOfOneNode(t *testing.T) {
	c := newCluster(t)
	c.Put(pod("a", map[string]string{limit: "10M", "podweir.io/policy": "flat", "other": "x"}))
	other := pod("elsewhere", nil)
	other.Node = "n2"
	c.Put(other)
	w, changed := c.watch(t)
	expect(t, changed, "a")
	want := kube.Pod{
		Namespace: "default", Name: "pod-a", UID: "a", RuntimeUID: "a", Started: true,
		Annotations: netconf.PodAnnotations{Values: map[string]string{limit: "10M", "podweir.io/policy": "flat"}},
	}
	if got, ok := w.Pod("a"); !ok || !cmp.Equal(got, want) {
		t.Errorf("Pod = %v\n%s", ok, cmp.Diff(want, got))
	}
	eventually(t, "the watch is current", w.Current)

	static := pod("static", map[string]string{"kubernetes.io/config.mirror": "from-the-kubelet"})
	static.HostNetwork, static.PodIP, static.Phase = true, "", "Failed"
	c.Put(static)
	expect(t, changed, "static")
	got, _ := w.Pod("static")
	if !got.HostNetwork || got.Started || !got.Finished || got.RuntimeUID != "from-the-kubelet" {
		t.Errorf("static pod = %+v", got)
	}

	// What the agent does not read does not wake it.
	c.Put(pod("a", map[string]string{limit: "10M", "podweir.io/policy": "flat", "other": "y"}))
	c.Put(pod("a", map[string]string{limit: "20M"}))
	expect(t, changed, "a")
	if p, _ := w.Pod("a"); p.Annotations.Values[limit] != "20M" {
		t.Errorf("after the change the pod is %+v", p)
	}
	c.Delete("a")
	expect(t, changed, "a")
	if _, ok := w.Pod("a"); ok || len(w.List()) != 1 {
		t.Errorf("after its deletion the pod is there: %v", w.List())
	}
}

// After a broken connection the watch goes on where it was, and tells of all
// pods, as what was asked in between could not be answered; after 410 it lists
// again, and what went meanwhile goes.
func TestWatchSurvivesABreakAndAnExpiry(t *testing.T) {
	c := newCluster(t)
	c.client.Hurry()
	c.Put(pod("a", nil))
	c.Put(pod("b", nil))
	w, changed := c.watch(t)
	expect(t, changed, "a", "b")
	eventually(t, "the server has the watch", func() bool { _, watches := c.Requests(); return watches == 1 })
	c.Cut()
	eventually(t, "the watch is broken", func() bool { return strings.Contains(c.log.String(), "watch of pods failed") })
	c.Put(pod("a", map[string]string{limit: "1M"}))
	expect(t, changed, "a", "b", "a")
	if lists, _ := c.Requests(); lists != 1 {
		t.Errorf("%d lists after a broken connection, want no other one", lists)
	}
	c.Expire()
	c.Delete("b")
	for uid := ""; uid != "b"; {
		select {
		case uid = <-changed:
		case <-time.After(20 * time.Second):
			t.Fatal("after 410 nothing is told of a pod that went within 20 s")
		}
	}
	if lists, _ := c.Requests(); lists < 2 {
		t.Errorf("%d lists after 410, want another one", lists)
	}
	eventually(t, "the watch is current again", w.Current)
	if _, ok := w.Pod("a"); !ok || len(w.List()) != 1 {
		t.Errorf("pods after the new list: %v", w.List())
	}
}

// Whatever the server answers, the pods stay what they were, the log says what
// is wrong, and the watch comes back.
func TestWatchOfAServerThatRefuses(t *testing.T) {
	c := newCluster(t)
	c.client.Hurry()
	c.Put(pod("a", nil))
	w, changed := c.watch(t)
	expect(t, changed, "a")
	for status, hint := range map[int]string{
		http.StatusForbidden: "list and watch of pods", http.StatusServiceUnavailable: "does not answer as it should",
	} {
		eventually(t, "the watch is current", w.Current)
		c.Fail(status)
		c.Cut()
		eventually(t, "the watch says that it failed", func() bool {
			return !w.Current() && strings.Contains(c.log.String(), hint)
		})
		if _, ok := w.Pod("a"); !ok {
			t.Errorf("status %d: the pod is gone", status)
		}
		c.Fail(0)
	}
	// The kubelet replaces the token; the old one is refused.
	eventually(t, "the watch is current", w.Current)
	c.SetToken("token-2")
	c.Cut()
	eventually(t, "the token is refused", func() bool { return strings.Contains(c.log.String(), "token is not accepted") })
	c.write(t, "token", "token-2")
	eventually(t, "the new token is taken", w.Current)
	c.Put(pod("a", map[string]string{limit: "1M"}))
	expect(t, changed, "a")
}

func TestRecorderSaysItOnce(t *testing.T) {
	c := newCluster(t)
	r := kube.NewRecorder(c.client, "n1", "kubectl exec p -- podweir", c.slog())
	go func() { _ = r.Run(t.Context()) }()
	p := &kube.Pod{Namespace: "shop", Name: "web", UID: "u1"}
	bad := kube.Event{Warning: true, Reason: "BandwidthInvalid", Message: "annotation x: \"y\" is not accepted; podweir doctor says more"}
	posted := func(n int) func() bool { return func() bool { return len(c.Events()) == n } }
	for range 5 {
		r.Emit(p, bad)
	}
	eventually(t, "one event", posted(1))
	e := c.Events()[0]
	if e.Type != "Warning" || e.Reason != bad.Reason || e.Message != "annotation x: \"y\" is not accepted; kubectl exec p -- podweir doctor says more" || e.Metadata.Namespace != "shop" ||
		e.InvolvedObject.Kind != "Pod" || e.InvolvedObject.UID != "u1" || !strings.HasPrefix(e.Metadata.Name, "web.") {
		t.Errorf("event %+v", e)
	}
	worse := bad
	worse.Message = strings.Repeat("long ", 1000)
	r.Emit(p, worse)
	eventually(t, "what changed is said", posted(2))
	if n := len(c.Events()[1].Message); n > 1024 {
		t.Errorf("a message of %d bytes, an Event takes 1024", n)
	}
	// In order meanwhile: the same is news again.
	r.Clear("u1")
	r.Emit(p, worse)
	eventually(t, "what came back is said", posted(3))
	// A server that is away for a moment loses nothing; one that refuses is
	// asked no more than once, and again when it is emitted again.
	c.Fail(http.StatusServiceUnavailable)
	r.Emit(p, bad)
	c.Fail(0)
	eventually(t, "it is posted when the server is back", posted(4))
	c.Fail(http.StatusForbidden)
	r.Emit(p, worse)
	eventually(t, "the log says that it is refused", func() bool { return strings.Contains(c.log.String(), "403") })
	c.Fail(0)
	r.Emit(p, worse)
	eventually(t, "it is posted once that is allowed", posted(5))
}
