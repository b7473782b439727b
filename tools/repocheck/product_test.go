// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package repocheck

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
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

// One name never means two images: nodes keep an image under the name that they have.
func TestImageIsTaggedByVersion(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("make", "-s", "-C", root, "--eval=tag: ; @echo $(IMAGE)", "tag", "VERSION=1.2.3-4-gabc")
	cmd.Env = append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=0") // not those of the make that runs the tests
	out, err := cmd.Output()
	if name := strings.TrimSpace(string(out)); err != nil || !strings.HasSuffix(name, ":1.2.3-4-gabc") {
		t.Errorf("make image makes %q, %v, want the version as its tag", name, err)
	}
}

// TestResultsAreNoChange: the rows of one commit, each of which writes its result to docs,
// are all of that commit.
func TestResultsAreNoChange(t *testing.T) {
	t.Parallel()
	script := must.Get(filepath.Abs(filepath.Join(root, "tools/version.sh")))(t)
	dir := t.TempDir()
	run := func(name string, args ...string) string {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v: %s", cmd, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	write := func(path, text string) {
		must.OK(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755))
		must.OK(t, os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600))
	}
	write("docs/result.json", "old")
	write("source.go", "old")
	run("git", "init", "-q")
	run("git", "add", ".")
	run("git", "-c", "user.name=test", "-c", "user.email=test@localhost", "commit", "-q", "-m", "test")
	commit := run("git", "rev-parse", "--short", "HEAD")
	for _, c := range []struct{ path, want string }{{"docs/result.json", commit}, {"source.go", commit + "-dirty"}} {
		write(c.path, "new")
		must.Be(t, "the version with another "+c.path, c.want, run(script))
	}
}

// TestDependabotHasEveryModule compares the directories of dependabot.yml with the modules
// that require something.
func TestDependabotHasEveryModule(t *testing.T) {
	t.Parallel()
	tree := must.Get(Load(root))(t)
	read := func(path string) string {
		text := must.Get(os.ReadFile(filepath.Join(root, path)))(t)
		return string(text)
	}
	var want, got []string
	for _, f := range tree.Files {
		if filepath.Base(f.Path) == "go.mod" && strings.Contains(read(f.Path), "\nrequire ") {
			want = append(want, strings.TrimSuffix("/"+filepath.Dir(f.Path), "."))
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^      - (/.*)$`).FindAllStringSubmatch(read(".github/dependabot.yml"), -1) {
		got = append(got, m[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	must.Match(t, "the directories of dependabot.yml are not those of the modules", want, got)
}

// TestDocumentedCommands has both programs read every command line that a page tells the
// reader to type, and look for the flags of those in its text.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	tree := must.Get(Load(root))(t)
	for program, dir := range map[string]string{"podweir": "plugin/cmd/podweir", "kubectl podweir": "plugin/cmd/kubectl-podweir"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			if program != "podweir" {
				mark.Slow(t, "it links a client of Kubernetes")
			}
			binary := filepath.Join(t.TempDir(), "program")
			build := exec.Command("go", "build", "-o", binary, ".")
			build.Dir, build.Env = filepath.Join(root, dir), append(os.Environ(), "CGO_ENABLED=0")
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v: %v\n%s", build, err, out)
			}
			read, n := map[string]string{}, 0
			for _, c := range Commands(tree) {
				if c.Program != program || len(c.Args) == 0 {
					continue
				}
				n++
				must.Be(t, fmt.Sprintf("%s: %s %s", c.Where, program, strings.Join(c.Args, " ")), "", misread(binary, &c, read))
			}
			must.AtLeast(t, "times that documents call "+program, 10, n)
		})
	}
}

var (
	subcommand = regexp.MustCompile(`^[a-z]+$`)
	flagName   = regexp.MustCompile(`--[a-z][a-z-]*`)
)

// misread says what a program does not understand of a command. The help that it prints
// instead of doing anything is kept in read.
func misread(binary string, c *Command, read map[string]string) string {
	args := c.Args
	if at := slices.Index(args, "--"); at >= 0 {
		args = args[:at] // what follows is for another program
	}
	if c.Inline {
		// Values may stand for something there, and what is optional in brackets.
		args = nil
		for _, arg := range c.Args {
			if !subcommand.MatchString(arg) || len(args) == 2 {
				break
			}
			args = append(args, arg)
		}
	}
	key := strings.Join(args, " ")
	help, known := read[key]
	if !known {
		out, err := exec.Command(binary, append(slices.Clone(args), "--help")...).CombinedOutput()
		if err != nil {
			return strings.TrimSpace(string(out))
		}
		help = string(out)
		read[key] = help
	}
	if c.Inline {
		for _, flag := range flagName.FindAllString(strings.Join(c.Args, " "), -1) {
			if !strings.Contains(help, flag+" ") {
				return "there is no flag " + flag
			}
		}
	}
	return ""
}

func TestCommandsFindsCalls(t *testing.T) {
	page := "Run `podweir status -o json`, `go vet`.\n```console\nsudo bin/podweir attach --netns <path> \\\n  --pod 'a b'\n" +
		"A=b podweir top | grep x    # rates | podweir none\n```\nthe podweir log\n" +
		"   ```console\n   kubectl -n x exec daemonset/podweir -- podweir doctor\n   X=$(kubectl podweir explain PW602)\n   ```\n" +
		"```text\n$ podweir gc\npodweir is there\n```\n" +
		"```ini\n[Service]\nDescription=podweir\nExecStart=/usr/local/bin/podweir gc\n```\n"
	var got []Command
	for _, c := range Commands(&Tree{Files: []File{{Path: "a.md", Data: []byte(page)}}}) {
		if strings.Contains(c.Program, "podweir") {
			got = append(got, c)
		}
	}
	want := []Command{
		{Where: "a.md", Program: "podweir", Args: []string{"status", "-o", "json"}, Inline: true},
		{Where: "a.md:3", Program: "podweir", Args: []string{"attach", "--netns", "<path>", "--pod", "a b"}},
		{Where: "a.md:5", Program: "podweir", Args: []string{"top"}},
		{Where: "a.md:9", Program: "podweir", Args: []string{"doctor"}},
		{Where: "a.md:10", Program: "kubectl podweir", Args: []string{"explain", "PW602"}},
		{Where: "a.md:13", Program: "podweir", Args: []string{"gc"}},
		{Where: "a.md:19", Program: "podweir", Args: []string{"gc"}},
	}
	must.Match(t, "Commands()", want, got)
}

func TestMakeTargetsAreLookedUp(t *testing.T) {
	tree := &Tree{Files: []File{
		{Path: "Makefile", Data: []byte("build: ## Builds.\n\ttrue\n")},
		{Path: "a.md", Data: []byte("`make build`, `make none`\n```console\nsudo make build gone A=b\n```\n```text\nmake map\n```\nto\nmake sense\n")},
	}}
	want := []string{"a.md: make has no target none", "a.md:3: make has no target gone"}
	must.Match(t, "makeTargets()", want, makeTargets(tree))
}

func TestValuesOfTheChartAreLookedUp(t *testing.T) {
	tree := &Tree{Files: []File{
		{Path: "chart/values.schema.json", Data: []byte(`{"additionalProperties": false, "properties": {
			"a": {"additionalProperties": false, "properties": {"b": {}}}, "labels": {"additionalProperties": false, "patternProperties": {"^[a-z]+$": {}, "^no$": false}},
			"either": {"anyOf": [{"additionalProperties": false, "properties": {"c": {}}}, {"additionalProperties": false}]}}}`)},
		{Path: "chart/values/x.yaml"},
		{Path: "a.md", Data: []byte("```console\nhelm install podweir chart -f chart/values/x.yaml --set a.b=1 --set labels.any=x --set either.c=1 -f chart/values/ENV.yaml\n" +
			"helm upgrade podweir chart -f chart/values/y.yaml --set a.c=1 \\\n  --set 'd={1,2}' --set either.d=1 --set labels.no=1 --set labels.A=1\nhelm install cilium cilium/cilium --set e=1\n```\n")},
	}}
	want := []string{
		"a.md:3: there is no file chart/values/y.yaml", "a.md:3: the chart has no value a.c", "a.md:3: the chart has no value d",
		"a.md:3: the chart has no value either.d", "a.md:3: the chart has no value labels.no", "a.md:3: the chart has no value labels.A",
	}
	must.Match(t, "chartValues()", want, chartValues(tree))
}
