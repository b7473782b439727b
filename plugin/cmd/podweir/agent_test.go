// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/cni"
)

func agentFlagSet(t *testing.T, args ...string) *pflag.FlagSet {
	t.Helper()
	f := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	agentFlags(f)
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	return f
}

func agentFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAgentConfigFile(t *testing.T) {
	t.Parallel()
	f := agentFlagSet(t, "--address", ":1")
	path := agentFile(t, "address: :2\ndelivery: nri\npprof: true\npass: 5m\ndefault: [lightShare=80%, policy=flat]\n")
	if err := readAgentConfig(path, f); err != nil {
		t.Fatal(err)
	}
	defaults, err := f.GetStringArray("default")
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(f.Lookup("address").Value, f.Lookup("delivery").Value, f.Lookup("pprof").Value, f.Lookup("pass").Value, defaults)
	if want := ":1 nri true 5m0s [lightShare=80% policy=flat]"; got != want {
		t.Errorf("settings = %s, want %s: the flag before the file", got, want)
	}
}

func TestAgentConfigFileErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"adddress: :2\n":             {`"adddress" is no setting`, "address", "node-name"},
		"log:\n  level: debug\n":     {`"log.level" is no setting`, "log-level"},
		"config: other.yaml\n":       {`"config" is no setting`},
		"pass: soon\npprof: maybe\n": {"pass", "soon", "pprof", "maybe"},
		"a: [\n":                     {"yaml"},
	} {
		path := agentFile(t, text)
		err := readAgentConfig(path, agentFlagSet(t))
		if err == nil {
			t.Errorf("%q is accepted", text)
			continue
		}
		for _, part := range append(want, path) {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q: %v, want %q in it", text, err, part)
			}
		}
	}
	if err := readAgentConfig("/nowhere/agent.yaml", agentFlagSet(t)); err == nil || !strings.Contains(err.Error(), "/nowhere/agent.yaml") {
		t.Errorf("a file that is not there: %v, want its name", err)
	}
}

// Every setting that is wrong is named at once, with what is accepted.
func TestAgentSettingErrors(t *testing.T) {
	t.Parallel()
	root := newRoot()
	var stderr bytes.Buffer
	root.SetErr(&stderr)
	root.SetArgs([]string{
		"agent", "--address", ":40000", "--pass", "1ms", "--doctor-interval", "1s", "--daemonset", "podweir", "--pod", "a/b",
	})
	err := root.ExecuteContext(t.Context())
	if err == nil {
		t.Fatal("the agent begins")
	}
	for _, want := range []string{
		"--node-name", "spec.nodeName", "--address", "from 1 to 32767", "--pass 1ms", "1s or more", "--doctor-interval 1s",
		"--daemonset", "namespace/name", "--pod", "namespace/name/UID",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
	if !strings.Contains(stderr.String(), `"level":"ERROR"`) {
		t.Errorf("log = %s, want the error in it", stderr.String())
	}
}

func TestAgentLog(t *testing.T) {
	t.Parallel()
	for _, bad := range [][2]string{{"xml", "info"}, {"json", "loud"}, {"json", "info+2"}} {
		if _, err := agentLog(&bytes.Buffer{}, bad[0], bad[1]); err == nil || !strings.Contains(err.Error(), "want") {
			t.Errorf("agentLog(%q) = %v, want an error that says what is accepted", bad, err)
		}
	}
	var out bytes.Buffer
	log, err := agentLog(&out, "text", "warn")
	if err != nil {
		t.Fatal(err)
	}
	log.Info("quiet")
	log.Warn("loud")
	if strings.Contains(out.String(), "quiet") || !strings.Contains(out.String(), "msg=loud") {
		t.Errorf("log = %s, want the warning alone as text", out.String())
	}
}

// The page has every setting with its default, and no other.
func TestAgentPageNamesEverySetting(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/reference/agent.md")
	if err != nil {
		t.Fatal(err)
	}
	var written, flags []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(--[a-z-]+)` \\| (?:`([^`]*)`)? ?\\| ").FindAllStringSubmatch(string(page), -1) {
		written = append(written, m[1]+" "+m[2])
	}
	agentFlagSet(t).VisitAll(func(f *pflag.Flag) {
		flags = append(flags, "--"+f.Name+" "+strings.Trim(f.DefValue, "[]"))
	})
	slices.Sort(flags)
	if diff := cmp.Diff(flags, written); diff != "" {
		t.Errorf("agent.md (-flags +page):\n%s", diff)
	}
}

// What is mounted into the agent's container cannot be removed from inside, which
// is no failure if it is empty.
func TestAgentRemovesWhatIsMounted(t *testing.T) {
	t.Parallel()
	paths := cni.Paths{Pins: filepath.Join(t.TempDir(), "gone"), Run: t.TempDir()}
	busy := fmt.Errorf("remove in %s: %w", paths.Run, unix.EBUSY)
	if err := unlessMounted(paths, busy); err != nil {
		t.Errorf("an empty mount: %v, want no error", err)
	}
	if err := unlessMounted(paths, unix.EPERM); err == nil {
		t.Error("another error is dropped")
	}
	if err := unlessMounted(paths, nil); err != nil {
		t.Errorf("no error becomes %v", err)
	}
	if err := os.WriteFile(filepath.Join(paths.Run, "features.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unlessMounted(paths, busy); err == nil {
		t.Error("a mount that is not empty is no error")
	}
}
