// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/agent/cri/critest"
	"github.com/podweir/podweir/plugin/agent/kube"
	"github.com/podweir/podweir/plugin/agent/reconcile"
	"github.com/podweir/podweir/plugin/agent/serve"
	"github.com/podweir/podweir/plugin/cmd/settings"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/status/cluster"
	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

func agentFlagSet(t *testing.T, args ...string) *pflag.FlagSet {
	t.Helper()
	f := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	agentFlags(f)
	must.OK(t, f.Parse(args))
	return f
}

func agentFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.yaml")
	must.OK(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestAgentConfigFile(t *testing.T) {
	t.Parallel()
	f := agentFlagSet(t, "--address", ":1")
	path := agentFile(t, "interval: 9s\naddress: :2\ndelivery: nri\npprof: true\npass: 5m\ndefault: [lightShare=80%, policy=flat]\n")
	must.OK(t, settings.File(path, f, map[string]bool{"interval": true}))
	defaults := must.Get(f.GetStringArray("default"))(t)
	got := fmt.Sprint(f.Lookup("address").Value, f.Lookup("delivery").Value, f.Lookup("pprof").Value, f.Lookup("pass").Value, defaults)
	must.Be(t, "settings, the flag before the file", ":1 nri true 5m0s [lightShare=80% policy=flat]", got)
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
		must.Fail(t, text, settings.File(path, agentFlagSet(t), nil), append(want, path)...)
	}
	must.Fail(t, "a file that is not there", settings.File("/nowhere/agent.yaml", agentFlagSet(t), nil), "/nowhere/agent.yaml")
}

// A file that is changed under a program that runs, as a ConfigMap by hand, has no effect before a restart.
func TestSettingsSince(t *testing.T) {
	t.Parallel()
	path := agentFile(t, "delivery: nri\npass: 5m\ndefault: [policy=flat]\n")
	since := settings.Since(path)
	for text, want := range map[string][]string{
		"# a comment\npass: 5m\ndelivery: nri\ndefault: [policy=flat]\n": nil,
		"delivery: nri\ndefault: [policy=strict]\nroot: /host\n":         {path, "after a restart: default, pass, root"},
		"delivery: [\n": {"would not start again", path, "yaml"},
	} {
		must.OK(t, os.WriteFile(path, []byte(text), 0o600))
		if want == nil {
			must.OK(t, since())
		} else {
			must.Fail(t, text, since(), want...)
		}
	}
	must.OK(t, settings.Since("")())
}

// Every setting that is wrong is named at once, with what is accepted.
func TestAgentSettingErrors(t *testing.T) {
	t.Parallel()
	_, stderr, err := execute(t,
		"agent", "--address", ":40000", "--pass", "1ms", "--doctor-interval", "1s", "--daemonset", "podweir", "--pod", "a/b",
		"--namespace-interval", "1s",
		"--cluster-address", ":99999", "--cluster-reader", "kube-system")
	must.Fail(t, "the agent", err, "--node-name", "spec.nodeName", "--address", "from 1 to 32767", "--pass 1ms", "1s or more",
		"--doctor-interval 1s", "--daemonset", "namespace/name", "--pod", "namespace/name/UID", "--cluster-address", `--cluster-reader "kube-system"`,
		"namespace/name of a ServiceAccount", "--namespace-interval 1s", "0 or 10s or more")
	must.Have(t, "the log", stderr, `"level":"ERROR"`)
}

func TestAgentLog(t *testing.T) {
	t.Parallel()
	for _, bad := range [][2]string{{"xml", "info"}, {"json", "loud"}, {"json", "info+2"}} {
		_, err := agentLog(&bytes.Buffer{}, bad[0], bad[1], terms.OnPath)
		must.Fail(t, fmt.Sprint("agentLog of ", bad), err, "want")
	}
	var out bytes.Buffer
	log := must.Get(agentLog(&out, "text", "warn", terms.ByKubectl))(t)
	log.Info("quiet")
	log.Warn("loud")
	must.Have(t, "the log", out.String(), "!quiet", "msg=loud")
	log.Error("limit exceeded", "error", errors.New("x; podweir doctor names it"), "cause", "podweir gc")
	must.Have(t, "the log", out.String(), terms.ByKubectl+" doctor", terms.ByKubectl+" gc")
}

// What is not ready names commands as they run where that is read: in the cluster, if the
// chart says how, and without it in an agent's pod.
func TestReadinessNamesCommandsThatRun(t *testing.T) {
	o := newOptions()
	check := serve.Check{Name: "delivery", Err: func() error { return errors.New("run `podweir uninstall`") }}
	says := func() string { return runnable([]serve.Check{check}, o.runByReaders())[0].Err().Error() }
	must.Be(t, "on a node without Kubernetes", "run `podweir uninstall`", says())
	o.v.Set("pod", "ns/podweir-x/u")
	must.Be(t, "in a pod", "run `"+terms.ByKubectl+" uninstall`", says())
	t.Setenv(envRunBy, "kubectl -n ns exec podweir-x -- podweir")
	must.Be(t, "in a pod of the chart's", "run `kubectl -n ns exec podweir-x -- podweir uninstall`", says())
	must.Be(t, "error of a command", "kubectl -n ns exec podweir-x -- podweir status lists them", message(errors.New("podweir status lists them"), 0))
}

// The page has every setting with its default, and no other.
func TestAgentPageNamesEverySetting(t *testing.T) {
	t.Parallel()
	page := must.Get(os.ReadFile("../../../docs/reference/agent.md"))(t)
	var written, flags []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(--[a-z-]+)` \\| (?:`([^`]*)`)? ?\\| ").FindAllStringSubmatch(string(page), -1) {
		written = append(written, m[1]+" "+m[2])
	}
	agentFlagSet(t).VisitAll(func(f *pflag.Flag) {
		flags = append(flags, "--"+f.Name+" "+strings.Trim(f.DefValue, "[]"))
	})
	slices.Sort(flags)
	must.Match(t, "agent.md", flags, written)
}

// What is mounted into the agent's container cannot be removed from inside, which
// is no failure if it is empty.
func TestAgentRemovesWhatIsMounted(t *testing.T) {
	t.Parallel()
	paths := engine.Paths{Pins: filepath.Join(t.TempDir(), "gone"), Run: t.TempDir()}
	busy := fmt.Errorf("remove in %s: %w", paths.Run, unix.EBUSY)
	must.OK(t, unlessMounted(paths, busy)) // an empty mount
	must.Fail(t, "another error", unlessMounted(paths, unix.EPERM))
	must.OK(t, unlessMounted(paths, nil))
	must.OK(t, os.WriteFile(filepath.Join(paths.Run, "features.json"), nil, 0o600))
	must.Fail(t, "a mount that is not empty", unlessMounted(paths, busy))
}

// The pods that podweir has no limit for are told with the cause, and counted where they
// request none.
func TestPodsWithoutLimit(t *testing.T) {
	state := func(name string, o reconcile.Outcome, reason string, err error) reconcile.PodState {
		return reconcile.PodState{Namespace: "ns", Name: name, UID: name, Outcome: o, Reason: reason, Err: err}
	}
	shaped := state("shaped", reconcile.Invalid, "the limit from before stays", errors.New("no rate"))
	shaped.Limits = []reconcile.KeptLimit{{}}
	byHand := state("by-hand", reconcile.Failed, "", errors.New("gone"))
	byHand.UID = ""
	misspelt := state("misspelt", reconcile.Unlimited, "", nil)
	misspelt.Misspelt = errors.New("did you mean another?")
	want := &cluster.Unlimited{None: map[string]int{"ns": 2}, Pods: []cluster.UnlimitedPod{
		{Pod: "ns/left", LeftToOthers: true, Cause: "egress is left to Cilium"},
		{Pod: "ns/host", Cause: "it has hostNetwork"},
		{Pod: "ns/bad", Cause: `"x" is no rate`},
		{Pod: "ns/misspelt", Cause: "did you mean another?"},
	}}
	got := podsWithoutLimit([]reconcile.PodState{
		state("a", reconcile.Unlimited, "", nil), state("b", reconcile.Removed, "no limit is requested any more", nil),
		state("left", reconcile.Deferred, "egress is left to Cilium", nil), state("host", reconcile.HostNetwork, "it has hostNetwork", nil),
		state("bad", reconcile.Invalid, "the pod is not shaped", errors.New(`"x" is no rate`)),
		state("new", reconcile.Waiting, "its network is not set up yet", nil), state("held", reconcile.Held, "eth0 is shaped by hand", nil),
		shaped, byHand, misspelt,
	})
	must.Match(t, "pods without a limit", want, got)
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
			must.Be(t, "newProblem()", tt.want, newProblem(tt.before, tt.now))
		})
	}
}

// A node without a BPF file system, where nothing can be limited, tells of the pods that should be, and what the agent says
// of itself is of now, whenever its doctor looked.
func TestAnswerWithoutBPFFS(t *testing.T) {
	t.Parallel()
	o := newOptions()
	o.v.Set("pins", filepath.Join(t.TempDir(), "podweir"))
	o.v.Set("run", t.TempDir())
	o.paths().Mail().RecordUnshaped(slog.New(slog.DiscardHandler), &mailbox.Unshaped{
		Pod: "default/web", UID: "u", Reason: "failed", Since: time.Now(), Error: "no bpffs",
	})
	a := &agentParts{
		o: o, watch: &kube.Watch{}, reconciler: reconcile.New(reconcile.Config{}),
		notes: []serve.Check{{Name: "settings", Err: func() error { return errors.New("others") }}},
	}
	a.waiting, a.node = &waiting{agentParts: a}, newNodeCheck(a)
	a.node.rep = &doctor.Report{Checks: []doctor.Outcome{{Code: "PW613", Status: doctor.Skip}}, Count: map[doctor.Status]int{doctor.Skip: 1}}
	answer := a.answer(t.Context(), nil)
	if now := answer.Doctor; now.Count[doctor.Warn] != 1 || now.Count[doctor.Skip] != 0 || now.Checks[0].Seen != "settings: others" || a.node.rep.Checks[0].Seen != "" {
		t.Errorf("the doctor says %+v, and %+v before", now, a.node.rep)
	}
	answer = a.answer(t.Context(), []serve.Check{{Name: "api", Err: func() error { return errors.New("403") }}})
	must.Be(t, "what the doctor says beside a part that is not ready", "not ready: api: 403", answer.Doctor.Checks[0].Seen)
	if answer.Status == nil || len(answer.Status.Pods) != 1 || answer.Status.Pods[0].State != view.NotLimited || answer.Status.Pods[0].Cause != "no bpffs" {
		t.Fatalf("answer %+v with status %+v, want the pod that is not limited", answer, answer.Status)
	}
	all := &cluster.Nodes{Nodes: []cluster.Node{{Name: "n1", Answer: answer}}}
	status, why := all.StatusExit()
	must.Be(t, "exit status of "+why, cluster.ExitBroken, status)
}

// Every command that asks the container runtime can be given its socket.
func TestCRISocket(t *testing.T) {
	for _, name := range []string{"agent", "doctor", "install", "uninstall"} {
		if cmd, _, err := newRoot().Find([]string{name}); err != nil || cmd.Flags().Lookup("cri-socket") == nil {
			t.Errorf("podweir %s (%v) has no --cri-socket", name, err)
		}
	}
	const socket = "/nowhere/containerd.sock"
	for name, args := range map[string][]string{"by the flag": {"--cri-socket", socket}, "as the chart sets it in a pod": nil} {
		t.Run(name, func(t *testing.T) {
			if args == nil {
				t.Setenv("PODWEIR_CRI_SOCKET", socket)
			}
			// Without conflists the doctor says what it could not find out.
			out, _ := runPodweir(t, append([]string{"doctor", "--root", t.TempDir(), "-o", "json"}, args...)...)
			var rep struct {
				Checks []struct{ Evidence []string }
			}
			must.OK(t, json.Unmarshal([]byte(out), &rep))
			if !slices.ContainsFunc(rep.Checks, func(c struct{ Evidence []string }) bool {
				return slices.ContainsFunc(c.Evidence, func(text string) bool { return strings.Contains(text, socket) })
			}) {
				t.Errorf("the doctor did not ask at %s:\n%s", socket, out)
			}
		})
	}
}

// chartCapabilities are those that the chart gives the agent everywhere. SYS_PTRACE,
// which it gives where it mounts the node's root, is for what others' processes are.
var chartCapabilities = []string{"net_admin", "sys_admin"}

// with makes a command run with these capabilities alone.
func with(capabilities []string, argv ...string) []string {
	set := "-all"
	for _, c := range capabilities {
		set += ",+" + c
	}
	return append([]string{"setpriv", "--bounding-set=" + set, "--inh-caps=-all"}, argv...)
}

// TestPrivilegedAgentCapabilities: the agent shapes pods with the chart's capabilities and
// no others, and without any one of them it is not ready and says which it lacks.
func TestPrivilegedAgentCapabilities(t *testing.T) {
	must.OK(t, must.Err(exec.LookPath("setpriv")))
	n := newTestNode(t)
	n.pod(t, 1, map[string]string{"kubernetes.io/egress-bandwidth": "10M", "kubernetes.io/ingress-bandwidth": "10M"})
	for i, missing := range chartCapabilities {
		others := append(append([]string{}, chartCapabilities[:i]...), chartCapabilities[i+1:]...)
		a := n.startAs(t, with(others))
		a.until(t, 20*time.Second, "the agent says that it lacks "+missing, func() (bool, string) {
			ready, text := a.ready(t.Context())
			return !ready && strings.Contains(text, "CAP_"+strings.ToUpper(missing)), text
		})
		must.Be(t, "pods shaped without "+missing, 0, a.outcomes("attached"))
		a.end()
	}
	a := n.startAs(t, with(chartCapabilities))
	a.until(t, time.Minute, "the pod is shaped", func() (bool, string) { return a.outcomes("attached") == 1, "it is not" })
	a.until(t, time.Minute, "the agent is ready", func() (bool, string) { return a.ready(t.Context()) })
	// With these it tried the kernel, also the way to an ifb, and kept the answer.
	testutil.RequireQdisc(t, "ifb")
	must.Have(t, "what was kept of the probes", string(must.Get(os.ReadFile(filepath.Join(n.run, "features.json")))(t)), `"redirect":"`, `!"redirect":""`)
}

// TestPrivilegedProcessesOfOthers: what SYS_PTRACE is for. Names and arguments of processes
// need nothing.
func TestPrivilegedProcessesOfOthers(t *testing.T) {
	for _, ptrace := range []bool{false, true} {
		capabilities := chartCapabilities
		if ptrace {
			capabilities = append(slices.Clip(capabilities), "sys_ptrace")
		}
		for file, want := range map[string]bool{"exe": ptrace, "root": ptrace, "ns/mnt": ptrace, "cmdline": true} {
			argv := with(capabilities, "stat", "--dereference", "--format=%n", fmt.Sprintf("/proc/%d/%s", os.Getpid(), file))
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
			cancel()
			must.Be(t, fmt.Sprintf("SYS_PTRACE %v: /proc/PID/%s is readable: %s", ptrace, file, out), want, err == nil)
		}
	}
}

// TestPrivilegedDeliveryWatch: without NRI and with nothing on the node the agent is
// ready, and a pod gets its limit by what the API server and the runtime say.
func TestPrivilegedDeliveryWatch(t *testing.T) {
	n := newTestNode(t)
	nri := n.startAs(t, []string{"env", "PODWEIR_DELIVERY=nri"})
	nri.until(t, time.Minute, "with nri the agent is not ready for want of NRI alone", func() (bool, string) {
		_, text := nri.ready(t.Context())
		return strings.Count(text, "ok: ") >= 5 && !strings.Contains(text, "ok: nri"), text
	})
	nri.end()

	a := n.startAs(t, []string{"env", "PODWEIR_DELIVERY=watch"})
	a.until(t, time.Minute, "the agent is ready", func() (bool, string) { return a.ready(t.Context()) })

	// As the kubelet has it: the pod is bound to the node, then has a sandbox, and then
	// the API server learns of its address.
	annotations := map[string]string{"kubernetes.io/egress-bandwidth": "10M", "kubernetes.io/ingress-bandwidth": "10M"}
	bound := n.podOf(1, annotations)
	bound.PodIP, bound.Phase = "", "Pending"
	n.api.Put(bound)
	a.sample(t, 1500*time.Millisecond) // it was looked for twice, in vain
	ns := testutil.NewNetNS(t)
	testutil.VethPair(t, testutil.End{NetNS: ns, Name: "eth0"}, testutil.End{NetNS: n.NetNS, Name: "veth1"})
	must.OK(t, n.runtime.Add(critest.Sandbox{ID: "sandbox-1", UID: "uid-1", NetNS: ns.Path(), Annotations: annotations}))
	n.api.Put(n.podOf(1, annotations))
	began := time.Now()
	a.until(t, 10*time.Second, "the pod is shaped", func() (bool, string) { return a.outcomes("attached") == 1, "it is not" })
	t.Logf("limited %v after the API server had its address", time.Since(began).Round(time.Millisecond))

	var files []string
	for _, dir := range []string{"etc/cni/net.d", "opt/cni/bin", "var/lib"} {
		entries, err := os.ReadDir(filepath.Join(n.root, dir))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for _, e := range entries {
			files = append(files, e.Name())
		}
	}
	must.Match(t, "files of the node", []string{"10-net.conflist"}, files)
}
