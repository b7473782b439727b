// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor_test

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
)

const (
	own     = net + "00-podweir-10-aws.conflist"
	list    = `{"cniVersion":"1.0.0","name":"cilium","plugins":[{"type":"cilium-cni"}]}`
	bottled = `,{"type":"bandwidth","capabilities":{"bandwidth":true}}]}`
)

// finding is one fault on an otherwise healthy node.
type finding struct {
	name   string
	code   string
	node   func() *node
	change func(n *node)
	want   doctor.Status
	seen   string
	not    string // seen does not have it
	fix    string
}

// set writes a file of the node, edit changes one, and without removes one.
func set(file, content string) func(*node) { return func(n *node) { n.files[file] = content } }

func edit(file, before, after string) func(*node) {
	return func(n *node) {
		if !strings.Contains(n.files[file], before) {
			panic(file + " has no " + before)
		}
		n.files[file] = strings.Replace(n.files[file], before, after, 1)
	}
}

func without(files ...string) func(*node) {
	return func(n *node) {
		for _, file := range files {
			delete(n.files, file)
		}
	}
}

// with makes several changes, one after the other.
func with(changes ...func(*node)) func(*node) {
	return func(n *node) {
		for _, change := range changes {
			change(n)
		}
	}
}

// settings are of Cilium's agent, runtime is what the operator says of it.
func settings(pairs ...string) func(*node) { return func(n *node) { n.settings(pairs...) } }
func runtimeIs(runtime string) func(*node) { return func(n *node) { n.opts.Runtime = runtime } }

func nodeFindings() []finding {
	return []finding{
		{name: "old kernel", code: "PW101", node: aws, change: set("proc/sys/kernel/osrelease", "5.10.1-x"), want: doctor.Fail, seen: "Linux 5.10.1-x", fix: "node image"},
		{name: "untested kernel", code: "PW101", node: aws, change: set("proc/sys/kernel/osrelease", "5.15.0"), want: doctor.Warn, seen: "Linux 5.15.0", fix: "node image"},
		{name: "newest kernel", code: "PW101", node: aws, change: set("proc/sys/kernel/osrelease", "7.0-rc1"), want: doctor.OK, seen: "7.0-rc1"},
		{name: "no release", code: "PW101", node: aws, change: set("proc/sys/kernel/osrelease", "x"), want: doctor.Unknown, seen: `"x"`},
		{name: "no bpffs", code: "PW102", node: aws, change: set("proc/1/mounts", "tmpfs /sys/fs/bpf tmpfs rw 0 0\n"), want: doctor.Fail, seen: "nothing is mounted", fix: "mount -t bpf bpf /sys/fs/bpf"},
		{name: "read-only bpffs", code: "PW102", node: aws, change: set("proc/1/mounts", "bpf /sys/fs/bpf bpf ro,nosuid 0 0\n"), want: doctor.Fail, seen: "read-only", fix: "remount,rw"},
		{name: "no mounts", code: "PW102", node: aws, change: set("proc/1/mounts", ""), want: doctor.Unknown, seen: "cannot be read"},
		{name: "locked down, types", code: "PW116", node: aws, change: set("sys/kernel/security/lockdown", "none integrity [confidentiality]"), want: doctor.Warn, seen: "may not read", fix: "integrity"},
		{name: "no types", code: "PW116", node: aws, change: without("sys/kernel/btf/vmlinux"), want: doctor.Warn, seen: "no types (BTF)", fix: "CONFIG_DEBUG_INFO_BTF"},
		{name: "no queue", code: "PW106", node: aws, change: func(n *node) { n.kernel.features = nil }, want: doctor.Fail, seen: "none of tbf", fix: "modprobe sch_tbf"},
		{name: "kernel fails", code: "PW106", node: aws, change: func(n *node) { n.kernel.err = errors.New("EPERM here") }, want: doctor.Unknown, seen: "EPERM here"},
		{name: "blind", code: "PW107", node: aws, change: func(n *node) {
			for _, pid := range []string{"2", "3"} {
				delete(n.files, "proc/"+pid+"/comm")
			}
			n.sockets = nil
		}, want: doctor.Warn, seen: "no kubelet and no container runtime among the processes; listening sockets", fix: "--root /host"},
		{name: "CRI-O 1.33", code: "PW108", node: aws, change: runtimeIs("cri-o://1.33.0"), want: doctor.OK, seen: "cri-o 1.33.0, reads drop-in directories: yes"},
		{name: "docker", code: "PW108", node: aws, change: runtimeIs("docker://28.1.1"), want: doctor.Warn, seen: "docker 28.1.1", fix: "--runtime"},
		{name: "no runtime", code: "PW108", node: aws, change: func(n *node) { n.opts.Runtime = ""; delete(n.files, "proc/3/comm") }, want: doctor.Unknown, seen: "no container runtime"},
		{name: "unknown CNI", code: "PW109", node: ptp, change: set(net+"10-x.conflist", strings.Replace(list, "cilium-cni", "home-made", 1)), want: doctor.Warn, seen: "home-made", fix: "report it"},
		{name: "assumed", code: "PW109", node: aws, change: without("proc/4/comm"), want: doctor.Warn, seen: "aws network policy agent enforces is not known", fix: "report it"},
		{name: "assumed, blind", code: "PW109", node: aws, change: func(n *node) {
			for _, pid := range []string{"2", "3", "4"} {
				delete(n.files, "proc/"+pid+"/comm")
			}
		}, want: doctor.Warn, seen: "aws network policy agent enforces is not known", fix: "PW107"},
	}
}

// cached is a result as libcni keeps it.
func cached(container, capability string) string {
	return `{"kind":"cniCacheV1","containerId":"` + container + `","ifName":"eth0","networkName":"aws-cni","config":"e30=",` +
		`"cniArgs":[["K8S_POD_NAMESPACE","default"],["K8S_POD_NAME","early"]],"capabilityArgs":` + capability + `,"result":{}}`
}

// troubled is a node where something is wrong with the limit of the one pod that has one.
func troubled(f terms.Fault, cure string, causes ...string) func(*node) {
	return func(n *node) {
		n.kernel.troubles = append(n.kernel.troubles, terms.Trouble{Fault: f, Pod: "default/web", Container: "c1", Causes: causes, Cure: cure})
	}
}

// failing is a node where that pod could not be shaped.
func failing(reason string) func(*node) { return troubled(terms.FaultUnshaped, "status", reason) }

// late is a pod whose network the agent cannot find.
func late(n *node) {
	n.kernel.troubles = []terms.Trouble{{
		Fault: terms.FaultOverdue, Pod: "default/early", Since: time.Unix(1_800_000_000, 0), Causes: []string{"interface eth0: gone"}, Cure: "podweir explain PW610",
	}}
}

// agentOn is a node with podweir's agent.
func agentOn(n *node) {
	n.files["proc/6/comm"] = "podweir\n"
	n.files["proc/6/cmdline"] = "podweir\x00agent\x00--config=/etc/podweir/agent.yaml\x00"
}

const results = "var/lib/cni/results/"

// multusCalls has Multus call podweir's file.
func multusCalls(n *node) {
	n.opts.Runtime = "containerd://1.7.27"
	n.files["etc/cni/net.d/00-podweir-10-aws.conflist"] = `{"podweir":{"source":"10-aws.conflist","sha256":"x"},"cniVersion":"1.0.0","name":"aws-cni","plugins":[{"type":"aws-cni"},{"type":"podweir-cni","capabilities":{"bandwidth":true,"io.kubernetes.cri.pod-annotations":true}}]}`
	n.files["etc/cni/net.d/00-multus.conf"] = `{"cniVersion":"1.0.0","name":"multus-cni-network","type":"multus-shim","clusterNetwork":"/host/etc/cni/net.d/00-podweir-10-aws.conflist"}`
}

const limited = `{"bandwidth":{"ingressRate":1000000,"ingressBurst":4294967295}}`

// machineFindings are about what surrounds podweir on the node.
func machineFindings() []finding {
	return []finding{
		{name: "all networks", code: "PW114", node: aws, change: set("etc/containerd/config.toml", max0), want: doctor.Fail, seen: "max_conf_num is 0", fix: "max_conf_num = 1"},
		{name: "all networks, no file of ours", code: "PW114", node: cilium, change: set("etc/containerd/config.toml", max0), want: doctor.Warn, seen: "max_conf_num is 0", fix: "max_conf_num = 1"},
		{name: "one network", code: "PW114", node: aws, change: set("etc/containerd/config.toml", strings.Replace(max0, "= 0", "= 1", 1)), want: doctor.OK, seen: "one network is loaded"},
		{name: "two networks for a handler", code: "PW114", node: aws, change: set("etc/containerd/config.toml", apart+"'/etc/cni/net.d'\ncni_max_conf_num = 2\n"), want: doctor.Fail, seen: "max_conf_num is 2", fix: "of a handler: cni_max_conf_num"},
		{name: "two agents", code: "PW220", node: aws, change: func(n *node) {
			for pid, pod := range map[string]string{"91": "kube-system/podweir-a", "92": "other/podweir-b"} {
				n.files["proc/"+pid+"/comm"] = "podweir\n"
				n.files["proc/"+pid+"/cmdline"] = "/podweir\x00agent\x00--pod=" + pod + "/0b-1\x00"
			}
		}, want: doctor.Warn, seen: "2 agents of podweir run on the node: kube-system/podweir-a, other/podweir-b", fix: "helm uninstall"},
		{name: "an agent and a command", code: "PW220", node: aws, change: func(n *node) {
			n.files["proc/91/comm"], n.files["proc/91/cmdline"] = "podweir\n", "podweir\x00agent\x00"
			n.files["proc/92/comm"], n.files["proc/92/cmdline"] = "podweir\n", "podweir\x00doctor\x00"
		}, want: doctor.OK, seen: "process 91"},
		{name: "no agent", code: "PW220", node: aws, change: set("x", ""), want: doctor.Skip, seen: "no agent"},
		{name: "capability of a drop-in", code: "PW207", node: cilium, change: set(net+"cilium/50-podweir.conf", `{"type":"podweir-cni","capabilities":{"bandwidth":true}}`), want: doctor.Fail, seen: "pod-annotations", fix: "/etc/cni/net.d/cilium/50-podweir.conf"},
		{name: "two interfaces", code: "PW604", node: aws, change: func(n *node) {
			second := n.kernel.devices[0]
			second.Name = "eniother"
			n.kernel.devices = append(n.kernel.devices, second)
		}, want: doctor.Warn, seen: "2 interfaces of one pod: [eni0123456789a eniother]", fix: "each"},
		{name: "two interfaces of a pod without a limit", code: "PW604", node: aws, change: func(n *node) {
			second := n.kernel.devices[0]
			second.Name = "eniother"
			n.kernel.devices = append(n.kernel.devices, second)
			n.kernel.attached = nil
		}, want: doctor.OK, seen: "1 pods"},
		{name: "two interfaces, shared limit", code: "PW604", node: aws, change: func(n *node) {
			second := n.kernel.devices[0]
			second.Name = "eniother"
			n.kernel.devices = append(n.kernel.devices, second)
			n.files[own] = strings.Replace(n.files[own], `"type":"podweir-cni"`, `"interfaces":"shared","type":"podweir-cni"`, 1)
		}, want: doctor.OK, seen: "share its limit"},
		{name: "early pod", code: "PW605", node: aws, change: set(results+"aws-cni-c2-eth0", cached("c2", limited)), want: doctor.Warn, seen: "default/early (eth0, network aws-cni)", fix: "recreate these pods, or run podweir agent"},
		{name: "pod that ends", code: "PW605", node: aws, change: func(n *node) {
			n.files[results+"aws-cni-c1-eth0"], n.files[results+"aws-cni-c2-eth0"] = cached("c1", limited), cached("c2", limited)
			n.kernel.meanwhile = func() { delete(n.inUse, results+"aws-cni-c2-eth0") }
		}, want: doctor.OK, seen: "1 of 1"},
		{name: "pod whose network is taken down", code: "PW605", node: aws, change: func(n *node) {
			n.files[results+"aws-cni-c1-eth0"], n.files[results+"aws-cni-c2-eth0"] = cached("c1", limited), cached("c2", limited)
			n.kernel.asking = []doctor.Sandbox{{ContainerID: "c1"}}
		}, want: doctor.OK, seen: "1 of 2"},
		{name: "early pod that the runtime lists", code: "PW605", node: aws, change: func(n *node) {
			n.files[results+"aws-cni-c2-eth0"] = cached("c2", limited)
			n.kernel.asking = []doctor.Sandbox{{ContainerID: "c1"}, {ContainerID: "c2"}}
		}, want: doctor.Warn, seen: "default/early (eth0, network aws-cni)"},
		{name: "pod attached a moment ago", code: "PW605", node: aws, change: func(n *node) {
			n.files[results+"aws-cni-c1-eth0"], n.files[results+"aws-cni-c2-eth0"] = cached("c1", limited), cached("c2", limited)
			n.kernel.attached = append(n.kernel.attached, doctor.Attachment{ContainerID: "c2", Young: true})
		}, want: doctor.OK, seen: "1 of 1"},
		{name: "early pod, agent", code: "PW605", node: aws, change: with(set(results+"aws-cni-c2-eth0", cached("c2", limited)), agentOn), want: doctor.Warn, seen: "default/early (eth0, network aws-cni)", fix: "its log says why"},
		{name: "early pod, not in the chain", code: "PW605", node: aws, change: with(set(results+"aws-cni-c2-eth0", cached("c2", limited)), without(own)), want: doctor.Warn, seen: "default/early", fix: "first put podweir into the chain"},
		{name: "failed pod", code: "PW605", node: aws, change: with(set(results+"aws-cni-c1-eth0", cached("c1", limited)), failing("boom")), want: doctor.OK, seen: "could not shape 1 of them (PW601)"},
		{name: "pod that the agent could not limit", code: "PW605", node: aws, change: func(n *node) {
			n.files[results+"aws-cni-c2-eth0"] = cached("c2", limited)
			n.kernel.troubles = []terms.Trouble{{Fault: terms.FaultUnshaped, Pod: "default/early", Causes: []string{"boom"}}}
		}, want: doctor.OK, seen: "could not shape 1 of them (PW601)"},
		{name: "of cri-dockerd, which has another cache", code: "PW605", node: aws, change: func(n *node) {
			n.files["proc/7/comm"], n.files["proc/7/cmdline"] = "cri-dockerd\n", "/usr/bin/cri-dockerd\x00"
			n.files["var/lib/cni/cache/results/aws-cni-c2-eth0"] = cached("c2", limited)
		}, want: doctor.Warn, seen: "default/early (eth0, network aws-cni)"},
		{name: "Multus calls podweir's file", code: "PW208", node: aws, change: multusCalls, want: doctor.Warn, seen: "00-multus.conf calls 00-podweir-10-aws.conflist", fix: "multusMasterCNI"},
		{name: "Multus calls podweir's file, the chain", code: "PW202", node: aws, change: multusCalls, want: doctor.OK, seen: "aws-cni → podweir-cni"},
		{name: "Multus calls podweir's file, the delivery", code: "PW210", node: aws, change: multusCalls, want: doctor.OK, seen: "00-multus.conf calls"},
		{name: "known pod", code: "PW605", node: aws, change: set(results+"aws-cni-c1-eth0", cached("c1", limited)), want: doctor.OK, seen: "1 of 1"},
		{name: "pod without limit", code: "PW605", node: aws, change: set(results+"aws-cni-c2-eth0", cached("c2", `{"portMappings":[]}`)), want: doctor.OK, seen: "0 of 1"},
		{name: "loopback", code: "PW605", node: aws, change: set(results+"cni-loopback-c2-lo", strings.ReplaceAll(cached("c2", limited), "eth0", "lo")), want: doctor.OK, seen: "0 of 0"},
		{name: "torn result", code: "PW605", node: aws, change: set(results+"aws-cni-c2-eth0", cached("c2", limited)[:40]), want: doctor.OK, seen: "0 of 0"},
		{name: "huge result", code: "PW605", node: aws, change: set(results+"x", strings.Repeat(" ", 10<<20)), want: doctor.OK, seen: "0 of 0"},
		{name: "no results", code: "PW605", node: aws, change: set("x", ""), want: doctor.Skip, seen: "keeps no results"},
	}
}

func ptp() *node {
	n := aws()
	delete(n.files, net+"10-aws.conflist")
	delete(n.files, own)
	for _, pid := range []string{"4", "5"} {
		delete(n.files, "proc/"+pid+"/comm")
	}
	n.files[net+"10-x.conflist"] = strings.Replace(list, "cilium-cni", "ptp", 1)
	n.kernel.devices[0].In.Programs, n.kernel.devices[0].Out.Programs = nil, nil
	return n
}

// unreadable makes a directory with the primary CNI's file and one that only root may read.
func unreadable(name string, crio bool) func(*node) {
	return func(n *node) {
		list, err := conflist.Parse("10-aws.conflist", []byte(awsList))
		if err != nil {
			panic(err)
		}
		err = &conflist.Error{File: name, Err: fs.ErrPermission}
		n.opts.Conf = &conflist.Dir{Path: "etc/cni/net.d", Files: []conflist.File{{Name: "10-aws.conflist", Network: list}}}
		if name == conflist.DropInFile {
			n.opts.Conf.DropIns = map[string][]conflist.DropInConf{"aws-cni": {{Name: name, Err: err}}}
		} else {
			n.opts.Conf.Files = append(n.opts.Conf.Files, conflist.File{Name: name, Err: err})
		}
		slices.SortFunc(n.opts.Conf.Files, func(a, b conflist.File) int { return strings.Compare(a.Name, b.Name) })
		if crio {
			n.opts.Conf.ForCRIO("", nil)
		}
	}
}

func chainFindings() []finding {
	byHand := func(types ...string) string {
		return `{"name":"aws-cni","plugins":[{"type":"` + strings.Join(types, `"},{"type":"`) + `"},` + conflist.DefaultEntry + `]}`
	}
	vm := set("etc/containerd/config.toml", apart+"'/etc/cni/vm.d'\n")
	const bandwidthFirst = `{"cniVersion":"1.0.0","name":"aws-cni","plugins":[{"type":"bandwidth"},{"type":"aws-cni"},{"type":"portmap"}]}`
	return []finding{
		{name: "no directory", code: "PW201", node: aws, change: func(n *node) { n.opts.ConfDir = "nowhere" }, want: doctor.Fail, seen: "/nowhere cannot be read", fix: "--cni-conf-dir"},
		{name: "empty directory", code: "PW201", node: aws, change: func(n *node) { n.opts.ConfDir = "etc/empty"; n.files["etc/empty/README"] = "" }, want: doctor.Fail, seen: "has no network", fix: "restart"},
		{name: "broken file in force", code: "PW201", node: aws, change: set(net+"00-a.conf", "{"), want: doctor.Fail, seen: "00-a.conf", fix: "remove /etc/cni/net.d/00-a.conf"},
		{name: "huge file in force", code: "PW201", node: aws, change: set(net+"00-a.conf", strings.Repeat(" ", 10<<20)), want: doctor.Fail, seen: "has 10485760 bytes, want at most 1048576", fix: "remove"},
		{name: "broken file behind", code: "PW201", node: aws, change: set(net+"99-z.conf", "\xff"), want: doctor.Warn, seen: "99-z.conf", fix: "remove them"},
		{name: "broken drop-in of another program", code: "PW201", node: cilium, change: set(net+"cilium/10-x.conf", "{"), want: doctor.Fail, seen: "cilium/10-x.conf", fix: "remove it in /etc/cni/net.d/cilium"},
		{name: "broken drop-in that is not read", code: "PW201", node: cilium, change: func(n *node) {
			n.files[net+"cilium/10-x.conf"], n.opts.Runtime = "{", "containerd://2.0.14"
		}, want: doctor.OK, seen: "05-cilium.conflist"},
		{name: "CRI-O's network is nowhere", code: "PW201", node: aws, change: func(n *node) {
			n.files["proc/3/comm"], n.files["etc/crio/crio.conf"] = "crio\n", "[crio.network]\ncni_default_network = 'x'\n"
		}, want: doctor.Fail, seen: "CRI-O takes the network x (cni_default_network), and no file in /etc/cni/net.d has it", fix: "restart"},
		{name: "not read by this user", code: "PW201", node: aws, change: unreadable("00-a.conflist", false), want: doctor.Unknown, seen: "00-a.conflist"},
		{name: "not read by this user, but by CRI-O", code: "PW201", node: aws, change: unreadable("00-a.conflist", true), want: doctor.Unknown, seen: "00-a.conflist"},
		{name: "another not read by this user", code: "PW201", node: aws, change: unreadable("99-z.conflist", false), want: doctor.OK, seen: "10-aws.conflist"},
		{name: "not chained, by what this user reads", code: "PW202", node: aws, change: unreadable("50-podweir.conf", false), want: doctor.Unknown, seen: "permission denied"},
		{name: "not chained", code: "PW202", node: aws, change: without(own), want: doctor.Fail, seen: "10-aws.conflist: aws-cni → egress-cni", fix: "delivery drop-in"},
		{name: "not chained, and nothing may be written", code: "PW202", node: aws, change: func(n *node) {
			delete(n.files, own)
			n.files["proc/1/mounts"] += "/dev/sda9 /etc ext4 ro 0 0\n"
			n.files["proc/77/comm"], n.files["proc/77/cmdline"] = "podweir\n", "podweir\x00agent\x00"
		}, want: doctor.Skip, seen: "the delivery is watch"},
		{name: "nothing may be written, and no agent", code: "PW202", node: aws, change: func(n *node) {
			delete(n.files, own)
			n.files["proc/1/mounts"] += "/dev/sda9 /etc ext4 ro 0 0\n"
			n.files["proc/77/comm"] = "kubelet\n"
		}, want: doctor.Fail, seen: "/etc/cni/net.d is on a file system that is mounted read-only, and NRI is not on", fix: "podweir agent"},
		{name: "a handler with other networks", code: "PW202", node: aws, change: func(n *node) { vm(n); n.files["etc/cni/vm.d/1.conflist"] = n.files[net+"10-aws.conflist"] }, want: doctor.Warn, seen: "pods of the handler vm have their network from /etc/cni/vm.d (cni_conf_dir), where podweir is not", fix: "podweir install --cni-conf-dir /etc/cni/vm.d"},
		{name: "the same beside an agent", code: "PW202", node: aws, change: func(n *node) { vm(n); agentOn(n); n.files["etc/cni/vm.d/1.conflist"] = n.files[net+"10-aws.conflist"] }, want: doctor.Warn, seen: "where podweir is not", fix: "take cni_conf_dir out"},
		{name: "a handler with networks that are out of sight", code: "PW202", node: aws, change: vm, want: doctor.Unknown, seen: "etc/cni/vm.d"},
		{name: "podweir in those, too", code: "PW202", node: aws, change: func(n *node) {
			n.files["etc/containerd/config.toml"], n.files["etc/cni/vm.d/1.conflist"] = apart+"'/etc/cni/vm.d'\n", n.files[own]
		}, want: doctor.OK, seen: "podweir-cni"},
		{name: "two entries in one file", code: "PW202", node: aws, change: edit(own, "\n  ]", `,{"type":"podweir-cni"}]`), want: doctor.Fail, seen: "podweir-cni → podweir-cni", fix: "take out all entries of 00-podweir-10-aws.conflist but one"},
		{name: "chained twice", code: "PW202", node: aws, change: set(net+"aws-cni/50-podweir.conf", conflist.DefaultEntry), want: doctor.Fail, seen: "podweir-cni → podweir-cni", fix: "keep one"},
		{name: "chained first", code: "PW202", node: aws, change: set(own, `{"name":"aws-cni","plugins":[`+conflist.DefaultEntry+`,{"type":"aws-cni"}]}`), want: doctor.Fail, seen: "podweir-cni → aws-cni"},
		{name: "drop-in unread", code: "PW202", node: cilium, change: runtimeIs("containerd://1.7.2"), want: doctor.Fail, seen: "the drop-in is not read", fix: "handed"},
		{name: "drift", code: "PW203", node: aws, change: edit(net+"10-aws.conflist", `"eni"`, `"en"`), want: doctor.Fail, seen: "10-aws.conflist changed", fix: "podweir install"},
		{name: "edited", code: "PW203", node: aws, change: edit(own, `"eni"`, `"enj"`), want: doctor.Fail, seen: "was changed, by hand or by another program", fix: "podweir install"},
		{
			name: "the original begins with bandwidth", code: "PW203", node: aws, change: set(net+"10-aws.conflist", bandwidthFirst), want: doctor.Fail,
			seen: "first plugin", fix: "put the plugin that makes the interface first in /etc/cni/net.d/10-aws.conflist",
		},
		{name: "by hand, of one that begins with bandwidth", code: "PW203", node: aws, change: with(set(own, byHand("aws-cni")), set(net+"10-aws.conflist", bandwidthFirst)), want: doctor.Warn, seen: "made by hand", fix: "put the plugin that makes the interface first in /etc/cni/net.d/10-aws.conflist"},
		{name: "by hand", code: "PW203", node: aws, change: with(set(own, byHand("aws-cni", "egress-cni")), set(net+"10-aws.conflist", `{"name":"aws-cni","plugins":[{"type": "aws-cni"},{"type": "egress-cni"}]}`)), want: doctor.OK, seen: "made by hand and is not followed; it has the plugins of 10-aws.conflist"},
		{name: "by hand, other settings", code: "PW203", node: aws, change: with(set(own, byHand("aws-cni", "egress-cni")), set(net+"10-aws.conflist", `{"name":"aws-cni","plugins":[{"mtu":"9001", "type":"aws-cni"},{"type": "egress-cni","enabled":true}]}`)), want: doctor.Warn, seen: "10-aws.conflist has now otherwise: aws-cni, egress-cni", fix: "podweir install"},
		{name: "by hand, and old", code: "PW203", node: aws, change: set(own, byHand("aws-cni")), want: doctor.Warn, seen: "made by hand and is not followed, and 10-aws.conflist has now otherwise: aws-cni, egress-cni", fix: "podweir install"},
		{name: "two files", code: "PW203", node: aws, change: func(n *node) { n.files[net+"00-podweir-11.conflist"] = n.files[own] }, want: doctor.Fail, seen: "2 files", fix: "rm "},
		{name: "original gone", code: "PW204", node: aws, change: without(net + "10-aws.conflist"), want: doctor.Fail, seen: "has no configuration", fix: "rm /etc/cni/net.d/00-podweir-10-aws.conflist"},
		{name: "primary restarts", code: "PW204", node: aws, change: func(n *node) { n.sockets = []string{"/x"} }, want: doctor.OK, seen: "its original is there"},
		{name: "no binary", code: "PW205", node: aws, change: func(n *node) { delete(n.exec, "opt/cni/bin/podweir-cni") }, want: doctor.Fail, seen: "is not in /opt/cni/bin", fix: "install -m 0755"},
		{name: "not executable", code: "PW205", node: aws, change: func(n *node) {
			n.files["opt/cni/bin/podweir-cni"] = n.exec["opt/cni/bin/podweir-cni"]
			delete(n.exec, "opt/cni/bin/podweir-cni")
		}, want: doctor.Fail, seen: "is not executable", fix: "chmod 0755 /opt/cni/bin/podweir-cni"},
		{name: "noexec", code: "PW205", node: aws, change: func(n *node) {
			n.files["proc/1/mounts"] += "tmpfs /opt tmpfs rw 0 0\n/dev/sda9 /opt/cni ext4 rw,nosuid,noexec 0 0\n"
		}, want: doctor.Fail, seen: "/opt/cni/bin is on a file system that is mounted noexec", fix: "remount,exec"},
		{name: "noexec, and mounted over", code: "PW205", node: aws, change: func(n *node) {
			n.files["proc/1/mounts"] += "/dev/sda9 /opt/cni ext4 rw,noexec 0 0\noverlay /opt/cni overlay rw 0 0\ntmpfs /opt/cni/b tmpfs noexec 0 0\n"
		}, want: doctor.OK, seen: "/opt/cni/bin/podweir-cni"},
		{name: "second of bin_dirs", code: "PW205", node: aws, change: set("etc/containerd/config.toml",
			"[plugins.'io.containerd.cri.v1.runtime'.cni]\n  bin_dirs = ['/opt/first', '/opt/cni/bin']\n"), want: doctor.OK, seen: "/opt/cni/bin/podweir-cni"},
		{name: "a bad value", code: "PW218", node: aws, change: func(n *node) {
			n.entry = func(entry []byte) error {
				if !strings.Contains(string(entry), "podweir-cni") {
					return errors.New("another entry")
				}
				return errors.New(`policy: "fair" is not accepted`)
			}
		}, want: doctor.Fail, seen: `policy: "fair" is not accepted`, fix: "correct "},
		{name: "a maximum below what most ask for", code: "PW218", node: aws, change: func(n *node) {
			n.entry = func([]byte) error { return nil }
			for i := range n.kernel.attached {
				a := &n.kernel.attached[i]
				a.Asked, a.Rate, a.DecidedBy = 50_000_000, 200_000, "maxRate"
			}
		}, want: doctor.Warn, seen: "maxRate (200000 bit/s) is below what", fix: "raise it"},
		{name: "a maximum that few meet", code: "PW218", node: aws, change: func(n *node) {
			n.entry = func([]byte) error { return nil }
			a := n.kernel.attached[0]
			n.kernel.attached = append(n.kernel.attached, a, a)
			n.kernel.attached[0].Asked, n.kernel.attached[0].Rate, n.kernel.attached[0].DecidedBy = 50_000_000, 200_000, "maxRate"
		}, want: doctor.OK, seen: "accepts all"},
		{name: "good values", code: "PW218", node: aws, change: func(n *node) { n.entry = func([]byte) error { return nil } }, want: doctor.OK, seen: "accepts all"},
		{name: "two shapers", code: "PW206", node: aws, change: edit(own, "\n  ]", strings.TrimSuffix(bottled, "}")), want: doctor.Fail, seen: "podweir-cni → bandwidth", fix: "take bandwidth out"},
		{name: "two shapers by a drop-in", code: "PW206", node: cilium, change: set(net+"cilium/60-bw.conf", `{"type":"bandwidth"}`), want: doctor.Fail, seen: "podweir-cni → bandwidth", fix: "rm /etc/cni/net.d/cilium/60-bw.conf"},
		{name: "only bandwidth", code: "PW206", node: aws, change: with(without(own), edit(net+"10-aws.conflist", "]}", bottled)), want: doctor.Warn, seen: "egress-cni → bandwidth", fix: "takes its place"},
		{name: "no capability", code: "PW207", node: aws, change: edit(own, `"bandwidth":true`, `"bandwidth":false`), want: doctor.Fail, seen: "lacks the capability bandwidth", fix: "add it"},
		{name: "misspelt capability", code: "PW207", node: aws, change: edit(own, `"bandwidth":true`, `"bandwdth":true`), want: doctor.Fail, seen: `misspelt: "bandwdth", did you mean "bandwidth"?`, fix: "correct it"},
		{name: "another's capability", code: "PW207", node: aws, change: edit(own, `"bandwidth":true`, `"bandwidth":true,"portMappings":true`), want: doctor.OK, seen: "are passed"},
		{name: "capabilities no object", code: "PW207", node: aws, change: edit(own, `"capabilities":{"bandwidth":true,"io.kubernetes.cri.pod-annotations":true}`, `"capabilities":7`), want: doctor.Fail, seen: "capabilities: json", fix: "podweir install"},
		{name: "another file sorts first", code: "PW208", node: aws, change: set(net+"00-kube-ovn.conflist", strings.Replace(list, "cilium-cni", "kube-ovn", 1)), want: doctor.Fail, seen: "00-kube-ovn.conflist sorts before", fix: "drop-in"},
	}
}

// apart gives a handler of containerd's a directory of conflists, which follows.
const apart = "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.vm]\ncni_conf_dir = "

// max0 has containerd load all networks.
const max0 = "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\n  max_conf_num = 0\n"

func deliveryFindings() []finding {
	return []finding{
		{name: "file beside exclusive Cilium", code: "PW210", node: cilium, change: func(n *node) {
			delete(n.files, net+"cilium/50-podweir.conf")
			n.spliceIn("05-cilium.conflist")
		}, want: doctor.Fail, seen: "00-podweir-05-.conflist is beside", fix: "--set cni.exclusive=false"},
		{name: "drop-in, old runtime", code: "PW210", node: cilium, change: runtimeIs("containerd://1.7.2"), want: doctor.Fail, seen: "containerd 1.7.2 ignores drop-in directories", fix: "--set cni.configMap=podweir-cni-configuration"},
		{name: "drop-in, unknown runtime", code: "PW210", node: cilium, change: with(runtimeIs(""), without("proc/3/comm")), want: doctor.Warn, seen: "whether unknown runtime reads drop-in directories is not known", fix: "podweir doctor --runtime NAME://VERSION"},
		{name: "drop-in, where chain would do", code: "PW210", node: cilium, change: settings("cni-exclusive", "false"), want: doctor.OK, seen: "delivery drop-in: containerd 2.1.3 reads drop-ins"},
		{name: "another program undoes it", code: "PW221", node: aws, change: func(n *node) {
			n.fight = &conflist.Fight{File: "/" + own, Change: "removes or renames it", Since: time.Unix(1, 0)}
			delete(n.files, own)
		}, want: doctor.Fail, seen: "/" + own + ": another program removes or renames it; podweir stopped at 1970-01-01T00:00:01Z", fix: "inotifywait -m /etc/cni/net.d"},
		{name: "nobody undoes it", code: "PW221", node: aws, change: func(*node) {}, want: doctor.OK, seen: "none is noted"},
		{name: "chain, and nothing may be written", code: "PW210", node: aws, change: func(n *node) { n.files["proc/1/mounts"] += "/dev/sda9 /etc ext4 ro 0 0\n" }, want: doctor.OK, seen: "delivery chain: as it was: /etc/cni/net.d is on a file system"},
		{name: "chain, where a drop-in is better", code: "PW210", node: aws, change: func(*node) {}, want: doctor.OK, seen: "delivery chain, which works here; podweir would choose drop-in"},
		{name: "chain, several networks", code: "PW210", node: aws, change: set("etc/containerd/config.toml", max0), want: doctor.Fail, seen: "loads several networks", fix: "podweir install"},
		{name: "file beside Cilium of which little is known", code: "PW210", node: cilium, change: func(n *node) {
			delete(n.files, net+"cilium/50-podweir.conf")
			delete(n.files, "proc/42/comm")
			n.sockets = []string{"/x"}
			n.spliceIn("05-cilium.conflist")
		}, want: doctor.Warn, seen: "whether Cilium renames the conflists of others is not known", fix: "cni.exclusive=false"},
		{name: "file beside shared Cilium", code: "PW210", node: cilium, change: func(n *node) {
			delete(n.files, net+"cilium/50-podweir.conf")
			n.spliceIn("05-cilium.conflist")
			n.settings("cni-exclusive", "false")
		}, want: doctor.OK, seen: "delivery chain, which works here"},
		{name: "handed", code: "PW210", node: cilium, change: with(without(net+"cilium/50-podweir.conf"), set(net+"05-cilium.conflist", strings.Replace(list, "]}", ","+conflist.DefaultEntry+"]}", 1)), runtimeIs("containerd://1.7.2")), want: doctor.OK, seen: "delivery handed"},
		{name: "bandwidth under a drop-in", code: "PW210", node: cilium, change: set(net+"05-cilium.conflist", strings.Replace(list, "]}", bottled, 1)), want: doctor.Warn, seen: "cannot replace", fix: "take bandwidth out"},
		{name: "drop-in ignored", code: "PW211", node: cilium, change: runtimeIs("containerd://2.0.14"), want: doctor.Fail, seen: "containerd 2.0.14 ignores", fix: "upgrade"},
		{name: "drop-in left over", code: "PW211", node: cilium, change: with(set(net+"99-x.conflist", `{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"ptp"}]}`), set(net+"x/50-podweir.conf", conflist.DefaultEntry)), want: doctor.Warn, seen: "left over for networks that are not in force: x", fix: "rm /etc/cni/net.d/x/50-podweir.conf"},
		{name: "drop-in with unknown runtime", code: "PW211", node: cilium, change: runtimeIs("docker://28.1.1"), want: doctor.Unknown, seen: "docker 28.1.1"},
		{name: "renamed", code: "PW214", node: cilium, change: with(without(net+"cilium/50-podweir.conf"), set(net+"00-podweir-05-.conflist.cilium_bak", "{}")), want: doctor.Fail, seen: "00-podweir-05-.conflist.cilium_bak", fix: "cni.exclusive=false"},
		{name: "renamed, and written again", code: "PW214", node: cilium, change: func(n *node) {
			n.spliceIn("05-cilium.conflist")
			set(net+"00-podweir-05-.conflist.cilium_bak", "{}")(n)
		}, want: doctor.Fail, seen: "00-podweir-05-.conflist.cilium_bak", fix: "cni.exclusive=false"},
		{name: "renamed before", code: "PW214", node: cilium, change: set(net+"00-podweir-05-.conflist.cilium_bak", "{}"), want: doctor.OK, seen: "left over and has no effect"},
		{name: "renamed before, shared now", code: "PW214", node: cilium, change: with(without(net+"cilium/50-podweir.conf"), settings("cni-exclusive", "false"), set(net+"00-podweir-05-.conflist.cilium_bak", "{}")), want: doctor.OK, seen: "no program renames now"},
	}
}

func neighbourFindings() []finding {
	return []finding{
		{name: "policy and bandwidth", code: "PW301", node: aws, change: edit(own, "\n  ]", strings.TrimSuffix(bottled, "}")), want: doctor.Fail, seen: "bandwidth is in the chain", fix: "ENABLE_BANDWIDTH_PLUGIN=false"},
		{name: "no policy, bandwidth", code: "PW301", node: aws, change: with(edit(own, "\n  ]", strings.TrimSuffix(bottled, "}")), set("proc/4/cmdline", "/controller\x00--enable-network-policy=false\x00")), want: doctor.Skip, seen: "does not enforce"},
		{name: "Kata", code: "PW117", node: aws, change: sandboxed("kata-qemu", "io.containerd.kata.v2"), want: doctor.Fail, seen: "pods of kata-qemu (Kata) do not start", fix: "leave podHook at auto"},
		{name: "urunc", code: "PW117", node: aws, change: sandboxed("unikernel", "io.containerd.urunc.v2"), want: doctor.Fail, seen: "pods of unikernel (urunc) do not start", fix: "leave podHook at auto"},
		{name: "Kata with podHook", code: "PW117", node: aws, change: with(sandboxed("kata-qemu", "io.containerd.kata.v2"), edit(own, `"type":"podweir-cni"`, `"podHook":"tcx","type":"podweir-cni"`)), want: doctor.OK, seen: "attaches where limits hold"},
		{name: "Kata before TCX", code: "PW117", node: aws, change: func(n *node) {
			sandboxed("kata-qemu", "io.containerd.kata.v2")(n)
			n.live = agent{noTCX: true}
		}, want: doctor.Fail, seen: "the kernel has no TCX", fix: "Linux 6.6 or newer"},
		{name: "Kata by TCX", code: "PW117", node: aws, change: with(sandboxed("kata-qemu", "io.containerd.kata.v2"), edit(own, `"type":"podweir-cni"`, `"mode":"tcx-podside","type":"podweir-cni"`)), want: doctor.OK, seen: "attaches where limits hold"},
		{name: "gVisor", code: "PW117", node: cilium, change: sandboxed("sandbox", "io.containerd.runsc.v1"), want: doctor.Fail, seen: "pods of sandbox (gVisor) does not hold: packets go past the host side", fix: "other nodes"},
		{name: "gVisor, a limit in the pod", code: "PW117", node: aws, change: with(sandboxed("runsc", ""), edit(own, `"type":"podweir-cni"`, `"ingressPlace":"ifb","type":"podweir-cni"`)), want: doctor.Fail, seen: "does not hold: it is in the pod", fix: "to auto"},
		{name: "gVisor, nothing goes past", code: "PW117", node: aws, change: sandboxed("runsc", ""), want: doctor.OK, seen: "attaches where limits hold"},
		{name: "no sandboxed runtime", code: "PW117", node: aws, change: sandboxed("runc", "io.containerd.runc.v2"), want: doctor.OK, seen: "no handler"},
		{name: "second interface", code: "PW307", node: aws, change: edit(net+"10-aws.conflist", `"false"`, `"true"`), want: doctor.Warn, seen: "second interface, with the whole limit once more", fix: "interfaces=shared"},
		{name: "second interface, shared limit", code: "PW307", node: aws, change: with(edit(net+"10-aws.conflist", `"false"`, `"true"`), edit(own, `"type":"podweir-cni"`, `"interfaces":"shared","type":"podweir-cni"`)), want: doctor.OK, seen: "share its limit"},
		{name: "second interface, shared limit by the agent", code: "PW307", node: aws, change: func(n *node) {
			n.files[net+"10-aws.conflist"] = strings.Replace(n.files[net+"10-aws.conflist"], `"false"`, `"true"`, 1)
			delete(n.files, own)
			n.told = `{"interfaces":"shared","type":"podweir-cni"}`
		}, want: doctor.OK, seen: "share its limit"},
		{name: "agent silent", code: "PW401", node: cilium, change: func(n *node) { n.live = agent{} }, want: doctor.Warn, seen: "only the agent's settings", fix: "mount /var/run/cilium"},
		{name: "agent not there", code: "PW401", node: cilium, change: func(n *node) { n.live, n.sockets = agent{}, []string{"/x"} }, want: doctor.Warn, seen: "only the agent's settings", fix: "get pods --selector k8s-app=cilium"},
		{name: "agent of 1.15", code: "PW401", node: cilium, change: func(n *node) { n.live = agent115 }, want: doctor.OK, seen: "Cilium 1.15.19: datapath veth, host routing Legacy, attach mode tc"},
		{name: "agent says little", code: "PW401", node: cilium, change: func(n *node) { n.live = agent{health: `{}`} }, want: doctor.OK, seen: "host routing unknown"},
		{name: "profile by 1.15", code: "PW109", node: cilium, change: func(n *node) { n.live = agent115 }, want: doctor.OK, seen: "Cilium, veth, legacy host routing"},
		{name: "agent says too little", code: "PW109", node: cilium, change: func(n *node) { n.live = agent{health: `{}`} }, want: doctor.Warn, seen: "cilium host routing is not known", fix: "report it"},
		{name: "agent not asked", code: "PW109", node: cilium, change: func(n *node) { n.live = agent{} }, want: doctor.Warn, seen: "cilium host routing is not known", fix: "PW401"},
		{name: "bypassed", code: "PW402", node: cilium, change: func(n *node) { n.kernel.attached[0].Place = terms.PlaceHost }, want: doctor.Fail, seen: "default/web (lxc0123, qdisc)", fix: "recreate the pods"},
		{name: "observed only, and bypassed", code: "PW402", node: cilium, change: func(n *node) {
			n.kernel.attached[0].Place, n.kernel.attached[0].Enforce = terms.PlaceHost, terms.Name(terms.EnforceObserve)
		}, want: doctor.OK, seen: "on the pod side"},
		{name: "perhaps bypassed", code: "PW402", node: cilium, change: func(n *node) {
			n.files[net+"05-cilium.conflist"] = strings.Replace(list, `{"type":"cilium-cni"}`, `{"type":"calico"},{"type":"cilium-cni"}`, 1)
			n.kernel.attached[0].Place = terms.PlaceHost
		}, want: doctor.Warn, seen: "may pass by", fix: "recreate the pods"},
		{name: "bandwidth manager idle", code: "PW404", node: cilium, change: settings("enable-bandwidth-manager", "true"), want: doctor.Warn, seen: "turned it off", fix: "bandwidthManager.enabled=false"},
		{name: "bandwidth manager of 1.15 idle", code: "PW404", node: cilium, change: func(n *node) {
			n.settings("enable-bandwidth-manager", "true")
			n.live = agent115
		}, want: doctor.Warn, seen: "turned it off", fix: "helm upgrade cilium cilium/cilium --version 1.15.19 --namespace"},
		{name: "file beside Cilium 1.15", code: "PW210", node: cilium, change: func(n *node) {
			n.live = agent115
			n.spliceIn("05-cilium.conflist")
		}, want: doctor.Fail, seen: "is beside", fix: "--version 1.15.19 --namespace kube-system --reuse-values --set cni.exclusive=false && kubectl"},
	}
}

func hookFindings() []finding {
	stranger := judge.Program{Kind: terms.HookKindTCX, ProgramID: 9, Name: "tracer"}
	tcx := func(list ...judge.Program) func(*node) {
		return func(n *node) { n.kernel.devices[0].In.Programs = list }
	}
	mine, theirs := judge.Program{Kind: terms.HookKindTCX, ProgramID: 20, Name: "pw_police", Ours: true}, judge.Program{Kind: terms.HookKindTCX, ProgramID: 10, Name: "cil_from_contai"}
	return []finding{
		{name: "starved", code: "PW501", node: cilium, change: tcx(theirs, mine), want: doctor.Fail, seen: "default/web egress: cil_from_contai (program 10) ends the chain", fix: "head"},
		{name: "gone", code: "PW501", node: cilium, change: tcx(theirs), want: doctor.Fail, seen: "is not on the hook", fix: "head"},
		{name: "gone, attached long ago", code: "PW501", node: cilium, change: func(n *node) {
			tcx(theirs)(n)
			for i := range n.kernel.attached {
				n.kernel.attached[i].Changed = time.Now().Add(-time.Second)
			}
		}, want: doctor.Fail, seen: "is not on the hook", fix: "head"},
		{name: "attached during the look", code: "PW501", node: cilium, change: func(n *node) {
			tcx(theirs)(n)
			// However long the look takes.
			for i := range n.kernel.attached {
				n.kernel.attached[i].Changed = time.Now().Add(time.Hour)
			}
		}, want: doctor.OK, seen: "no shared host-side hook"},
		{name: "behind a stranger", code: "PW501", node: cilium, change: tcx(stranger, mine, theirs), want: doctor.Warn, seen: "tracer (program 9) ahead", fix: "head"},
		{name: "device gone", code: "PW501", node: cilium, change: func(n *node) { n.kernel.devices[0].Name = "lxcother" }, want: doctor.Unknown, seen: "lxc0123 was not seen"},
		{name: "unread", code: "PW501", node: cilium, change: func(n *node) { n.kernel.devices[0].In.Unread = "EPERM" }, want: doctor.Unknown, seen: "EPERM"},
		{name: "stranger", code: "PW502", node: cilium, change: tcx(mine, stranger, theirs), want: doctor.Warn, seen: "lxc0123 ingress: tracer (program 9)", fix: "bpftool"},
		{name: "XDP", code: "PW502", node: cilium, change: func(n *node) {
			tcx(mine, theirs)(n)
			n.kernel.devices[0].XDP = &judge.Program{Hook: terms.HookIngress, ProgramID: 9, Name: "XDP tracer"}
		}, want: doctor.Warn, seen: "lxc0123 ingress: XDP tracer (program 9)", fix: "bpftool"},
		{name: "XDP that passes all", code: "PW502", node: cilium, change: func(n *node) {
			tcx(mine, theirs)(n)
			n.kernel.devices[0].XDP = &judge.Program{Hook: terms.HookIngress, ProgramID: 9, Answer: judge.AnswerNext}
		}, want: doctor.OK, seen: "none on 1"},
		{name: "stranger unread", code: "PW502", node: cilium, change: func(n *node) { n.kernel.devices[0].Out.Unread = "EPERM" }, want: doctor.Unknown, seen: "lxc0123: EPERM"},
		{name: "verdict 0", code: "PW504", node: aws, change: func(n *node) { n.kernel.verdicts[0].Wrong = "verdict 0" }, want: doctor.Fail, seen: "pw_police: verdict 0", fix: "detach"},
		{name: "not run", code: "PW504", node: aws, change: func(n *node) { n.kernel.verdicts = nil }, want: doctor.Skip, seen: "no program was tried"},
		{name: "foreign queue", code: "PW505", node: aws, change: func(n *node) { n.kernel.devices[0].Qdiscs = []doctor.Qdisc{{Kind: "tbf", Root: true}} }, want: doctor.Warn, seen: "eni0123456789a has tbf", fix: "replaceQdisc"},
		{name: "queue that is being made", code: "PW505", node: aws, change: func(n *node) {
			made := n.kernel.devices[0]
			n.kernel.devices = []doctor.Device{made}
			n.kernel.devices[0].Qdiscs = []doctor.Qdisc{{Kind: "tbf", Root: true}}
			n.kernel.attached[0].Young = true
			n.kernel.meanwhile = func() { n.kernel.devices = []doctor.Device{made} }
		}, want: doctor.OK, seen: "none on 1"},
		{name: "kernel's queue", code: "PW505", node: aws, change: func(n *node) { n.kernel.devices[0].Qdiscs = []doctor.Qdisc{{Kind: "noqueue", Root: true}} }, want: doctor.OK, seen: "none on 1"},
		{name: "unshaped, and not told", code: "PW601", node: aws, change: func(n *node) {
			n.kernel, n.unwritable = healthy(), errors.New("/run/podweir cannot be written: read-only file system")
		}, want: doctor.Warn, seen: "read-only", fix: "file system"},
		{name: "unshaped", code: "PW601", node: aws, change: failing("no bpffs"), want: doctor.Fail, seen: "default/web: no bpffs", fix: "errors.md); then recreate the pod"},
		{name: "unshaped, agent", code: "PW601", node: aws, change: with(failing("no bpffs"), agentOn), want: doctor.Fail, seen: "default/web: no bpffs", fix: "the pod need not be recreated"},
		{name: "unshaped, read-only bpffs", code: "PW601", node: aws, change: failing("make pin directory: read-only file system"), want: doctor.Fail, seen: "read-only", fix: "remount,rw /sys/fs/bpf; then"},
		{name: "unshaped, no bpffs", code: "PW601", node: aws, change: failing("pins: /x: not on a BPF file system (mount -t bpf bpf /sys/fs/bpf)"), want: doctor.Fail, seen: "not on a BPF", fix: "mount -t bpf bpf /sys/fs/bpf; then"},
		{name: "unshaped, no memory", code: "PW601", node: aws, change: failing("egress load: make map slots: cannot allocate memory"), want: doctor.Fail, seen: "cannot allocate memory", fix: "memory limit of the cgroup"},
		{name: "unshaped, no ifb", code: "PW601", node: cilium, change: failing(`ingress: this kernel has no ifb (CONFIG_IFB); the place host needs no ifb`), want: doctor.Fail, seen: "no ifb (CONFIG_IFB)", fix: "PW106"},
		{name: "unshaped, bad annotation", code: "PW601", node: aws, change: failing(`annotation podweir.io/policy: "x" is not accepted, want strict`), want: doctor.Fail, seen: "podweir.io/policy", fix: "kubectl annotate --overwrite"},
		{name: "unshaped, foreign queue", code: "PW601", node: aws, change: failing("eth0: root qdisc is not podweir's: htb"), want: doctor.Fail, seen: "htb", fix: "replaceQdisc"},
		{name: "unshaped, by its pod", code: "PW601", node: aws, change: func(n *node) {
			n.files[results+"aws-cni-c1-eth0"] = cached("c1", limited)
			failing("boom")(n)
			n.kernel.troubles[0].Pod = "aws-cni/c1/eth0"
		}, want: doctor.Fail, seen: "unshaped: default/early: boom", fix: "then"},
		{name: "another device without a limit", code: "PW601", node: aws, change: troubled(terms.FaultUncovered, "take that device off the pod", "more shares a device"), want: doctor.Fail, seen: "default/web: more shares", fix: "take that device off the pod"},
		{name: "overdue", code: "PW610", node: aws, change: late, want: doctor.Fail, seen: "default/early since 2027-01-15T08:00:00Z: interface eth0: gone", fix: "podweir explain PW610"},
		{name: "exceeded", code: "PW612", node: aws, change: with(troubled(terms.FaultHeld, "", "is taken away, and holds"), troubled(terms.FaultExceeded, "podweir explain PW612", "egress carried more")), want: doctor.Fail, seen: "default/web: egress carried more", fix: "podweir explain PW612"},
		{name: "tampered", code: "PW612", node: aws, change: troubled(terms.FaultTaken, "podweir explain PW612", "is taken away"), want: doctor.Fail, seen: "is taken away", fix: "podweir explain PW612"},
		{name: "tampered but held", code: "PW612", node: aws, change: troubled(terms.FaultHeld, "podweir explain PW612", "is taken away, and holds"), want: doctor.Warn, seen: "default/web: is taken away, and holds", fix: "podweir explain PW612"},
		{name: "not known whether exceeded", code: "PW612", node: aws, change: func(n *node) { n.kernel.unenforced = errors.New("half a record") }, want: doctor.Unknown, seen: "half a record"},
		{name: "not exceeded", code: "PW612", node: aws, change: func(*node) {}, want: doctor.OK, seen: "none is exceeded"},
		{name: "not watched", code: "PW612", node: aws, change: func(n *node) { n.kernel.unwatched = true }, want: doctor.Skip, seen: "no agent watches"},
		{name: "not watched by the agent", code: "PW612", node: aws, change: func(n *node) { n.kernel.unwatched = true; agentOn(n) }, want: doctor.Unknown, seen: "an agent runs"},
		{name: "overdue for an agent that was killed", code: "PW610", node: aws, change: func(n *node) { n.kernel.unwatched = true; late(n) }, want: doctor.Skip, seen: "no agent watches"},
		{name: "overdue for an agent that reads no counters", code: "PW610", node: aws, change: func(n *node) { n.kernel.unwatched = true; late(n); agentOn(n) }, want: doctor.Fail, seen: "default/early", fix: "podweir explain PW610"},
		{name: "not overdue", code: "PW610", node: aws, change: func(*node) {}, want: doctor.OK, seen: "none"},
		{name: "a record that cannot be read, beside a difference", code: "PW602", node: aws, change: with(
			troubled(terms.FaultDiffers, "podweir repair", "root qdisc is pfifo"), troubled(terms.FaultUnread, "podweir doctor", "its record cannot be read: unknown record: version 99"),
		), want: doctor.Fail, seen: "version 99", fix: "podweir repair; recreate the pod"},
		{name: "a hook that is held where there is no TCX", code: "PW602", node: aws, change: troubled(terms.FaultUnread, "podweir doctor", "egress: hook is held by another party: clsact filter"), want: doctor.Fail, seen: "is held", fix: "Linux 6.6, or have its owner"},
		{name: "drifted", code: "PW602", node: aws, change: troubled(terms.FaultDiffers, "podweir repair", "root qdisc is pfifo"), want: doctor.Fail, seen: "root qdisc is pfifo", fix: "podweir repair"},
		{name: "policed", code: "PW603", node: aws, change: func(n *node) {
			n.kernel.attached[0].Queue, n.kernel.attached[0].Policed = terms.Name(terms.QueueNone), "root qdisc is not podweir's: pfifo on veth1; policing instead"
		}, want: doctor.Warn, seen: "default/web ingress: root qdisc is not podweir's: pfifo", fix: "podweir repair"},
		{name: "to be policed", code: "PW603", node: aws, change: func(n *node) { n.kernel.attached[0].Queue = terms.Name(terms.QueueNone) }, want: doctor.OK, seen: "as their configuration wants"},
		{name: "observed", code: "PW603", node: aws, change: func(n *node) {
			n.kernel.attached[0].Queue, n.kernel.attached[0].Enforce = terms.Name(terms.QueueNone), terms.Name(terms.EnforceObserve)
		}, want: doctor.OK, seen: "every limit has a queue"},
		{name: "observed, enforced", code: "PW601", node: aws, change: func(n *node) { n.kernel.attached[0].Enforce = terms.Name(terms.EnforceObserve) }, want: doctor.OK, seen: "1 that are observed only, as is wanted"},
		{name: "before the redirect", code: "PW506", node: cilium, change: func(n *node) {
			n.kernel.attached[0].Ahead = []judge.Program{{Kind: terms.HookKindTCX, ProgramID: 9, Name: "tracer"}}
		}, want: doctor.Warn, seen: "default/web ingress: tracer (program 9) before the redirect", fix: "podweir status"},
		{name: "before the redirect, with one answer", code: "PW506", node: cilium, change: func(n *node) {
			n.kernel.attached[0].Ahead = []judge.Program{{Kind: terms.HookKindTCX, ProgramID: 9, Name: "tracer", Answer: judge.AnswerEnds}}
		}, want: doctor.Fail, seen: "tracer (program 9) ends the chain for every packet, before the redirect", fix: "bpftool prog show"},
		{name: "no redirect", code: "PW506", node: aws, change: func(*node) {}, want: doctor.OK, seen: "no limit waits on an ifb"},
		{name: "failed open", code: "PW607", node: aws, change: func(n *node) { n.kernel.attached[0].FailedOpen = 3 }, want: doctor.Warn, seen: "default/web ingress: 3 packets", fix: "report it"},
		{name: "counters unread", code: "PW607", node: aws, change: func(n *node) { n.kernel.attached[0].Uncounted = "EPERM" }, want: doctor.Unknown, seen: "default/web ingress: EPERM"},
		{name: "no ceiling", code: "PW609", node: aws, change: func(n *node) { n.kernel.attached[0].NoCeiling = "the kernel has no TCX" }, want: doctor.Warn, seen: "default/web: the kernel has no TCX", fix: "drop CAP_NET_RAW"},
		{name: "no group", code: "PW614", node: aws, change: func(*node) {}, want: doctor.OK, seen: "no namespace has a limit"},
		{name: "divided", code: "PW614", node: aws, change: grouped, want: doctor.OK, seen: "1 limits, divided among all pods"},
		{name: "divided among many", code: "PW614", node: aws, change: func(n *node) {
			grouped(n)
			n.kernel.attached[0].Group = 10e6
		}, want: doctor.OK, seen: "1 limits, divided among all pods of their namespaces; ingress of namespace default: 10 Mbit/s for each of 1 pods: one packet of each is up to 7 % of the limit in 100 ms"},
		{name: "divided by nobody", code: "PW614", node: aws, change: func(n *node) {
			grouped(n)
			n.kernel.attached[0].Divided = false
		}, want: doctor.Warn, seen: "no agent divides ingress of namespace default; the shares of its pods amount to 20 Mbit/s", fix: "PW614"},
		{name: "without a share", code: "PW614", node: aws, change: func(n *node) {
			grouped(n)
			n.kernel.attached[0].Share, n.kernel.attached[0].NoShare, n.kernel.attached[0].Divided = 0, "the kernel has no HTB", false
		}, not: "no agent divides", want: doctor.Warn, seen: "default/web ingress: it has no share of the limit of its namespace, only its own limit: the kernel has no HTB", fix: "PW614"},
		{name: "a group without a ceiling", code: "PW614", node: aws, change: func(n *node) {
			grouped(n)
			n.kernel.attached[0].NoGroupCeiling = "no hook is behind a queue on an ifb"
		}, want: doctor.Warn, seen: "nothing holds the limit while no agent divides it: no hook", fix: "PW614"},
		{name: "past the queue", code: "PW611", node: aws, change: func(n *node) { n.kernel.attached[0].PastQueue = 9 }, want: doctor.Warn, seen: "default/web ingress: 9 packets", fix: "podweir status"},
		{name: "left over", code: "PW608", node: aws, change: troubled(terms.FaultLeft, "podweir gc", "the pod is gone"), want: doctor.Warn, seen: "left over: default/web: the pod is gone", fix: "podweir gc"},
		{name: "no record of a pod that may run", code: "PW608", node: aws, change: troubled(terms.FaultLost, "start an agent", "no record of tbf 1:0 on eth0"), want: doctor.Warn, seen: "default/web: no record of tbf 1:0 on eth0", fix: "start an agent"},
		{name: "left over is no drift", code: "PW602", node: aws, change: troubled(terms.FaultLeft, "podweir gc", "the pod is gone"), want: doctor.OK, seen: "1 limits"},
		{name: "agent that is not ready", code: "PW613", node: aws, change: func(n *node) {
			n.kernel.agent = &doctor.Agent{NotReady: []doctor.Part{{Name: "api", Reason: "the API server is not reached"}}}
		}, want: doctor.Warn, seen: "api: the API server is not reached", fix: "by itself"},
		{name: "agent that cannot write what seems writable", code: "PW202", node: aws, change: func(n *node) {
			agentOn(n)
			delete(n.files, net+"00-podweir-10-aws.conflist")
			n.kernel.agent = &doctor.Agent{Delivery: "nri"}
		}, want: doctor.Skip, seen: "the delivery is nri"},
		{name: "agent of other settings", code: "PW613", node: aws, change: func(n *node) {
			n.kernel.agent = &doctor.Agent{Notes: []doctor.Part{{Name: "settings", Reason: "delivery is another one"}}}
		}, want: doctor.Warn, seen: "settings: delivery is another one", fix: "kubectl rollout restart"},
		{name: "agent without rights", code: "PW613", node: aws, change: func(n *node) {
			n.kernel.agent = &doctor.Agent{Notes: []doctor.Part{{Name: "rights", Reason: "the service account lacks create of events"}}}
		}, want: doctor.Warn, seen: "rights: the service account lacks create of events", fix: "give the service account"},
		{name: "agent that is ready", code: "PW613", node: aws, change: func(n *node) { n.kernel.agent = &doctor.Agent{} }, want: doctor.OK, seen: "every part works"},
		{name: "agent elsewhere", code: "PW613", node: aws, change: agentOn, want: doctor.Skip, seen: "run podweir doctor in its pod"},
		{name: "no agent", code: "PW613", node: aws, change: func(*node) {}, want: doctor.Skip, seen: "no agent answers"},
		{name: "agent that cannot be asked", code: "PW613", node: aws, change: func(n *node) { n.kernel.err = errors.New("EPERM") }, want: doctor.Unknown, seen: "EPERM"},
		{name: "no limits", code: "PW602", node: aws, change: func(n *node) { n.kernel.attached = nil }, want: doctor.Skip, seen: "no pod"},
	}
}

// TestFindings breaks one thing at a time.
func TestFindings(t *testing.T) {
	all := slices.Concat(nodeFindings(), chainFindings(), deliveryFindings(), neighbourFindings(), shaperFindings(), hookFindings(),
		machineFindings(), besideFindings())
	bad := map[string]bool{}
	for _, tc := range all {
		t.Run(tc.code+" "+tc.name, func(t *testing.T) {
			n := tc.node()
			tc.change(n)
			outcomes := doctor.Outcomes(n.facts(t))
			at := slices.IndexFunc(outcomes, func(o doctor.Outcome) bool { return o.Code == tc.code })
			if at < 0 {
				t.Fatalf("no check %s", tc.code)
			}
			o := outcomes[at]
			cluster := tc.node()
			tc.change(cluster)
			cluster.run = helm
			there := doctor.Outcomes(cluster.facts(t))[at]
			for _, text := range []string{there.Seen, there.Expected, there.Why, there.Fix} {
				must.Be(t, "a text whose commands run where it is read", text, terms.Runnable(text, helm))
			}
			if o.Status != tc.want || !strings.Contains(o.Seen, tc.seen) || tc.not != "" && strings.Contains(o.Seen, tc.not) || !strings.Contains(o.Fix, tc.fix) {
				t.Errorf("%s: seen %q, fix %q\nwant %s: seen %q, fix %q", o.Status, o.Seen, o.Fix, tc.want, tc.seen, tc.fix)
			}
			if o.Status == doctor.Fail || o.Status == doctor.Warn {
				bad[tc.code] = true
				if o.Seen == "" || o.Expected == "" || o.Why == "" || o.Fix == "" {
					t.Errorf("a finding says what was seen, expected, why and what to do: %+v", o)
				}
			}
		})
	}
	for _, c := range doctor.Checks() {
		// No profile has the delivery nri: TestNRI makes one.
		if !bad[c.Code] && c.Code != "PW115" {
			t.Errorf("no case makes %s fail or warn", c.Code)
		}
	}
}

// helm is how a command is run where the chart installed podweir.
const helm = "kubectl -n kube-system exec podweir-x -- podweir"

// PW101 goes by the processor, too: podweir's programs are not compiled on arm64
// before Linux 5.18.
func TestKernelByProcessor(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		release, arch, want string
	}{
		{"5.17.9", "arm64", "Linux 5.18 or newer on arm64"},
		{"5.18.0", "arm64", "Linux 6.1 or newer, which are tested"},
		{"5.17.9", "amd64", "Linux 6.1 or newer, which are tested"},
		{"6.1.0", "arm64", ""},
		{"5.14.0", "arm64", "Linux 5.15 or newer"},
	} {
		must.Be(t, fmt.Sprintf("Linux %s on %s: what is expected", tt.release, tt.arch), tt.want, doctor.KernelOn(tt.release, tt.arch).Expected)
	}
}

// sandboxed gives the container runtime a handler.
func sandboxed(name, runtimeType string) func(*node) {
	return func(n *node) {
		n.files["etc/containerd/config.toml"] += fmt.Sprintf("\n[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.%s]\nruntime_type = %q\n", name, runtimeType)
	}
}

// grouped gives the pod a share of a limit of its namespace, which an agent divides.
func grouped(n *node) {
	a := &n.kernel.attached[0]
	a.Group, a.Share, a.Divided = 200e6, 20e6, true
}
