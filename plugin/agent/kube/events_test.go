// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package kube_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/agent/kube"
)

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
