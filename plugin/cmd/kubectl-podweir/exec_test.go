// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/testutil/must"
)

// exec runs a command in the pod of the node's agent, by kubectl and for the same cluster,
// and ends as the command does.
func TestExec(t *testing.T) {
	f := start(t, &fakeCluster{nodes: 3, pods: 1})
	dir := t.TempDir()
	const kubectl = "#!/bin/sh\necho \"$@\"\ncase \"$*\" in *repair*) exit 3;; esac\n"
	must.OK(t, os.WriteFile(filepath.Join(dir, "kubectl"), []byte(kubectl), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	out, err := f.run(t, "exec", "n2", "--", "podweir", "status", "-o", "wide")
	if err != nil || !strings.Contains(out, "--kubeconfig ") || !strings.HasSuffix(out, " --namespace kube-system exec --stdin podweir-n2 -- podweir status -o wide\n") {
		t.Errorf("exec = %q, %v", out, err)
	}
	if _, err := f.run(t, "exec", "n2", "--", "podweir", "repair"); statusOf(err) != 3 {
		t.Errorf("exec of a command that ends with 3: %v", err)
	}
	if _, err := f.run(t, "exec", "n9", "--", "podweir", "repair"); err == nil || !strings.Contains(err.Error(), "node n9 has no agent") {
		t.Errorf("exec on a node without an agent: %v", err)
	}
}
