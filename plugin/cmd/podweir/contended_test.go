// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/agent/kube/apitest"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// eventsOf are the Events of a pod, by its UID.
func (n *testNode) eventsOf(uid string) []apitest.Event {
	return slices.DeleteFunc(n.api.Events(), func(e apitest.Event) bool { return e.InvolvedObject.UID != uid })
}

// withFlags is a program that starts the agent with more flags.
func withFlags(t *testing.T, flags string) []string {
	t.Helper()
	return script(t, "#!/bin/sh\nexec \"$@\" "+flags+"\n")
}

// Another program undoes what the agent writes, again and again: the agent stops, is not ready, and
// says it once, with the file. What it cannot write it does by itself: pods have their limits.
func TestPrivilegedFight(t *testing.T) {
	const file, own = "etc/cni/net.d/net/50-podweir.conf", "uid-agent"
	n := newTestNode(t)
	a := n.startAs(t, withFlags(t, "--pod kube-system/podweir-a/"+own+" --doctor-interval 1m"))
	path, undone := filepath.Join(n.root, file), 0
	a.until(t, time.Minute, "the agent is not ready", func() (bool, string) {
		if os.Remove(path) == nil {
			undone++
		}
		ready, text := a.ready(t.Context())
		return !ready && strings.Contains(text, "not ready: delivery") && strings.Contains(text, "/"+file) && strings.Contains(text, "removes or renames it"), text
	})
	// The first writing and three more.
	must.Be(t, "times undone", 4, undone)
	n.pod(t, 1, map[string]string{"kubernetes.io/egress-bandwidth": "10M"})
	a.until(t, time.Minute, "the pod is limited", func() (bool, string) { return a.outcomes("attached") == 1, "it is not" })
	a.until(t, time.Minute, "the Event", func() (bool, string) { return len(n.eventsOf(own)) > 0, "there is none" })
	a.sample(t, 2*time.Second)
	if all := n.eventsOf(own); len(all) != 1 || !strings.Contains(all[0].Message, "/"+file) {
		t.Errorf("Events of the agent %+v, want one that names %s", all, file)
	}
	must.Is(t, "the file that the other one would undo", os.ErrNotExist, must.Err(os.Stat(path)))
}

// A second agent on a node waits for the first one, says so everywhere, warns no owner of a pod, tells
// nothing of pods, and takes over.
func TestPrivilegedSecondAgent(t *testing.T) {
	const own, health = "uid-second", "127.0.0.1:9578"
	n := newTestNode(t)
	first := n.startAs(t, withFlags(t, "--default namespaceRate=50M"))
	first.until(t, time.Minute, "the first agent is ready", func() (bool, string) { return first.ready(t.Context()) })
	second := n.startAs(t, withFlags(t, "--pod kube-system/podweir-b/"+own+" --address :9579 --cluster-address :9577 --health-address "+health))
	ready := func() (bool, string) {
		status, text, err := second.get(t.Context(), health, "/readyz")
		return err == nil && status == http.StatusOK, text
	}
	const says = "another agent of podweir manages this node"
	second.until(t, time.Minute, "the second agent waits", func() (bool, string) {
		_, text := ready()
		return strings.Contains(text, "not ready: exclusive: "+says) && strings.Contains(second.String(), says), text
	})
	second.sample(t, 2*time.Second)
	must.Len(t, "Events before a predecessor would have ended", 0, n.eventsOf(own))
	second.until(t, time.Minute, "the Event", func() (bool, string) {
		all := n.eventsOf(own)
		return len(all) == 1 && strings.Contains(all[0].Message, says), "there is none"
	})
	n.pod(t, 1, map[string]string{"kubernetes.io/egress-bandwidth": "10M"})
	first.until(t, time.Minute, "the pod is limited", func() (bool, string) { return first.outcomes("attached") == 1, "it is not" })
	// It failed for a pod that has ended.
	dir := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(dir, "another"), nil, 0o600))
	mailbox.Dir(n.run).RecordFailure(slog.New(slog.DiscardHandler), &mailbox.Failure{ID: attach.ID{ContainerID: "ended", IfName: "eth0"}, Time: time.Now(), NetNSPath: filepath.Join(dir, "ended")})
	first.until(t, time.Minute, "the limit of the namespace is told, and no failure", func() (bool, string) {
		_, page, err := first.get(t.Context(), "127.0.0.1:9479", "/metrics")
		return err == nil && strings.Contains(page, "podweir_namespace_pods") && strings.Contains(page, "podweir_cni_failures 0"), page
	})
	if _, page, err := second.get(t.Context(), "127.0.0.1:9579", "/metrics"); err != nil || strings.Contains(page, "podweir_pod_limit") || strings.Contains(page, "podweir_namespace_pods") {
		t.Errorf("the agent that waits tells of pods, too (%v):\n%.2000s", err, page)
	}
	first.end()
	second.until(t, time.Minute, "the second agent takes over", ready)
	second.until(t, time.Minute, "it looks after the pod", func() (bool, string) {
		_, page, err := second.get(t.Context(), "127.0.0.1:9579", "/metrics")
		must.OK(t, err)
		return strings.Contains(page, "podweir_pod_limit"), page
	})
	for _, e := range n.eventsOf("uid-1") {
		if e.Type == "Warning" {
			t.Errorf("the pod's owner was warned: %+v", e)
		}
	}
	must.Be(t, "pods that the second agent attached", 0, second.outcomes("attached"))
}
