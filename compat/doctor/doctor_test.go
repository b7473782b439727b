// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
)

var update = flag.Bool("update", false, "rewrite golden files and pages")

const net = "etc/cni/net.d/"

// node is a healthy node with the AWS VPC CNI and policy; cases change it.
type node struct {
	files   map[string]string
	exec    map[string]string
	sockets []string
	kernel  *kernel
	live    detect.Live
	opts    detect.Options
	run     string
	entry   func([]byte) error
	fight   *conflist.Fight
	// unwritable is [doctor.Options]'s.
	unwritable error
	// told is podweir's entry as the node's settings make it, "" if they are not known.
	told string
	// inUse is the root of the report that is made.
	inUse fstest.MapFS
}

const awsList = `{"cniVersion":"0.4.0","name":"aws-cni","plugins":[{"type":"aws-cni","vethPrefix":"eni"},{"type":"egress-cni","enabled":"false"}]}`

func aws() *node {
	n := &node{
		files: map[string]string{
			"proc/sys/kernel/osrelease":          "6.12.30-42.amzn2023\n",
			"proc/sys/net/core/bpf_jit_enable":   "1\n",
			"proc/sys/net/core/bpf_jit_harden":   "0\n",
			"proc/1/mounts":                      "bpf /sys/fs/bpf bpf rw,nosuid,mode=700 0 0\n",
			"sys/kernel/security/lockdown":       "none [integrity] confidentiality\n",
			"sys/kernel/btf/vmlinux":             "",
			net + "10-aws.conflist":              awsList,
			"proc/2/comm":                        "kubelet\n",
			"proc/3/comm":                        "containerd\n",
			"proc/4/comm":                        "controller\n",
			"proc/4/cmdline":                     "/controller\x00--enable-network-policy=true\x00",
			"proc/5/comm":                        "aws-k8s-agent\n",
			"sys/class/net/eni0123456789a/dummy": "",
		},
		exec:    map[string]string{"opt/cni/bin/podweir-cni": "x", "opt/cni/bin/aws-cni": "x"},
		sockets: []string{"/var/run/aws-node/ipamd.sock", "/var/run/aws-node/npa.sock"},
		kernel:  healthy(),
		opts:    detect.Options{Runtime: "containerd://2.1.3"},
	}
	n.spliceIn("10-aws.conflist")
	return n
}

// withoutCNI is a node that is well but for a primary CNI.
func withoutCNI() *node {
	n := aws()
	for _, name := range []string{"10-aws.conflist", "00-podweir-10-aws.conflist"} {
		delete(n.files, net+name)
	}
	for _, pid := range []string{"4", "5"} {
		delete(n.files, "proc/"+pid+"/comm")
	}
	delete(n.exec, "opt/cni/bin/aws-cni")
	return n
}

// calico is a node of Calico's that is well.
func calico() *node {
	n := withoutCNI()
	n.files[net+"10-calico.conflist"] = `{"cniVersion":"0.3.1","name":"k8s-pod-network","plugins":[{"type":"calico"},{"type":"portmap"}]}`
	n.spliceIn("10-calico.conflist")
	return n
}

func cilium() *node {
	n := withoutCNI()
	n.files[net+"05-cilium.conflist"] = `{"cniVersion":"1.0.0","name":"cilium","plugins":[{"type":"cilium-cni"}]}`
	n.files[net+"cilium/50-podweir.conf"] = conflist.DefaultEntry
	n.files["proc/42/comm"] = "cilium-agent\n"
	n.settings("cni-exclusive", "true", "write-cni-conf-when-ready", "/host/etc/cni/net.d/05-cilium.conflist", "enable-bandwidth-manager", "false")
	n.sockets = []string{"/var/run/cilium/cilium.sock"}
	n.live = agent{health: `{"attach-mode":"tcx","datapath-mode":"veth","routing":{"intra-host-routing-mode":"BPF"},"bandwidth-manager":{"devices":null}}`}
	n.kernel = healthy()
	n.kernel.devices = []doctor.Device{{
		Name: "lxc0123",
		In: judge.Chain{Device: "lxc0123", Side: terms.SideHost, Hook: terms.HookIngress, Programs: []judge.Program{
			{Kind: terms.HookKindTCX, ProgramID: 20, Name: "pw_police", Ours: true}, {Kind: terms.HookKindTCX, ProgramID: 10, Name: "cil_from_contai"},
		}},
		Out: judge.Chain{Hook: terms.HookEgress},
	}}
	n.kernel.attached = []doctor.Attachment{
		{Pod: "default/web", Limit: limitOf(terms.Ingress, terms.ModeQdisc, terms.QueueTBF), Place: terms.PlaceIFB, Device: "lxc0123", Redirected: true},
		{
			Pod: "default/web", Limit: limitOf(terms.Egress, terms.ModeTCXHostSide, terms.QueueNone), Device: "lxc0123",
			Hook: terms.HookIngress, Program: 20,
		},
	}
	return n
}

func limitOf(d terms.Direction, m terms.Mode, q terms.Queue) terms.Limit {
	return terms.Limit{Direction: terms.Name(d), Mode: terms.Name(m), Queue: terms.Name(q)}
}

// spliceIn writes podweir's file for an original, with the real code.
func (n *node) spliceIn(original string) {
	parsed, err := conflist.Parse(original, []byte(n.files[net+original]))
	if err != nil {
		panic(err)
	}
	ours, err := conflist.Join(parsed, []byte(conflist.DefaultEntry), nil, nil)
	if err != nil {
		panic(err)
	}
	name, err := conflist.FileName(original)
	if err != nil {
		panic(err)
	}
	n.files[net+name] = string(ours)
}

func (n *node) settings(pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		n.files["proc/42/root/tmp/cilium/config-map/"+pairs[i]] = pairs[i+1]
	}
}

func (n *node) root() fstest.MapFS {
	out := fstest.MapFS{}
	for name, content := range n.files {
		out[name] = &fstest.MapFile{Data: []byte(content), Mode: 0o644}
	}
	for name, content := range n.exec {
		out[name] = &fstest.MapFile{Data: []byte(content), Mode: 0o755}
	}
	if n.sockets != nil {
		table := "Num       RefCount Protocol Flags    Type St Inode Path\n"
		for _, s := range n.sockets {
			table += "0000000000000000: 00000002 00000000 00010000 0001 01 19532 " + s + "\n"
		}
		out["proc/1/net/unix"] = &fstest.MapFile{Data: []byte(table)}
	}
	return out
}

func (n *node) report(t *testing.T) *doctor.Report {
	t.Helper()
	return doctor.Run(n.facts(t))
}

func (n *node) facts(t *testing.T) *doctor.Facts {
	t.Helper()
	root := n.root()
	n.inUse = root
	n.opts.Live = n.live
	opts := doctor.Options{
		Run: n.run, Version: "v0.0.0-test", Entry: n.entry, Fight: n.fight, Unwritable: n.unwritable, Settle: time.Millisecond, Kernel: n.kernel,
		Handed: func(*detect.Node) string { return n.told },
	}
	return doctor.Gather(t.Context(), root, detect.Read(t.Context(), root, n.opts), opts)
}

// kernel answers as it is told.
type kernel struct {
	features map[string]bool
	devices  []doctor.Device
	attached []doctor.Attachment
	agent    *doctor.Agent
	asking   []doctor.Sandbox
	troubles []terms.Trouble
	// unwatched says that no agent watches limits.
	unwatched bool
	// unenforced says why it is not known which limits an agent found not to hold.
	unenforced error
	verdicts   []terms.Verdict
	// queues are the kinds on the node's own devices.
	queues map[string][]string
	// meanwhile, if there is any, happens before the attachments are read.
	meanwhile func()
	err       error
}

func healthy() *kernel {
	return &kernel{
		features: map[string]bool{"tbf": true, "prio": true, "fq": true},
		devices: []doctor.Device{{
			Name: "eni0123456789a", Pod: 1,
			In:     judge.Chain{Hook: terms.HookIngress, Programs: []judge.Program{{Kind: terms.HookKindClsact, ProgramID: 1, Name: "handle_egress", Pref: 1, FilterHandle: 1}}},
			Out:    judge.Chain{Hook: terms.HookEgress, Programs: []judge.Program{{Kind: terms.HookKindClsact, ProgramID: 2, Name: "handle_ingress", Pref: 1, FilterHandle: 1}}},
			Qdiscs: []doctor.Qdisc{{Kind: "clsact"}, {Kind: "tbf", Root: true, Ours: true}},
		}},
		attached: []doctor.Attachment{{
			Pod: "default/web", Limit: limitOf(terms.Ingress, terms.ModeQdisc, terms.QueueTBF), Place: terms.PlaceHost, Device: "eni0123456789a", ContainerID: "c1",
		}},
		verdicts: []terms.Verdict{{Program: "pw_police"}},
	}
}

func (k *kernel) Features(context.Context) (map[string]bool, error) { return k.features, k.err }

func (k *kernel) Asking(context.Context, []byte) ([]doctor.Sandbox, error) { return k.asking, k.err }

func (k *kernel) Devices(context.Context) ([]doctor.Device, error) { return k.devices, k.err }

func (k *kernel) Limits(context.Context) (doctor.Limits, error) {
	if k.meanwhile != nil {
		k.meanwhile()
	}
	return doctor.Limits{Attached: k.attached, Troubles: k.troubles, Watched: !k.unwatched, UnenforcedErr: k.unenforced}, k.err
}

func (k *kernel) Agent(context.Context) (*doctor.Agent, error) { return k.agent, k.err }

func (k *kernel) Queues(_ context.Context, devices []string) (map[string][]string, error) {
	out := map[string][]string{}
	for _, d := range devices {
		if kinds, ok := k.queues[d]; ok {
			out[d] = kinds
		}
	}
	return out, k.err
}

func (k *kernel) Verdicts(context.Context) ([]terms.Verdict, error) { return k.verdicts, k.err }

// agent answers as Cilium's does; an empty config means that of 1.20.2.
type agent struct {
	health, config string
	noTCX          bool
}

// agent115 answers as 1.15.19 does (TestProfile in compat/detect).
var agent115 = agent{
	health: `{"cilium":{"msg":"1.15.19 (v1.15.19-0000000)","state":"Ok"},"host-routing":{"mode":"Legacy"},"bandwidth-manager":{"devices":null},"cni-chaining":{"mode":"none"}}`,
	config: `{"status":{"daemonConfigurationMap":{"EnableEndpointRoutes":false},"datapathMode":"veth"}}`,
}

var errNoAgent = errors.New("no agent")

func (a agent) Programs(context.Context) ([]string, error) { return []string{"cil_from_contai"}, nil }

func (a agent) Runtime(context.Context) (string, error) { return "", errNoAgent }

func (a agent) TCX(context.Context) (bool, error) { return !a.noTCX, nil }

func (a agent) RuntimeNetwork(context.Context) (*detect.RuntimeNetwork, error) {
	return nil, errNoAgent
}

func (a agent) CiliumAPI(_ context.Context, resource string) ([]byte, error) {
	switch {
	case a.health == "":
		return nil, errNoAgent
	case resource == "/v1/healthz":
		return []byte(a.health), nil
	case a.config != "":
		return []byte(a.config), nil
	}
	return []byte(`{"status":{"daemonConfigurationMap":{"EnableEndpointRoutes":false}}}`), nil
}

// TestSightComesLast: what the doctor cannot see is told behind what it found.
func TestSightComesLast(t *testing.T) {
	n := aws()
	for _, pid := range []string{"2", "3"} {
		delete(n.files, "proc/"+pid+"/comm")
	}
	failing("no memory")(n)
	var found []string
	for _, o := range n.report(t).Checks {
		if o.Status == doctor.Warn || o.Status == doctor.Fail {
			found = append(found, o.Code)
		}
	}
	if len(found) < 2 || found[len(found)-1] != "PW107" {
		t.Errorf("findings %v, want PW107 behind others", found)
	}
}

// TestHealthyNodes: nothing is wrong, nothing unknown.
func TestHealthyNodes(t *testing.T) {
	for name, n := range map[string]*node{"aws": aws(), "cilium": cilium()} {
		rep := n.report(t)
		for _, o := range rep.Checks {
			if o.Status != doctor.OK && o.Status != doctor.Skip || o.Seen == "" {
				t.Errorf("%s: %s %s: %q, want a finding that nothing is wrong", name, o.Code, o.Status, o.Seen)
			}
		}
		must.Be(t, name+": Exit()", doctor.ExitOK, rep.Exit())
	}
}

func TestExit(t *testing.T) {
	for _, tc := range []struct {
		count map[doctor.Status]int
		want  int
	}{
		{map[doctor.Status]int{doctor.OK: 1, doctor.Skip: 2, doctor.Warn: 3}, doctor.ExitOK},
		{map[doctor.Status]int{doctor.OK: 1, doctor.Unknown: 1}, doctor.ExitUnknown},
		{map[doctor.Status]int{doctor.Fail: 1, doctor.Unknown: 1}, doctor.ExitFail},
	} {
		must.Be(t, fmt.Sprintf("Exit(%v)", tc.count), tc.want, (&doctor.Report{Count: tc.count}).Exit())
	}
}

// TestRootCauseOnce: what needs a check that does not hold is skipped.
func TestRootCauseOnce(t *testing.T) {
	n := aws()
	n.files[net+"00-podweir-10-aws.conflist"] = "{"
	rep := n.report(t)
	for _, o := range rep.Checks {
		switch o.Code {
		case "PW201":
			must.Be(t, "PW201", doctor.Fail, o.Status)
		case "PW202", "PW203", "PW210", "PW301":
			must.Be(t, o.Code, "skip needs PW201", string(o.Status)+" "+o.Seen)
		case "PW205":
			must.Be(t, o.Code, "skip needs PW202", string(o.Status)+" "+o.Seen)
		}
	}
}

// Five broken pods of 110 are one finding, named on a screen of 40 lines and 80 columns.
func TestManyPodsFitAScreen(t *testing.T) {
	n := aws()
	good := n.kernel.attached[0]
	var broken []string
	for i := range 109 {
		a := good
		a.Pod, a.ContainerID, a.Device = fmt.Sprintf("default/web-%03d", i), fmt.Sprintf("c%03d", i), fmt.Sprintf("eni%011d", i)
		a.Program = 0
		if i%22 == 0 {
			wrong := terms.Trouble{Fault: terms.FaultDiffers, Pod: a.Pod, Container: a.ContainerID, Cure: "podweir repair"}
			wrong.Causes = []string{"egress build-queue: eth0: no root qdisc, want tbf 9a3f:0 at 10 Mbit/s"}
			n.kernel.troubles, broken = append(n.kernel.troubles, wrong), append(broken, a.Pod)
		}
		n.kernel.attached = append(n.kernel.attached, a)
	}
	if len(broken) != 5 {
		t.Fatalf("%d pods are broken, want 5", len(broken))
	}
	rep := n.report(t)
	text := rep.Table(doctor.Format{Short: true})
	must.Have(t, "the report", text, broken...)
	lines := strings.Split(text, "\n")
	for _, l := range lines {
		must.AtMost(t, "columns of the line "+l, 80, len([]rune(l)))
	}
	if len(lines) > 40 || rep.Count[doctor.Fail] != 1 || t.Failed() {
		t.Errorf("%d lines and %d failures:\n%s", len(lines), rep.Count[doctor.Fail], text)
	}
}

// What many checks cannot tell for one reason is said once, with their codes.
func TestOneReasonIsSaidOnce(t *testing.T) {
	n := aws()
	n.kernel.err = errors.New("out of sight")
	rep := n.report(t)
	for _, short := range []bool{false, true} {
		if text := rep.Table(doctor.Format{Short: short}); strings.Count(text, "seen     out of sight") != 1 || !strings.Contains(text, "for the same reason unknown: PW") {
			t.Errorf("short %v: the table says more than once what is out of sight, or not which checks want it:\n%s", short, text)
		}
	}
	must.AtLeast(t, "checks that are unknown, each of them in the report", 3, rep.Count[doctor.Unknown])
}

func TestRenderers(t *testing.T) {
	n := aws()
	delete(n.files, net+"00-podweir-10-aws.conflist")
	n.kernel.verdicts = []terms.Verdict{{Program: "pw_police", Wrong: "verdict 0"}}
	n.kernel.devices[0].Qdiscs = append(n.kernel.devices[0].Qdiscs, doctor.Qdisc{Kind: "sfq\n\x1b[31m", Root: true})
	n.files["proc/sys/kernel/osrelease"] = ""
	rep := n.report(t)
	var asJSON bytes.Buffer
	must.OK(t, writeJSON(&asJSON, rep))
	for name, got := range map[string]string{
		"table.golden": rep.Table(doctor.Format{}), "short.golden": rep.Table(doctor.Format{Short: true}),
		"color.golden": rep.Table(doctor.Format{Short: true, Color: true}), "json.golden": asJSON.String(),
	} {
		t.Run(name, func(t *testing.T) {
			golden := filepath.Join("testdata", name)
			if *update {
				must.OK(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want := must.Get(os.ReadFile(golden))(t)
			must.Match(t, "", string(want), got)
			if name != "color.golden" && strings.Contains(got, "\x1b") {
				t.Error("a control character of foreign text is written")
			}
		})
	}
}
