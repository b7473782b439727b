// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package coexist_test

import (
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

const npaNamespace = "default"

// npa is the Network Policy Agent on the device of one pod.
type npa struct {
	agent *agent
	pod   *pod
	name  string
}

func (n *npa) must(t *testing.T, do string) {
	t.Helper()
	must.OK(t, n.agent.ask(do, n.name))
}

// arrive is what the agent does when the VPC CNI adds a pod that has policies.
func (n *npa) arrive(t *testing.T) {
	t.Helper()
	n.must(t, "attach")
	n.must(t, "allow")
	if got, _ := n.programs(t); !slices.Equal(got, []string{"ingress handle_egress", "egress handle_ingress"}) {
		t.Fatalf("filters of the agent: %v", got)
	}
}

// handle1 finds the agent's filters in what tc(8) shows.
var handle1 = regexp.MustCompile(`pref 1 bpf chain 0 handle 0x1 (handle_[a-z]+).* (id [0-9]+) `)

// programs are the agent's filters on the device, by hook, and their ids.
func (n *npa) programs(t *testing.T) (all, ids []string) {
	t.Helper()
	for _, hook := range []string{"ingress", "egress"} {
		out := n.pod.rig.node.Run(t, "tc", "filter", "show", "dev", n.pod.host.Name, hook)
		for _, m := range handle1.FindAllStringSubmatch(out, -1) {
			all, ids = append(all, hook+" "+m[1]), append(ids, m[2])
		}
	}
	return all, ids
}

// restart is what comes after the agent was killed: it starts, finds its pins,
// and its reconciler attaches the pod and programs its policy again.
func (n *npa) restart(t *testing.T) {
	t.Helper()
	n.agent.stop()
	n.agent.start(t)
	n.arrive(t)
}

// upgrade is the restart of an agent with other programs: it removes every
// filter with its handle from all devices, attaches again, and programs the
// policy.
func (n *npa) upgrade(t *testing.T) {
	t.Helper()
	n.agent.stop()
	n.agent.changePrograms(t)
	n.agent.start(t)
	n.arrive(t)
}

// clean is the agent's removal of its filters, twice, and their return.
func (n *npa) clean(t *testing.T) {
	t.Helper()
	n.must(t, "clean")
	got, _ := n.programs(t)
	must.Len(t, "filters after the agent's clean-up", 0, got)
	n.must(t, "clean")
	n.restart(t)
}

func (*npa) owns(text string) bool { return strings.Contains(text, "handle_") }

func TestPrivilegedNPA(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := newAgent(t, r.node)
	a.start(t)
	for i, m := range modes() {
		for _, first := range []bool{true, false} {
			t.Run(m.name()+"/first="+yesNo(first), func(t *testing.T) {
				if m.rare() {
					mark.Nightly(t, "it differs from other cases by one setting")
				}
				if m.egress != "auto" || m.ingress != "auto" {
					mark.NightlyKernels(t, "a queue by name takes an emulated processor four minutes")
				}
				name := fmt.Sprintf("web-%d%s-x", i, yesNo(first))
				p := r.newPod(t, hostVeth(npaNamespace, name))
				n := &npa{a, p, name}
				k := &kase{
					pod: p, mode: m, traffic: newTraffic(t, p), other: n,
					profile: profiles.Find("aws-vpc-cni-npa"),
					later: []step{
						{label: "NPA restarts", do: n.restart},
						{label: "NPA is upgraded", do: n.upgrade, replaces: true},
						{label: "NPA cleans up and comes back", do: n.clean},
					},
					ownGap: true,
				}
				k.run(t, first)
			})
		}
	}
}

// npaBinary is where "make npa" puts the agent's driver, beside its programs.
const npaBinary = "../../bin/npa/npa"

// agent is the AWS Network Policy Agent of a node, in a root directory of its
// own that outlives it.
type agent struct {
	// test is the one that the agent belongs to: its subtests restart it.
	test *testing.T
	root string
	ns   *testutil.NetNS
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *json.Decoder
	log  strings.Builder
}

// hostVeth is the name of the device of a pod, as the VPC CNI and the agent
// agree on it (v1.4.1, pkg/utils/utils.go, GetHostVethName).
func hostVeth(namespace, pod string) string {
	sum := sha1.Sum([]byte(namespace + "." + pod))
	return "eni" + hex.EncodeToString(sum[:])[:11]
}

// newAgent makes the root directory of an agent: its programs and binary in
// /app, the host's directory for CNI binaries, /proc, /sys and a BPF file
// system.
func newAgent(t *testing.T, ns *testutil.NetNS) *agent {
	t.Helper()
	a := &agent{test: t, root: t.TempDir(), ns: ns}
	for _, dir := range []string{"app", "host/opt/cni/bin", "proc", "sys", "var/log/aws-routed-eni", "var/run/aws-node", "dev"} {
		must.OK(t, os.MkdirAll(filepath.Join(a.root, dir), 0o755))
	}
	if _, err := os.Stat(npaBinary); err != nil {
		t.Fatalf("%v: \"make npa\" builds it", err)
	}
	programs := must.Get(filepath.Abs(filepath.Dir(npaBinary)))(t)
	mount := func(source, target, kind string, flags uintptr) {
		t.Helper()
		target = filepath.Join(a.root, target)
		if err := unix.Mount(source, target, kind, flags, ""); err != nil {
			t.Fatalf("mount %s: %v", target, err)
		}
		t.Cleanup(func() { must.OK(t, unix.Unmount(target, unix.MNT_DETACH)) })
		// What is mounted below must not appear on the machine's own.
		must.OK(t, unix.Mount("", target, "", unix.MS_PRIVATE, ""))
	}
	// A copy would be busy while another test's child has it open for writing, from fork to exec.
	mount(programs, "app", "", unix.MS_BIND)
	mount("/proc", "proc", "", unix.MS_BIND)
	mount("/sys", "sys", "", unix.MS_BIND)
	mount("bpf", "sys/fs/bpf", "bpf", 0)
	t.Cleanup(a.stop)
	return a
}

// start starts the agent, which finds what an earlier one left.
func (a *agent) start(t *testing.T) {
	t.Helper()
	a.cmd = exec.CommandContext(a.test.Context(), "/app/npa")
	a.cmd.Dir = "/app"
	// A signal that is pending makes the kernel give up a load (EAGAIN), and
	// Go's scheduler sends itself signals. Libraries repeat such a load; the
	// agent's (aws-ebpf-sdk-go v1.0.15) does not.
	a.cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1")
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: a.root}
	a.cmd.Stderr = &a.log
	var err error
	if a.in, err = a.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out := must.Get(a.cmd.StdoutPipe())(t)
	a.out = json.NewDecoder(out)
	// The child is in the namespace of the thread that starts it.
	must.OK(t, a.ns.Do(a.cmd.Start))
	if err := a.answer(); err != nil {
		t.Fatalf("start the agent: %v\n%s", err, a.log.String())
	}
}

// stop kills the agent, as a node does that runs out of memory.
func (a *agent) stop() {
	if a.cmd != nil && a.cmd.Process != nil {
		_ = a.cmd.Process.Kill()
		_ = a.cmd.Wait()
		a.cmd = nil
	}
}

// loadFailed is what the agent says when the kernel did not load a program,
// whatever the reason.
const loadFailed = "failed to Load the prog"

// ask has the agent do something for a pod, and again if it could not load a
// program: its reconciler comes again, too.
func (a *agent) ask(do, pod string) error {
	err := a.askOnce(do, pod)
	for range 2 {
		if err == nil || !strings.Contains(err.Error(), loadFailed) {
			break
		}
		a.test.Logf("%s %s: %v: %s", do, pod, err, a.why())
		err = a.askOnce(do, pod)
	}
	return err
}

// why is the last reason in the log of the agent's library.
func (a *agent) why() string {
	files, _ := filepath.Glob(filepath.Join(a.root, "var/log/aws-routed-eni/*.log"))
	reason := "its log has no reason"
	for _, file := range files {
		raw, _ := os.ReadFile(file)
		for line := range strings.Lines(string(raw)) {
			if strings.Contains(line, "Failed to load prog") {
				reason = strings.TrimSpace(line)
			}
		}
	}
	return reason
}

func (a *agent) askOnce(do, pod string) error {
	err := json.NewEncoder(a.in).Encode(map[string]any{"Do": do, "Namespace": npaNamespace, "Pod": pod, "Port": allowedPort})
	if err != nil {
		return err
	}
	return a.answer()
}

func (a *agent) answer() error {
	var got struct{ Error string }
	if err := a.out.Decode(&got); err != nil {
		return err
	}
	if got.Error != "" {
		return errors.New(got.Error)
	}
	return nil
}

// changePrograms makes the agent's next start find other programs than the
// installed ones: what an upgrade of it brings.
func (a *agent) changePrograms(t *testing.T) {
	t.Helper()
	installed, err := filepath.Glob(filepath.Join(a.root, "host/opt/cni/bin/*.bpf.o"))
	if err != nil || len(installed) == 0 {
		t.Fatalf("no programs are installed: %v", err)
	}
	for _, file := range installed {
		must.OK(t, os.WriteFile(file, []byte("an older release"), 0o755))
	}
}
