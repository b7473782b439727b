// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/spf13/pflag"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/cmd/show"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// hostTree makes a node's root directory. All files are executable, as plugins are.
func hostTree(t *testing.T, files map[string]string) string {
	t.Helper()
	return must.Files(t, t.TempDir(), files)
}

func runPodweir(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, _, err := execute(t, append(args, "--pins", filepath.Join(t.TempDir(), "podweir"))...)
	return out, err
}

func askDoctor(t *testing.T, args ...string) (*doctor.Report, error) {
	t.Helper()
	out, err := runPodweir(t, append(args, "-o", "json")...)
	var rep doctor.Report
	dec := json.NewDecoder(strings.NewReader(out))
	dec.DisallowUnknownFields()
	if decodeErr := dec.Decode(&rep); decodeErr != nil {
		t.Fatalf("podweir %v: %v, %v\n%s", args, err, decodeErr, out)
	}
	return &rep, err
}

const ciliumList = `{"cniVersion":"1.0.0","name":"cilium","plugins":[{"type":"cilium-cni"}]}`

// TestDoctorOfAMountedHost reads a node below a directory: the libcni that is
// built into a real binary, found by an absolute link, and the answer of an
// agent on its socket.
func TestDoctorOfAMountedHost(t *testing.T) {
	root := hostTree(t, map[string]string{
		"etc/cni/net.d/05-cilium.conflist": ciliumList,
		"proc/7/comm":                      "containerd\n",
		"proc/1/net/unix":                  "Num RefCount Protocol Flags Type St Inode Path\n0: 00000002 00000000 00010000 0001 01 1 /var/run/cilium/cilium.sock\n",
	})
	build := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(root, "usr/bin/containerd"), "../podweir-cni")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	must.OK(t, os.Symlink("/usr/bin/containerd", filepath.Join(root, "proc/7/exe")))
	agent(t, filepath.Join(root, "run/cilium/cilium.sock"))
	asked := containerd(t, filepath.Join(root, "run/containerd/containerd.sock"))
	rep, err := askDoctor(t, "doctor", "--root", root)
	if rep.Schema != doctor.Schema || rep.Profile != "cilium-legacy-routing" || rep.Delivery != "drop-in" {
		t.Errorf("profile %s (%s), delivery %s", rep.Profile, rep.Why, rep.Delivery)
	}
	must.Have(t, "the runtime", rep.Runtime, "libcni v1.3") // which go.mod names
	select {
	case preface := <-asked:
		must.Be(t, "what the runtime was sent", "PRI * HTTP/2.0", preface)
	default:
		t.Error("the runtime was not asked for its version")
	}
	status, ok := errors.AsType[*show.ExitError](err)
	if !ok || status.Status != doctor.ExitFail || !strings.Contains(status.Text, "fail") {
		t.Errorf("error %v, want exit status 1: podweir is not in the chain", err)
	}
}

// containerd is a container runtime that hangs up; what it was sent first comes
// from the channel.
func containerd(t *testing.T, socket string) <-chan string {
	t.Helper()
	l := listen(t, socket)
	asked := make(chan string, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		preface := make([]byte, len("PRI * HTTP/2.0"))
		_, _ = io.ReadFull(conn, preface)
		asked <- string(preface)
		_ = conn.Close()
	}()
	return asked
}

// listen makes a Unix socket, which is closed with the test.
func listen(t *testing.T, socket string) net.Listener {
	t.Helper()
	must.OK(t, os.MkdirAll(filepath.Dir(socket), 0o755))
	l := must.Get(net.Listen("unix", socket))(t)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func agent(t *testing.T, socket string) {
	t.Helper()
	l := listen(t, socket)
	answers := map[string]string{
		"/v1/healthz": `{"attach-mode":"tcx","datapath-mode":"veth","routing":{"intra-host-routing-mode":"Legacy"}}`,
		"/v1/config":  `{"status":{"daemonConfigurationMap":{"EnableEndpointRoutes":false}}}`,
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(answers[r.URL.Path]))
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
}

// TestInstallAndDoctorAgree: where the runtime cannot be seen both go by what the
// operator said of it.
func TestInstallAndDoctorAgree(t *testing.T) {
	root := hostTree(t, map[string]string{
		"etc/cni/net.d/05-cilium.conflist": ciliumList, "opt/cni/bin/cilium-cni": "x", "podweir-cni": "x",
	})
	out := must.Get(runPodweir(t, "install", "--root", root, "--binary", filepath.Join(root, "podweir-cni"), "--runtime", "containerd://2.1.3"))(t)
	must.Have(t, "podweir install", out, "drop-in: ")
	rep, _ := askDoctor(t, "doctor", "--root", root)
	if rep.Runtime != "containerd 2.1.3" || rep.Delivery != "drop-in" {
		t.Errorf("doctor after install --runtime: runtime %s, delivery %s", rep.Runtime, rep.Delivery)
	}
	for _, o := range rep.Checks {
		if (o.Code == "PW210" || o.Code == "PW211") && o.Status != doctor.OK {
			t.Errorf("%s = %s: %s", o.Code, o.Status, o.Seen)
		}
	}
}

// TestDoctorKnowsTheDefaults: the commands by which Cilium takes podweir into its chain
// have the defaults of the installation, and without one say that they lack them.
func TestDoctorKnowsTheDefaults(t *testing.T) {
	root := hostTree(t, map[string]string{
		"etc/cni/net.d/05-cilium.conflist": ciliumList, "opt/cni/bin/cilium-cni": "x", "podweir-cni": "x",
	})
	commands := func() string {
		rep, _ := askDoctor(t, "doctor", "--root", root, "--runtime", "containerd://1.7.2")
		for _, o := range rep.Checks {
			if o.Code == "PW210" {
				return strings.Join(append(o.Evidence, o.Fix), "\n")
			}
		}
		return ""
	}
	const lacks = "add the chart's defaults to podweir's entry"
	must.Have(t, "what to do before an installation", commands(), lacks, ".plugins += [")
	out, err := runPodweir(t, "install", "--root", root, "--binary", filepath.Join(root, "podweir-cni"), "--runtime", "containerd://1.7.2",
		"--default", "maxRate=1G", "--default", `podAnnotations=["policy"]`)
	const want = `"maxRate":"1G","podAnnotations":["policy"]}]' `
	must.OK(t, err)
	must.Have(t, "podweir install", out, want)
	must.Have(t, "what to do after it", commands(), "!"+lacks, want)
}

func TestDoctorExitStatus(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want int
		text string
	}{
		"no root":     {[]string{"doctor", "--root", "/nowhere/at/all"}, doctor.ExitUnknown, "--root"},
		"root a file": {[]string{"doctor", "--root", "/etc/hostname"}, doctor.ExitUnknown, "--root"},
		"empty node":  {[]string{"doctor", "--root", t.TempDir()}, doctor.ExitFail, "fail"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := runPodweir(t, tc.args...)
			if e, ok := errors.AsType[*show.ExitError](err); !ok || e.Status != tc.want || !strings.Contains(e.Text, tc.text) {
				t.Errorf("podweir %v: %v, want status %d and %q", tc.args, err, tc.want, tc.text)
			}
		})
	}
}

// The doctor lists problems and counts the rest; -v lists everything. Neither is wider than
// a terminal.
func TestDoctorShort(t *testing.T) {
	root := hostTree(t, map[string]string{
		"etc/cni/net.d/10-x.conflist": `{"name":"x","plugins":[{"type":"ptp"}]}`,
	})
	out, _ := runPodweir(t, "doctor", "--root", root)
	must.Have(t, "doctor", out, "PW202 podweir is in the chain in force", "!PW201", "skipped; -v lists them.", "!\x1b")
	all, _ := runPodweir(t, "doctor", "-v", "--root", root)
	must.Have(t, "doctor -v", all, "PW201")
	for line := range strings.Lines(out + all) {
		if words := strings.Fields(line); len([]rune(line)) > 81 && len(words) > 2 {
			t.Errorf("a line of %d columns: %s", len([]rune(line)), line)
		}
	}
}

// The page of a code comes from the binary.
func TestDoctorExplain(t *testing.T) {
	out := must.Get(runPodweir(t, "explain", "pw602"))(t)
	must.Have(t, "explain pw602", out, "# PW602: ", "**Cure**: ")
	_, err := runPodweir(t, "explain", "PW000")
	must.Fail(t, "explain PW000", err, `"PW000" is not accepted`)
}

// TestRunByIsNoFlag: a flag would take its value from the variable. PODWEIR_RUN, as it was
// called, was the directory of the agent's records.
func TestRunByIsNoFlag(t *testing.T) {
	root := newRoot()
	for _, cmd := range append(root.Commands(), root) {
		cmd.Flags().AddFlagSet(cmd.InheritedFlags())
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if name := "PODWEIR_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")); name == envRunBy {
				t.Errorf("%s sets --%s of %s", envRunBy, f.Name, cmd.Name())
			}
		})
	}
}

// TestPrivilegedDoctorUplink: the veth by which a node in a container reaches
// others is no pod's device, with or without Cilium's programs on it.
func TestPrivilegedDoctorUplink(t *testing.T) {
	testutil.RequireQdisc(t, "clsact")
	c := newCLI(t)
	c.must(t, append(c.netns(), "attach", "--egress", "10M")...)
	testutil.VethPair(t,
		testutil.End{NetNS: c.node, Name: "eth0", CIDRs: []string{"172.30.9.2/24"}},
		testutil.End{NetNS: testutil.NewNetNS(t), Name: "world"})
	c.node.Run(t, "ip", "route", "add", "default", "via", "172.30.9.1", "dev", "eth0")
	c.node.Run(t, "tc", "qdisc", "add", "dev", "eth0", "clsact")
	filterOn(t, c.node, "eth0", "cil_from_netdev-eth0")
	// A pod without a limit.
	testutil.VethPair(t, testutil.End{NetNS: c.node, Name: "lxc1"}, testutil.End{NetNS: testutil.NewNetNS(t), Name: "eth0"})

	out, _ := c.do(t, "doctor", "--root", t.TempDir(), "-o", "json")
	var rep doctor.Report
	must.OK(t, json.Unmarshal([]byte(out), &rep))
	for _, o := range rep.Checks {
		switch o.Code {
		case "PW502":
			must.Be(t, "PW502", "ok: none on 2 devices", string(o.Status)+": "+o.Seen) // the two pods'
		case "PW604":
			must.Have(t, "PW604", string(o.Status)+": "+o.Seen, "ok: 2 pods")
		}
	}
}

// An XDP program that takes what a pod sends or receives is named, and one that passes all is not.
func TestPrivilegedXDPBeforePodweir(t *testing.T) {
	testutil.RequireQdisc(t, "tbf")
	c := newCLI(t)
	c.must(t, append(c.netns(), "attach", "--egress", "10M", "--ingress", "10M")...)
	name := strings.Fields(c.must(t, "status", "-o", "wide"))[0]
	testutil.VethPair(t,
		testutil.End{NetNS: c.node, Name: "uplink", CIDRs: []string{"172.30.9.2/24"}},
		testutil.End{NetNS: testutil.NewNetNS(t), Name: "world"})
	const pass = 2
	xdpOn(t, c.node, "veth1", "passes", pass)
	xdpOn(t, c.node, "uplink", "eats", 1)
	c.well(t, []string{"!BLOCKED"}, "status")
	strangers := func() string {
		out, _ := c.do(t, "doctor", "--root", t.TempDir(), "-o", "json")
		var rep doctor.Report
		must.OK(t, json.Unmarshal([]byte(out), &rep))
		at := slices.IndexFunc(rep.Checks, func(o doctor.Outcome) bool { return o.Code == "PW502" })
		return fmt.Sprintf("%s: %s; %s", rep.Checks[at].Status, rep.Checks[at].Seen, rep.Checks[at].Fix)
	}
	must.Have(t, "PW502", strangers(), "ok: none on 1 devices")
	c.well(t, []string{"silent XDP eats (program ", ") on uplink may drop packets", "!passes"}, "explain", name)
	for device, of := range map[string]struct {
		ns        *testutil.NetNS
		direction string
	}{"veth1": {c.node, "egress"}, "eth0": {c.pod, "ingress"}} {
		xdpOn(t, of.ns, device, "eats", 1)
		c.well(t, []string{name + " " + of.direction + ": XDP eats (program ", ") on " + device + " drops every packet. That is not podweir."}, "status")
	}
	must.Have(t, "PW502", strangers(), "warn: ", "veth1 ingress: XDP eats (program ", ") drops every packet", name+" ingress: XDP eats (program ", ") on eth0 drops every packet", "bpftool prog show id", "!on veth1")
	c.well(t, []string{"silent XDP eats (program ", ") on eth0 in the pod may drop"}, "explain", name)
}

// What an XDP program of the node's uplink redirects to the pod's device comes past every queue and hook of the host side.
// status names the program, and an ifb in the pod limits such packets.
func TestPrivilegedXDPRedirectsIntoThePod(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "ifb")
	for place, want := range map[string][]string{
		"host": {"NOT LIMITED", "ingress of eth0: its device carries ", "; XDP redirects (program ", ") on uplink may send packets to the pod's device", "ingressPlace: ifb"},
		"ifb":  {"is limited as it should be", "at limit"},
	} {
		c := newCLI(t)
		c.must(t, append(c.netns(), "attach", "--ingress", "1M", "--with", "ingressPlace="+place)...)
		world := testutil.NewNetNS(t)
		testutil.VethPair(t,
			testutil.End{NetNS: c.node, Name: "uplink", CIDRs: []string{"172.30.9.2/24"}},
			testutil.End{NetNS: world, Name: "world", CIDRs: []string{"10.79.0.1/24"}})
		to := asm.Instructions{
			asm.Mov.Imm(asm.R1, int32(c.node.Interface(t, "veth1").Index)), //nolint:gosec // numbers of devices are small
			asm.Mov.Imm(asm.R2, 0), asm.FnRedirect.Call(), asm.Return(),
		}
		xdpOf(t, c.node, "uplink", "redirects", to)
		world.Run(t, "ip", "neigh", "replace", "10.79.0.2", "lladdr", c.pod.Interface(t, "eth0").HardwareAddr.String(), "dev", "world")
		sender := world.DialUDP(t, "10.79.0.2:9")
		stop := testutil.During(t, func(ctx context.Context) error {
			tick := time.NewTicker(time.Millisecond) // 8 Mbit/s
			defer tick.Stop()
			for ctx.Err() == nil {
				<-tick.C
				_, _ = sender.Write(make([]byte, 1000))
			}
			return nil
		})
		out := ""
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
			if out, _ = c.do(t, "status"); strings.Contains(oneLine(out), want[0]) && strings.Contains(oneLine(out), want[1]) {
				break
			}
		}
		stop()
		must.Have(t, "status, place "+place, oneLine(out), want...)
	}
}

// xdpOn puts an XDP program with one answer on a device, in the place of the one that is there.
func xdpOn(t *testing.T, ns *testutil.NetNS, device, name string, answer int32) {
	t.Helper()
	xdpOf(t, ns, device, name, asm.Instructions{asm.Mov.Imm(asm.R0, answer), asm.Return()})
}

func xdpOf(t *testing.T, ns *testutil.NetNS, device, name string, ins asm.Instructions) {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, Name: name, License: "GPL", Instructions: ins})
	must.OK(t, err)
	t.Cleanup(func() { _ = p.Close() })
	must.OK(t, ns.Do(func() error {
		link, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		return netlink.LinkSetXdpFdWithFlags(link, p.FD(), nl.XDP_FLAGS_SKB_MODE)
	}))
}

// filterOn puts a filter that ends the chain with 0 on the ingress hook of a device, ahead of
// everybody.
func filterOn(t *testing.T, ns *testutil.NetNS, device, name string) {
	t.Helper()
	h := must.Get(netlink.NewHandleAt(netns.NsHandle(ns.FD())))(t)
	defer h.Close()
	must.OK(t, h.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: ns.Interface(t, device).Index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Priority: 1, Protocol: unix.ETH_P_ALL,
		},
		Fd: testutil.VerdictProgram(t, name, 0).FD, Name: name, DirectAction: true,
	}))
}
