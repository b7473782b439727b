// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

const root = "../../.."

func TestMain(m *testing.M) {
	if lab.WorkerMain() {
		return
	}
	m.Run()
}

// left is what there is of clusters and of this process's labs on the machine.
func left(t *testing.T) []string {
	t.Helper()
	found := func(pattern string) []string {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	ours := fmt.Sprintf("pwlab%d-*", os.Getpid())
	out := append(found("/run/netns/"+ours), found("/run/podweir-lab/"+ours)...)
	for _, file := range found("/proc/[0-9]*/comm") {
		raw, _ := os.ReadFile(file) // it may have ended since
		switch program := strings.TrimSpace(string(raw)); program {
		case "dockerd", "containerd", "kubelet", "etcd", "kube-apiserver", "cluster":
			out = append(out, program)
		}
	}
	return out
}

// TestPrivilegedSamplesOfACluster brings a cluster up, takes a sample of each
// kind of node, interrupts one, and looks for what is left.
func TestPrivilegedSamplesOfACluster(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("needs root")
	}
	before := left(t)
	s, err := Start(t.Context(), root, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}
		if after := left(t); len(after) > len(before) {
			t.Errorf("left behind: %v; before there was %v", after, before)
		}
	})
	m, err := s.Machine(t.Context())
	if err != nil || m.Substrate != "k8s" || !strings.Contains(m.Software, "kubelet v") || !strings.Contains(m.Software, "containerd://") {
		t.Errorf("Machine() = %+v, %v; want what runs the pods in it", m, err)
	}
	took := func(id string) map[string]float64 {
		c := *cellOf(t, "k8s", id)
		c.Workload.BulkSeconds = 2.5
		into := &record.Sample{}
		if err := s.Run(t.Context(), &spec.Run{Cell: c}, into); err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		return into.Metrics
	}
	if got := took("tcp-1-cubic-egress/uncapped/unshaped"); got["carried_bits_per_second"] < 200_000_000 {
		t.Errorf("unshaped: %v; want more than twice the highest cap", got)
	}
	// Half a second of the cap is no burst, 512 MB of containerd's is.
	if got := took("tcp-1-cubic-egress/10M/bandwidth-1.9"); got["egress_worst_second_share"] < 1.5 {
		t.Errorf("the reference plugin: %v; want the runtime's burst", got)
	}
	for _, id := range []string{"tcp-1-cubic-ingress/10M/podweir-strict", "tcp-1-cubic-egress/10M/podweir-strict"} {
		got := took(id)
		d, _, _ := strings.Cut(strings.TrimPrefix(id, "tcp-1-cubic-"), "/")
		// Loose: that it is shaped, not how well.
		if share := got[d+"_used_share"]; share < 0.8 || share > 1.1 {
			t.Errorf("%s: %v; want the whole cap used and no more", id, got)
		}
		if got["agent_anonymous_rss_bytes"] <= 0 || got["agent_rss_bytes"] <= 0 || got["kubelet_rss_bytes"] <= 0 {
			t.Errorf("%s: %v; want the memory of the agent and of the kubelet", id, got)
		}
	}
	interrupted(t, s)
}

// interrupted stops a run in the middle of its load.
func interrupted(t *testing.T, s *Substrate) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	err := s.Run(ctx, &spec.Run{Cell: *cellOf(t, "k8s", "mixed/10M/podweir-strict")}, &record.Sample{})
	// Which part of the load sees the end first is chance.
	if err == nil || ctx.Err() == nil {
		t.Errorf("Run that was stopped = %v, want an error because of the end", err)
	}
}

// TestPrivilegedClusterEndsWithWhoAskedForIt: the rig is killed while an order is
// carried out, so that nobody reads the answer.
func TestPrivilegedClusterEndsWithWhoAskedForIt(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("needs root")
	}
	before := left(t)
	cmd := exec.Command(filepath.Join(root, program), "-root", root, "n1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, into, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = into
	if err := errors.Join(cmd.Start(), into.Close()); err != nil {
		t.Fatal(err)
	}
	_, errUp := bufio.NewReader(out).ReadBytes('\n')
	_, errOrder := io.WriteString(in, `{"pod":{"name":"a","node":"n1"}}`+"\n")
	if len(left(t)) <= len(before) {
		t.Error("there is no cluster")
	}
	if err := errors.Join(errUp, errOrder, out.Close(), in.Close(), cmd.Wait()); err != nil {
		t.Error(err)
	}
	if after := left(t); len(after) > len(before) {
		t.Errorf("left behind: %v; before there was %v", after, before)
	}
}
