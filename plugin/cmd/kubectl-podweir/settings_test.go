// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/testutil/must"
)

// A flag comes before the environment, that before the file, and that before the default,
// as for podweir.
func TestPrecedence(t *testing.T) {
	f := start(t, &fakeCluster{nodes: 2, pods: 1})
	file := filepath.Join(t.TempDir(), "podweir.yaml")
	write := func(text string) {
		t.Helper()
		must.OK(t, os.WriteFile(file, []byte(text), 0o600))
	}
	status := func(args ...string) string {
		t.Helper()
		out, err := f.run(t, append([]string{"status"}, args...)...)
		if err != nil {
			return err.Error()
		}
		return out
	}
	write("output: yaml\nnode: n2\ninterval: 3s\n") // interval is a flag of top
	if out := status("--config", file); !strings.HasPrefix(out, "schema: ") || strings.Contains(out, "node: n1") {
		t.Errorf("by the file: %q", out)
	}
	t.Setenv("PODWEIR_CONFIG", file)
	t.Setenv("PODWEIR_OUTPUT", "json")
	if out := status(); !strings.HasPrefix(out, "{") || strings.Contains(out, `"n1"`) {
		t.Errorf("the environment does not come before the file: %q", out)
	}
	t.Setenv("PODWEIR_NODE", "n1")
	if out := status("-o", "table"); !strings.Contains(out, "The only pod") || !strings.Contains(out, "team-a/n1-0") {
		t.Errorf("the flag does not come before the environment: %q", out)
	}
	t.Setenv("PODWEIR_REQUEST_TIMEOUT", "soon")
	if out := status(); !strings.Contains(out, "environment variable of --request-timeout") {
		t.Errorf("a value that is none: %q", out)
	}
	t.Setenv("PODWEIR_REQUEST_TIMEOUT", "")
	write("putout: yaml\n")
	if out := status(); !strings.Contains(out, `"putout" is no setting`) {
		t.Errorf("a key that no command has: %q", out)
	}
}

// kubectl's own completion runs the program that a release has beside the plugin.
func TestCompletion(t *testing.T) {
	f := start(t, &fakeCluster{nodes: 2, pods: 1})
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "kubectl-podweir"), ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("KUBECONFIG", f.kubeconfig(t))
	for line, want := range map[string][]string{
		"top --sort ":               {"share", "rate", "drops", "name"},
		"top --output ":             {"table", "json", "yaml"},
		"status --output ":          {"table", "json", "yaml", "wide"},
		"status --node ":            {"n1", "n2"},
		"plan --pod-namespace ":     {"team-a"},
		"explain ":                  {"team-a/n1-0", "team-a/n2-0"},
		"explain PW602":             {"PW602"},
		"explain --node n2 ":        {"team-a/n2-0"},
		"explain team-a/n2-0 again": nil,
	} {
		out, err := exec.CommandContext(t.Context(), "./kubectl_complete-podweir", strings.Split(line, " ")...).Output()
		if err != nil {
			t.Errorf("%s<tab>: %v", line, err)
			continue
		}
		var got []string
		for l := range strings.Lines(string(out)) {
			if value, _, _ := strings.Cut(strings.TrimSpace(l), "\t"); !strings.HasPrefix(value, ":") {
				got = append(got, value)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s<tab> gives %q, want %q", line, got, want)
		}
	}
}
