// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/plugin/testutil/mark"
)

// fault is something that a node lacks, and what podweir has to say of it.
type fault struct {
	name     string
	delivery string
	// breaks and mends are done on the node.
	breaks, mends string
	// drop is a capability that the DaemonSet does not get.
	drop string
	// ready, log, event and doctor are what has to be found there.
	ready, log, event, doctor []string
	// owner is what the owner of a pod that is not shaped is told.
	owner []string
}

// TestPrivilegedWrongNode takes from a node, one by one, what podweir needs:
// podweir says what and where, and pods start and run.
func TestPrivilegedWrongNode(t *testing.T) {
	mark.Nightly(t, "it takes a minute or more")
	for i, f := range []fault{
		{
			name: "no bpffs", delivery: "chain",
			breaks: "umount /sys/fs/bpf", mends: "mount -t bpf bpf /sys/fs/bpf",
			ready:  []string{"not ready: node", "/sys/fs/bpf is not on a BPF file system"},
			log:    []string{"mount -t bpf bpf /sys/fs/bpf"},
			event:  []string{"PW102", "nothing is mounted at /sys/fs/bpf", "mount -t bpf bpf /sys/fs/bpf"},
			doctor: []string{"PW102", "nothing is mounted at /sys/fs/bpf", "mount -t bpf bpf /sys/fs/bpf"},
			owner:  []string{"/sys/fs/bpf is not on a BPF file system"},
		},
		{
			name: "read-only directory of plugins", delivery: "chain",
			breaks: "mount --bind /opt/cni/bin /opt/cni/bin && mount -o remount,bind,ro /opt/cni/bin", mends: "umount /opt/cni/bin",
			ready: []string{"not ready: delivery", "/opt/cni/bin cannot be written: read-only file system"},
			log:   []string{"/opt/cni/bin cannot be written: read-only file system"},
			event: []string{"/opt/cni/bin cannot be written: read-only file system"},
			// It looks at what is there, and does not try to write.
			doctor: []string{"PW202", "10-lab.conflist: ptp"},
		},
		{
			name: "without NET_ADMIN", delivery: "nri", drop: "NET_ADMIN",
			ready:  []string{"not ready: node", "the agent lacks CAP_NET_ADMIN"},
			log:    []string{"the agent lacks CAP_NET_ADMIN", "CAP_NET_ADMIN is needed"},
			event:  []string{"the agent lacks CAP_NET_ADMIN"},
			doctor: []string{"PW106", "CAP_NET_ADMIN is needed"},
			owner:  []string{"CAP_NET_ADMIN is needed"},
		},
		{
			name: "without SYS_ADMIN", delivery: "nri", drop: "SYS_ADMIN",
			ready:  []string{"not ready: node", "the agent lacks CAP_SYS_ADMIN"},
			log:    []string{"the agent lacks CAP_SYS_ADMIN", "CAP_SYS_ADMIN is needed"},
			event:  []string{"the agent lacks CAP_SYS_ADMIN"},
			doctor: []string{"PW406", "CAP_SYS_ADMIN is needed"},
			owner:  []string{"CAP_SYS_ADMIN is needed"},
		},
	} {
		t.Run(f.name, func(t *testing.T) { f.test(t, fmt.Sprintf("unlucky-%d", i)) })
	}
}

func (f *fault) test(t *testing.T, name string) {
	t.Helper()
	uninstall(t)
	node := suite.Members[0]
	peer := run(t, "peer", 1, nil)
	defer func() {
		uninstall(t)
		if left, err := node.Exec(t.Context(), "bash", "-c", "find /run/podweir -type f -exec grep -H '' {} + 2>/dev/null || true"); err != nil || left != "" {
			t.Errorf("the uninstall left failure records (%v): %s", err, left)
		}
	}()
	if f.breaks != "" {
		if _, err := node.Exec(t.Context(), "bash", "-c", f.breaks); err != nil {
			t.Fatal(err)
		}
		defer func() {
			// Agents' mounts would hold what is to be unmounted.
			uninstall(t)
			if _, err := node.Exec(t.Context(), "bash", "-c", f.mends); err != nil {
				t.Error(err)
			}
		}()
	}
	upgrade(t, "delivery="+f.delivery)
	if f.drop != "" {
		f.patch(t)
	}
	eventually(t, time.Minute, "agent", func(ctx context.Context) error {
		_, err := fetch(ctx, node, "/healthz")
		return err
	})
	p := run(t, name, 0, limits("20M", "10M"))
	f.told(t, node)
	if len(f.owner) > 0 {
		sees(t, name, f.owner...)
	}
	measure(t, p, peer).holds(t, f.name, 0, 0)
}

// patch takes a capability from the DaemonSet, and waits for the agent that
// lacks it.
func (f *fault) patch(t *testing.T) {
	t.Helper()
	var kept []string
	for _, c := range []string{"NET_ADMIN", "SYS_ADMIN", "SYS_PTRACE"} {
		if c != f.drop {
			kept = append(kept, `"`+c+`"`)
		}
	}
	kubectl(t, "-n", namespace, "patch", "daemonset", "podweir", "--type=json", "-p",
		`[{"op": "replace", "path": "/spec/template/spec/containers/0/securityContext/capabilities/add", "value": [`+strings.Join(kept, ",")+`]}]`)
	// Not the rolling update, which waits for agents that are ready.
	kubectl(t, "-n", namespace, "delete", "pods", "-l", "app.kubernetes.io/name=podweir", "--wait")
}

// told looks for what the agent of a node says of the fault, everywhere.
func (f *fault) told(t *testing.T, node *cluster.Node) {
	t.Helper()
	has := func(where, text string, want []string) error {
		for _, w := range want {
			if !strings.Contains(text, w) {
				return fmt.Errorf("%s does not say %q:\n%s", where, w, text)
			}
		}
		return nil
	}
	var name string
	eventually(t, 30*time.Second, "readyz and log", func(ctx context.Context) error {
		all, err := suite.Agents(ctx)
		if err != nil {
			return err
		}
		name = all[node.Name]
		_, notReady := fetch(ctx, node, "/readyz")
		if err := has("/readyz", fmt.Sprint(notReady), f.ready); err != nil {
			return err
		}
		log, err := suite.Kubectl(ctx, "", "-n", namespace, "logs", name)
		if err != nil {
			return err
		}
		return has("the log", log, f.log)
	})
	if len(f.event) > 0 {
		e := sees(t, name, f.event...)
		t.Logf("Event of the agent's pod: %s: %s", e.Reason, e.Message)
	}
	// It ends with an error if a check fails.
	out, failed := podweir(t, node, "doctor")
	out = strings.Join(strings.Fields(out), " ") // its lines are broken at 80 columns
	if err := has("doctor", out, f.doctor); err != nil || len(f.doctor) > 0 && failed == nil {
		t.Errorf("doctor (%v): %v", failed, err)
	}
}
