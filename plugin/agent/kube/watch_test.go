// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package kube_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/agent/kube"
	"github.com/podweir/podweir/plugin/agent/kube/apitest"
	"github.com/podweir/podweir/plugin/agent/uninstall"
	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/testutil"
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
	c.client = must.Get(kube.NewClient(must.Get(kube.InCluster(c.dir))(t)))(t)
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
	testutil.During(t, func(ctx context.Context) error {
		w.Run(ctx, func(uid string) {
			if !w.Current() {
				t.Errorf("changed(%q) while the list is not current", uid)
			}
			changed <- uid
		})
		return nil
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
	testutil.Eventually(t, 20*time.Second, what, ok)
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
		Namespace: "default", Name: "pod-a", UID: "a", RuntimeUID: "a", Address: "10.0.0.2", Running: true,
		Annotations: netconf.PodAnnotations{Values: map[string]string{limit: "10M", "podweir.io/policy": "flat"}},
	}
	first, _ := w.Pod("a")
	must.Match(t, "the pod", want, first)
	eventually(t, "the watch is current", w.Current)

	static := pod("static", map[string]string{"kubernetes.io/config.mirror": "from-the-kubelet"})
	static.HostNetwork, static.PodIP, static.Phase = true, "", "Failed"
	c.Put(static)
	expect(t, changed, "static")
	got, _ := w.Pod("static")
	if !got.HostNetwork || got.Started() || !got.Finished || got.RuntimeUID != "from-the-kubelet" {
		t.Errorf("static pod = %+v", got)
	}

	// What the agent does not read does not wake it.
	c.Put(pod("a", map[string]string{limit: "10M", "podweir.io/policy": "flat", "other": "y"}))
	starting := pod("a", map[string]string{limit: "20M"})
	for _, starting.Stopped = range []bool{true, false} { // from then on it is overdue if it has no limit
		c.Put(starting)
		expect(t, changed, "a")
	}
	changedPod, _ := w.Pod("a")
	must.Be(t, "limit after the change", "20M", changedPod.Annotations.Values[limit])
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
	lists, _ := c.Requests()
	must.Be(t, "lists, also after a broken connection", 1, lists)
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
		must.Len(t, fmt.Sprintf("pods after status %d", status), 1, w.List())
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
	c.client.Hurry()
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
	must.AtMost(t, "bytes of an Event's message", 1024, len(c.Events()[1].Message))
	// In order meanwhile: the same is news again.
	r.Over("u1", kube.OfLimits)
	r.Emit(p, worse)
	eventually(t, "what came back is said", posted(3))
	// A server that is away loses nothing, however long that lasts; one that refuses is
	// asked no more than once, and again when it is emitted again.
	c.Fail(http.StatusServiceUnavailable)
	r.Emit(p, bad)
	eventually(t, "it is tried again and again", func() bool { return c.Failed() > 6 })
	c.Fail(0)
	eventually(t, "it is posted when the server is back", posted(4))
	c.Fail(http.StatusForbidden)
	r.Emit(p, worse)
	eventually(t, "the log says that it is refused", func() bool { return strings.Contains(c.log.String(), "403") })
	c.Fail(0)
	r.Emit(p, worse)
	eventually(t, "it is posted once that is allowed", posted(5))
	// Other topics are said beside it, and do not end with it.
	exceeded, node := kube.Event{Reason: "LimitExceeded", Message: "x"}, kube.Event{Reason: "PodweirNodeNotReady", Message: "y"}
	for _, e := range []kube.Event{exceeded, node, worse} {
		r.Emit(p, e)
	}
	r.Over("u1", kube.OfLimits)
	r.Emit(p, node)
	r.Over("u1", node.Reason)
	r.Emit(p, node)
	// The answer is lost, the name has no room for more, and kubectl looks for a static pod by the kubelet's UID.
	eventually(t, "one of each, and one more of what was over", posted(8))
	c.Lose(1)
	failed := c.Failed()
	r.Emit(&kube.Pod{Namespace: "shop", Name: strings.Repeat("a", 235) + "-" + strings.Repeat("b", 17), UID: "mirror", RuntimeUID: "static"}, bad)
	eventually(t, "it is tried again", func() bool { return c.Failed() > failed })
	r.Emit(p, exceeded)
	r.Emit(p, worse)
	eventually(t, "the last one", posted(10))
	var said []string
	for _, e := range c.Events()[5:] {
		said = append(said, e.InvolvedObject.UID+" "+e.Reason)
	}
	must.Match(t, "the last Events", []string{"u1 LimitExceeded", "u1 PodweirNodeNotReady", "u1 PodweirNodeNotReady", "static BandwidthInvalid", "u1 BandwidthInvalid"}, said)
	must.Have(t, "the log", c.log.String(), "!409")
}

const maxEgress = "podweir.io/max-egress-rate"

type told struct {
	name    string
	rates   netconf.Namespace
	changed bool
}

// runNamespaces runs what keeps namespaces until the test ends, and returns what it tells.
func runNamespaces(t *testing.T, n *kube.Namespaces) chan told {
	t.Helper()
	all := make(chan told, 1000)
	testutil.During(t, func(ctx context.Context) error {
		n.Run(ctx, func(name string, rates netconf.Namespace, changed bool) { all <- told{name, rates, changed} })
		return nil
	})
	return all
}

// namespaces keeps the namespaces of the pods of a watch until the test ends.
func (c *cluster) namespaces(t *testing.T, every time.Duration) (*kube.Namespaces, chan told) {
	t.Helper()
	w, changed := c.watch(t)
	n := kube.NewNamespaces(c.client, w, every, c.slog())
	testutil.During(t, func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case uid := <-changed:
				if p, ok := w.Pod(uid); ok {
					n.Want(p.Namespace)
				}
			}
		}
	})
	return n, runNamespaces(t, n)
}

// knows fails the test unless this is what is set on a namespace, and whether the API server said so.
func knows(t *testing.T, n *kube.Namespaces, name string, want netconf.Namespace, known bool) {
	t.Helper()
	got, is := n.Rates(name)
	must.Match(t, "rates of "+name, want, got)
	must.Be(t, "they are known", known, is)
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
	knows(t, n, "a", rates, true)
	c.podIn("b", "3")
	expectTold(t, all, told{"b", nil, true})
	if got, known := n.Rates("b"); !known || len(got) != 0 {
		t.Errorf("Rates(b) = %v, %v, want that it has none", got, known)
	}
	c.podIn("a", "4")
	knows(t, n, "other-1", nil, false)
	must.Be(t, "what Ask says of other-2", "1M", n.Ask(t.Context(), "other-2")[maxEgress])
	must.Match(t, "requests of namespaces", []string{"a", "b", "other-2"}, c.NamespacesAsked())
}

// A change is found at the next look, also beside a namespace that the server cannot read, and a namespace is forgotten
// with its last pod.
func TestNamespacesAreAskedForAgain(t *testing.T) {
	c := newCluster(t)
	c.client.Hurry()
	c.FailNamespace("broken", http.StatusInternalServerError)
	c.podIn("broken", "0")
	c.PutNamespace("a", map[string]string{maxEgress: "10M"})
	c.podIn("a", "1")
	const every = 10 * time.Millisecond
	n, all := c.namespaces(t, every)
	expectTold(t, all, told{"a", netconf.Namespace{maxEgress: "10M"}, true})
	c.PutNamespace("a", map[string]string{maxEgress: strings.Repeat("9", 1000)})
	expectTold(t, all, told{"a", netconf.Namespace{maxEgress: strings.Repeat("9", netconf.MaxAnnotationBytes+1)}, true})
	c.PutNamespace("a", nil)
	expectTold(t, all, told{"a", nil, true})
	c.Delete("0")
	c.Delete("1")
	eventually(t, "it is forgotten", func() bool { _, known := n.Rates("a"); return !known })
	asked := len(c.NamespacesAsked())
	<-time.After(5 * every)
	must.Be(t, "requests, with no pod of the namespace here", asked, len(c.NamespacesAsked()))
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
	knows(t, n, "a", before, false)
	c.Fail(http.StatusServiceUnavailable)
	all := runNamespaces(t, n)
	eventually(t, "the log says so", func() bool { return strings.Contains(c.log.String(), "those from before stay") })
	knows(t, n, "a", before, false)
	must.Be(t, "what was told", 0, len(all))
	must.Fail(t, "beside a server that is away", n.Err(), "503", "!get of namespaces")
	c.Fail(http.StatusForbidden)
	expectTold(t, all, told{"a", before, true})
	must.Have(t, "the log", c.log.String(), "get of namespaces")
	must.Fail(t, "what the agent's readiness asks", n.Err(), "of 1 namespaces, such as a: the service account needs get of namespaces", "403")
	c.Fail(0)
	c.PutNamespace("a", map[string]string{maxEgress: "2M"})
	expectTold(t, all, told{"a", netconf.Namespace{maxEgress: "2M"}, true})
	must.OK(t, n.Err())
}

// A cache that does not have the namespace yet has not answered: what was known
// stays in force, and the next request comes soon, however long the interval is.
func TestNamespaceThatIsNotThereYet(t *testing.T) {
	c := newCluster(t)
	c.client.Hurry()
	c.podIn("a", "1")
	n, all := c.namespaces(t, time.Hour)
	eventually(t, "it is requested", func() bool { return len(c.NamespacesAsked()) >= 3 })
	knows(t, n, "a", nil, false)
	must.Be(t, "what was told", 0, len(all))
	must.OK(t, n.Err())
	c.PutNamespace("a", map[string]string{maxEgress: "2M"})
	expectTold(t, all, told{"a", netconf.Namespace{maxEgress: "2M"}, true})
}

const aPod = `{"metadata":{"namespace":"a","name":"b","uid":"c","resourceVersion":"1","deletionTimestamp":null,"annotations":{"kubernetes.io/egress-bandwidth":"10M",` +
	`"kubernetes.io/config.mirror":"d","podweir.io/x":"y"}},"spec":{"hostNetwork":true},"status":{"phase":"Running","podIP":"10.0.0.1"}}`

// checkKept fails if more of a pod is kept than the agent has room for.
func checkKept(t *testing.T, p *kube.Pod) {
	t.Helper()
	const most = netconf.MaxAnnotationBytes + 1
	must.AtMost(t, "annotations that are kept", 20, len(p.Annotations.Values))
	for name, value := range p.Annotations.Values {
		if len(name) > most || len(value) > most {
			t.Errorf("annotation %.40q has %d bytes", name, len(value))
		}
	}
	if p.RuntimeUID != p.UID && len(p.RuntimeUID) > most {
		t.Errorf("the mirror's UID has %d bytes", len(p.RuntimeUID))
	}
}

// FuzzWatchEvent: no message of a watch breaks the decoder, and what is kept is bounded.
func FuzzWatchEvent(f *testing.F) {
	f.Add([]byte(`{"type":"ADDED","object":` + aPod + `}`))
	f.Add([]byte(`{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"7","annotations":null}}}`))
	f.Add([]byte(`{"type":"ERROR","object":{"kind":"Status","status":"Failure","reason":"Expired","message":"too old","code":410}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		kind, p, failure, err := kube.DecodeEvent(raw)
		if err != nil {
			return
		}
		if failure == nil {
			t.Errorf("%q: an ERROR of it would be none", kind)
		}
		checkKept(t, &p)
	})
}

// FuzzPodList: no list breaks the decoder, and one without a version is an error.
func FuzzPodList(f *testing.F) {
	f.Add([]byte(`{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":[` + aPod + `,` + aPod + `]}`))
	f.Add([]byte(`{"kind":"PodList","items":null,"metadata":{"resourceVersion":"1"},"x":[1,{}]}`))
	f.Add([]byte(`{"items":[{"metadata":{"annotations":[]}}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		version, err := kube.DecodeList(bytes.NewReader(raw), func(p kube.Pod) { checkKept(t, &p) })
		must.Be(t, "a version without an error", err == nil, version != "")
	})
}

func TestNotInACluster(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	must.Is(t, "InCluster", kube.ErrNotInCluster, must.Err(kube.InCluster(t.TempDir())))
	must.Fail(t, "a server without a scheme", must.Err(kube.NewClient(&kube.Config{Server: "10.0.0.1:6443"})))
}

// A token is good if it was made for the agents and belongs to their readers' account:
// neither another party's for that audience nor that account's for the API server.
func TestMayRead(t *testing.T) {
	c := newCluster(t)
	for token, want := range map[string]bool{
		"podweir@reader": true, "podweir@pod": false, "reader": false, "api@reader": false, "podweir@": false, "": false,
	} {
		must.Be(t, "MayRead with "+token, want, must.Get(c.client.MayRead(t.Context(), token, "podweir", "reader"))(t))
	}
	c.Fail(http.StatusForbidden)
	must.Fail(t, "MayRead without the right to review", must.Err(c.client.MayRead(t.Context(), "podweir@reader", "podweir", "reader")), "TokenReview")
}

func TestMayGet(t *testing.T) {
	c := newCluster(t)
	for _, tc := range []struct {
		token, path string
		want        bool
	}{
		{"prometheus:other:" + apitest.Scrapers, "/metrics", true},
		{"prometheus:" + apitest.Scrapers, "/debug/pprof/", false},
		{"pod:other", "/metrics", false},
		{"", "/metrics", false},
	} {
		must.Be(t, "MayGet of "+tc.path+" with "+tc.token, tc.want, must.Get(c.client.MayGet(t.Context(), tc.token, tc.path))(t))
	}
	c.Fail(http.StatusForbidden)
	must.Fail(t, "MayGet without the right to review", must.Err(c.client.MayGet(t.Context(), "prometheus:"+apitest.Scrapers, "/metrics")), "TokenReview")
}

// An empty list of a DaemonSet means that podweir is uninstalled: nothing but a whole list
// of the kind is one.
func TestDaemonSet(t *testing.T) {
	t.Parallel()
	const one, none = `{"kind":"DaemonSetList","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"podweir","uid":"a"}}]}`,
		`{"kind":"DaemonSetList","metadata":{"resourceVersion":"8"},"items":[]}`
	going := strings.Replace(one, `"uid"`, `"deletionTimestamp":"2026-01-01T00:00:00Z","uid"`, 1)
	event := func(kind, name string) string {
		return `{"type":"` + kind + `","object":{"metadata":{"name":"` + name + `","uid":"a"}}}` + "\n"
	}
	exists, gone := uninstall.Event{Object: uninstall.Object{UID: "a"}}, uninstall.Event{Object: uninstall.Object{UID: "a"}, Gone: true}
	for name, tc := range map[string]struct {
		list, watch string
		found       []uninstall.Object
		events      []uninstall.Event
		fails       bool
	}{
		"one":             {one, event("ADDED", "podweir") + event("BOOKMARK", "") + event("DELETED", "other") + event("DELETED", "podweir"), []uninstall.Object{{UID: "a"}}, []uninstall.Event{exists, gone}, false},
		"none":            {none, "", nil, nil, false},
		"one that goes":   {going, "", []uninstall.Object{{UID: "a", Deleting: true}}, nil, false},
		"another":         {strings.Replace(one, "podweir", "other", 1), "", nil, nil, false},
		"a status":        {`{"kind":"Status","metadata":{},"code":403}`, `{"type":"ERROR","object":{"code":410}}` + event("DELETED", "podweir"), nil, nil, true},
		"another kind":    {strings.Replace(none, "DaemonSet", "Pod", 1), "<html>", nil, nil, true},
		"nothing":         {"", event("DELETED", "podweir")[:50], nil, nil, true},
		"an empty object": {"{}", "[]", nil, nil, true},
		"half a list":     {none[:40], "{", nil, nil, true},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			q := r.URL.Query()
			if r.URL.Path != "/apis/apps/v1/namespaces/kube-system/daemonsets" || q.Get("fieldSelector") != "metadata.name=podweir" || q.Get("resourceVersion") == "0" {
				t.Errorf("asked %v", r.URL)
			}
			_, _ = io.WriteString(w, map[bool]string{false: tc.list, true: tc.watch}[q.Has("watch")])
		}))
		client, err := kube.NewClient(&kube.Config{
			Server: server.URL, Token: func() (string, error) { return "", nil }, CA: func() ([]byte, error) { return nil, nil },
		})
		must.OK(t, err)
		d := kube.NewDaemonSet(client, "kube-system", "podweir")
		found, version, err := d.List(t.Context())
		if !cmp.Equal(tc.found, found) || (err != nil) != tc.fails || (version == "") != tc.fails {
			t.Errorf("%s: List = %v, %q, %v, want %v, error %v", name, found, version, err, tc.found, tc.fails)
		}
		var events []uninstall.Event
		err = d.Watch(t.Context(), "7", func(e uninstall.Event) { events = append(events, e) })
		if !cmp.Equal(tc.events, events) || (err != nil) != tc.fails {
			t.Errorf("%s: Watch = %v with %v, want %v, error %v", name, err, events, tc.events, tc.fails)
		}
		server.Close()
	}
}

// What the account lacks is known before it is needed, and forgotten once it is there.
func TestRights(t *testing.T) {
	c := newCluster(t)
	c.client.Hurry()
	r := kube.NewRights(c.client, []kube.Right{
		{Verb: "create", Resource: "events", Without: "nobody is told"},
		{Verb: "list", Group: "apps", Resource: "daemonsets", Namespace: "n", Name: "d", Without: "podweir stays"},
	})
	c.Lack("apps/daemonsets", "/events")
	testutil.During(t, r.Run)
	becomes := func(want string) {
		t.Helper()
		testutil.Eventually(t, time.Minute, want, func() bool { return fmt.Sprint(r.Err()) == want })
	}
	becomes("the service account lacks create of events, so that nobody is told; and list of daemonsets, so that podweir stays")
	c.Lack()
	becomes("<nil>")
}
