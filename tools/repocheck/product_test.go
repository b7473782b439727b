// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package repocheck

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/netconf"
)

// TestImportsOfTheCNIBinary holds what runs at every pod start small: depguard
// sees direct imports only.
func TestImportsOfTheCNIBinary(t *testing.T) {
	const module = "github.com/podweir/podweir/"
	heavy := regexp.MustCompile(`^(?:github\.com/spf13/|k8s\.io/|sigs\.k8s\.io/|net/http$|testing$|` +
		regexp.QuoteMeta(module) + `(?:e2e|tools|plugin/testutil|plugin/agent|plugin/cmd/podweir$))`)
	cmd := exec.Command("go", "list", "-deps", "./plugin/cmd/podweir-cni")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	deps := strings.Fields(string(out))
	if len(deps) < 10 {
		t.Fatalf("%v lists %d packages", cmd, len(deps))
	}
	for _, dep := range deps {
		if heavy.MatchString(dep) {
			t.Errorf("podweir-cni depends on %s", dep)
		}
	}
}

// TestDocumentedCommands runs the help of each subcommand that a page tells the
// reader to type, and looks for the flags there.
func TestDocumentedCommands(t *testing.T) {
	tree, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	commands := Commands(tree)
	if len(commands) == 0 {
		t.Fatal("no document calls podweir")
	}
	binary := filepath.Join(t.TempDir(), "podweir")
	build := exec.Command("go", "build", "-o", binary, "./plugin/cmd/podweir")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	overview := help(t, binary)
	for _, c := range commands {
		if !regexp.MustCompile(`(?m)^  ` + c.Name + ` `).MatchString(overview) {
			t.Errorf("%s: podweir has no command %q", c.Where, c.Name)
			continue
		}
		text := help(t, binary, c.Name)
		for _, flag := range c.Flags {
			if !strings.Contains(text, "--"+flag+" ") {
				t.Errorf("%s: podweir %s has no flag --%s", c.Where, c.Name, flag)
			}
		}
	}
}

func help(t *testing.T, binary string, args ...string) string {
	t.Helper()
	cmd := exec.Command(binary, append(args, "--help")...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return string(out)
}

func TestCommandsFindsCalls(t *testing.T) {
	page := "Run `podweir status -o json`.\n```console\nsudo bin/podweir attach --netns /x --egress 10M\npodweir top    # rates\n```\nthe podweir log\n"
	got := Commands(&Tree{Files: []File{{Path: "a.md", Data: []byte(page)}}})
	want := []Command{
		{Where: "a.md", Name: "status"},
		{Where: "a.md", Name: "attach", Flags: []string{"netns", "egress"}},
		{Where: "a.md", Name: "top"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Commands() (-want +got):\n%s", diff)
	}
}

func TestMakeTargetsAreLookedUp(t *testing.T) {
	tree := &Tree{Files: []File{
		{Path: "Makefile", Data: []byte("build: ## Builds.\n\ttrue\n")},
		{Path: "a.md", Data: []byte("`make build`, `make none`\n```console\nsudo make gone\n```\nto\nmake sense\n")},
	}}
	want := []string{"a.md: make has no target none", "a.md: make has no target gone"}
	if got := makeTargets(tree); !slices.Equal(got, want) {
		t.Errorf("makeTargets() = %q, want %q", got, want)
	}
}

// TestReferenceNamesEveryKey holds the reference pages to what netconf reads.
func TestReferenceNamesEveryKey(t *testing.T) {
	tree, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	for page, names := range map[string][]string{
		"docs/reference/configuration.md": netconf.Keys(),
		"docs/reference/annotations.md":   netconf.Annotations(),
	} {
		f := tree.Get(page)
		if f == nil {
			t.Errorf("%s: is missing", page)
			continue
		}
		if len(names) == 0 {
			t.Errorf("%s: there is no key to look for", page)
		}
		for _, name := range names {
			if !strings.Contains(string(f.Data), "`"+name+"`") {
				t.Errorf("%s: does not name `%s`", page, name)
			}
		}
	}
}
