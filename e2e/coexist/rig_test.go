// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package coexist_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/cni"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/plugin/testutil/otherbuild"
)

// rig is a node that routes between a client and its pods:
//
//	client eth0 ── uplink, node, veth… or eni… ── eth0 pod
type rig struct {
	node, client     *testutil.NetNS
	uplink, clientIf hostif.Interface
	paths            engine.Paths
	pods             int
}

const (
	clientAddr    = "10.66.0.2"
	clientGateway = "10.66.0.1"
)

func newRig(t *testing.T) *rig {
	t.Helper()
	testutil.RequireQdisc(t, "tbf", "pfifo_fast", "ifb", "clsact")
	r := &rig{
		node: testutil.NewNetNS(t), client: testutil.NewNetNS(t),
		paths: engine.Paths{Pins: filepath.Join(testutil.BPFFS(t), "podweir"), Run: t.TempDir()},
	}
	r.clientIf, r.uplink = testutil.VethPair(t,
		testutil.End{NetNS: r.client, Name: "eth0", CIDRs: []string{clientAddr + "/24"}},
		testutil.End{NetNS: r.node, Name: "uplink", CIDRs: []string{clientGateway + "/24"}})
	r.client.Run(t, "ip", "route", "add", "default", "via", clientGateway)
	r.node.Run(t, "sysctl", "-qw", "net.ipv4.ip_forward=1")
	return r
}

// pod is a network namespace with a veth pair to the node, as a CNI plugin
// leaves it.
type pod struct {
	rig           *rig
	ns            *testutil.NetNS
	dev, host     hostif.Interface
	addr, gateway string
	container     string
}

// newPod makes a pod whose host side has this name.
func (r *rig) newPod(t *testing.T, hostName string) *pod {
	t.Helper()
	r.pods++
	p := &pod{rig: r, ns: testutil.NewNetNS(t), container: fmt.Sprintf("container-%d", r.pods)}
	p.addr, p.gateway = fmt.Sprintf("10.77.%d.2", r.pods), fmt.Sprintf("10.77.%d.1", r.pods)
	p.dev, p.host = testutil.VethPair(t,
		testutil.End{NetNS: p.ns, Name: "eth0", CIDRs: []string{p.addr + "/24"}},
		testutil.End{NetNS: r.node, Name: hostName, CIDRs: []string{p.gateway + "/24"}})
	p.ns.Run(t, "ip", "route", "add", "default", "via", p.gateway)
	// The device goes with the namespace, but only some time later.
	t.Cleanup(func() { _ = r.node.Command(t, "ip", "link", "del", hostName).Run() })
	return p
}

type conf map[string]any

// bitRate is the cap of all pods, in bits per second.
const bitRate = 20_000_000

// with is a configuration that fails closed.
func (p *pod) with(m *mode) conf {
	c := conf{
		"cniVersion": "1.1.0", "name": "net", "type": "podweir-cni", "onError": "closed",
		"egressRate": fmt.Sprint(bitRate), "ingressRate": fmt.Sprint(bitRate),
		// As the agent and `podweir install` write it beside each of these neighbours.
		"hostHook": "tcx",
		"prevResult": json.RawMessage(fmt.Sprintf(`{"cniVersion":"1.1.0","interfaces":[{"name":%q},{"name":"eth0","sandbox":%q}],`+
			`"ips":[{"address":"%s/24","interface":1}]}`, p.host.Name, p.ns.Path(), p.addr)),
	}
	maps.Copy(c, m.keys)
	return c
}

// call runs a verb of podweir's plugin on the node.
func (p *pod) call(t *testing.T, verb string, m *mode) error {
	t.Helper()
	stdin := must.Get(json.Marshal(p.with(m)))(t)
	var stdout, log bytes.Buffer
	// Strict: the page tells of each mode by itself, not of auto in place of it.
	plugin := cni.Plugin{Stdout: &stdout, Stderr: &log, Paths: p.rig.paths, Strict: true}
	args := &skel.CmdArgs{
		ContainerID: p.container, Netns: p.ns.Path(), IfName: "eth0", StdinData: stdin,
		Args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + p.container,
	}
	f := plugin.Funcs()
	verbs := map[string]func(*skel.CmdArgs) error{"ADD": f.Add, "DEL": f.Del, "CHECK": f.Check}
	return p.rig.node.Do(func() error { return verbs[verb](args) })
}

func (p *pod) must(t *testing.T, verb string, m *mode) {
	t.Helper()
	if err := p.call(t, verb, m); err != nil {
		t.Fatalf("%s: %s", verb, describe(err))
	}
}

// describe shows the details of a CNI error too.
func describe(err error) string {
	if e, ok := errors.AsType[*types.Error](err); ok {
		return e.Msg + ": " + e.Details
	}
	return fmt.Sprint(err)
}

// remove runs DEL and makes the devices of the pod as they were.
func (p *pod) remove(t *testing.T, m *mode) {
	t.Helper()
	p.must(t, "DEL", m)
	// DEL leaves the ifb to the namespace, which is about to go.
	must.OK(t, p.ns.Handle.DeleteIFB(p.dev.Index))
}

// pins is where podweir pins what it has on the pod.
func (p *pod) pins() string {
	return filepath.Join(p.rig.paths.Pins, "net", p.container+",eth0", "eth0")
}

// node is where the pins are that all attachments share.
func (p *pod) node() string {
	return filepath.Join(p.rig.paths.Pins, fmt.Sprintf("node,%d", datapath.ABIVersion))
}

// upgrade makes ADD replace programs of another build.
func (p *pod) upgrade(t *testing.T, m *mode) {
	t.Helper()
	otherbuild.Put(t, p.node(), p.pins(), p.ns, p.rig.node)
	want := "is of another build"
	if m.keys["policy"] == "flat" && !testutil.HaveTCX() {
		want = "<nil>" // it has no program: its queue needs none, and the ceiling needs TCX beside these neighbours
	}
	must.Have(t, "CHECK of programs of another build", describe(p.call(t, "CHECK", m)), want)
	p.must(t, "ADD", m)
	p.must(t, "CHECK", m)
}

// Answers of a program on a shared hook (include/uapi/linux/bpf.h).
const (
	answerPass = 0
	answerDrop = 2
)

// Offsets: of struct __sk_buff, and in an Ethernet frame with an IPv4 header
// without options.
const (
	skbProtocol = 16
	frameUDPDst = 14 + 20 + 2
)

// network is a number as a load of its bytes in network order gives it.
func network16(n uint16) int32 {
	return int32(binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n)))
}

// policyProgram drops UDP packets to the denied port, and answers 0 for all others.
func policyProgram(t *testing.T, name string) *ebpf.Program {
	t.Helper()
	return testutil.Load(t, name, asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R2, asm.R6, skbProtocol, asm.Word),
		asm.JNE.Imm(asm.R2, network16(unix.ETH_P_IP), "pass"),
		asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, frameUDPDst),
		asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, -8), asm.Mov.Imm(asm.R4, 2),
		asm.FnSkbLoadBytes.Call(),
		asm.JNE.Imm(asm.R0, 0, "pass"),
		asm.LoadMem(asm.R2, asm.R10, -8, asm.Half),
		asm.Mov.Imm(asm.R0, answerDrop),
		asm.JEq.Imm(asm.R2, network16(deniedPort), "end"),
		asm.Mov.Imm(asm.R0, answerPass).WithSymbol("pass"),
		asm.Return().WithSymbol("end"),
	})
}
