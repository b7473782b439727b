// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// What an agent may have at its most whatever pods and readers do, in bytes of its
// anonymous resident set, and how much it may log of a pod.
const (
	mostMemory = 20 << 20
	mostLines  = 10
)

// flood is as many annotations as the API server takes of a pod: 255 kB, all with
// podweir's domain.
func flood(i int) map[string]string {
	all := map[string]string{"kubernetes.io/egress-bandwidth": "10M", "podweir.io/policy": "flat"}
	const bytesOf, each = 255_000, 80
	for n := range bytesOf / each {
		name := fmt.Sprintf("podweir.io/flood-%05d-%03d", n, i)
		all[name] = strings.Repeat("x", each-len(name))
	}
	return all
}

// TestPrivilegedAgentUnderAnnotationFlood: 110 pods with all the annotations that they
// can have are shaped like others, and cost the agent neither memory nor log.
func TestPrivilegedAgentUnderAnnotationFlood(t *testing.T) {
	mark.Slow(t, "it makes 110 pods")
	const pods = 110
	n := newTestNode(t)
	for i := range pods {
		n.pod(t, i, flood(i))
	}
	a := n.start(t)
	a.until(t, 3*time.Minute, "all pods are shaped", func() (bool, string) {
		have := a.outcomes("attached")
		return have == pods, fmt.Sprintf("%d of %d pods are", have, pods)
	})
	a.until(t, 30*time.Second, "the agent is ready", func() (bool, string) { return a.ready(t.Context()) })
	// Each author writes again: watch events instead of a list.
	for i := range pods {
		more := flood(i + pods)
		more["kubernetes.io/egress-bandwidth"] = "20M"
		n.api.Put(n.podOf(i, more))
		a.memory(t)
	}
	a.until(t, 3*time.Minute, "all pods are changed", func() (bool, string) {
		have := a.outcomes("updated")
		return have >= pods, fmt.Sprintf("%d of %d pods are", have, pods)
	})
	a.sample(t, 2*time.Second)
	if ok, text := a.ready(t.Context()); !ok {
		t.Errorf("/readyz = %s, want ok", text)
	}
	must.AtMost(t, "bytes of the agent", mostMemory, a.most)
	for i := range pods {
		must.AtMost(t, fmt.Sprintf("lines of log for pod-%d", i), mostLines, strings.Count(a.String(), fmt.Sprintf(`"default/pod-%d"`, i)))
	}
}
