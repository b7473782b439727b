// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/agent/cri/critest"
	"github.com/podweir/podweir/plugin/cni"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/plugin/version"
)

// nightNode is a node on which everything is in order: podweir is in the chain of a
// primary CNI, containerd and the kubelet run, and one pod, default/web, can be made.
// Its kernel side is real, in namespaces; /proc of its root directory and its container
// runtime are doubles.
type nightNode struct {
	*cli
	*testNode
	// entry is podweir's file.
	entry string
	// hidden are arguments that the agent's pod gives by its environment.
	hidden []string
}

// files of a node whose /proc shows a kubelet and containerd.
var nightFiles = map[string]string{
	"proc/1/mounts":                    "bpf /sys/fs/bpf bpf rw,nosuid,mode=700 0 0\n",
	"proc/1/net/unix":                  "Num RefCount Protocol Flags Type St Inode Path\n0: 00000002 00000000 00010000 0001 01 1 /run/containerd/containerd.sock\n",
	"proc/2/comm":                      "kubelet\n",
	"proc/3/comm":                      "containerd\n",
	"proc/sys/net/core/bpf_jit_enable": "1\n",
	"proc/sys/net/core/bpf_jit_harden": "0\n",
	"opt/cni/bin/ptp":                  "x",
}

func newNightNode(t *testing.T, k *nightCase) *nightNode {
	t.Helper()
	c := newCLI(t)
	n := &nightNode{cli: c, testNode: newTestNodeIn(t, c.node, c.pins, c.run)}
	// One that reads no drop-ins: the states are those of the chain.
	n.runtime.Release = "1.7.29"
	const plugin = "podweir-cni"
	n.plugin = []byte(plugin)
	for name, content := range nightFiles {
		n.put(t, name, content)
	}
	n.put(t, "proc/sys/kernel/osrelease", release())
	// What is in /sys/class/net depends on the namespace of whoever mounts it.
	sys := filepath.Join(n.root, "sys")
	must.OK(t, errors.Join(os.Mkdir(sys, 0o700), n.node.Do(func() error { return unix.Mount("sysfs", sys, "sysfs", unix.MS_RDONLY, "") })))
	t.Cleanup(func() { _ = unix.Unmount(sys, unix.MNT_DETACH) })
	n.put(t, plugin, plugin)
	if err := os.Chmod(filepath.Join(n.root, "podweir-cni"), 0o700); err != nil { //nolint:gosec // it is installed as a program
		t.Fatal(err)
	}
	original := "10-net.conflist"
	if k.calico {
		original = "10-calico.conflist"
		n.calico(t, original)
	}
	n.entry = filepath.Join(n.root, "etc/cni/net.d/00-podweir-"+original)
	n.must(t, append([]string{"install", "--root", n.root, "--binary", filepath.Join(n.root, "podweir-cni")}, k.install...)...)
	return n
}

// release is as uname -r gives it.
func release() string {
	var u unix.Utsname
	_ = unix.Uname(&u) // it fails for a bad address alone
	return unix.ByteSliceToString(u.Release[:])
}

// put makes a file of the node.
func (n *nightNode) put(t *testing.T, name, content string) {
	t.Helper()
	must.OK(t, os.MkdirAll(filepath.Dir(filepath.Join(n.root, name)), 0o755))
	n.write(t, name, content)
}

// web has the runtime set the pod up, by the chain as it is: both directions have a
// limit.
func (n *nightNode) web(t *testing.T, bitsPerSec int) {
	t.Helper()
	must.OK(t, n.setUp(t, bitsPerSec))
}

const nightArgs = "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web"

// stdin is what podweir-cni is given for the pod.
func (n *nightNode) stdin(t *testing.T, bitsPerSec int) []byte {
	t.Helper()
	list, err := libcni.NetworkConfFromFile(n.entry)
	must.OK(t, err)
	conf := map[string]any{}
	must.OK(t, json.Unmarshal(list.Plugins[len(list.Plugins)-1].Bytes, &conf))
	conf["name"], conf["cniVersion"] = list.Name, list.CNIVersion
	conf["runtimeConfig"] = map[string]any{"bandwidth": map[string]any{"ingressRate": bitsPerSec, "egressRate": bitsPerSec}}
	conf["prevResult"] = map[string]any{
		"cniVersion": list.CNIVersion, "interfaces": []any{map[string]any{"name": "eth0", "sandbox": n.cli.pod.Path()}},
	}
	raw, err := json.Marshal(conf)
	must.OK(t, err)
	return raw
}

func (n *nightNode) setUp(t *testing.T, bitsPerSec int) error {
	t.Helper()
	var stdout, log bytes.Buffer
	p := cni.Plugin{Stdout: &stdout, Stderr: &log, Paths: engine.Paths{Pins: n.cli.pins, Run: n.cli.run}}
	args := &skel.CmdArgs{ContainerID: "sandbox-1", Netns: n.cli.pod.Path(), IfName: "eth0", StdinData: n.stdin(t, bitsPerSec), Args: nightArgs}
	return n.node.Do(func() error { return p.Add(args) })
}

// With envPlugin set, the test binary is podweir-cni, whose directories it names.
const envPlugin = "PODWEIR_TEST_PLUGIN"

func pluginMain() {
	pins, run, _ := strings.Cut(os.Getenv(envPlugin), ":")
	p := cni.Plugin{Stdout: os.Stdout, Stderr: os.Stderr, Paths: engine.Paths{Pins: pins, Run: run}}
	if err := skel.PluginMainFuncsWithError(p.Funcs(), cni.SupportedVersions, ""); err != nil {
		_ = err.Print() // whoever started it reads the record of the failure
	}
}

// sandbox lets the API server and the container runtime know of the pod, for an agent.
func (n *nightNode) sandbox(t *testing.T, annotations map[string]string) {
	t.Helper()
	pod := n.podOf(1, annotations)
	pod.Name = "web"
	must.OK(t, n.runtime.Add(critest.Sandbox{
		ID: "sandbox-1", UID: pod.UID, Namespace: "default", Name: "web", NetNS: n.cli.pod.Path(), IP: "10.78.0.2", Annotations: annotations,
	}))
	n.api.Put(pod)
}

// nightStep is one command that the reader runs.
type nightStep struct {
	// command is as the reader types it.
	command string
	// sees are parts of what it prints: without them the state is not there yet. Those of
	// the last step name the cause.
	sees []string
}

// stepDeadline is how long a state may take to show itself: the agent looks every two
// seconds, and needs three looks.
const stepDeadline = 90 * time.Second

// run repeats the command until it prints what it shall.
func (n *nightNode) step(t *testing.T, s *nightStep) string {
	t.Helper()
	words := strings.Fields(s.command)[1:]
	args := slices.Concat(words, n.hidden, []string{"--root", n.root})
	out := ""
	for end := time.Now().Add(stepDeadline); time.Now().Before(end); <-time.After(100 * time.Millisecond) {
		var err error
		if out, err = n.do(t, args...); err != nil && out == "" {
			out = err.Error() + "\n"
		}
		missing := slices.ContainsFunc(s.sees, func(part string) bool { return !strings.Contains(oneLine(out), part) })
		if !missing {
			return out
		}
	}
	t.Errorf("%s does not say %q within %v:\n%s", s.command, s.sees, stepDeadline, out)
	return out
}

// oneLine undoes the wrapping of lines.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// forReaders replaces what is of this test alone.
func (n *nightNode) forReaders(text string) string {
	number := regexp.MustCompile(`^\d+\.\d+\.\d+`).FindString(release())
	return strings.NewReplacer(n.cli.pod.Path(), "/run/netns/web", n.root, "", n.cli.pins, "/sys/fs/bpf/podweir", n.cli.run, "/run/podweir",
		version.String(), "VERSION", release(), number).Replace(text)
}

// masks are what of a transcript differs from run to run, and what stands for it.
var masks = []struct{ pattern, by string }{
	{`(\d %) +[\d.]+[kMG]? +[▁-█]+`, "$1"}, // drops, which may be none
	{`[█░▁-▇]+`, ""},
	{`  (at limit|reaches it|below it|idle)\n`, "  WORD\n"}, // of half a second
	{`\d{4}-\d\d-\d\dT[0-9:]+Z \([^)]*\)`, "TIME"},
	{`\d{4}-\d\d-\d\dT[0-9:]+Z`, "TIME"},
	{`\b[0-9a-f]{1,4}:`, "HANDLE:"},
	{`\d+(\.\d+)?[kMG]?\b`, "#"},
	{`# [kM]?(bit/s|B)`, "# $1"},
	{`\s+`, " "},
	{`((tcp|udp) \S+ > \S+ offers # # % )+(and # more )?`, "FLOWS "},
	{`(in|e)gress load: (add to the slab: )?make map \w+`, "load: make map"},
	{`[^:;]*…`, "…"},
}

func masked(text string) string {
	text += " "
	for _, m := range masks {
		text = regexp.MustCompile(m.pattern).ReplaceAllString(text, m.by)
	}
	return text
}

const nightDir = "testdata/night"

// envTroubleshooting lets the tests write what they compare.
const envTroubleshooting = "PODWEIR_WRITE_TROUBLESHOOTING"

// TestPrivilegedNight makes each of the states for real, runs the commands of the page
// "Troubleshoot", at most three, and finds the cause named by the last. What they print
// is the page.
func TestPrivilegedNight(t *testing.T) {
	mark.Nightly(t, "they take half a minute")
	testutil.RequireRoot(t)
	if testutil.Emulated() {
		t.Log("no state is made: they wait for an agent, which takes an emulated processor minutes")
		return
	}
	for _, c := range nightCases() {
		t.Run(c.name, func(t *testing.T) {
			n := newNightNode(t, &c)
			c.make(t, n)
			var b strings.Builder
			for i := range c.steps {
				fmt.Fprintf(&b, "$ %s\n%s", c.steps[i].command, n.step(t, &c.steps[i]))
			}
			got := n.forReaders(b.String())
			file := filepath.Join(nightDir, c.name+".txt")
			if os.Getenv(envTroubleshooting) != "" && !t.Failed() {
				must.OK(t, errors.Join(os.MkdirAll(nightDir, 0o755), os.WriteFile(file, []byte(got), 0o644)))
			}
			want, err := os.ReadFile(file)
			must.OK(t, err)
			if diff := cmp.Diff(masked(string(want)), masked(got)); diff != "" {
				t.Errorf("the page has another transcript (-page +now):\n%s\n%s", diff, got)
			}
		})
	}
}

// bulk sends over so many connections from the pod as fast as it can, until the test
// ends.
func (n *nightNode) bulk(t *testing.T, connections int) {
	t.Helper()
	var l net.Listener
	must.OK(t, n.node.Do(func() (err error) {
		l, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", "10.78.0.1:9000")
		return err
	}))
	var group sync.WaitGroup
	group.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			group.Go(func() { _, _ = io.Copy(io.Discard, c); _ = c.Close() })
		}
	})
	var all []net.Conn
	for range connections {
		var c net.Conn
		must.OK(t, n.cli.pod.Do(func() (err error) {
			c, err = (&net.Dialer{}).DialContext(t.Context(), "tcp", "10.78.0.1:9000")
			return err
		}))
		all = append(all, c)
		group.Go(func() {
			for b := make([]byte, 16<<10); ; {
				if _, err := c.Write(b); err != nil {
					return
				}
			}
		})
	}
	t.Cleanup(func() {
		_ = l.Close()
		for _, c := range all {
			_ = c.Close()
		}
		group.Wait()
	})
}

// often does something again and again until the test ends.
func often(t *testing.T, pause time.Duration, do func()) {
	t.Helper()
	stop := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				do()
			}
		}
	})
	t.Cleanup(func() { close(stop); group.Wait() })
}

// requests are small packets of another flow than bulk's.
func (n *nightNode) requests(t *testing.T) {
	t.Helper()
	var c net.Conn
	must.OK(t, n.cli.pod.Do(func() (err error) {
		c, err = (&net.Dialer{}).DialContext(t.Context(), "udp", "10.78.0.1:53")
		return err
	}))
	t.Cleanup(func() { _ = c.Close() })
	often(t, 10*time.Millisecond, func() { _, _ = c.Write(make([]byte, 100)) })
}

// inCgroup runs podweir-cni for the pod in a memory cgroup with a limit.
func (n *nightNode) inCgroup(t *testing.T, limitBytes, bitsPerSec int) {
	t.Helper()
	dir, file := memoryCgroup(t)
	must.OK(t, os.WriteFile(filepath.Join(dir, file), fmt.Append(nil, limitBytes), 0o600))
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `echo $$ > "$1/cgroup.procs" && exec "$2"`, "sh", dir, os.Args[0])
	cmd.Stdin = bytes.NewReader(n.stdin(t, bitsPerSec))
	cmd.Env = append(os.Environ(), envPlugin+"="+n.cli.pins+":"+n.cli.run, "CNI_COMMAND=ADD", "CNI_CONTAINERID=sandbox-1", "CNI_IFNAME=eth0",
		"CNI_NETNS="+n.cli.pod.Path(), "CNI_ARGS="+nightArgs, "CNI_PATH=/")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := n.node.Do(cmd.Run)
	t.Logf("ADD with %d bytes: %v", limitBytes, err)
}

// memoryCgroup makes a cgroup, of version 2 or 1, and returns the file of its limit.
func memoryCgroup(t *testing.T) (dir, file string) {
	t.Helper()
	for parent, file := range map[string]string{"/sys/fs/cgroup": "memory.max", "/sys/fs/cgroup/memory": "memory.limit_in_bytes"} {
		dir := filepath.Join(parent, fmt.Sprintf("podweir-test-%d-%d", os.Getpid(), time.Now().UnixNano()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
		if _, err := os.Stat(filepath.Join(dir, file)); err == nil {
			return dir, file
		}
	}
	testutil.SkipFeature(t, "memory cgroup")
	return "", ""
}

const troubleshooting = "../../../docs/howto/troubleshoot.md"

// What stands between them is made from the cases.
const nightBegin, nightEnd = "<!-- cases: made by TestPrivilegedNight -->\n", "<!-- end of the cases -->\n"

// TestTroubleshootingPage: the page has the cases of which TestPrivilegedNight recorded transcripts.
func TestTroubleshootingPage(t *testing.T) {
	page, err := os.ReadFile(troubleshooting)
	must.OK(t, err)
	want := withNight(t, string(page))
	if os.Getenv(envTroubleshooting) != "" {
		must.OK(t, os.WriteFile(troubleshooting, []byte(want), 0o644))
		return
	}
	if diff := cmp.Diff(want, string(page)); diff != "" {
		t.Errorf("%s is not what %s=1 writes (-want +got):\n%s", troubleshooting, envTroubleshooting, diff)
	}
	for _, c := range nightCases() {
		if n := len(c.steps); n == 0 || n > 3 || len(c.steps[n-1].sees) == 0 {
			t.Errorf("%s: %d steps, want one to three of which the last names the cause", c.name, n)
		}
	}
}

// withNight is the page with the cases as they are now.
func withNight(t *testing.T, page string) string {
	t.Helper()
	before, rest, ok := strings.Cut(page, nightBegin)
	_, after, end := strings.Cut(rest, nightEnd)
	if !ok || !end {
		t.Fatalf("%s has no place for the cases: %q and %q", troubleshooting, nightBegin, nightEnd)
	}
	return before + nightBegin + renderNight(t) + nightEnd + after
}

func renderNight(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("\n| symptom | run | it says | it means | cure |\n| --- | --- | --- | --- | --- |\n")
	for _, c := range nightCases() {
		if _, err := os.Stat(filepath.Join(nightDir, c.name+".txt")); err != nil {
			t.Fatal(err)
		}
		last := c.steps[len(c.steps)-1]
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s | %s |\n", c.symptom, last.command, strings.ReplaceAll(last.sees[0], "|", "\\|"), c.means, c.cure)
	}
	b.WriteString("\n")
	return b.String()
}
