// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package repocheck

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/testutil/must"
)

// TestArchitecture holds the table of docs/contributing/architecture.md to the packages:
// each has a line, and imports only what stands above it.
func TestArchitecture(t *testing.T) {
	page := must.Get(os.ReadFile(root + "/docs/contributing/architecture.md"))(t)
	floor := map[string]int{}
	for i, m := range regexp.MustCompile("(?m)^\\| `((?:bpf|plugin|compat)[^`]*)` \\| (?:generated|command|pure|kernel|wiring) \\|").FindAllStringSubmatch(string(page), -1) {
		floor[m[1]] = i + 1
	}
	const module = "github.com/podweir/podweir/"
	list := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, "./bpf/...", "./plugin/...", "./compat/...")
	list.Env = append(os.Environ(), "CGO_ENABLED=1") // bpf/lib is cgo alone
	list.Dir = root
	out := must.Get(list.Output())(t)
	forTests := regexp.MustCompile(`^(plugin/testutil|bpf/bpftest)\b|test$`)
	seen := 0
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		name := strings.TrimPrefix(words[0], module)
		if forTests.MatchString(name) {
			continue
		}
		seen++
		if floor[name] == 0 {
			t.Errorf("%s has no line in the table of architecture.md", name)
		}
		for _, imported := range words[1:] {
			if below, ours := strings.CutPrefix(imported, module); ours && floor[below] >= floor[name] {
				t.Errorf("%s imports %s, which does not stand above it in architecture.md", name, below)
			}
		}
	}
	must.Be(t, "packages of architecture.md", seen, len(floor))
}
