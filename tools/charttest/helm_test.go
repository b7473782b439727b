// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package charttest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// The programs themselves, of both releases that are supported, lint the chart and give the
// same objects. Compiling them takes minutes where Go's cache has nothing of them.
func TestHelm3AndHelm4GiveTheSame(t *testing.T) {
	if testing.Short() {
		t.Log("not under -short: both programs take minutes to compile")
		return
	}
	helm3, helm4 := buildHelm(t, "helm.sh/helm/v3", "v3.22."), buildHelm(t, "helm.sh/helm/v4", "v4.3.")
	for name, values := range mustEnvironments(t) {
		file := filepath.Join(t.TempDir(), name+".yaml")
		text, err := yaml.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		var given []string
		for _, helm := range []string{helm3, helm4} {
			run(t, helm, "lint", "--strict", chartDir, "-f", file)
			given = append(given, sorted(run(t, helm, "template", "podweir", chartDir, "-n", "kube-system", "--kube-version", "1.34", "-f", file)))
		}
		if diff := cmp.Diff(given[0], given[1]); diff != "" {
			t.Errorf("%s (-Helm 3 +Helm 4):\n%s", name, diff)
		}
	}
	for _, helm := range []string{helm3, helm4} {
		const want = `defaults.defaultRate "2G" is above defaults.maxRate "1G"`
		out, err := exec.Command(helm, "template", "podweir", chartDir, "--kube-version", "1.34", "--set", "defaults.defaultRate=2G,defaults.maxRate=1G").CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, want one that says %s:\n%s", helm, err, want, out)
		}
	}
}

// buildHelm compiles a release of Helm and returns the path of the program.
func buildHelm(t *testing.T, module, version string) string {
	t.Helper()
	dir := t.TempDir()
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", dir+"/", module+"/cmd/helm")
	build.Dir = "../../e2e/k8s/components"
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", module, err, out)
	}
	pins, err := os.ReadFile(filepath.Join(build.Dir, "go.mod"))
	if err != nil || !strings.Contains(string(pins), module+" "+version) {
		t.Fatalf("%s pins no %s: %v", module, version, err)
	}
	return filepath.Join(dir, "helm")
}

func run(t *testing.T, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+t.TempDir(), "HELM_CONFIG_HOME="+t.TempDir(), "HELM_DATA_HOME="+t.TempDir())
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", args, err, out, log.String())
	}
	return string(out)
}

// sorted is what "helm template" printed, in an order of its own: the releases have others.
func sorted(text string) string {
	parts := strings.Split(text, "\n---\n")
	for i := range parts {
		parts[i] = strings.TrimSpace(strings.TrimPrefix(parts[i], "---\n"))
	}
	slices.Sort(parts)
	return strings.Join(parts, "\n---\n")
}
