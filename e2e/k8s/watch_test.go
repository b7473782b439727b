// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// TestPrivilegedWatch has a node without NRI, and the delivery that sees pods in the API
// server: the agent is ready, pods are limited, and it writes nothing outside of
// /run/podweir and bpffs.
func TestPrivilegedWatch(t *testing.T) {
	mark.Nightly(t, "it takes a minute or more")
	uninstall(t)
	node := suite.Members[0]
	withoutNRI(t, node)
	peer := run(t, "peer", 1, nil)
	early := run(t, "early", 0, limits("20M", "10M"))
	if _, err := node.Exec(t.Context(), "bash", "-c", "rm -rf /run/podweir /var/lib/podweir && touch /began"); err != nil {
		t.Fatal(err)
	}
	install(t, "delivery=watch")
	measure(t, early, peer).holds(t, "a pod from before", 20_000_000, 10_000_000)
	for i := range 5 {
		t.Logf("time that a pod runs without its limit: %s s", unlimitedTime(t, node, fmt.Sprintf("watched-%d", i)))
	}
	last := ready(t, "watched-4")
	last.limited(t, 20_000_000, 10_000_000)
	measure(t, last, peer).holds(t, "a pod from after", 20_000_000, 10_000_000)
	killAgent(t, last, peer)
	green(t, node)
	small(t, node)
	nothingWritten(t, node)
	uninstall(t)
	measure(t, last, peer).holds(t, "after the uninstall", 0, 0)
}

// withoutNRI restarts the runtime of a node without NRI for the rest of the test.
func withoutNRI(t *testing.T, n *cluster.Node) {
	t.Helper()
	config, err := os.ReadFile(filepath.Join(suite.Dir, "node/containerd.toml"))
	must.OK(t, err)
	const own = "/etc/containerd/without-nri.toml"
	must.OK(t, n.WriteFile(own, string(config)+"\n[plugins.'io.containerd.nri.v1.nri']\n  disable = true\n"))
	restart := func(ctx context.Context, config string) error {
		_, err := n.Exec(ctx, "bash", "-c", `export PATH=/node/components:$PATH
			pkill -x containerd; while ctr version >/dev/null 2>&1; do sleep 0.05; done; rm -f /var/run/nri/nri.sock
			setsid containerd --config `+config+` </dev/null >>/var/log/containerd.log 2>&1 &
			until ctr version >/dev/null 2>&1; do sleep 0.05; done`)
		return err
	}
	must.OK(t, restart(t.Context(), own))
	t.Cleanup(func() {
		_, err := n.Exec(context.Background(), "rm", own)
		if err := errors.Join(err, restart(context.Background(), "/node/config/containerd.toml")); err != nil {
			t.Error(err)
		}
	})
	if _, err := n.Exec(t.Context(), "test", "!", "-e", "/var/run/nri/nri.sock"); err != nil {
		t.Fatalf("the runtime still offers NRI: %v", err)
	}
}

// unlimitedTime makes a pod and returns for how many seconds its program ran before its
// egress had a limit.
func unlimitedTime(t *testing.T, n *cluster.Node, name string) string {
	t.Helper()
	const wait = `
		until ns=$(comm -13 <(echo "$0") <(ls /run/netns)) && [ -n "$ns" ] &&
			nsenter --net="/run/netns/$ns" tc qdisc show dev eth0 root 2>/dev/null | grep -q tbf; do sleep 0.02; done
		now=$(cut -d' ' -f1 /proc/uptime)
		pid=$(pgrep -n -f '^/work serve')
		awk -v now="$now" -v hz="$(getconf CLK_TCK)" '{printf "%.1f", now - $22 / hz}' "/proc/$pid/stat"`
	before, err := n.Exec(t.Context(), "ls", "/run/netns")
	must.OK(t, err)
	create(t, manifest(name, n, limits("20M", "10M")))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	took, err := n.Exec(ctx, "bash", "-c", wait, strings.TrimSpace(before))
	if err != nil {
		t.Fatalf("%s has no limit: %v", name, err)
	}
	return took
}

// nothingWritten fails the test if there is a file of podweir's, or one younger than
// /began that the kubelet, the runtime and the primary CNI do not account for. The kubelet
// makes the directories that the chart mounts; they are empty.
func nothingWritten(t *testing.T, n *cluster.Node) {
	t.Helper()
	out, err := n.Exec(t.Context(), "bash", "-c", `
		find / -xdev -newer /began ! -type d ! -path '/var/log/*' ! -path '/var/lib/cni/*'
		find /etc/cni /opt/cni -name '*podweir*'
		find /var/lib/podweir -mindepth 1 2>/dev/null
		find /run -xdev -newer /began -name '*podweir*' ! -path '/run/containerd/*' ! -path /run/podweir`)
	if err != nil || strings.TrimSpace(out) != "" {
		t.Errorf("files were written (%v):\n%s", err, out)
	}
}

// TestPrivilegedNRI has no CNI configuration and no binary of podweir on any node.
func TestPrivilegedNRI(t *testing.T) {
	uninstall(t)
	install(t, "delivery=nri")
	node := suite.Members[0]
	out, err := node.Exec(t.Context(), "bash", "-c", "find /etc/cni /opt/cni")
	if err != nil || strings.Contains(out, "podweir") {
		t.Errorf("there are files of podweir, or it cannot be seen (%v): %s", err, out)
	}
	peer := run(t, "peer", 1, nil)
	p := run(t, "hooked", 0, limits("20M", "10M"))
	measure(t, p, peer).holds(t, "shaped by the runtime's hook", 20_000_000, 10_000_000)
	page, err := fetch(t.Context(), node, "/metrics")
	must.OK(t, err)
	t.Logf("hooks:\n%s", grep(page, "podweir_nri_hook_duration_seconds_count"))
	if !strings.Contains(page, `podweir_nri_hook_duration_seconds_count`) {
		t.Error("no hook was called")
	}
	// The look at running pods would shape it, too, but later, and logs it otherwise.
	log := kubectl(t, "-n", namespace, "logs", agent(t, node))
	if shaped := grep(grep(log, `"msg":"pod shaped"`), `"pod":"default/`+p.Name+`"`); strings.Count(shaped, `"direction":`) != 2 {
		t.Errorf("the hook did not shape the pod in both directions:\n%s", shaped)
	}
	killAgent(t, p, peer)
	green(t, node)
	small(t, node)
	uninstall(t)
	measure(t, p, peer).holds(t, "after the uninstall", 0, 0)
}
