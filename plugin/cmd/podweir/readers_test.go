// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/agent/serve"
	"github.com/podweir/podweir/plugin/status/cluster"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// envIdle is how many connections the test of readers opens; without it a number that
// takes a second.
const envIdle = "PODWEIR_TEST_IDLE"

// strangers are others' connections to the agent.
type strangers struct {
	node  *testNode
	conns []net.Conn
}

// open opens connections to an address, each of the given sources in turn, and sends
// what is to be sent on each.
func (s *strangers) open(t *testing.T, n, sources int, address, send string) {
	t.Helper()
	err := s.node.Do(func() error {
		for i := range n {
			d := net.Dialer{
				LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1, byte(i%sources>>8), byte(i%sources))}, Timeout: 20 * time.Second,
				Control: func(_, _ string, c syscall.RawConn) error {
					return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<10) })
				},
			}
			conn, err := d.DialContext(t.Context(), "tcp", address)
			if err != nil {
				return fmt.Errorf("connection %d: %w", i, err)
			}
			s.conns = append(s.conns, conn)
			if send != "" {
				if _, err := io.WriteString(conn, send); err != nil {
					return err
				}
			}
		}
		return nil
	})
	must.OK(t, err)
}

func (s *strangers) close() {
	for _, c := range s.conns {
		_ = c.Close()
	}
}

// within fails if the agent does not answer a page within a second.
func (a *agentProcess) within(t *testing.T, address, path, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	began := time.Now()
	status, body, err := a.get(ctx, address, path)
	took := time.Since(began)
	if err != nil || status != http.StatusOK || !strings.Contains(body, want) || took > time.Second {
		t.Errorf("%s = %d after %v, %v, want it within a second", path, status, took, err)
	}
	t.Logf("%s after %v", path, took.Round(time.Millisecond))
}

// tellsReaders fails unless the agent tells the account that may read the state of the
// node about so many pods, and nobody else of anything.
func (a *agentProcess) tellsReaders(t *testing.T, pods int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	const url, account = "https://127.0.0.1" + testCluster + serve.NodePath, "system:serviceaccount:kube-system:podweir-reader"
	began := time.Now()
	status, body, err := a.getAs(ctx, url, "podweir@"+account)
	t.Logf("the state of the node after %v, %d bytes", time.Since(began).Round(time.Millisecond), len(body))
	var got cluster.Answer
	if err == nil {
		err = json.Unmarshal([]byte(body), &got)
	}
	if err != nil || status != http.StatusOK || got.Node != "node" || got.Status == nil || len(got.Status.Pods) != pods || len(got.NotReady) != 0 {
		t.Errorf("%s = %d, %v, %.300q, want the state of %d pods", url, status, err, body, pods)
	}
	for _, token := range []string{"", account, "podweir@system:serviceaccount:default:default"} {
		if status, body, err := a.getAs(ctx, url, token); err != nil || status == http.StatusOK || strings.Contains(body, "pod-") {
			t.Errorf("with the token %q: %d, %v, %.300q", token, status, err, body)
		}
	}
}

// TestPrivilegedAgentUnderReaders: whoever opens thousands of connections, or reads slowly,
// keeps out neither Prometheus nor the kubelet and takes no memory from the agent.
func TestPrivilegedAgentUnderReaders(t *testing.T) {
	mark.Slow(t, "it makes 110 pods")
	const pods, slow = 110, 64
	idle := 1500
	if v := os.Getenv(envIdle); v != "" {
		var err error
		if idle, err = strconv.Atoi(v); err != nil {
			t.Fatalf("%s: %v", envIdle, err)
		}
	}
	n := newTestNode(t)
	for i := range pods {
		n.pod(t, i, map[string]string{"kubernetes.io/egress-bandwidth": "10M", "kubernetes.io/ingress-bandwidth": "10M"})
	}
	a := n.start(t)
	a.until(t, 3*time.Minute, "all pods are shaped", func() (bool, string) {
		have := a.outcomes("attached")
		return have == pods, fmt.Sprintf("%d of %d pods are", have, pods)
	})
	a.until(t, 30*time.Second, "the agent is ready", func() (bool, string) { return a.ready(t.Context()) })
	const metrics = "127.0.0.1" + testMetrics
	shaped := fmt.Sprintf("podweir_shaped_pods %d\n", pods)
	a.within(t, metrics, "/metrics", shaped)
	a.sample(t, time.Second)
	before := a.most
	s := &strangers{node: n}
	defer s.close()
	// Slow readers of text, which is the longer answer, four of each source.
	s.open(t, slow, slow/4, metrics, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
	s.open(t, idle, 250, metrics, "")
	s.open(t, idle/10, 250, testHealth, "")
	s.open(t, idle/10, 250, "127.0.0.1"+testCluster, "")
	s.open(t, slow, slow/4, metrics, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
	for range 3 {
		a.within(t, metrics, "/metrics", shaped)
		a.within(t, testHealth, "/healthz", "ok")
		a.within(t, testHealth, "/readyz", "ok: pass")
		a.tellsReaders(t, pods)
		a.sample(t, time.Second)
	}
	t.Logf("%d idle connections and %d slow readers: memory at most %.1f MiB, before %.1f MiB",
		idle+2*(idle/10), 2*slow, float64(a.most)/(1<<20), float64(before)/(1<<20))
	if a.most > mostMemory {
		t.Errorf("the agent has up to %d bytes, want at most %d", a.most, mostMemory)
	}
}

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
	if a.most > mostMemory {
		t.Errorf("the agent has up to %d bytes, want at most %d", a.most, mostMemory)
	}
	for i := range pods {
		if have := strings.Count(a.String(), fmt.Sprintf(`"default/pod-%d"`, i)); have > mostLines {
			t.Errorf("%d lines of log for pod-%d, want at most %d", have, i, mostLines)
		}
	}
}
