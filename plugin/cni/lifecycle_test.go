// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/rtnl"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// wantState waits a moment: the kernel detaches a link some time after its last
// pin is gone.
func wantState(t *testing.T, p *pod, what string, want []string) {
	t.Helper()
	wantSeen(t, p, what, onThisKernel(t, p.node, want))
}

// wantSeen is wantState for a state that was seen on this kernel.
func wantSeen(t *testing.T, p *pod, what string, want []string) {
	t.Helper()
	got := p.state(t)
	for end := time.Now().Add(10 * time.Second); !slices.Equal(got, want) && time.Now().Before(end); <-time.After(5 * time.Millisecond) {
		got = p.state(t)
	}
	must.Match(t, what+": on the devices", want, got)
}

func wantClean(t *testing.T, p *pod, what string) {
	t.Helper()
	wantState(t, p, what, []string{})
	p.node.wantNoPins(t, what)
	must.Be(t, what+": slots taken", 0, p.node.slots(t))
}

// programs returns the ids of the programs that all pods of the node share.
func (n *node) programs(t *testing.T) map[string]ebpf.ProgramID {
	t.Helper()
	pins := must.Get(filepath.Glob(filepath.Join(n.paths.Pins, "node,*", "pw_*")))(t)
	ids := make(map[string]ebpf.ProgramID)
	for _, pin := range pins {
		prog, err := ebpf.LoadPinnedProgram(pin, nil)
		if err != nil {
			continue // a map
		}
		info := must.Get(prog.Info())(t)
		ids[filepath.Base(pin)], _ = info.ID()
		_ = prog.Close()
	}
	return ids
}

func TestPrivilegedLifecycle(t *testing.T) {
	mark.Kernels(t, "most nodes have prio, and with it another tree of queues")
	testutil.RequireQdisc(t, "tbf", "pfifo_fast")
	p := newNode(t).newPod(t)
	c := p.conf(both(nil))
	a := p.must(t, "ADD", c)
	a.tells(t, "shaped", p.container)
	wantState(t, p, "after ADD", shapedBoth(t))
	p.must(t, "CHECK", c)
	must.Be(t, "attached by", apply.ByPlugin, p.status(t).By)
	ids := p.node.programs(t)
	must.Match(t, "the node's programs", treesHere(t).programs(), slices.Sorted(maps.Keys(ids)))
	// The key: network, container, interface.
	at := "net/" + p.container + ",eth0/eth0/"
	if pins := p.node.pinned(t); len(pins) == 0 || !strings.HasPrefix(pins[0], "holders,/") ||
		!slices.Equal(pins[1:], []string{at + "egress-slot", at + "ingress-slot", at + "record"}) {
		t.Errorf("pinned: %v, want whose the interface is, and a record and two slots under network, container and interface", pins)
	}
	must.Be(t, "slots taken", 2, p.node.slots(t))
	p.must(t, "ADD", c)
	wantState(t, p, "after ADD twice", shapedBoth(t))
	must.Match(t, "ADD twice: programs", ids, p.node.programs(t))
	p.must(t, "CHECK", c)
	for _, what := range []string{"after DEL", "after DEL twice"} {
		p.must(t, "DEL", c)
		wantClean(t, p, what)
	}
	// The programs stay for the next pod.
	other := p.node.newPod(t)
	other.must(t, "ADD", other.conf(both(nil)))
	must.Match(t, "the next pod: programs", ids, p.node.programs(t))
	other.must(t, "DEL", other.conf(both(nil)))
}

func TestPrivilegedNoLimitAttachesNothing(t *testing.T) {
	p := newNode(t).newPod(t)
	a := p.must(t, "ADD", p.conf(nil))
	wantClean(t, p, "ADD without a limit")
	must.Be(t, "what ADD without a limit prints", string(compact(t, p.prevResult())), string(compact(t, []byte(a.stdout))))
	p.must(t, "CHECK", p.conf(nil))
	// containerd's way to say that nobody requested a burst.
	runtime := conf{"bandwidth": conf{"egressRate": 10_000_000, "egressBurst": 4294967295}}
	p.must(t, "ADD", p.conf(conf{"runtimeConfig": runtime}))
	wantState(t, p, "egress from runtimeConfig", treesHere(t).bands("pod"))
	wantCode(t, "CHECK without the limit that is attached", p.call(t, "CHECK", p.conf(nil)).err, 100, "has no limit but is attached")
	p.must(t, "ADD", p.conf(nil))
	wantClean(t, p, "ADD without the limit that was there")
}

// A chain may have podweir-cni twice. The entry that the runtime tells nothing neither changes
// the limit that the other one made, nor takes away the record that it could not make it. One
// that is told of no limit leaves the other one's.
func TestPrivilegedTwiceInAChain(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "pfifo_fast")
	p := newNode(t).newPod(t)
	for name, caps := range map[string]conf{"none": nil, "bandwidth alone": {"bandwidth": true}, "annotations alone": {netconf.PodAnnotationsCapability: true}} {
		told, untold := p.conf(both(nil)), p.conf(conf{"capabilities": caps})
		p.must(t, "ADD", told)
		a := p.must(t, "ADD", untold)
		wantState(t, p, name+": after the ADD of the other entry", shapedBoth(t))
		a.tells(t, "limit kept")
		// The runtime tells it of one direction only.
		p.must(t, "ADD", p.conf(conf{"capabilities": caps, "egressRate": "10M"}))
		wantState(t, p, name+": after an ADD with one direction", shapedBoth(t))
		own := p.conf(both(conf{"capabilities": caps, "egressRate": "5M", "ingressRate": "50M"}))
		p.must(t, "ADD CHECK", own)
		p.wantRates(t, name+": after an ADD with its own rates", "10 Mbit/s, 10 Mbit/s")
		p.must(t, "CHECK", told)
		p.must(t, "CHECK DEL", untold)
		wantClean(t, p, name+": DEL of the other entry")

		p.must(t, "ADD", own)
		p.must(t, "ADD CHECK", p.conf(nil))
		p.wantRates(t, name+": the other entry runs first, and the runtime tells no limit", "5 Mbit/s, 50 Mbit/s")
		p.must(t, "ADD CHECK", untold)
		p.wantRates(t, name+": neither entry is told, and one has no limit", "5 Mbit/s, 50 Mbit/s")
		p.must(t, "ADD", told)
		p.wantRates(t, name+": the other entry runs first", "10 Mbit/s, 10 Mbit/s")
		p.must(t, "DEL", own)
	}
	p.must(t, "ADD", p.conf(conf{"onError": "open", "egressRate": "fast"}))
	p.must(t, "ADD", p.conf(conf{"onError": "open", "capabilities": nil}))
	p.node.wantFailures(t, "after the ADD of the other entry", "fast")
}

// libcni has the runtime's library call the chain of the pod's network, with drop-ins beside podweir's own.
func (p *pod) libcni(t *testing.T, dropIns map[string]conf, call func(c *libcni.CNIConfig, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) error) error {
	t.Helper()
	exe := must.Get(os.Executable())(t)
	files := map[string]string{
		"bin/made":             "#!/bin/sh\ncat >/dev/null; [ $CNI_COMMAND != ADD ] || echo '" + string(p.prevResult()) + "'\n",
		"bin/podweir-cni":      fmt.Sprintf("#!/bin/sh\nexec env %s=%s %s=%s %s\n", envPins, p.node.paths.Pins, envRun, p.node.paths.Run, exe),
		"net.d/1-net.conflist": `{"cniVersion":"1.1.0","name":"net","plugins":[{"type":"made"}]}`,
	}
	for name, c := range dropIns {
		delete(c, "prevResult")
		files["net.d/net/"+name] = string(c.json(t))
	}
	root := must.Files(t, t.TempDir(), files)
	list := must.Get(libcni.NetworkConfFromFile(filepath.Join(root, "net.d/1-net.conflist")))(t)
	rt := &libcni.RuntimeConf{
		ContainerID: p.container, NetNS: p.netns, IfName: "eth0", Args: [][2]string{{"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", p.container}},
		CapabilityArgs: map[string]any{"bandwidth": map[string]int{"ingressRate": 10_000_000, "egressRate": 10_000_000}},
	}
	c := libcni.NewCNIConfigWithCacheDir([]string{filepath.Join(root, "bin")}, p.node.paths.Run, nil)
	return p.node.Do(func() error { return call(c, list, rt) }) // a child is in the namespace of the thread that starts it
}

// A drop-in by hand beside podweir's own has the runtime call podweir twice in one ADD: the second call
// changes nothing, and DEL takes off what both made.
func TestPrivilegedDropInByHand(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "pfifo_fast")
	p := newNode(t).newPod(t)
	for name, byHand := range map[string]conf{
		"the same": p.conf(nil), "without capabilities": p.conf(conf{"capabilities": nil}), "another rate": p.conf(conf{"capabilities": nil, "egressRate": "5M"}),
		"with bandwidth alone": p.conf(conf{"capabilities": conf{"bandwidth": true}}),
	} {
		for _, file := range []string{"40-by-hand.conf", "60-by-hand.conf"} {
			when := name + " in " + file
			dropIns := map[string]conf{"50-podweir.conf": p.conf(nil), file: byHand}
			must.OK(t, p.libcni(t, dropIns, func(c *libcni.CNIConfig, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) error {
				must.Len(t, when+": plugins", 3, list.Plugins)
				result := must.Get(c.AddNetworkList(t.Context(), list, rt))(t)
				alone := must.Get(types100.NewResult(p.prevResult()))(t)
				must.Match(t, when+": result of ADD", alone, result)
				return c.CheckNetworkList(t.Context(), list, rt)
			}))
			wantState(t, p, when, shapedBoth(t))
			p.wantRates(t, when, "10 Mbit/s, 10 Mbit/s")
			must.Be(t, when+": slots", 2, p.node.slots(t))
			must.OK(t, p.libcni(t, dropIns, func(c *libcni.CNIConfig, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) error {
				return c.DelNetworkList(t.Context(), list, rt)
			}))
			wantClean(t, p, when+": DEL")
			p.node.wantFailures(t, when)
		}
	}
}

// wantRates compares the rates that eth0 has, egress first.
func (p *pod) wantRates(t *testing.T, when, want string) {
	t.Helper()
	p.onNode(t, func(node *engine.Node) error {
		r := p.record(t, node)
		must.Be(t, when+": limits", want, r.Config.Egress.Rate.String()+", "+r.Config.Ingress.Rate.String())
		return nil
	})
}

// record is the one record of eth0.
func (p *pod) record(t *testing.T, node *engine.Node) *apply.Record {
	t.Helper()
	id := attach.ID{Network: "net", ContainerID: p.container, IfName: "eth0"}
	return must.Len(t, "records", 1, must.Get(node.Records(id))(t))[0]
}

// A pfifo_fast gives its device another txqueuelen. Whoever takes the limits off a
// pod that stays gives back what was there before the first of them.
func TestPrivilegedTxQueueLen(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "pfifo_fast")
	n := newNode(t)
	p := n.newPod(t)
	p.ns.Run(t, "ip", "link", "set", "eth0", "txqueuelen", "700")
	n.Run(t, "ip", "link", "set", p.host.Name, "txqueuelen", "0")
	byHook := conf{"egressMode": "clsact-podside", "ingressMode": "clsact-hostside"}
	for _, limits := range []conf{both(byHook), both(nil), both(conf{"egressRate": "100M"}), both(conf{"queue": "none"}), both(byHook)} {
		p.must(t, "ADD", p.conf(limits))
		got, queue := p.former(t).lengths, limits["queue"] == nil
		bands := limits["egressMode"] != nil || queue && !treesHere(t).prio
		// A tree without bands that took the place of one with them leaves the length as it is.
		if given := got[0] != 700 && got[1] != 0; bands && !given || !queue && given {
			t.Errorf("with %v the devices have a txqueuelen of %v, want that of pfifo_fast: %v", limits, got, bands)
		}
		p.must(t, "CHECK", p.conf(limits))
	}
	p.must(t, "ADD", p.conf(nil))
	must.Be(t, "txqueuelen without limits", [2]int{700, 0}, p.former(t).lengths)
}

// TCP in a limited pod makes small packets. CHECK tells if another party lets it make larger
// ones, and whoever takes the limit off a pod that stays gives back what was there before.
func TestPrivilegedPacketsOfThePod(t *testing.T) {
	mark.Kernels(t, "most nodes have prio, and with it another tree of queues")
	testutil.RequireQdisc(t, "tbf")
	p := newNode(t).newPod(t)
	sizes := func() [2]uint32 { return p.former(t).gso }
	before, paces := sizes(), p.pacing(t) != nil
	most := func(size uint32) [2]uint32 { return [2]uint32{min(before[0], size), min(before[1], size)} }
	at := func(rate string) conf { return p.conf(conf{"egressRate": rate}) }
	for rate, want := range map[string][2]uint32{"10M": most(3_400), "100M": most(6_400), "1G": before} {
		if rate == "100M" && paces {
			want = before
		}
		p.must(t, "ADD", at(rate))
		must.Be(t, "TCP's largest packets with "+rate, want, sizes())
		p.must(t, "CHECK", at(rate))
	}
	p.must(t, "ADD", at("10M"))
	p.ns.Run(t, "ip", "link", "set", "eth0", "gso_max_size", "30000")
	wantCode(t, "CHECK with larger packets", p.call(t, "CHECK", at("10M")).err, 101, "egress limit-offload: eth0: TCP makes packets of up to")
	p.must(t, "ADD", at("10M"))
	must.Be(t, "TCP's largest packets after another ADD", most(3_400), sizes())
	p.must(t, "ADD", p.conf(nil))
	must.Be(t, "TCP's largest packets without a limit", before, sizes())
}

// pacing are the sysctls by which TCP in the pod sizes its packets, nil if the kernel lacks one.
func (p *pod) pacing(t *testing.T) []int {
	t.Helper()
	values, err := p.ns.ReadSysctls("net/ipv4/tcp_tso_rtt_log", "net/ipv4/tcp_min_tso_segs")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return values
}

// From 50M on TCP in the pod sizes its packets by sysctls of the pod's namespace, and never by
// those of the node's. CHECK tells of another value, unless its author chose it. A release that
// bounded the device left a record of that.
func TestPrivilegedPacingOfThePod(t *testing.T) {
	testutil.RequireQdisc(t, "tbf")
	n := newNode(t)
	p := n.newPod(t)
	kernel := p.pacing(t)
	if kernel == nil {
		testutil.SkipFeature(t, "net.ipv4.tcp_tso_rtt_log") // Linux 5.18
	}
	own, gso := []int{0, 12}, p.ns.Interface(t, "eth0").GSOMaxSize
	wantPacing := func(when string, want []int) {
		t.Helper()
		must.Match(t, when+": the pod's sysctls", want, p.pacing(t))
		must.Be(t, when+": largest packets of the pod's device", gso, p.ns.Interface(t, "eth0").GSOMaxSize)
	}
	set := func(name string, value int) {
		t.Helper()
		must.OK(t, p.ns.WriteSysctls(rtnl.Sysctl{Name: "net/ipv4/" + name, Value: value}))
	}
	c := p.conf(conf{"egressRate": "100M"})
	p.must(t, "ADD", p.conf(conf{"egressRate": "100M", "smallPackets": "device"}))
	if got := p.ns.Interface(t, "eth0").GSOMaxSize; got >= gso || !slices.Equal(p.pacing(t), kernel) {
		t.Errorf("by device it takes %d and the sysctls are %v, want less than %d and %v", got, p.pacing(t), gso, kernel)
	}
	p.must(t, "ADD", c)
	wantPacing("after the device was bounded", own)
	p.must(t, "CHECK", c)
	set("tcp_tso_rtt_log", kernel[0])
	wantCode(t, "CHECK with the kernel's own sysctl", p.call(t, "CHECK", c).err, 101, "egress pace-tcp: the pod's namespace has tcp_tso_rtt_log=9")
	p.must(t, "ADD", c)
	wantPacing("after another ADD", own)
	set("tcp_min_tso_segs", 5)
	p.must(t, "CHECK ADD", c)
	wantPacing("with an author's choice", []int{0, 5})
	must.Match(t, "what status says is kept", []string{"net.ipv4.tcp_min_tso_segs=5"}, p.status(t).Directions[0].Kept)
	p.must(t, "ADD", p.conf(nil))
	wantPacing("without a limit", []int{kernel[0], 5})
	set("tcp_min_tso_segs", kernel[1])
	p.must(t, "ADD", c)
	p.must(t, "ADD", p.conf(conf{"egressRate": "100M", "smallPackets": "off"}))
	wantPacing("switched off", kernel)
	must.Match(t, "the node's sysctls", kernel, must.Get(n.ReadSysctls("net/ipv4/tcp_tso_rtt_log", "net/ipv4/tcp_min_tso_segs"))(t))
}

// Where some packets bypass the limit the pod's device keeps its packets: the bound would be
// theirs, too. A running pod gets them back.
func TestPrivilegedPacketsPastTheLimit(t *testing.T) {
	testutil.RequireQdisc(t, "tbf")
	p := newNode(t).newPod(t)
	before := p.ns.Interface(t, "eth0").GSOMaxSize
	limited := conf{"egressRate": "10M"}
	for _, bypassed := range []conf{
		{"egressRate": "10M", "unshapedSubnets": []string{"192.0.2.0/24"}},
		{"egressRate": "10M", "shapedSubnets": []string{"192.0.2.0/24"}},
		{"egressRate": "10M", "policy": "elephants"},
	} {
		p.must(t, "ADD", p.conf(limited))
		if got := p.ns.Interface(t, "eth0").GSOMaxSize; got >= before {
			t.Errorf("TCP makes packets of up to %d, so nothing was tested", got)
		}
		p.must(t, "ADD", p.conf(bypassed))
		must.Be(t, fmt.Sprintf("TCP's largest packets with %v", bypassed), before, p.ns.Interface(t, "eth0").GSOMaxSize)
		p.must(t, "CHECK", p.conf(bypassed))
	}
}

func compact(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	must.OK(t, json.Compact(&out, b))
	return out.Bytes()
}

// The result goes out as it came in, byte for byte, in every version that the
// specification has, and in a configuration that names none; the process is called as a runtime calls it.
func TestPrivilegedVersions(t *testing.T) {
	n := newNode(t)
	for _, version := range append([]string{""}, terms.CNIVersions...) {
		t.Run("version "+version, func(t *testing.T) {
			p := n.newPod(t)
			prev := strings.Replace(string(p.prevResult()), `"1.1.0"`, `"`+version+`"`, 1)
			if version < "0.3.0" {
				prev = fmt.Sprintf(`{"cniVersion":"0.2.0","ip4":{"ip":"%s/24"} ,"dns":{}}`, p.addr)
			}
			stdin := []byte(fmt.Sprintf(`{"cniVersion":%q,"name":"net","type":"podweir-cni","egressRate":"10M",`+
				`"onError":"closed","cni.dev/valid-attachments":[],"prevResult":%s}`, version, prev))
			run := func(verb string) answer {
				a, _ := p.exec(t, verb, stdin, 0)
				return a
			}
			a := run("ADD")
			if a.err != nil {
				t.Fatalf("ADD: %s\n%s", describe(a.err), a.log)
			}
			must.Be(t, "what ADD prints", prev, strings.TrimSuffix(a.stdout, "\n"))
			if got := p.state(t); !slices.Contains(got, "pod qdisc tbf") {
				t.Errorf("after ADD there is %q, want a queue on the pod side", got)
			}
			for verb, since := range map[string]string{"CHECK": "0.4.0", "STATUS": "1.1.0"} {
				a := run(verb)
				if version >= since && (a.err != nil || a.stdout != "") {
					t.Errorf("%s = %q, %s", verb, a.stdout, describe(a.err))
				}
				if version < since {
					wantCode(t, verb+" before "+since, a.err, 1)
				}
			}
			must.Have(t, "VERSION", run("VERSION").stdout, `"supportedVersions":["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]`)
			remove := "DEL"
			if version >= "1.1.0" {
				remove = "GC"
			}
			if a := run(remove); a.err != nil || a.stdout != "" {
				t.Errorf("%s = %q, %s", remove, a.stdout, describe(a.err))
			}
			wantClean(t, p, remove)
		})
	}
}

func TestPrivilegedContractErrors(t *testing.T) {
	p := newNode(t).newPod(t)
	without := func(key string) []byte {
		c := p.conf(both(conf{"onError": "open"}))
		delete(c, key)
		return c.json(t)
	}
	tests := []struct {
		name, verb string
		stdin      []byte
		code       uint
	}{
		{"not JSON", "ADD", []byte("{"), 6},
		{"unknown version", "DEL", p.conf(conf{"cniVersion": "2.0.0"}).json(t), 1},
		{"no prevResult", "CHECK", without("prevResult"), 7},
		{"no list", "GC", p.conf(nil).json(t), 7},
	}
	for _, tt := range tests {
		a, _ := p.exec(t, tt.verb, tt.stdin, 0)
		wantCode(t, tt.verb+", "+tt.name, a.err, tt.code)
		if e, is := errors.AsType[*types.Error](a.err); is && strings.Contains(e.Details, e.Msg) {
			t.Errorf("%s: says %q twice", tt.name, e.Msg)
		}
	}
	wantClean(t, p, "calls that break the contract")
}

func TestPrivilegedDelWhenThingsAreGone(t *testing.T) {
	n := newNode(t)
	tests := map[string]struct {
		with conf
		gone func(*testing.T, *pod)
		del  conf
	}{
		"the namespace":         {both(nil), func(t *testing.T, p *pod) { t.Helper(); p.removeNetNS(t) }, nil},
		"the namespace and ifb": {inIFB(nil), func(t *testing.T, p *pod) { t.Helper(); p.removeNetNS(t) }, nil},
		"the host's device": {both(nil), func(t *testing.T, p *pod) {
			t.Helper()
			n.Run(t, "ip", "link", "del", p.host.Name)
		}, nil},
		"the limits, and the others are odd": {
			both(nil), func(*testing.T, *pod) {},
			conf{"egressRate": "10X", "prevResult": "gone", "queue": 7, "runtimeConfig": []int{}},
		},
		"the queue": {both(nil), func(t *testing.T, p *pod) {
			t.Helper()
			p.ns.Run(t, "tc", "qdisc", "del", "dev", "eth0", "root")
			p.ns.Run(t, "tc", "qdisc", "del", "dev", "eth0", "clsact")
		}, nil},
		"a slot": {both(nil), func(t *testing.T, p *pod) {
			t.Helper()
			must.OK(t, n.slab(t).GiveBack(p.dir(), terms.Egress, nil, 0))
		}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := n.newPod(t)
			p.must(t, "ADD", p.conf(tt.with))
			tt.gone(t, p)
			p.must(t, "DEL", p.conf(tt.del))
			n.wantNoPins(t, "DEL")
			must.Len(t, "what is still there", 0, p.state(t))
			p.must(t, "DEL", p.conf(nil))
		})
	}
	// Nothing but the ID: no namespace at all.
	p := n.newPod(t)
	p.must(t, "ADD", p.conf(both(nil)))
	p.netns = ""
	a, _ := p.exec(t, "DEL", []byte(`{"cniVersion":"1.0.0","name":"net","type":"podweir-cni"}`), 0)
	if a.err != nil {
		t.Errorf("DEL with the least configuration = %s", describe(a.err))
	}
	wantClean(t, p, "DEL with the least configuration")
}

// removeNetNS takes the pod's namespace away, with its devices: its mount stays
// as a plain file, as after a reboot.
func (p *pod) removeNetNS(t *testing.T) {
	t.Helper()
	p.node.Run(t, "ip", "link", "del", p.host.Name)
	p.gone = true
	must.OK(t, unix.Unmount(p.ns.Path(), unix.MNT_DETACH))
}

// Two networks with one container: each has a device and a state of its own.
func TestPrivilegedTwoNetworks(t *testing.T) {
	p := newNode(t).newPod(t)
	other, second := p.second(t, "net1")
	p.must(t, "ADD", p.conf(both(nil)))
	other.must(t, "ADD", second)
	wantState(t, p, "eth0 beside a second network", shapedBoth(t))
	// GC of a second network of this name knows of net1 alone.
	p.must(t, "GC", p.conf(conf{"cni.dev/valid-attachments": []conf{{"containerID": p.container, "ifname": "net1"}}}))
	wantState(t, p, "eth0 after GC", shapedBoth(t))
	other.must(t, "DEL", second)
	wantState(t, p, "eth0 after the second network's DEL", shapedBoth(t))
	p.must(t, "CHECK", p.conf(both(nil)))
	must.Have(t, "net1 after DEL", queues(t, p.ns, "net1"), "!tbf")
	// Once net1 is gone, so is what was said of it.
	second["name"] = "net"
	other.must(t, "ADD", second)
	p.ns.Run(t, "ip", "link", "del", "net1")
	mail := p.node.paths.Mail()
	mail.RecordFailure(slog.Default(), &mailbox.Failure{ID: attach.ID{Network: "net", ContainerID: p.container, IfName: "net1"}})
	p.must(t, "GC", p.conf(conf{"cni.dev/valid-attachments": []conf{{"containerID": p.container, "ifname": "eth0"}}}))
	p.node.wantFailures(t, "GC")
	renamed := p.conf(both(conf{"name": "renamed"})) // an attachment is of a container's interface, whatever its network is called
	p.must(t, "CHECK DEL", renamed)
	wantClean(t, p, "DEL of both")
}

func TestPrivilegedGC(t *testing.T) {
	n := newNode(t)
	pods := []*pod{n.newPod(t), n.newPod(t), n.newPod(t)}
	for _, p := range pods {
		p.must(t, "ADD", p.conf(both(nil)))
	}
	other := n.newPod(t)
	other.must(t, "ADD", other.conf(both(conf{"name": "other"})))
	// One that could not be shaped, and is gone as well.
	failed := n.newPod(t)
	failed.must(t, "ADD", failed.conf(both(conf{"onError": "open", "egressRate": "10X"})))

	valid := []conf{{"containerID": pods[1].container, "ifname": "eth0"}}
	pods[0].must(t, "GC", pods[0].conf(conf{"cni.dev/valid-attachments": valid}))
	for i, want := range [][]string{{}, shapedBoth(t), {}} {
		wantState(t, pods[i], fmt.Sprintf("pod %d after GC", i), want)
	}
	wantState(t, other, "the pod of another network", shapedBoth(t))
	holders := 0
	for _, pin := range n.pinned(t) {
		switch {
		case strings.HasPrefix(pin, "holders,/"):
			holders++
		case !strings.HasPrefix(pin, "net/"+pods[1].container+",") && !strings.HasPrefix(pin, "other/"):
			t.Errorf("GC left %s", pin)
		}
	}
	must.Be(t, "interfaces whose holders GC left", 2, holders)
	n.wantFailures(t, "GC")
	pods[1].must(t, "CHECK", pods[1].conf(both(nil)))
}

func TestPrivilegedStatus(t *testing.T) {
	p := newNode(t).newPod(t)
	p.must(t, "STATUS", p.conf(nil))
	p.must(t, "STATUS", p.conf(conf{"prevResult": nil}))
	wantCode(t, "STATUS with bad limits", p.call(t, "STATUS", p.conf(conf{"egressRate": "10X"})).err, 50, "egressRate")
	must.OK(t, unix.Mount("", filepath.Dir(p.node.paths.Pins), "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	wantCode(t, "STATUS with a read-only bpffs", p.call(t, "STATUS", p.conf(nil)).err, 50, "read-only file system")
	p.node.paths = engine.Paths{Pins: filepath.Join(t.TempDir(), "none"), Run: t.TempDir()}
	wantCode(t, "STATUS without bpffs", p.call(t, "STATUS", p.conf(nil)).err, 50, "BPF file system")
	a := p.must(t, "STATUS", p.conf(conf{"onError": "open"}))
	a.tells(t, "cannot shape")
}
