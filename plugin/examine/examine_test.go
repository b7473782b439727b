// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package examine

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// podweir's entry is read by the plugin's own parser.
func TestDoctorReadsTheEntry(t *testing.T) {
	for entry, want := range map[string]string{
		`{"type":"podweir-cni","capabilities":{"bandwidth":true}}`:         "",
		`{"type":"podweir-cni","policy":"elephants","egressMaxRate":"1G"}`: "",
		`{"type":"podweir-cni","policy":"fair"}`:                           `"fair"`,
		`{"type":"podweir-cni","lightShare":"120%"}`:                       "lightShare",
		`{"type":"podweir-cni","egressRate":"10X"}`:                        "egressRate",
		`{"type":"podweir-cni","maxrte":"10M"}`:                            `unknown key "maxrte" is ignored, did you mean "maxRate"?`,
		`{"type":"podweir-cni","x-owner":"me"}`:                            "",
	} {
		err := checkEntry([]byte(entry))
		must.Part(t, "error of "+entry, want, must.Text(err))
	}
}

// Counters that cannot be read are not zero. Where the attachment differs the difference
// says why.
func TestAttachments(t *testing.T) {
	for _, drift := range [][]string{nil, {"egress load"}} {
		a := &status.Attachment{
			Drift:      drift,
			Directions: []status.Direction{{Limit: terms.Limit{Direction: terms.Name(terms.Egress)}, CountersErr: errors.New("EPERM")}},
		}
		got := attachments(nil, a, nil)[0]
		must.Be(t, fmt.Sprintf("uncounted for want of a right, with the differences %q", drift), drift == nil, got.Uncounted == "EPERM")
	}
}

// What an agent found is known while one watches.
func TestUnenforcedIsOfAnAgentThatWatches(t *testing.T) {
	n := Node{Root: t.TempDir(), Paths: engine.Paths{Pins: filepath.Join(t.TempDir(), "pins"), Run: t.TempDir()}}
	for _, want := range []bool{false, true} {
		if got, err := n.Limits(t.Context()); err != nil || len(got.Troubles) != 0 || got.Watched != want {
			t.Errorf("limits = %+v, %v, want no trouble, watched %v", got, err, want)
		}
		must.OK(t, n.Paths.Mail().RecordReached(nil))
	}
}

// An agent of Cilium's that does not run is reported in words of its own, with what to do.
func TestStoppedCilium(t *testing.T) {
	t.Parallel()
	n := Node{Root: t.TempDir()}
	expect := func(state, want string) {
		t.Helper()
		_, err := n.CiliumAPI(t.Context(), "/v1/healthz")
		must.Fail(t, state, err, want, "kubectl", "!dial")
	}
	expect("no socket", "it does not run, or its directory is not mounted here")
	dir := filepath.Join(n.Root, "run/cilium")
	must.OK(t, os.MkdirAll(dir, 0o700))
	l := must.Get(net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "cilium.sock")}))(t)
	l.SetUnlinkOnClose(false)
	must.OK(t, l.Close())
	expect("nobody listens", "it does not run: no program listens on /run/cilium/cilium.sock")
}

// An agent has a line for each of its parts; what answers otherwise is another program.
func TestAgentAnswers(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		"ok: delivery: nri\nok: api\n":                  "nri",
		"ok: delivery\nnot ready: api: 403 Forbidden\n": "api: 403 Forbidden",
		"not ready: node: no bpffs\n":                   "node: no bpffs",
		"ok: api\nnote: settings: others\n":             "settings: others",
		"ok\n":                                          "no agent",
		"404 page not found\n":                          "no agent",
		"<html>ok: not</html>\n":                        "no agent",
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }))
		t.Cleanup(s.Close)
		n := Node{HealthAddress: s.Listener.Addr().String(), Patience: 20}
		got := "no agent"
		agent, err := n.Agent(t.Context())
		if err == nil {
			got = string(agent.Delivery)
			for _, p := range slices.Concat(agent.NotReady, agent.Notes) {
				got += p.String()
			}
		}
		if got != want || err != nil && !strings.Contains(err.Error(), "is not podweir's agent") {
			t.Errorf("%q: %q, %v, want %q", body, got, err, want)
		}
	}
}

// A doctor in a container without the node's BPF file system does not take the node for one on
// which nothing is limited; without one on the node it reads the failures.
func TestLimitsOutOfSight(t *testing.T) {
	root := t.TempDir()
	n := &Node{Root: root, Paths: engine.Paths{Pins: filepath.Join(t.TempDir(), "podweir"), Run: t.TempDir()}}
	must.OK(t, os.MkdirAll(filepath.Join(root, "proc/1"), 0o700))
	for mounts, want := range map[string]error{"bpf /sys/fs/bpf bpf rw 0 0\n": errOtherBPFFS, "tmpfs / tmpfs rw 0 0\n": nil} {
		must.OK(t, os.WriteFile(filepath.Join(root, "proc/1/mounts"), []byte(mounts), 0o600))
		must.Is(t, mounts, want, must.Err(n.Limits(t.Context())))
	}
}
