// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"bytes"
	"errors"
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

	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/agent/reconcile"
	"github.com/podweir/podweir/plugin/agent/serve"
	"github.com/podweir/podweir/plugin/cmd/settings"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/status/cluster"
	"github.com/podweir/podweir/plugin/terms"
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
	path := agentFile(t, "interval: 9s\naddress: :2\ndelivery: nri\npprof: true\npass: 5m\ndefault: [lightShare=80%, policy=flat]\n")
	if err := settings.File(path, f, map[string]bool{"interval": true}); err != nil {
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
		"log:\n  level: debug\n":     {`"log" is no setting`, "log-level"},
		"config: other.yaml\n":       {`"config" is no setting`},
		"pass: soon\npprof: maybe\n": {"pass", "soon", "pprof", "maybe"},
		"a: [\n":                     {"yaml"},
	} {
		path := agentFile(t, text)
		err := settings.File(path, agentFlagSet(t), nil)
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
	if err := settings.File("/nowhere/agent.yaml", agentFlagSet(t), nil); err == nil || !strings.Contains(err.Error(), "/nowhere/agent.yaml") {
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
		"--namespace-interval", "1s", "--startup-taint", "podweir.io/agent-not-ready:NoSchedule",
		"--cluster-address", ":99999", "--cluster-reader", "kube-system",
	})
	err := root.ExecuteContext(t.Context())
	if err == nil {
		t.Fatal("the agent begins")
	}
	for _, want := range []string{
		"--node-name", "spec.nodeName", "--address", "from 1 to 32767", "--pass 1ms", "1s or more", "--doctor-interval 1s",
		"--daemonset", "namespace/name", "--pod", "namespace/name/UID",
		"--cluster-address", `--cluster-reader "kube-system"`, "namespace/name of a ServiceAccount",
		"--namespace-interval 1s", "0 or 10s or more", `--startup-taint "podweir.io/agent-not-ready:NoSchedule"`, "without value and effect",
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
		if _, err := agentLog(&bytes.Buffer{}, bad[0], bad[1], terms.OnPath); err == nil || !strings.Contains(err.Error(), "want") {
			t.Errorf("agentLog(%q) = %v, want an error that says what is accepted", bad, err)
		}
	}
	var out bytes.Buffer
	log, err := agentLog(&out, "text", "warn", terms.ByKubectl)
	if err != nil {
		t.Fatal(err)
	}
	log.Info("quiet")
	log.Warn("loud")
	if strings.Contains(out.String(), "quiet") || !strings.Contains(out.String(), "msg=loud") {
		t.Errorf("log = %s, want the warning alone as text", out.String())
	}
	log.Error("limit exceeded", "error", errors.New("x; podweir doctor --probe names it"), "cause", "podweir gc")
	if !strings.Contains(out.String(), terms.ByKubectl+" doctor --probe") || !strings.Contains(out.String(), terms.ByKubectl+" gc") {
		t.Errorf("log = %s, want commands that run where it is read", out.String())
	}
}

// What is not ready names commands as they run where that is read: in the cluster, if the
// chart says how, and without it in an agent's pod.
func TestReadinessNamesCommandsThatRun(t *testing.T) {
	o := newOptions()
	check := serve.Check{Name: "delivery", Err: func() error { return errors.New("run `podweir uninstall`") }}
	says := func() string { return runnable([]serve.Check{check}, o.runByReaders())[0].Err().Error() }
	if got := says(); got != "run `podweir uninstall`" {
		t.Errorf("on a node without Kubernetes: %q", got)
	}
	o.v.Set("pod", "ns/podweir-x/u")
	if got := says(); got != "run `"+terms.ByKubectl+" uninstall`" {
		t.Errorf("in a pod: %q", got)
	}
	t.Setenv(envRunBy, "kubectl -n ns exec podweir-x -- podweir")
	if got := says(); got != "run `kubectl -n ns exec podweir-x -- podweir uninstall`" {
		t.Errorf("in a pod of the chart's: %q", got)
	}
	if got := message(errors.New("podweir status lists them"), 0); got != "kubectl -n ns exec podweir-x -- podweir status lists them" {
		t.Errorf("error of a command: %q", got)
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
	paths := engine.Paths{Pins: filepath.Join(t.TempDir(), "gone"), Run: t.TempDir()}
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

// The pods that podweir has no limit for are told with the cause, and counted where they
// request none.
func TestPodsWithoutLimit(t *testing.T) {
	state := func(name string, o reconcile.Outcome, reason string, err error) reconcile.PodState {
		return reconcile.PodState{Namespace: "ns", Name: name, UID: name, Outcome: o, Reason: reason, Err: err}
	}
	shaped := state("shaped", reconcile.Invalid, "the limit from before stays", errors.New("no rate"))
	shaped.Limits = []reconcile.Limit{{}}
	byHand := state("by-hand", reconcile.Failed, "", errors.New("gone"))
	byHand.UID = ""
	want := &cluster.Unlimited{None: map[string]int{"ns": 2}, Pods: []cluster.UnlimitedPod{
		{Pod: "ns/left", LeftToOthers: true, Cause: "egress is left to Cilium"},
		{Pod: "ns/host", Cause: "it has hostNetwork"},
		{Pod: "ns/bad", Cause: `"x" is no rate`},
	}}
	got := podsWithoutLimit([]reconcile.PodState{
		state("a", reconcile.Unlimited, "", nil), state("b", reconcile.Removed, "no limit is requested any more", nil),
		state("left", reconcile.Deferred, "egress is left to Cilium", nil), state("host", reconcile.HostNetwork, "it has hostNetwork", nil),
		state("bad", reconcile.Invalid, "the pod is not shaped", errors.New(`"x" is no rate`)),
		state("new", reconcile.Waiting, "its network is not set up yet", nil), state("held", reconcile.Held, "eth0 is shaped by hand", nil),
		shaped, byHand,
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pods without a limit (-want +got):\n%s", diff)
	}
}

// A problem that is new is looked at again soon, one that stays is not.
func TestNewProblem(t *testing.T) {
	report := func(status ...doctor.Status) *doctor.Report {
		r := &doctor.Report{}
		for i, s := range status {
			r.Checks = append(r.Checks, doctor.Outcome{Code: fmt.Sprintf("PW%d", i), Status: s})
		}
		return r
	}
	for name, tt := range map[string]struct {
		before, now *doctor.Report
		want        bool
	}{
		"no look yet":            {nil, nil, false},
		"a first look, all well": {nil, report(doctor.OK, doctor.Skip), false},
		"a first look":           {nil, report(doctor.OK, doctor.Warn), true},
		"it stays":               {report(doctor.Warn, doctor.Fail), report(doctor.Fail, doctor.Unknown), false},
		"it went":                {report(doctor.Fail), report(doctor.OK), false},
		"another comes":          {report(doctor.Fail, doctor.OK), report(doctor.Fail, doctor.Unknown), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := newProblem(tt.before, tt.now); got != tt.want {
				t.Errorf("newProblem() = %v, want %v", got, tt.want)
			}
		})
	}
}
