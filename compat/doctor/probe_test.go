// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/terms"
)

// prober answers the first look with before, the second with after.
type prober struct {
	before, after []doctor.Flow
	err           error
	looked        int
}

func (p *prober) Flows(context.Context) ([]doctor.Flow, error) {
	if p.looked++; p.looked == 1 {
		return p.before, p.err
	}
	return p.after, p.err
}

// flows are those of the one limit of a node, some packets later.
func flows(n *node, passed, held uint64) *prober {
	a := n.kernel.attached[0]
	one := doctor.Flow{Pod: a.Pod, Direction: a.Direction, Device: a.Device, Passed: doctor.Count{Packets: 1000, Bytes: 100_000}, Held: doctor.Count{Packets: 7, Bytes: 700}}
	two := one
	two.Passed.Packets += passed
	two.Passed.Bytes += 100 * passed
	two.Held.Packets += held
	two.Held.Bytes += 100 * held
	return &prober{before: []doctor.Flow{one}, after: []doctor.Flow{two}}
}

func probeFindings() []finding {
	watch := func(passed, held uint64) func(*node) {
		return func(n *node) { n.prober = flows(n, passed, held) }
	}
	with := func(change func(n *node, p *prober)) func(*node) {
		return func(n *node) {
			n.prober = flows(n, 100, 100)
			change(n, n.prober)
		}
	}
	broken := with(func(_ *node, p *prober) { p.err = errors.New("no such luck") })
	return []finding{
		{name: "sees all", code: "PW701", node: aws, change: watch(100, 100), want: doctor.OK, seen: "1 of 1 limits had traffic"},
		{name: "sees nothing", code: "PW701", node: aws, change: watch(100, 1), want: doctor.Fail, seen: "default/web ingress: 1 of 100 packets, and no program is ahead", fix: "recreate the pod"},
		{name: "sees nothing, a program ahead", code: "PW701", node: cilium, change: func(n *node) {
			n.kernel.attached[0].Ahead = []judge.Program{{Kind: terms.HookKindTCX, ProgramID: 9, Name: "hostile"}}
			n.prober = flows(n, 100, 0)
		}, want: doctor.Fail, seen: "0 of 100 packets, behind hostile (program 9)", fix: "TCX_NEXT"},
		{name: "a packet socket in the pod", code: "PW701", node: aws, change: with(func(n *node, p *prober) {
			a := &n.kernel.attached[0]
			a.Direction, a.Queue, a.Kind, a.NoCeiling = terms.Name(terms.Egress), terms.Name(terms.QueueTBF), 0, ""
			for _, one := range [][]doctor.Flow{p.before, p.after} {
				one[0].Direction = terms.Name(terms.Egress)
			}
			p.after[0].Held = p.before[0].Held
		}), want: doctor.Warn, seen: "default/web egress: 0 of 100 packets: a process in the pod sends past its queue, with a packet socket; the ceiling", fix: "CAP_NET_RAW"},
		{name: "a packet socket, and no ceiling", code: "PW701", node: aws, change: with(func(n *node, p *prober) {
			a := &n.kernel.attached[0]
			a.Direction, a.Queue, a.Kind, a.NoCeiling = terms.Name(terms.Egress), terms.Name(terms.QueueTBF), 0, "no TCX"
			p.before[0].Direction, p.after[0].Direction = terms.Name(terms.Egress), terms.Name(terms.Egress)
			p.after[0].Held = p.before[0].Held
		}), want: doctor.Fail, seen: "a process in the pod sends past its queue"},
		{name: "drops count", code: "PW701", node: aws, change: with(func(_ *node, p *prober) { p.after[0].Held.Bytes = p.before[0].Held.Bytes }), want: doctor.OK, seen: "1 of 1"},
		{name: "segments count", code: "PW701", node: aws, change: with(func(_ *node, p *prober) { p.after[0].Held.Packets = p.before[0].Held.Packets + 3 }), want: doctor.OK, seen: "1 of 1"},
		{name: "idle", code: "PW701", node: aws, change: watch(5, 0), want: doctor.Skip, seen: "no limit had traffic"},
		{name: "pod gone", code: "PW701", node: aws, change: with(func(_ *node, p *prober) { p.after[0].Err = "no such device" }), want: doctor.Unknown, seen: "no such device"},
		{name: "counters unread", code: "PW701", node: aws, change: broken, want: doctor.Unknown, seen: "no such luck"},
	}
}

// TestProbeIsAskedFor: without a probe its checks are not in the report, with
// one each names what it touches.
func TestProbeIsAskedFor(t *testing.T) {
	n := aws()
	for _, o := range n.report(t).Checks {
		if o.Category == doctor.CategoryProbe {
			t.Errorf("%s is in a report without a probe", o.Code)
		}
	}
	n.prober = flows(n, 100, 100)
	found := 0
	for _, o := range n.report(t).Checks {
		if o.Category != doctor.CategoryProbe {
			continue
		}
		if found++; o.Touches == "" || o.Status != doctor.OK && o.Status != doctor.Skip {
			t.Errorf("%s %s: %s; touches %q", o.Code, o.Status, o.Seen, o.Touches)
		}
	}
	if found != 1 {
		t.Errorf("%d checks of the probe, want one", found)
	}
}

// TestNRI: the one delivery that no profile has by itself.
func TestNRI(t *testing.T) {
	const off = "[plugins.\"io.containerd.nri.v1.nri\"]\n  disable = true\n[other]\n  disable = false\n"
	for name, tc := range map[string]struct {
		sockets []string
		config  string
		want    doctor.Status
	}{
		"listens":         {[]string{"/run/nri/nri.sock"}, off, doctor.OK},
		"off":             {[]string{"/x"}, off, doctor.Fail},
		"none listens":    {[]string{"/x"}, "", doctor.Fail},
		"nothing is seen": {nil, "", doctor.Unknown},
		"off, unseen":     {nil, off, doctor.Fail},
	} {
		t.Run(name, func(t *testing.T) {
			n := aws()
			n.sockets = tc.sockets
			n.files["etc/containerd/config.toml"] = tc.config
			root := n.root()
			f := doctor.Gather(t.Context(), root, detect.Read(t.Context(), root, n.opts), doctor.Options{Kernel: n.kernel})
			f.Choice.Delivery = profiles.NRI
			checks := doctor.Run(f).Checks
			at := slices.IndexFunc(checks, func(o doctor.Outcome) bool { return o.Code == "PW115" })
			if got := checks[at]; got.Status != tc.want {
				t.Errorf("PW115 = %s: %s, want %s", got.Status, got.Seen, tc.want)
			}
		})
	}
}

// No file shows the deliveries nri and watch: who runs the doctor says so.
func TestDeliveryThatWasAskedFor(t *testing.T) {
	for asked, want := range map[profiles.Delivery]doctor.Status{
		"": doctor.Fail, "auto": doctor.Fail, profiles.Chain: doctor.Fail, profiles.NRI: doctor.Skip, profiles.Watch: doctor.Skip,
	} {
		n := aws()
		delete(n.files, own)
		n.files["proc/77/comm"], n.files["proc/77/cmdline"] = "podweir\n", "podweir\x00agent\x00"
		root := n.root()
		rep := doctor.Run(doctor.Gather(t.Context(), root, detect.Read(t.Context(), root, n.opts),
			doctor.Options{Kernel: n.kernel, Delivery: asked}))
		at := slices.IndexFunc(rep.Checks, func(o doctor.Outcome) bool { return o.Code == "PW202" })
		if got := rep.Checks[at]; got.Status != want {
			t.Errorf("requested %q, without podweir in the chain: PW202 = %s: %s, want %s", asked, got.Status, got.Seen, want)
		}
		if asked.ByAgent() && rep.Delivery != string(asked) {
			t.Errorf("requested %q: the delivery is %q", asked, rep.Delivery)
		}
	}
}

// Behind a link is another mount: on Fedora CoreOS / is mounted read-only, and /opt leads to /var.
func TestWritableBehindALink(t *testing.T) {
	for mounts, want := range map[string]profiles.Delivery{
		"/dev/sda9 / ext4 ro 0 0\n/dev/sda8 /etc ext4 rw 0 0\n/dev/sda8 /var ext4 rw 0 0\n": profiles.DropIn,
		"/dev/sda9 /var ext4 ro 0 0\n": profiles.Watch,
	} {
		n := aws()
		n.files["proc/1/mounts"] += mounts
		n.exec = nil
		root := n.root()
		root["opt"] = &fstest.MapFile{Data: []byte("var/../var/opt"), Mode: fs.ModeSymlink | 0o777}
		for _, plugin := range []string{"podweir-cni", "aws-cni"} {
			root["var/opt/cni/bin/"+plugin] = &fstest.MapFile{Mode: 0o755}
		}
		f := doctor.Gather(t.Context(), root, detect.Read(t.Context(), root, n.opts), doctor.Options{})
		if f.PluginBinary.Path == "" || f.Choice.Delivery != want {
			t.Errorf("%q: binary %+v, delivery %s: %s; want %s", mounts, f.PluginBinary, f.Choice.Delivery, f.Choice.Why, want)
		}
	}
}

// TestHandedThatWasAskedFor says how the primary CNI takes podweir into its chain
// until it has.
func TestHandedThatWasAskedFor(t *testing.T) {
	for name, tc := range map[string]struct {
		asked  profiles.Delivery
		handed bool
		want   doctor.Status
		fix    string
	}{
		"not yet":  {profiles.Handed, false, doctor.Warn, "cni.configMap=podweir-cni-configuration"},
		"done":     {profiles.Handed, true, doctor.OK, ""},
		"auto":     {"auto", false, doctor.OK, ""},
		"not said": {"", true, doctor.OK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := cilium()
			if tc.handed {
				delete(n.files, net+"cilium/50-podweir.conf")
				n.files[net+"05-cilium.conflist"] = strings.Replace(n.files[net+"05-cilium.conflist"], "]}", ","+conflist.DefaultEntry+"]}", 1)
			}
			root := n.root()
			rep := doctor.Run(doctor.Gather(t.Context(), root, detect.Read(t.Context(), root, n.opts),
				doctor.Options{Kernel: n.kernel, Delivery: tc.asked}))
			at := slices.IndexFunc(rep.Checks, func(o doctor.Outcome) bool { return o.Code == "PW210" })
			if got := rep.Checks[at]; got.Status != tc.want || !strings.Contains(got.Fix, tc.fix) {
				t.Errorf("PW210 = %s: %s; fix: %s, want %s with %q", got.Status, got.Seen, got.Fix, tc.want, tc.fix)
			}
		})
	}
}

// TestHandedWithOtherSettings: an entry in the CNI's own chain that has not the node's
// settings is told of, and where these are not known the commands say so.
func TestHandedWithOtherSettings(t *testing.T) {
	entry := strings.TrimSuffix(conflist.DefaultEntry, "}") + `,"maxRate":"1G"}`
	plain := "add the chart's defaults to podweir's entry"
	for name, tc := range map[string]struct {
		// has is podweir's entry in the chain, told that of the node, "" if it is not known.
		has, told string
		want      doctor.Status
		seen, fix string
	}{
		"not yet":            {"", entry, doctor.Warn, "until Cilium", `.plugins += [` + entry + `]`},
		"not yet, not known": {"", "", doctor.Warn, "until Cilium", "> cni-config && kubectl"},
		"as it should be":    {entry, entry, doctor.OK, "delivery handed", ""},
		"with others":        {conflist.DefaultEntry, entry, doctor.Warn, "podweir is in 05-cilium.conflist with other settings than this node: maxRate", ` = ` + entry + `' `},
		"not known":          {conflist.DefaultEntry, "", doctor.OK, "delivery handed", ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := cilium()
			if tc.has != "" {
				delete(n.files, net+"cilium/50-podweir.conf")
				n.files[net+"05-cilium.conflist"] = strings.Replace(n.files[net+"05-cilium.conflist"], "]}", ","+tc.has+"]}", 1)
			}
			root := n.root()
			rep := doctor.Run(doctor.Gather(t.Context(), root, detect.Read(t.Context(), root, n.opts), doctor.Options{
				Kernel: n.kernel, Delivery: profiles.Handed, Handed: func(*detect.Node) string { return tc.told },
			}))
			at := slices.IndexFunc(rep.Checks, func(o doctor.Outcome) bool { return o.Code == "PW210" })
			got := rep.Checks[at]
			if got.Status != tc.want || !strings.Contains(got.Seen, tc.seen) || !strings.Contains(got.Fix, tc.fix) {
				t.Errorf("PW210 = %s: %s; fix: %s, want %s: %s with %q", got.Status, got.Seen, got.Fix, tc.want, tc.seen, tc.fix)
			}
			if said := strings.Contains(got.Fix+strings.Join(got.Evidence, " "), plain); said != (tc.told == "") {
				t.Errorf("PW210 says that the defaults are not known: %v; fix %s, evidence %q", said, got.Fix, got.Evidence)
			}
		})
	}
}

// felixFilter is what Felix puts on the device of a pod with a limit of egress.
var felixFilter = judge.Program{Kind: terms.HookKindClsact, Hook: terms.HookIngress, FilterKind: "u32", Pref: 1, FilterHandle: 0x80000800}

// hooked puts programs on the hooks of the first pod's device.
func hooked(in, out []judge.Program) func(*node) {
	return func(n *node) {
		n.kernel.devices[0].In.Programs, n.kernel.devices[0].Out.Programs = in, out
	}
}

// besideFindings are about what real neighbours were seen to do.
func besideFindings() []finding {
	withBandwidth := func(n *node) {
		n.files[net+"10-aws.conflist"] = strings.Replace(awsList, "]}", bottled, 1)
		n.spliceIn("10-aws.conflist")
	}
	// result has libcni keep what the plugins answered.
	result := func(text string) func(*node) {
		return func(n *node) {
			n.files[results+"aws-cni-c2-eth0"] = strings.Replace(cached("c2", limited), `"result":{}`, text, 1)
			n.files["run/netns/cni-1"] = ""
		}
	}
	const interfaces = `"result":{"cniVersion":"0.4.0","interfaces":[{"name":"eni1"},{"name":"eth0","sandbox":"/var/run/netns/%s"},{"name":"dummy1","mac":"0","sandbox":"0"}]}`
	// paced is a node whose Cilium has its manager on, with these qdiscs on its devices.
	paced := func(devices, keys string, queues map[string][]string) func(*node) {
		return func(n *node) {
			managed("1.20.2", keys)(n)
			n.live = agent{health: strings.Replace(n.live.(agent).health, `"enabled":true`, `"enabled":true,"devices":`+devices, 1)}
			n.settings("enable-bandwidth-manager", "true")
			n.kernel.queues = queues
			n.kernel.attached = nil
		}
	}
	renamed := func(n *node) {
		delete(n.files, net+"cilium/50-podweir.conf")
		n.files[net+"00-podweir-05-.conflist.cilium_bak"] = "{}"
	}
	pfifo := map[string][]string{"eth0": {"mq", "pfifo_fast"}, "eth1": {"mq", "fq"}}
	return append(besideFelixFindings(), []finding{
		{name: "a cure in the agent's pod", code: "PW602", node: aws, change: func(n *node) {
			n.kernel.attached[0].Drift, n.run = []string{"no root qdisc"}, "kubectl -n kube-system exec podweir-x -- podweir"
		}, want: doctor.Fail, seen: "no root qdisc", fix: "kubectl -n kube-system exec podweir-x -- podweir repair"},
		{name: "a cure for the cluster", code: "PW608", node: aws, change: func(n *node) { n.kernel.attached[0].Gone, n.run = true, terms.ByKubectl }, want: doctor.Warn, seen: "default/web", fix: "kubectl podweir exec NODE -- podweir gc"},
		{name: "renamed, and drop-ins are read", code: "PW214", node: cilium, change: renamed, want: doctor.Fail, seen: "cilium_bak", fix: "podweir install, which takes the delivery drop-in"},
		{name: "renamed, and drop-ins are not read", code: "PW214", node: cilium, change: func(n *node) { renamed(n); n.opts.Runtime = "containerd://1.7.2" }, want: doctor.Fail, seen: "cilium_bak", fix: "cni.configMap"},
		{name: "manager without fq", code: "PW404", node: cilium, change: paced(`["eth0","eth1"]`, "", pfifo), want: doctor.Warn, seen: "Cilium's bandwidth manager is on, and eth0 (mq, pfifo_fast) has no fq", fix: "bandwidthManager.enabled=false"},
		{name: "manager with fq", code: "PW404", node: cilium, change: paced(`["eth1"]`, "", pfifo), want: doctor.OK, seen: "agree, and its devices have fq"},
		{name: "manager on a kernel without fq", code: "PW404", node: cilium, change: func(n *node) {
			paced(`null`, "", nil)(n)
			n.kernel.features.Queues["fq"] = profiles.No
		}, want: doctor.Warn, seen: "the kernel has no fq", fix: "bandwidthManager.enabled=false"},
		{name: "manager, and nothing known of its devices", code: "PW404", node: cilium, change: paced(`null`, "", nil), want: doctor.OK, seen: "agree"},
		{name: "left to a manager without fq", code: "PW409", node: cilium, change: paced(`["eth0"]`, `,"shaper":"cilium"`, pfifo), want: doctor.Fail, seen: "leaves egress limits to Cilium's bandwidth manager, and eth0 (mq, pfifo_fast) has no fq", fix: "shaper=podweir"},
		{name: "left to a manager with fq", code: "PW409", node: cilium, change: paced(`["eth1"]`, `,"shaper":"cilium"`, pfifo), want: doctor.OK, seen: "egress and ingress limits to Cilium's"},
		{name: "ingress alone is left to it", code: "PW409", node: cilium, change: paced(`["eth0"]`, `,"ingressShaper":"cilium"`, pfifo), want: doctor.OK, seen: "ingress limits to Cilium's"},
		{name: "a pod whose DEL failed", code: "PW605", node: aws, change: func(n *node) { result(fmt.Sprintf(interfaces, "cni-2"))(n) }, want: doctor.OK, seen: "0 of 0"},
		{name: "a pod whose DEL failed, newer libcni", code: "PW605", node: aws, change: func(n *node) { result(`"netns":"/run/netns/cni-2"`)(n) }, want: doctor.OK, seen: "0 of 0"},
		{name: "a pod of before the boot", code: "PW605", node: aws, change: func(n *node) {
			result(fmt.Sprintf(interfaces, "cni-2"))(n)
			delete(n.files, "run/netns/cni-1")
			n.files["run/x"] = ""
		}, want: doctor.OK, seen: "0 of 0"},
		{name: "a pod that asks by podweir's annotation", code: "PW605", node: aws, change: asking(doctor.Sandbox{Asks: tenM}), want: doctor.Warn, seen: "podweir has no record of default/asks", fix: "recreate these pods"},
		{name: "a pod that misspelt it, an agent", code: "PW605", node: aws, change: func(n *node) {
			asking(doctor.Sandbox{Misspelt: []string{"x-rate, did you mean y-rate?"}})(n)
			n.kernel.agent = &doctor.Agent{}
		}, want: doctor.Warn, seen: "default/asks, whose annotation is misspelt: x-rate, did you mean"},
		{name: "a pod whose limits are left to others", code: "PW605", node: aws, change: asking(doctor.Sandbox{Asks: tenM, Left: true}), want: doctor.OK, seen: "0 of 1"},
		{name: "a pod that asks for nothing", code: "PW605", node: aws, change: func(n *node) {
			asking(doctor.Sandbox{})(n)
			n.files[results+"aws-cni-c1-eth0"] = cached("c1", limited)
		}, want: doctor.OK, seen: "1 of 1"},
		{name: "a pod whose annotation was removed, an agent", code: "PW605", node: aws, change: func(n *node) {
			asking(doctor.Sandbox{Asks: tenM})(n)
			n.files[results+"aws-cni-c2-eth0"] = cached("c2", limited)
			n.kernel.agent = &doctor.Agent{NotReady: []doctor.Part{{Name: "delivery", Reason: "no chain"}}}
		}, want: doctor.OK, seen: "0 of 2"},
		{name: "a pod that asks, an agent that does not know the pods", code: "PW605", node: aws, change: func(n *node) {
			asking(doctor.Sandbox{Asks: tenM})(n)
			n.kernel.agent = &doctor.Agent{NotReady: []doctor.Part{{Name: "api", Reason: "403"}}}
		}, want: doctor.Warn, seen: "default/asks"},
		{name: "a pod that is there", code: "PW605", node: aws, change: func(n *node) { result(fmt.Sprintf(interfaces, "cni-1"))(n) }, want: doctor.Warn, seen: "default/early", fix: "recreate these pods"},
		{name: "a pod whose namespace nobody can see", code: "PW605", node: aws, change: func(n *node) { result(`"netns":"/elsewhere/cni-2"`)(n) }, want: doctor.Warn, seen: "default/early", fix: "recreate these pods"},
		{name: "bandwidth, replaced", code: "PW301", node: aws, change: withBandwidth, want: doctor.Warn, seen: "bandwidth is in 10-aws.conflist, and podweir's file replaces it: once podweir is uninstalled, pods with an egress limit do not start", fix: "ENABLE_BANDWIDTH_PLUGIN=false"},
		{name: "bandwidth, replaced, without policy", code: "PW301", node: aws, change: func(n *node) {
			withBandwidth(n)
			n.files["proc/4/cmdline"] = "/controller\x00--enable-network-policy=false\x00"
		}, want: doctor.Skip, seen: "does not enforce"},
	}...)
}

// besideFelixFindings are about Calico's agent, and about programs that are not podweir's.
func besideFelixFindings() []finding {
	type list = []judge.Program
	ciliumOut := judge.Program{Kind: terms.HookKindTCX, Hook: terms.HookEgress, ProgramID: 11, Name: "cil_to_containe"}
	u32Out := felixFilter
	u32Out.Hook = terms.HookEgress
	standard := func(is bool, f func(*node)) func(*node) {
		return func(n *node) { f(n); n.kernel.attached[0].Standard = is }
	}
	return []finding{
		{name: "left to Felix, and podweir's own rate", code: "PW403", node: calico, change: standard(false, felix(`,"shaper":"calico"`, 20_000_000)), want: doctor.OK, seen: "are left to it"},
		{name: "left to Felix, and still shaped", code: "PW403", node: calico, change: standard(true, felix(`,"shaper":"calico"`, 20_000_000)), want: doctor.Warn, seen: "podweir still shapes default/web", fix: "podweir detach"},
		{name: "Felix's limit is before podweir's", code: "PW403", node: calico, change: felix("", 20_000_000), want: doctor.Fail, seen: "its limit is before podweir's on default/web", fix: "1P"},
		{name: "Felix's filter", code: "PW502", node: calico, change: hooked(list{felixFilter}, nil), want: doctor.OK, seen: "none on 1"},
		{name: "Felix's kind of filter on the other hook", code: "PW502", node: calico, change: hooked(nil, list{u32Out}), want: doctor.Warn, seen: "egress: u32 filter at preference 1", fix: "tc filter show dev eni0123456789a egress"},
		{name: "a u32 filter without Calico", code: "PW502", node: ptp, change: hooked(list{felixFilter}, nil), want: doctor.Warn, seen: "u32 filter", fix: "tc filter show dev eni0123456789a ingress"},
		{name: "a program and its id", code: "PW502", node: ptp, change: hooked(list{{Kind: terms.HookKindTCX, ProgramID: 9, Name: "tracer"}}, nil), want: doctor.Warn, seen: "tracer (program 9)", fix: "bpftool prog show id 9"},
		{name: "Cilium with endpoint routes and BPF host routing", code: "PW502", node: cilium, change: func(n *node) {
			n.live = agent{health: n.live.(agent).health, config: `{"status":{"daemonConfigurationMap":{"EnableEndpointRoutes":true}}}`}
			n.kernel.devices[0].Out.Programs = list{ciliumOut}
		}, want: doctor.OK, seen: "none on 1"},
		{name: "Cilium 1.15 with endpoint routes and BPF host routing", code: "PW502", node: cilium, change: func(n *node) {
			n.live = agent{health: `{"cilium":{"msg":"1.15.19 (v1.15.19-0000000)"},"host-routing":{"mode":"BPF"}}`, config: `{"status":{"daemonConfigurationMap":{"EnableEndpointRoutes":true},"datapathMode":"veth"}}`}
			n.kernel.devices[0].Out.Programs = list{ciliumOut}
		}, want: doctor.OK, seen: "none on 1"},
	}
}

// tenM is what a pod asks for by podweir's own annotation, of which libcni knows nothing.
var tenM = []terms.Ask{{Direction: terms.Egress, Name: "podweir.io/egress-rate", Value: "10M"}}

// asking has the container runtime know a pod.
func asking(s doctor.Sandbox) func(*node) {
	s.ContainerID, s.Pod = "c9", "default/asks"
	return func(n *node) { n.kernel.asking = []doctor.Sandbox{s} }
}
