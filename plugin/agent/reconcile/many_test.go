// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/agent/cri"
	"github.com/podweir/podweir/plugin/agent/kube"
	"github.com/podweir/podweir/plugin/agent/kube/apitest"
	"github.com/podweir/podweir/plugin/agent/reconcile"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/logged"
	"github.com/podweir/podweir/plugin/testutil/mark"
)

// With envAgent set, the test binary is an agent: a process whose memory is its
// own. The value is a file with what it needs to know.
const envAgent = "PODWEIR_TEST_AGENT"

// agentOf is what the process of an agent is told.
type agentOf struct {
	Server, CA, Pins, Run, HostNetNS string
	NetConf                          json.RawMessage
	Sandboxes                        map[string]cri.Sandbox
	// Shaped is how many limits there are when all is done.
	Shaped int
}

func TestMain(m *testing.M) {
	if path := os.Getenv(envAgent); path != "" {
		if err := runAgent(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1) //nolint:forbidigo // this is the main function of the agent's process
		}
		return
	}
	m.Run()
}

// runAgent works until its standard input ends, and says when everything is
// shaped, how long that took and what memory it has then.
func runAgent(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var o agentOf
	if err := json.Unmarshal(b, &o); err != nil {
		return err
	}
	client, err := kube.NewClient(&kube.Config{
		Server: o.Server, Token: func() (string, error) { return apitest.Token, nil },
		CA: func() ([]byte, error) { return os.ReadFile(o.CA) },
	})
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	boxes := newSandboxes()
	boxes.pods = o.Sandboxes
	r := reconcile.New(reconcile.Config{
		Pods: kube.NewWatch(client, "n1", log), Sandboxes: boxes, Events: kube.NewRecorder(client, "n1", terms.OnPath, log),
		NetConf: func() (json.RawMessage, error) { return o.NetConf, nil },
		Paths:   engine.Paths{Pins: o.Pins, Run: o.Run}, HostNetNS: o.HostNetNS, Pass: 5 * time.Second, Log: log,
	})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	started := time.Now()
	go func() { _ = r.Run(ctx) }()
	for {
		limits := 0
		for _, s := range r.Snapshot() {
			limits += len(s.Limits)
		}
		if limits == o.Shaped {
			break
		}
		<-time.After(10 * time.Millisecond)
	}
	fmt.Printf("shaped after %v, %s\n", time.Since(started).Round(time.Millisecond), anonymous()) //nolint:forbidigo // a process of its own
	<-time.After(8 * time.Second)
	fmt.Println("after another pass,", anonymous()) //nolint:forbidigo // a process of its own
	_, err = os.Stdin.Read(make([]byte, 1))
	return err
}

// anonymous is what the process has of its own in memory, and what it has used
// of the processor.
func anonymous() string {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err.Error()
	}
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		return err.Error()
	}
	cpu := time.Duration(used.Utime.Nano() + used.Stime.Nano()).Round(time.Millisecond)
	return fmt.Sprintf("%s, processor time %v", regexp.MustCompile(`RssAnon:.*`).FindString(string(b)), cpu)
}

// A node full of pods that ran before: all get their limits, and a change comes
// to all of them. Times and memory are printed, not judged: of the memory, the
// test itself is a part.
func TestPrivilegedFullNode(t *testing.T) {
	mark.Nightly(t, "it makes 110 pods")
	testutil.RequireRoot(t)
	pods := 110
	if testutil.Emulated() {
		// 110 take three minutes there and show no more.
		pods = 20
	}
	n := newNode(t)
	all := make([]*pod, pods)
	for i := range all {
		all[i] = n.newPod(t)
		all[i].annotate(both("10M", "20M"))
	}
	conf, err := n.netconf()
	if err != nil {
		t.Fatal(err)
	}
	told, err := json.Marshal(agentOf{
		Server: n.api.URL, CA: filepath.Join(n.dir, "ca.crt"), Pins: n.paths.Pins, Run: n.paths.Run, HostNetNS: n.Path(),
		NetConf: conf, Sandboxes: n.sandbox.pods, Shaped: 2 * pods,
	})
	if err != nil {
		t.Fatal(err)
	}
	n.write(t, "agent.json", string(told))
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), envAgent+"="+filepath.Join(n.dir, "agent.json"))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out := &logged.Log{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, 5*time.Minute, "all are shaped", func() bool { return strings.Contains(out.String(), "after another pass") })
	for _, p := range all {
		if e, i := rate(t, p.ns, "eth0"), rate(t, n.NetNS, p.host.Name); e != "10Mbit" || i != "20Mbit" {
			t.Errorf("%s has egress %q and ingress %q", p.api.Name, e, i)
		}
	}
	started := time.Now()
	for _, p := range all {
		p.annotate(both("30M", "20M"))
	}
	testutil.Eventually(t, 5*time.Minute, "all are changed", func() bool { return rate(t, all[pods-1].ns, "eth0") == "30Mbit" })
	for _, p := range all {
		testutil.Eventually(t, soon, p.api.Name+" is changed", func() bool { return rate(t, p.ns, "eth0") == "30Mbit" })
	}
	t.Logf("%schanged after %v", out, time.Since(started).Round(time.Millisecond))
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if got := rate(t, all[0].ns, "eth0"); got != "30Mbit" {
		t.Errorf("without the agent the rate is %q", got)
	}
}
