// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/cni"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/pins"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// With envPins set, the test binary is the plugin, with its state in these
// directories. envKill is the step before which it kills itself, counted from
// 1.
const (
	envPins = "PODWEIR_TEST_PINS"
	envRun  = "PODWEIR_TEST_RUN"
	envKill = "PODWEIR_TEST_KILL"
)

func TestMain(m *testing.M) {
	if os.Getenv(envPins) != "" {
		runPlugin()
		return
	}
	m.Run()
}

func runPlugin() {
	p := cni.Plugin{
		Stdout: os.Stdout, Stderr: os.Stderr,
		Paths: engine.Paths{Pins: os.Getenv(envPins), Run: os.Getenv(envRun)},
	}
	if kill, err := strconv.Atoi(os.Getenv(envKill)); err == nil {
		p.Step = func(string) {
			if kill--; kill == 0 {
				_ = unix.Kill(os.Getpid(), unix.SIGKILL)
				select {}
			}
		}
	}
	if err := skel.PluginMainFuncsWithError(p.Funcs(), cni.SupportedVersions, "podweir-cni of a test"); err != nil {
		_ = err.Print()
		os.Exit(1) //nolint:forbidigo // this is the main function of the plugin's process
	}
}

// node is a network namespace that plays the host, with podweir state of its
// own.
type node struct {
	*testutil.NetNS
	paths engine.Paths
	pods  int
}

// probed is what the kernel was found to have, for all tests: a probe takes
// longer than most of them.
var probed struct {
	sync.Mutex
	features []byte
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := unprobed(t)
	must.OK(t, os.WriteFile(filepath.Join(n.paths.Run, "features.json"), probedFeatures(t), 0o600))
	return n
}

func probedFeatures(t *testing.T) []byte {
	t.Helper()
	probed.Lock()
	defer probed.Unlock()
	if probed.features == nil {
		p := unprobed(t).newPod(t)
		p.must(t, "ADD", p.conf(both(nil)))
		p.must(t, "DEL", p.conf(nil))
		b := must.Get(os.ReadFile(filepath.Join(p.node.paths.Run, "features.json")))(t)
		probed.features = b
	}
	return probed.features
}

func unprobed(t *testing.T) *node {
	t.Helper()
	return &node{
		NetNS: testutil.NewNetNS(t),
		paths: engine.Paths{Pins: filepath.Join(testutil.BPFFS(t), "podweir"), Run: t.TempDir()},
	}
}

// pod is a network namespace with a pair of devices to its node.
type pod struct {
	node      *node
	ns        *testutil.NetNS
	container string
	dev, host hostif.Interface
	// addr and gateway are the addresses of the two ends.
	addr, gateway string
	// netns is CNI_NETNS, ifName CNI_IFNAME if that is not eth0.
	netns, ifName string
	// gone says that the namespace is not to be reached any more.
	gone bool
	// step is [cni.Plugin.Step].
	step func(name string)
}

func (n *node) newPod(t *testing.T) *pod {
	t.Helper()
	return n.newPodWith(t, testutil.VethPair)
}

// newPodWith is newPod with another kind of pair.
func (n *node) newPodWith(t *testing.T, pair func(testing.TB, testutil.End, testutil.End) (pod, host hostif.Interface)) *pod {
	t.Helper()
	n.pods++
	p := &pod{node: n, ns: testutil.NewNetNS(t), container: fmt.Sprintf("container-%d", n.pods)}
	p.netns = p.ns.Path()
	p.addr, p.gateway = fmt.Sprintf("10.77.%d.2", n.pods), fmt.Sprintf("10.77.%d.1", n.pods)
	p.dev, p.host = pair(t,
		testutil.End{NetNS: p.ns, Name: "eth0", CIDRs: []string{p.addr + "/24"}},
		testutil.End{NetNS: n.NetNS, Name: fmt.Sprintf("veth%d", n.pods), CIDRs: []string{p.gateway + "/24"}})
	return p
}

// prevResult is a result of version 1.x with a key that nobody knows.
func (p *pod) prevResult() json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"cniVersion":"1.1.0", "unknown" : {"b":1,"a":[ ]},`+
		`"interfaces":[{"name":%q},{"name":"eth0","sandbox":%q}],"ips":[{"address":"%s/24","interface":1}]}`,
		p.host.Name, p.ns.Path(), p.addr))
}

type conf map[string]any

// conf is a network configuration that fails closed.
func (p *pod) conf(more conf) conf {
	c := conf{
		"cniVersion": "1.1.0", "name": "net", "type": "podweir-cni", "onError": "closed",
		"capabilities": conf{"bandwidth": true, netconf.PodAnnotationsCapability: true}, "prevResult": p.prevResult(),
	}
	maps.Copy(c, more)
	return c
}

func (c conf) json(t *testing.T) []byte {
	t.Helper()
	return must.Get(json.Marshal(c))(t)
}

// both is 10 Mbit/s in both directions.
func both(more conf) conf {
	c := conf{"egressRate": "10M", "ingressRate": "10M"}
	maps.Copy(c, more)
	return c
}

// inIFB puts the ingress queue on an ifb.
func inIFB(more conf) conf { c := both(conf{"ingressPlace": "ifb"}); maps.Copy(c, more); return c }

type answer struct {
	stdout, log string
	err         error
}

// call runs a verb in this process.
func (p *pod) call(t *testing.T, verb string, c conf) answer {
	t.Helper()
	return p.callRaw(verb, c.json(t))
}

func (p *pod) callRaw(verb string, stdin []byte) answer {
	var stdout, log bytes.Buffer
	plugin := cni.Plugin{Stdout: &stdout, Stderr: &log, Paths: p.node.paths, Step: p.step}
	args := &skel.CmdArgs{
		ContainerID: p.container, Netns: p.netns, IfName: cmp.Or(p.ifName, "eth0"), StdinData: stdin,
		Args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + p.container,
	}
	f := plugin.Funcs()
	verbs := map[string]func(*skel.CmdArgs) error{
		"ADD": f.Add, "DEL": f.Del, "CHECK": f.Check, "GC": f.GC, "STATUS": f.Status,
	}
	err := p.node.Do(func() error { return verbs[verb](args) })
	return answer{stdout.String(), log.String(), err}
}

// must runs verbs that succeed, one after the other, and returns the answer of the last one.
func (p *pod) must(t *testing.T, verbs string, c conf) (a answer) {
	t.Helper()
	for verb := range strings.FieldsSeq(verbs) {
		if a = p.call(t, verb, c); a.err != nil {
			t.Fatalf("%s: %v\n%s", verb, describe(a.err), a.log)
		}
	}
	return a
}

// goes runs DEL, after which nothing is there but the ifb, which goes with the namespace.
func (p *pod) goes(t *testing.T, c conf) {
	t.Helper()
	p.must(t, "DEL", c)
	wantClean(t, p.afterIFB(t), "DEL")
}

// tells fails the test unless the log of a verb has these parts.
func (a *answer) tells(t *testing.T, parts ...string) {
	t.Helper()
	must.Have(t, "the log", a.log, parts...)
}

// queues are the queues of a device, as tc(8) shows them.
func queues(t *testing.T, ns *testutil.NetNS, dev string) string {
	t.Helper()
	return ns.Run(t, "tc", "qdisc", "show", "dev", dev)
}

// wantFailures compares the records of pods that could not be limited: one with these parts, or none without any.
func (n *node) wantFailures(t *testing.T, when string, parts ...string) {
	t.Helper()
	f := must.Len(t, when+": failure records", min(len(parts), 1), must.Get(n.paths.Mail().Failures())(t))
	for i := range f {
		must.Have(t, when+": the failure record", f[i].Error, parts...)
	}
}

func (n *node) wantNoPins(t *testing.T, when string) {
	t.Helper()
	must.Len(t, when+": still pinned", 0, n.pinned(t))
}

// describe shows the details of a CNI error too.
func describe(err error) string {
	if e, ok := errors.AsType[*types.Error](err); ok {
		return fmt.Sprintf("code %d: %s: %s", e.Code, e.Msg, e.Details)
	}
	return fmt.Sprint(err)
}

func wantCode(t *testing.T, what string, err error, code uint, parts ...string) {
	t.Helper()
	e, ok := errors.AsType[*types.Error](err)
	if !ok || e.Code != code {
		t.Errorf("%s = %s, want code %d", what, describe(err), code)
		return
	}
	must.Have(t, what, e.Details, parts...)
}

// env is the environment of a verb that is a process of its own.
func (p *pod) env(verb string) []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), envPins + "=" + p.node.paths.Pins, envRun + "=" + p.node.paths.Run,
		"CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + p.container, "CNI_NETNS=" + p.netns, "CNI_IFNAME=eth0",
		"CNI_PATH=/nowhere", "CNI_ARGS=",
	}
}

// exec runs a verb as a runtime does, as a process of its own. kill is the step
// before which it is killed, 0 for none; killed says whether it was.
func (p *pod) exec(t *testing.T, verb string, stdin []byte, kill int) (a answer, killed bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = p.env(verb)
	if kill > 0 {
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", envKill, kill))
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	// The child is in the namespace of the thread that starts it.
	err := p.node.Do(cmd.Start)
	if err != nil {
		t.Error(err) // not the end of the test: some call it beside that
		return answer{err: err}, false
	}
	err = cmd.Wait()
	a = answer{stdout.String(), stderr.String(), nil}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return a, true
	}
	if err != nil {
		e := &types.Error{}
		if json.Unmarshal(stdout.Bytes(), e) != nil {
			t.Errorf("%s: %v\n%s%s", verb, err, a.stdout, a.log)
		}
		a.err = e
	}
	return a, false
}

// pinned are the pins of attachments, not those that all share.
func (n *node) pinned(t *testing.T) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(n.paths.Pins, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), "node,") {
			return filepath.SkipDir
		}
		if err == nil && !d.IsDir() {
			all = append(all, strings.TrimPrefix(path, n.paths.Pins+"/"))
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return all
}

func (n *node) nodeDir(t *testing.T) string {
	t.Helper()
	s := must.Get(pins.Open(n.paths.Pins))(t)
	return s.NodeDir(datapath.ABIVersion)
}

// slab opens what all attachments share.
func (n *node) slab(t *testing.T) *datapath.Slab {
	t.Helper()
	shared := datapath.OpenSlab(n.paths.Pins, n.nodeDir(t))
	t.Cleanup(shared.Close)
	return shared
}

// slots is how many slots of the slab are taken.
func (n *node) slots(t *testing.T) int {
	t.Helper()
	taken, _, err := n.slab(t).Taken()
	must.OK(t, err)
	return taken
}

// state lists everything that another party has put on the devices of a pod, in
// words: by the kernel's lists and not by podweir. tc(8) tells the same, but an emulated
// processor takes longer to start it than for all that podweir does.
func (p *pod) state(t *testing.T) []string {
	t.Helper()
	all := []string{}
	for _, d := range []struct {
		ns   *testutil.NetNS
		name string
	}{{p.ns, "pod"}, {p.node.NetNS, "host"}} {
		if p.gone && d.ns == p.ns {
			continue
		}
		devices := must.Get(d.ns.Handle.Interfaces())(t)
		for i := range devices {
			dev := &devices[i]
			name := d.name
			switch {
			case d.name == "pod" && strings.HasPrefix(dev.Name, hostif.IFBPrefix):
				name = "ifb"
				all = append(all, "ifb exists")
			case d.ns == p.ns && dev.Index != p.dev.Index, d.ns != p.ns && dev.Index != p.host.Index:
				continue
			}
			for _, what := range deviceState(t, d.ns, dev) {
				all = append(all, name+" "+what)
			}
		}
	}
	slices.Sort(all)
	return all
}

func deviceState(t *testing.T, ns *testutil.NetNS, dev *hostif.Interface) []string {
	t.Helper()
	h := must.Get(netlink.NewHandleAt(netns.NsHandle(ns.FD()), unix.NETLINK_ROUTE))(t)
	defer h.Close()
	device := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: dev.Index}}
	qdiscs := must.Get(h.QdiscList(device))(t)
	hooks := map[string]uint32{"ingress": netlink.HANDLE_MIN_INGRESS, "egress": netlink.HANDLE_MIN_EGRESS}
	var all []string
	for _, q := range qdiscs {
		places := map[string]uint32{}
		switch q.Type() {
		case "noqueue":
			continue
		case "htb", "prio":
			places["filter "] = q.Attrs().Handle
		case "clsact", "ingress":
			for hook, at := range hooks {
				places["clsact "+hook+" "] = at
			}
		}
		all = append(all, "qdisc "+q.Type())
		for place, parent := range places {
			filters := must.Get(h.FilterList(device, parent))(t)
			for _, f := range filters {
				names := filterNames(f)
				if f.Type() == "bpf" && len(names) == 0 && strings.HasPrefix(place, "clsact ") {
					names = actionsOfBytecode(t, ns, dev.Name, place)
				}
				for _, name := range names {
					all = append(all, place+name)
				}
			}
		}
	}
	for hook := range hooks {
		for _, name := range tcxNames(t, ns, dev.Index, hook) {
			all = append(all, "tcx "+hook+" "+name)
		}
	}
	return all
}

// filterNames are the program and the actions of a filter.
func filterNames(f netlink.Filter) (names []string) {
	var actions []netlink.Action
	switch f := f.(type) {
	case *netlink.BpfFilter:
		return strings.Fields(f.Name) // none without a name
	case *netlink.U32:
		actions = f.Actions
	case *netlink.MatchAll:
		actions = f.Actions
	case *netlink.Flower:
		actions = f.Actions
	}
	for _, a := range actions {
		names = append(names, a.Type())
	}
	return names
}

// actionsOfBytecode are the actions of a filter without a program's name, which the library of netlink does not read.
func actionsOfBytecode(t *testing.T, ns *testutil.NetNS, dev, place string) (kinds []string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`action order \d+: (\w+)`).FindAllStringSubmatch(ns.Run(t, "tc", "filter", "show", "dev", dev, strings.Fields(place)[1]), -1) {
		kinds = append(kinds, m[1])
	}
	return kinds
}

func tcxNames(t *testing.T, ns *testutil.NetNS, index int, hook string) []string {
	t.Helper()
	at := ebpf.AttachTCXIngress
	if hook == "egress" {
		at = ebpf.AttachTCXEgress
	}
	var names []string
	err := ns.Do(func() error {
		res, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: at})
		if err != nil {
			return err
		}
		for _, p := range res.Programs {
			prog, err := ebpf.NewProgramFromID(p.ID)
			if err != nil {
				return err
			}
			info, err := prog.Info()
			if err != nil {
				return err
			}
			names = append(names, info.Name)
			_ = prog.Close()
		}
		return nil
	})
	// ENOENT is for none of them, the others are for a kernel without TCX.
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, ebpf.ErrNotSupported) {
		t.Fatal(err)
	}
	return names
}

// flow sends datagrams in one direction, one after the other in one flow.
type flow struct {
	from net.Conn
	to   net.PacketConn
}

// newFlow makes sockets for a flow from the node to the pod, or from the pod to
// the node.
func (p *pod) newFlow(t *testing.T, toPod bool) *flow {
	t.Helper()
	receiver, sender, addr := p.node.NetNS, p.ns, p.gateway
	if toPod {
		receiver, sender, addr = p.ns, p.node.NetNS, p.addr
	}
	to := receiver.ListenUDP(t, addr)
	return &flow{from: sender.DialUDP(t, to.LocalAddr().String()), to: to}
}

func (f *flow) send(t *testing.T, text string) {
	t.Helper()
	// A packet that a local queue refused is a drop, not an error of the test.
	if _, err := f.from.Write([]byte(text)); err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EPERM) {
		t.Fatal(err)
	}
}

// receive waits for the next datagram.
func (f *flow) receive(t *testing.T) string {
	t.Helper()
	must.OK(t, f.to.SetReadDeadline(time.Now().Add(5*time.Second)))
	b := make([]byte, 2000)
	n, _, err := f.to.ReadFrom(b)
	must.OK(t, err)
	return string(b[:n])
}
