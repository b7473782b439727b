// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/queue"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

var _ = mark.EveryTest(mark.NightlyKernels, "hardly anything in the package depends on the kernel")

// cli runs the commands on a node of its own, with one pod.
type cli struct {
	node, pod *testutil.NetNS
	pins, run string
}

func newCLI(t *testing.T) *cli {
	t.Helper()
	c := &cli{
		node: testutil.NewNetNS(t), pod: testutil.NewNetNS(t),
		pins: filepath.Join(testutil.BPFFS(t), "podweir"), run: t.TempDir(),
	}
	makePins(t, c.pins)
	testutil.VethPair(t,
		testutil.End{NetNS: c.pod, Name: "eth0", CIDRs: []string{"10.78.0.2/24"}},
		testutil.End{NetNS: c.node, Name: "veth1", CIDRs: []string{"10.78.0.1/24"}})
	return c
}

// makePins makes the directory of the pins, for commands that name one.
func makePins(t *testing.T, dir string) {
	t.Helper()
	must.OK(t, os.MkdirAll(dir, 0o700))
}

// execute runs podweir, and returns what it prints on its two outputs.
func execute(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	root := newRoot()
	var out, log bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&log)
	root.SetArgs(args)
	err = root.ExecuteContext(t.Context())
	return out.String(), log.String(), err
}

func (c *cli) do(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	stdout, _, err = c.outputs(t, args...)
	return stdout, err
}

// outputs is [cli.do] with what goes to standard error, too.
func (c *cli) outputs(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	err = c.node.Do(func() error {
		stdout, stderr, err = execute(t, append(args, "--pins", c.pins, "--run", c.run)...)
		return err
	})
	return stdout, stderr, err
}

func (c *cli) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.do(t, args...)
	if err != nil {
		t.Fatalf("podweir %v: %v\n%s", args, err, out)
	}
	return out
}

// parse runs a command with -o json and reads all of what it prints.
func parse[T any](t *testing.T, c *cli, args ...string) T {
	t.Helper()
	out := c.must(t, append(args, "-o", "json")...)
	var v T
	dec := json.NewDecoder(strings.NewReader(out))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("podweir %v prints no JSON of its schema: %v\n%s", args, err, out)
	}
	return v
}

func (c *cli) netns() []string { return []string{"--netns", c.pod.Path()} }

func (c *cli) fails(t *testing.T, parts []string, args ...string) {
	t.Helper()
	must.Fail(t, fmt.Sprint("podweir ", args), must.Err(c.do(t, args...)), parts...)
}

// well runs a command that succeeds, and looks for parts of what it prints, of which the lines are undone; a "!" in front
// means that it is not there. broken does so with one that fails.
func (c *cli) well(t *testing.T, parts []string, args ...string) {
	t.Helper()
	must.Have(t, fmt.Sprint("podweir ", args), oneLine(c.must(t, args...)), parts...)
}

func (c *cli) broken(t *testing.T, parts []string, args ...string) {
	t.Helper()
	out, err := c.do(t, args...)
	must.Fail(t, fmt.Sprint("podweir ", args), err)
	must.Have(t, fmt.Sprint("podweir ", args), oneLine(out), parts...)
}

// programs tells the ids of podweir's filters and the handles of its qdiscs.
func (c *cli) programs(t *testing.T) string {
	t.Helper()
	ids := regexp.MustCompile(`\bid \d+|qdisc \w+ [0-9a-f]+:`)
	out := c.pod.Run(t, "tc", "filter", "show", "dev", "eth0", "egress") + c.pod.Run(t, "tc", "qdisc", "show", "dev", "eth0")
	return strings.Join(ids.FindAllString(out, -1), " ")
}

func TestPrivilegedAttachStatusDetach(t *testing.T) {
	c := newCLI(t)
	c.well(t, []string{"No pod of this node has a bandwidth limit from podweir."}, "status")
	both := append(c.netns(), "attach", "--egress", "10M", "--ingress", "20M")
	c.well(t, []string{"eth0 egress: 10 Mbit/s, queue tbf, policy strict", "eth0 ingress: 20 Mbit/s"}, both...)
	rep := parse[status.Report](t, c, "status")
	if rep.Schema != status.Schema || len(rep.Attachments) != 1 || len(rep.Attachments[0].Directions) != 2 {
		t.Fatalf("status: %+v, want one interface with two directions", rep)
	}
	a := rep.Attachments[0]
	e := a.Directions[0]
	if a.ID.Network != engine.ManualNetwork || a.Interface.NetNSPath != c.pod.Path() || a.Error != "" || len(a.Drift) != 0 ||
		e.Direction.Is != terms.Egress || e.Rate != 10_000_000 || e.Queue.Is != terms.QueueTBF || e.Policy.Is != terms.PolicyStrict ||
		e.Mode.Is != terms.ModeQdisc || e.Side.Is != terms.SidePod || !e.CapHolds || len(e.Counters) == 0 || e.Qdisc == nil {
		t.Errorf("status: %+v", a)
	}
	program, kind, where := classifier(t)
	if e.Program != program || e.HookKind.String() != kind {
		t.Errorf("status: program %q by %q, want %q by %q", e.Program, e.HookKind, program, kind)
	}
	c.well(t, []string{"The only pod with a limit is limited as it should be.", " 10M 10M "}, "status")
	must.Have(t, "status -o wide", c.must(t, "status", "-o", "wide"), "10 Mbit/s", where)
	// The queue is taken away: exit status 1, and what differs.
	root := regexp.MustCompile(`qdisc (\w+ [0-9a-f]+:) root`).FindStringSubmatch(c.pod.Run(t, "tc", "qdisc", "show", "dev", "eth0"))
	wanted := must.Len(t, "the root's kind and handle", 2, root)[1]
	c.pod.Run(t, "tc", "qdisc", "del", "dev", "eth0", "root")
	c.broken(t, []string{"DIFFERS ", "cause egress build-queue: eth0: no root qdisc, want " + wanted + "0 ", " cure podweir repair"}, "status")
	c.must(t, both...)
	c.must(t, "status")
	c.must(t, append(c.netns(), "detach")...)
	must.Len(t, "attachments after detach", 0, parse[status.Report](t, c, "status").Attachments)
	must.Have(t, "eth0 after detach", c.pod.Run(t, "tc", "qdisc", "show", "dev", "eth0"), "!tbf", "!clsact")
	c.fails(t, []string{"nothing is attached", c.pod.Path()}, append(c.netns(), "detach")...)
}

// classifier is the program of a default queue, the kind of hook it is on and
// how status writes that: a filter of prio's own where the kernel has prio.
func classifier(t *testing.T) (program, kind, where string) {
	t.Helper()
	f := must.Get(queue.Probe())(t)
	if f.Prio {
		return "pw_class", "", "on pod side\n"
	}
	return "pw_band", "clsact", "on pod side, clsact egress\n"
}

// What waits in the queue stays there while set changes the rate.
func TestPrivilegedSetDoesNotDetach(t *testing.T) {
	c := newCLI(t)
	c.must(t, append(c.netns(), "attach", "--egress", "10k", "--ingress", "10M")...)
	before := c.programs(t)
	sock := c.node.ListenUDP(t, "10.78.0.1")
	conn := c.pod.DialUDP(t, sock.LocalAddr().String())
	// The bucket lets eight go, and once more after set: tbf_change() fills it. All
	// others fit into what shall wait; beyond that they would be lost by chance.
	const packets = 24
	for i := range packets {
		must.OK(t, must.Err(fmt.Fprintf(conn, "%-1000d", i)))
	}
	waiting := func() uint64 {
		return parse[status.Report](t, c, "status").Attachments[0].Directions[0].Qdisc.BacklogBytes
	}
	if waiting() < 2000 {
		t.Fatalf("%d bytes wait before set, want some of %d packets", waiting(), packets)
	}
	// On an emulated machine set takes seconds; in each, 1.5 kB leave the queue.
	c.must(t, append(c.netns(), "set", "--egress", "12k")...)
	must.AtLeast(t, "bytes of before that wait after set", 2000, waiting())
	// From 54M on a tree with prio has another shape.
	c.must(t, append(c.netns(), "set", "--egress", "50M")...)
	must.Be(t, "programs after set", before, c.programs(t))
	b := make([]byte, 2000)
	for i := range packets {
		must.OK(t, sock.SetReadDeadline(time.Now().Add(5*time.Second)))
		n, _, err := sock.ReadFrom(b)
		must.OK(t, err)
		must.Be(t, "the packet, of which none is lost and none overtaken", fmt.Sprint(i), strings.TrimSpace(string(b[:n])))
	}
	rep := parse[status.Report](t, c, "status")
	if a := rep.Attachments[0]; !a.Set || a.Directions[0].Rate != 50_000_000 || a.Directions[1].Rate != 10_000_000 {
		t.Errorf("status after set: %+v", a)
	}
	c.well(t, []string{"limits changed by `podweir set`"}, "status", "-o", "wide")
	again := append(c.netns(), "attach", "--egress", "10k", "--ingress", "10M")
	if out := c.must(t, again...); !strings.Contains(out, "egress: 50 Mbit/s") || strings.Count(out, "podweir set --clear") != 1 {
		t.Errorf("attach after set does not say why it changes nothing: %q", out)
	}
	c.must(t, append(c.netns(), "set", "--clear")...)
	c.well(t, []string{"!podweir set"}, again...)
	if a := parse[status.Report](t, c, "status").Attachments[0]; a.Set || a.Directions[0].Rate != 10_000 {
		t.Errorf("status after set --clear: %+v", a)
	}
	must.Be(t, "programs after set --clear", before, c.programs(t))
	c.fails(t, []string{"nothing to change"}, append(c.netns(), "set")...)
	c.must(t, "status")
}

func TestPrivilegedTop(t *testing.T) {
	c := newCLI(t)
	c.must(t, append(c.netns(), "attach", "--egress", "10M", "--ingress", "10M")...)
	rates := parse[[]view.PodRate](t, c, "top", "--count", "1", "--interval", "100ms")
	if len(rates) != 2 || rates[0].Interface != "eth0" || rates[0].Rate != 10_000_000 {
		t.Errorf("top: %+v, want both directions of eth0", rates)
	}
	// The kernel's own packets, such as those of a new IPv6 address, may come in between.
	testutil.Eventually(t, 10*time.Second, "both directions are idle in top", func() bool {
		return strings.Contains(c.must(t, "top", "--count", "1", "--interval", "100ms"), "2 idle not shown")
	})
	out := c.must(t, "top", "--count", "1", "--interval", "100ms", "--idle")
	if !regexp.MustCompile(`egress +10M +\S+ \[░{10}\] +0 %`).MatchString(out) || strings.Contains(out, "\x1b") {
		t.Errorf("top --idle prints %q", out)
	}
	c.fails(t, []string{"--interval", "100ms or more"}, "top", "--interval", "1ms")
	c.fails(t, []string{"--count -1 is not accepted"}, "top", "--count", "-1")
}

func TestPrivilegedAttachErrors(t *testing.T) {
	c := newCLI(t)
	ns := c.netns()
	c.fails(t, []string{`--egress: "10X"`, "1k to 400G"}, append(ns, "attach", "--egress", "10X")...)
	c.fails(t, []string{`--egress: "0"`, "1k to 400G"}, append(ns, "attach", "--egress", "0", "--ingress", "10M")...)
	c.fails(t, []string{`--ingress-burst: "0"`}, append(ns, "attach", "--ingress", "10M", "--ingress-burst", "0")...)
	c.fails(t, []string{"--egress-burst is a part of --egress"}, append(ns, "attach", "--ingress", "10M", "--egress-burst", "1M")...)
	c.fails(t, []string{`policy: "fair"`, "strict, elephants, flat"}, append(ns, "attach", "--egress", "1M", "--with", "policy=fair")...)
	c.fails(t, []string{"unshapedSubnets"}, append(ns, "attach", "--egress", "1M", "--with", `unshapedSubnets=["x"]`)...)
	c.fails(t, []string{`--with "egresMode"`, `did you mean "egressMode"?`}, append(ns, "attach", "--egress", "1M", "--with", "egresMode=qdisc")...)
	c.fails(t, []string{`--with "policy"`, "KEY=VALUE"}, append(ns, "attach", "--egress", "1M", "--with", "policy")...)
	c.fails(t, []string{"egressMode, egressQueue"},
		append(ns, "attach", "--egress", "1M", "--with", "egressMode=tcx-hostside", "--with", "egressQueue=tbf")...)
	c.fails(t, []string{"give --egress"}, append(ns, "attach")...)
	c.fails(t, []string{"netns"}, "attach", "--egress", "1M")
	c.fails(t, []string{"/run/netns/nowhere"}, "attach", "--netns", "/run/netns/nowhere", "--egress", "1M")
	c.fails(t, []string{`"eth9"`}, append(ns, "attach", "--ifname", "eth9", "--egress", "1M")...)
	c.fails(t, []string{"nothing is attached"}, append(ns, "set", "--egress", "1M")...)
	c.fails(t, []string{"--netns, --container or --pod"}, "set", "--egress", "1M")
	c.fails(t, []string{"clear", "egress"}, append(ns, "set", "--clear", "--egress", "1M")...)
	c.fails(t, []string{`--output "xml"`, "table, json, wide"}, "status", "-o", "xml")
	c.fails(t, []string{`--output "wide"`, "podweir top", "want table, json"}, "top", "-o", "wide")
	must.Have(t, "eth0 after errors", c.pod.Run(t, "tc", "qdisc", "show", "dev", "eth0"), "!tbf")
	c.pod.Run(t, "tc", "qdisc", "add", "dev", "eth0", "root", "bfifo")
	c.fails(t, []string{"bfifo", "eth0"}, append(ns, "attach", "--egress", "1M", "--with", "egressQueue=tbf")...)
	c.must(t, append(ns, "attach", "--egress", "1M", "--with", "egressQueue=tbf", "--with", "replaceQdisc=true")...)
	// The pod's own attachment is not to be attached once more.
	c.must(t, append(ns, "attach", "--egress", "2M", "--with", "egressQueue=tbf", "--with", "replaceQdisc=true")...)
	id := attach.ID{Network: "cluster", ContainerID: "c1", IfName: "eth0"}
	c.must(t, append(ns, "detach")...)
	must.OK(t, c.node.Do(func() error { return ensureAs(t, c, id, "default/web") }))
	c.fails(t, []string{`network "cluster"`, "podweir set"}, append(ns, "attach", "--egress", "1M")...)
	// A second attachment of the pod's whose interface is gone costs the first nothing.
	c.pod.Run(t, "ip", "link", "add", "net1", "type", "veth", "peer", "name", "net1b", "netns", c.node.Name)
	gone := attach.ID{Network: "a", ContainerID: "c1", IfName: "net1"}
	must.OK(t, c.node.Do(func() error { return ensureAs(t, c, gone, "default/web") }))
	c.pod.Run(t, "ip", "link", "del", "net1")
	out, err := c.do(t, "set", "--pod", "default/web", "--egress", "4M")
	must.Fail(t, "set beside one that is gone", err, "no such device")
	must.Have(t, "set beside one that is gone", out, "eth0 egress: 4 Mbit/s")
	c.broken(t, []string{"podweir detach --container c1 --ifname net1"}, "status")
	c.fails(t, []string{"nothing is attached", "c1", "net9"}, "detach", "--container", "c1", "--ifname", "net9")
	c.must(t, "detach", "--container", "c1", "--ifname", "net1")
	c.well(t, []string{"limited as it should be", "4 Mbit/s", "!net1"}, "status")
	// Detached by the name that it was attached by, an altname.
	c.pod.Run(t, "ip", "link", "add", "net2", "type", "veth", "peer", "name", "net2b", "netns", c.node.Name)
	c.pod.Run(t, "ip", "link", "property", "add", "dev", "net2", "altname", "ens5")
	c.must(t, append(ns, "attach", "--ifname", "ens5", "--egress", "1M")...)
	c.must(t, append(ns, "set", "--ifname", "ens5", "--egress", "2M")...)
	c.must(t, append(ns, "detach", "--ifname", "ens5")...)
	c.well(t, []string{"!web net2 "}, "status")
	c.pod.Run(t, "ip", "link", "del", "net2")
	alias := filepath.Join(t.TempDir(), "netns")
	must.OK(t, os.Symlink(c.pod.Path(), alias))
	c.must(t, "set", "--netns", alias, "--egress", "3M")
	c.must(t, "set", "--container", "c", "--egress", "2M")
	c.must(t, "detach", "--pod", "default/web")
	t.Chdir(filepath.Dir(c.pod.Path()))
	c.must(t, "attach", "--netns", filepath.Base(c.pod.Path()), "--egress", "1M")
	t.Chdir("/")
	c.must(t, "status")
}

// An error is one line, with one hint: to the command that was meant, or to root.
func TestErrorsAreOneLine(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"a slip":             {[]string{"stauts"}, `unknown command "stauts" for "podweir": did you mean status?`},
		"nothing like it":    {[]string{"frobnicate"}, `unknown command "frobnicate" for "podweir"`},
		"a delivery of none": {[]string{"doctor", "--delivery", "foo"}, `--delivery "foo" is not accepted, want one of auto, chain, drop-in, handed, nri, watch`},
		"status of no node":  {[]string{"status", "--root", "/nonexistent"}, `--root "/nonexistent" is not accepted, want the root directory of the node: stat /nonexistent: no such file or directory`},
		"top of no node":     {[]string{"top", "--root", "/nonexistent"}, `--root "/nonexistent" is not accepted, want the root directory of the node: stat /nonexistent: no such file or directory`},
		"explain of no node": {[]string{"explain", "a/b", "--root", "/nonexistent"}, `--root "/nonexistent" is not accepted, want the root directory of the node: stat /nonexistent: no such file or directory`},
		"no address":         {[]string{"status", "--health-address", "foo"}, `--health-address: address "foo" is not accepted, want an IP address or nothing, a colon and a port from 1 to 32767, such as 127.0.0.1:9478: it has no port`},
		"of another node":    {[]string{"doctor", "--health-address", "10.0.0.1:1"}, `--health-address: address "10.0.0.1:1" is not accepted, want a loopback address such as 127.0.0.1:9478: others must not reach it`},
		"no port":            {[]string{"doctor", "--health-address", "127.0.0.1:0"}, `--health-address: address "127.0.0.1:0" is not accepted, want an IP address or nothing, a colon and a port from 1 to 32767, such as 127.0.0.1:9478: there is no such port`},
		"no directory":       {[]string{"status", "--run", "/dev/null"}, `--run "/dev/null" is not accepted, want podweir's directory below /run: it is no directory`},
		"a pod by its name":  {[]string{"status", "--pod", "web"}, `--pod "web" is not accepted, want NAMESPACE/NAME`},
	} {
		_, _, err := execute(t, c.args...)
		must.Fail(t, name, err)
		must.Be(t, name, c.want, message(err, 0))
	}
	denied := fmt.Errorf("open /x: %w", unix.EACCES)
	must.Be(t, "what a user is told", message(denied, 0)+": run as root", message(denied, 1000))
}

// The beginning of a container's ID names one pod or none.
func TestBeginningOfAContainer(t *testing.T) {
	all := []attach.ID{{ContainerID: "c61", IfName: "eth0"}, {ContainerID: "c61", IfName: "net1"}, {ContainerID: "c62"}, {ContainerID: "c620"}, {ContainerID: "d1"}}
	for beginning, want := range map[string]string{"": "", "c61": "c61", "c62": "c62", "d": "d1", "x": "x"} {
		must.Be(t, "the container "+beginning, want, must.Get(wholeContainer(all, beginning))(t))
	}
	_, err := wholeContainer(all, "c6")
	must.Fail(t, "wholeContainer() of several", err, `"c6" is not accepted, 3 containers begin so: c61, c62, c620`)
}

// Without bpffs podweir-cni limits no pod, and install says so at once.
func TestInstallWarnsOfNoBPFFS(t *testing.T) {
	must.Have(t, "noBPFFS() of an empty node", noBPFFS(t.TempDir(), "/sys/fs/bpf/podweir"), "no BPF file system at /sys/fs/bpf:")
}

func TestPrivilegedInstallFindsBPFFS(t *testing.T) {
	dir := testutil.BPFFS(t)
	must.Be(t, "noBPFFS() where bpffs is mounted", "", noBPFFS("/", filepath.Join(dir, "podweir")))
	must.OK(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	must.Have(t, "noBPFFS() where bpffs is read-only", noBPFFS("/", filepath.Join(dir, "podweir")), "remount,rw "+dir)
}

// ensureAs limits what the pod sends as CNI would under this ID and name.
func ensureAs(t *testing.T, c *cli, id attach.ID, pod string) error {
	t.Helper()
	node, err := engine.Open(engine.Paths{Pins: c.pins, Run: c.run})
	if err != nil {
		return err
	}
	defer node.Close()
	cfg := &shaping.Config{Egress: shaping.DefaultLimit(1_000_000)}
	_, err = node.Ensure(t.Context(), &apply.Want{
		ID: id, NetNSPath: c.pod.Path(), Names: []string{id.IfName}, Config: cfg, Pod: pod, ReplaceQdisc: true,
	})
	return err
}

func TestVersionAndCompletion(t *testing.T) {
	run := func(args ...string) string {
		out, _, err := execute(t, args...)
		must.OK(t, err)
		return out
	}
	var v struct{ Version string }
	must.OK(t, json.Unmarshal([]byte(run("version", "-o", "json")), &v))
	must.Be(t, "version -o json has one", true, v.Version != "")
	must.Have(t, "version", run("version"), v.Version)
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		must.Have(t, "completion "+shell, run("completion", shell), "podweir")
	}
}

// A flag comes before the environment, that before the file, and that before the default.
// One file serves all commands; a key that none has is an error.
func TestPrecedence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "podweir.yaml")
	version := func(what string, parts []string, args ...string) {
		t.Helper()
		out, _, err := execute(t, append([]string{"version"}, args...)...)
		must.Have(t, "version "+what, fmt.Sprint(out, err), parts...)
	}
	must.OK(t, os.WriteFile(file, []byte("output: json\nnri-socket: /run/x.sock\n"), 0o600))
	version("by the file", []string{"{"}, "--config", file)
	t.Setenv("PODWEIR_CONFIG", file)
	version("by a file that the environment names", []string{"{"})
	t.Setenv("PODWEIR_OUTPUT", "table")
	version("by the environment before the file", []string{"!{", "!:"})
	version("by the flag before the environment", []string{"{"}, "-o", "json")
	must.OK(t, os.WriteFile(file, []byte("putout: yaml\n"), 0o600))
	version("with a key that no command has", []string{`"putout" is no setting`})
}

// The reference page names every command and every flag.
func TestReferenceNamesEveryFlag(t *testing.T) {
	page := must.Get(os.ReadFile("../../../docs/reference/cli.md"))(t)
	var missing []string
	check := func(text string) {
		if !bytes.Contains(page, []byte(text)) && !slices.Contains(missing, text) {
			missing = append(missing, text)
		}
	}
	root := newRoot()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		check("podweir " + cmd.Name())
		cmd.Flags().VisitAll(func(f *pflag.Flag) { check("`--" + f.Name + "`") })
	}
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) { check("`--" + f.Name + "`") })
	must.Len(t, "flags that docs/reference/cli.md does not have", 0, missing)
}

// Every command that a text may tell a reader to run is printed as it is run there.
func TestCommandsOfTexts(t *testing.T) {
	notForReaders := []string{"agent", "completion", "help", "version"}
	for _, c := range newRoot().Commands() {
		if slices.Contains(terms.Commands, c.Name()) == slices.Contains(notForReaders, c.Name()) {
			t.Errorf("podweir %s: want it among terms.Commands, or among those that no text names", c.Name())
		}
	}
}
