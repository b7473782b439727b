// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package examine

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/testutil/must"
)

// An agent of Cilium's that does not run is reported in words of its own, with what to do.
func TestStoppedCilium(t *testing.T) {
	t.Parallel()
	n := Node{Root: t.TempDir()}
	expect := func(state, want string) {
		t.Helper()
		_, err := n.CiliumAPI(t.Context(), "/v1/healthz")
		if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "kubectl") || strings.Contains(err.Error(), "dial") {
			t.Errorf("%s: %v, want %q and a cure", state, err, want)
		}
	}
	expect("no socket", "it does not run, or its directory is not mounted here")
	dir := filepath.Join(n.Root, "run/cilium")
	must.OK(t, os.MkdirAll(dir, 0o700))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "cilium.sock")})
	must.OK(t, err)
	l.SetUnlinkOnClose(false)
	must.OK(t, l.Close())
	expect("nobody listens", "it does not run: no program listens on /run/cilium/cilium.sock")
}

// An agent has a line for each of its parts; what answers otherwise is another program.
func TestAgentAnswers(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		"ok: delivery\nok: api\n":                       "",
		"ok: delivery\nnot ready: api: 403 Forbidden\n": "api: 403 Forbidden",
		"not ready: node: no bpffs\n":                   "node: no bpffs",
		"ok\n":                                          "no agent",
		"404 page not found\n":                          "no agent",
		"<html>ok: not</html>\n":                        "no agent",
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }))
		t.Cleanup(s.Close)
		n := Node{HealthAddress: s.Listener.Addr().String()}
		got := "no agent"
		agent, err := n.Agent(t.Context())
		if err == nil {
			got = ""
			for _, p := range agent.NotReady {
				got += p.String()
			}
		}
		if got != want || err != nil && !strings.Contains(err.Error(), "is not podweir's agent") {
			t.Errorf("%q: %q, %v, want %q", body, got, err, want)
		}
	}
}
