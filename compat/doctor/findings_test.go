// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/compat/order"
	"github.com/podweir/podweir/compat/profiles"
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
	fix    string
}

func nodeFindings() []finding {
	set := func(file, content string) func(*node) { return func(n *node) { n.files[file] = content } }
	return []finding{
		{"old kernel", "PW101", aws, set("proc/sys/kernel/osrelease", "5.10.1-x"), doctor.Fail, "Linux 5.10.1-x", "node image"},
		{"untested kernel", "PW101", aws, set("proc/sys/kernel/osrelease", "5.15.0"), doctor.Warn, "Linux 5.15.0", "node image"},
		{"newest kernel", "PW101", aws, set("proc/sys/kernel/osrelease", "7.0-rc1"), doctor.OK, "7.0-rc1", ""},
		{"no release", "PW101", aws, set("proc/sys/kernel/osrelease", "x"), doctor.Unknown, `"x"`, ""},
		{"no bpffs", "PW102", aws, set("proc/1/mounts", "tmpfs /sys/fs/bpf tmpfs rw 0 0\n"), doctor.Fail, "nothing is mounted", "mount -t bpf bpf /sys/fs/bpf"},
		{"read-only bpffs", "PW102", aws, set("proc/1/mounts", "bpf /sys/fs/bpf bpf ro,nosuid 0 0\n"), doctor.Fail, "read-only", "remount,rw"},
		{"no mounts", "PW102", aws, set("proc/1/mounts", ""), doctor.Unknown, "cannot be read", ""},
		{"locked down", "PW103", aws, set("sys/kernel/security/lockdown", "none integrity [confidentiality]"), doctor.Warn, "confidentiality", "integrity"},
		{"no lockdown", "PW103", aws, set("sys/kernel/security/lockdown", ""), doctor.Skip, "no lockdown", ""},
		{"interpreted", "PW104", aws, set("proc/sys/net/core/bpf_jit_enable", "0"), doctor.Warn, "interpreted", "bpf_jit_enable=1"},
		{"hardened", "PW104", aws, set("proc/sys/net/core/bpf_jit_harden", "2"), doctor.Warn, "blinded", "bpf_jit_harden=1"},
		{"no TCX beside policy", "PW105", aws, func(n *node) { n.kernel.features.TCX = profiles.No }, doctor.Warn, "is on the pods' hooks", "auto"},
		{"no TCX, nobody there", "PW105", ptp, func(n *node) { n.kernel.features.TCX = profiles.No }, doctor.OK, "nobody else", ""},
		{"TCX unknown", "PW105", aws, func(n *node) { n.kernel.features.TCX = profiles.Unknown }, doctor.Unknown, "TCX", ""},
		{"no queue", "PW106", aws, func(n *node) { n.kernel.features.Queues = nil }, doctor.Fail, "none of tbf", "modprobe sch_tbf"},
		{"kernel fails", "PW106", aws, func(n *node) { n.kernel.err = errors.New("EPERM here") }, doctor.Unknown, "EPERM here", ""},
		{"blind", "PW107", aws, func(n *node) {
			for _, pid := range []string{"2", "3"} {
				delete(n.files, "proc/"+pid+"/comm")
			}
			n.sockets = nil
		}, doctor.Warn, "no kubelet and no container runtime among the processes; listening sockets", "--root /host"},
		{"CRI-O 1.33", "PW108", aws, func(n *node) { n.opts.Runtime = "cri-o://1.33.0" }, doctor.Warn, "cri-o 1.33.0", "--runtime"},
		{"no runtime", "PW108", aws, func(n *node) { n.opts.Runtime = ""; delete(n.files, "proc/3/comm") }, doctor.Unknown, "no container runtime", ""},
		{"unknown CNI", "PW109", ptp, set(net+"10-x.conflist", strings.Replace(list, "cilium-cni", "home-made", 1)), doctor.Warn, "home-made", "report it"},
		{"assumed", "PW109", aws, func(n *node) { delete(n.files, "proc/4/comm") }, doctor.Warn, "aws network policy agent enforces is not known", "careful"},
		{"second CNI", "PW110", aws, set("proc/9/comm", "flanneld\n"), doctor.Warn, "flannel runs (process flanneld)", "uninstall"},
		{"left-over CNI", "PW110", aws, set("var/lib/calico/nodename", "x"), doctor.Warn, "calico is left over", "uninstall"},
	}
}

// cached is a result as libcni keeps it.
func cached(container, capability string) string {
	return `{"kind":"cniCacheV1","containerId":"` + container + `","ifName":"eth0","networkName":"aws-cni","config":"e30=",` +
		`"cniArgs":[["K8S_POD_NAMESPACE","default"],["K8S_POD_NAME","early"]],"capabilityArgs":` + capability + `,"result":{}}`
}

const results = "var/lib/cni/results/"

const limited = `{"bandwidth":{"ingressRate":1000000,"ingressBurst":4294967295}}`

// machineFindings are about what surrounds podweir on the node.
func machineFindings() []finding {
	set := func(file, content string) func(*node) { return func(n *node) { n.files[file] = content } }
	enforcing := func(n *node) { n.files["sys/fs/selinux/enforce"] = "1" }
	avc := strings.Repeat("x\n", 1<<20) + `type=AVC msg=audit(1): avc:  denied  { write } for  pid=7 comm="podweir-cni" name="x"` + "\n"
	kubelet := func(args string) func(*node) {
		return set("proc/2/cmdline", strings.ReplaceAll(args, " ", "\x00")+"\x00")
	}
	const max0 = "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\n  max_conf_num = 0\n"
	return []finding{
		{"denied", "PW111", aws, func(n *node) { enforcing(n); n.files["var/log/audit/audit.log"] = avc }, doctor.Warn, "1 denials", "ausearch"},
		{"would be denied", "PW111", aws, func(n *node) {
			n.files["sys/fs/selinux/enforce"], n.files["var/log/audit/audit.log"] = "0", avc
		}, doctor.Warn, "permissive, but", "ausearch"},
		{"enforcing", "PW111", aws, enforcing, doctor.OK, "enforcing, no denial", ""},
		{"no SELinux", "PW111", aws, set("x", ""), doctor.Skip, "no SELinux", ""},
		{"Auto Mode", "PW112", aws, kubelet("/usr/bin/kubelet --node-labels=a=b,eks.amazonaws.com/compute-type=auto"), doctor.Fail, "EKS Auto Mode", "NotIn"},
		{"managed nodes", "PW112", aws, kubelet("/usr/bin/kubelet --node-labels eks.amazonaws.com/nodegroup=x"), doctor.OK, "no kind", ""},
		{"kubelet unseen", "PW112", aws, func(n *node) { delete(n.files, "proc/2/comm") }, doctor.Skip, "not seen", ""},
		{"other runtime", "PW113", aws, set("var/lib/kubelet/config.yaml", "kind: x\ncontainerRuntimeEndpoint: \"unix:///var/run/crio/crio.sock\"\n"), doctor.Warn, "crio.sock", "--runtime"},
		{"same runtime", "PW113", aws, kubelet("kubelet --container-runtime-endpoint=unix:///run/containerd/containerd.sock"), doctor.OK, "containerd.sock", ""},
		{"config of kubelet elsewhere", "PW113", aws, func(n *node) {
			kubelet("kubelet --config /etc/k/x.yaml")(n)
			n.files["etc/k/x.yaml"] = "containerRuntimeEndpoint: unix:///run/containerd/containerd.sock"
		}, doctor.OK, "containerd.sock", ""},
		{"all networks", "PW114", aws, set("etc/containerd/config.toml", max0), doctor.Fail, "max_conf_num is 0", "max_conf_num = 1"},
		{"all networks, no file of ours", "PW114", cilium, set("etc/containerd/config.toml", max0), doctor.Warn, "max_conf_num is 0", "max_conf_num = 1"},
		{"one network", "PW114", aws, set("etc/containerd/config.toml", strings.Replace(max0, "= 0", "= 1", 1)), doctor.OK, "is 1", ""},
		{"another build", "PW217", aws, func(n *node) { n.beside = "0000" }, doctor.Warn, "another build", "install -m 0755"},
		{"the same build", "PW217", aws, func(n *node) {
			sum, err := doctor.Digest(strings.NewReader(n.exec["opt/cni/bin/podweir-cni"]))
			if err != nil {
				panic(err)
			}
			n.beside = sum
		}, doctor.OK, "the same build", ""},
		{"capability of a drop-in", "PW207", cilium, set(net+"cilium/50-podweir.conf", `{"type":"podweir-cni","capabilities":{"bandwidth":true}}`), doctor.Fail, "pod-annotations", "/etc/cni/net.d/cilium/50-podweir.conf"},
		{"two interfaces", "PW604", aws, func(n *node) {
			second := n.kernel.devices[0]
			second.Name = "eniother"
			n.kernel.devices = append(n.kernel.devices, second)
		}, doctor.Warn, "2 interfaces of one pod: [eni0123456789a eniother]", "each"},
		{"early pod", "PW605", aws, set(results+"aws-cni-c2-eth0", cached("c2", limited)), doctor.Warn, "default/early (eth0, network aws-cni)", "start these pods anew"},
		{"known pod", "PW605", aws, set(results+"aws-cni-c1-eth0", cached("c1", limited)), doctor.OK, "1 of 1", ""},
		{"pod without limit", "PW605", aws, set(results+"aws-cni-c2-eth0", cached("c2", `{"portMappings":[]}`)), doctor.OK, "0 of 1", ""},
		{"loopback", "PW605", aws, set(results+"cni-loopback-c2-lo", strings.ReplaceAll(cached("c2", limited), "eth0", "lo")), doctor.OK, "0 of 0", ""},
		{"torn result", "PW605", aws, set(results+"aws-cni-c2-eth0", cached("c2", limited)[:40]), doctor.OK, "0 of 0", ""},
		{"huge result", "PW605", aws, set(results+"x", strings.Repeat(" ", 10<<20)), doctor.OK, "0 of 0", ""},
		{"no results", "PW605", aws, set("x", ""), doctor.Skip, "keeps no results", ""},
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
	n.kernel.devices[0].In.Legacy, n.kernel.devices[0].Out.Legacy = nil, nil
	return n
}

func chainFindings() []finding {
	edit := func(file, before, after string) func(*node) {
		return func(n *node) {
			if !strings.Contains(n.files[file], before) {
				panic(file + " has no " + before)
			}
			n.files[file] = strings.Replace(n.files[file], before, after, 1)
		}
	}
	set := func(file, content string) func(*node) { return func(n *node) { n.files[file] = content } }
	return []finding{
		{"no directory", "PW201", aws, func(n *node) { n.opts.ConfDir = "nowhere" }, doctor.Fail, "/nowhere cannot be read", "--conf-dir"},
		{"empty directory", "PW201", aws, func(n *node) {
			n.opts.ConfDir = "etc/empty"
			n.files["etc/empty/README"] = ""
		}, doctor.Fail, "has no network", "restart"},
		{"broken file in force", "PW201", aws, set(net+"00-a.conf", "{"), doctor.Fail, "00-a.conf", "remove /etc/cni/net.d/00-a.conf"},
		{"huge file in force", "PW201", aws, set(net+"00-a.conf", strings.Repeat(" ", 10<<20)), doctor.Fail, "has 10485760 bytes, want at most 1048576", "remove"},
		{"broken file behind", "PW201", aws, set(net+"99-z.conf", "\xff"), doctor.Warn, "99-z.conf", "remove them"},
		{"not chained", "PW202", aws, func(n *node) { delete(n.files, own) }, doctor.Fail, "10-aws.conflist: aws-cni → egress-cni", "delivery chain"},
		{"chained twice", "PW202", aws, set(net+"aws-cni/50-podweir.conf", conflist.DefaultEntry), doctor.Fail, "podweir-cni → podweir-cni", "keep one"},
		{"chained first", "PW202", aws, set(own, `{"name":"aws-cni","plugins":[`+conflist.DefaultEntry+`,{"type":"aws-cni"}]}`), doctor.Fail, "podweir-cni → aws-cni", ""},
		{"drop-in unread", "PW202", cilium, func(n *node) { n.opts.Runtime = "containerd://1.7.2" }, doctor.Fail, "the drop-in is not read", "handed"},
		{"drift", "PW203", aws, edit(net+"10-aws.conflist", `"eni"`, `"eni" `), doctor.Fail, "10-aws.conflist changed", "podweir install"},
		{"edited", "PW203", aws, edit(own, `"eni"`, `"enj"`), doctor.Fail, "somebody changed", "podweir install"},
		{"two files", "PW203", aws, func(n *node) { n.files[net+"00-podweir-11.conflist"] = n.files[own] }, doctor.Fail, "2 files", "rm "},
		{"original gone", "PW204", aws, func(n *node) { delete(n.files, net+"10-aws.conflist") }, doctor.Fail, "has no configuration", "rm /etc/cni/net.d/00-podweir-10-aws.conflist"},
		{"primary not ready", "PW204", aws, func(n *node) { n.sockets = []string{"/x"} }, doctor.Fail, "is not ready", "rm "},
		{"no binary", "PW205", aws, func(n *node) { delete(n.exec, "opt/cni/bin/podweir-cni") }, doctor.Fail, "is not in /opt/cni/bin", "install -m 0755"},
		{"not executable", "PW205", aws, func(n *node) {
			n.files["opt/cni/bin/podweir-cni"] = n.exec["opt/cni/bin/podweir-cni"]
			delete(n.exec, "opt/cni/bin/podweir-cni")
		}, doctor.Fail, "is not executable", "chmod 0755 /opt/cni/bin/podweir-cni"},
		{"no ELF", "PW205", aws, func(n *node) { n.exec["opt/cni/bin/podweir-cni"] = "#!/bin/sh\n" + strings.Repeat("#", 100) }, doctor.Fail, "bad magic number", "install"},
		{"other processor", "PW205", aws, func(n *node) { n.exec["opt/cni/bin/podweir-cni"] = elfHeader(0xf3) }, doctor.Fail, "EM_RISCV", "for this processor"},
		{"two shapers", "PW206", aws, edit(own, "]}", bottled), doctor.Fail, "podweir-cni → bandwidth", "take bandwidth out"},
		{"only bandwidth", "PW206", aws, func(n *node) {
			delete(n.files, own)
			edit(net+"10-aws.conflist", "]}", bottled)(n)
		}, doctor.Warn, "egress-cni → bandwidth", "takes its place"},
		{"no capability", "PW207", aws, edit(own, `"bandwidth":true`, `"bandwidth":false`), doctor.Fail, "lacks the capability bandwidth", "add it"},
		{"capabilities no object", "PW207", aws, edit(own, `"capabilities":{"bandwidth":true,"io.kubernetes.cri.pod-annotations":true}`, `"capabilities":7`), doctor.Fail, "capabilities: json", "podweir install"},
		{"somebody sorts first", "PW208", aws, set(net+"00-kube-ovn.conflist", strings.Replace(list, "cilium-cni", "kube-ovn", 1)), doctor.Fail, "00-kube-ovn.conflist sorts before", "drop-in"},
		{"reserved name", "PW216", cilium, edit(net+"05-cilium.conflist", `"name":"cilium"`, `"name":"generic-veth"`), doctor.Fail, "generic-veth", "05-cilium.conflist"},
	}
}

func deliveryFindings() []finding {
	set := func(file, content string) func(*node) { return func(n *node) { n.files[file] = content } }
	return []finding{
		{"file beside exclusive Cilium", "PW210", cilium, func(n *node) {
			delete(n.files, net+"cilium/50-podweir.conf")
			n.spliceIn("05-cilium.conflist")
		}, doctor.Fail, "00-podweir-05-.conflist stands beside", "--set cni.exclusive=false"},
		{"drop-in, old runtime", "PW210", cilium, func(n *node) { n.opts.Runtime = "containerd://1.7.2" }, doctor.Fail, "libcni older than 1.3", "--set cni.configMap=podweir-cni-configuration"},
		{"file beside shared Cilium", "PW210", cilium, func(n *node) {
			delete(n.files, net+"cilium/50-podweir.conf")
			n.spliceIn("05-cilium.conflist")
			n.settings("cni-exclusive", "false")
		}, doctor.OK, "cni.exclusive=false", ""},
		{"handed", "PW210", cilium, func(n *node) {
			delete(n.files, net+"cilium/50-podweir.conf")
			n.files[net+"05-cilium.conflist"] = strings.Replace(list, "]}", ","+conflist.DefaultEntry+"]}", 1)
			n.opts.Runtime = "containerd://1.7.2"
		}, doctor.OK, "delivery handed", ""},
		{"bandwidth under a drop-in", "PW210", cilium, set(net+"05-cilium.conflist", strings.Replace(list, "]}", bottled, 1)), doctor.Warn, "cannot replace", "take bandwidth out"},
		{"drop-in ignored", "PW211", cilium, func(n *node) { n.opts.Runtime = "containerd://2.0.14" }, doctor.Fail, "containerd 2.0.14 ignores", "upgrade"},
		{"drop-in with unknown runtime", "PW211", cilium, func(n *node) { n.opts.Runtime = "cri-o://1.33.0" }, doctor.Unknown, "cri-o 1.33.0", ""},
		{"bad drop-in of anybody", "PW212", cilium, set(net+"cilium/10-x.conf", "{"), doctor.Fail, "cilium/10-x.conf", "/etc/cni/net.d/cilium"},
		{"drop-in of another name", "PW213", cilium, func(n *node) {
			n.files[net+"05-cilium.conflist"] = strings.Replace(list, `"cilium"`, `"portmap"`, 1)
		}, doctor.Fail, "the network in force is portmap", "mv /etc/cni/net.d/cilium/50-podweir.conf /etc/cni/net.d/portmap/50-podweir.conf"},
		{"drop-in left over", "PW213", cilium, set(net+"portmap/50-podweir.conf", "{}"), doctor.Warn, "left over: /etc/cni/net.d/portmap", "rm "},
		{"renamed", "PW214", cilium, set(net+"00-podweir-05-.conflist.cilium_bak", "{}"), doctor.Fail, "00-podweir-05-.conflist.cilium_bak", "cni.exclusive=false"},
		{"cilium in the name", "PW215", cilium, set(net+"00-podweir-05-cilium.conflist", list), doctor.Warn, "00-podweir-05-cilium.conflist", "mv /etc/cni/net.d/00-podweir-05-cilium.conflist /etc/cni/net.d/00-podweir-05-.conflist"},
	}
}

func neighbourFindings() []finding {
	foreign := order.Program{ID: 9, Name: "tracer", Pref: 10, Handle: 1}
	return []finding{
		{"policy and bandwidth", "PW301", aws, func(n *node) { n.files[own] = strings.Replace(n.files[own], "]}", bottled, 1) }, doctor.Fail, "bandwidth is in the chain", "ENABLE_BANDWIDTH_PLUGIN=false"},
		{"no policy, bandwidth", "PW301", aws, func(n *node) {
			n.files[own] = strings.Replace(n.files[own], "]}", bottled, 1)
			n.files["proc/4/cmdline"] = "/controller\x00--enable-network-policy=false\x00"
		}, doctor.Skip, "does not enforce", ""},
		{"filter missing", "PW302", aws, func(n *node) { n.kernel.devices[0].Out.Legacy = nil }, doctor.Fail, "eni0123456789a lacks handle_ingress", "rollout restart"},
		{"filter elsewhere", "PW302", aws, func(n *node) { n.kernel.devices[0].In.Legacy[0].Pref = 2 }, doctor.Fail, "lacks handle_egress", "rollout restart"},
		{"ingress qdisc", "PW303", aws, func(n *node) {
			n.kernel.devices[0].Qdiscs = []doctor.Qdisc{{Kind: "ingress"}}
		}, doctor.Fail, "eni0123456789a has an ingress qdisc", "tc qdisc del dev eni0123456789a ingress"},
		{"two engines", "PW304", aws, func(n *node) { n.files["proc/42/comm"] = "cilium-agent\n" }, doctor.Fail, "Cilium is here", "enableNetworkPolicy"},
		{"foreign filter", "PW305", aws, func(n *node) {
			n.kernel.devices[0].In.Legacy = append(n.kernel.devices[0].In.Legacy, foreign)
		}, doctor.Warn, "tracer (program 9) at preference 10", "TCX"},
		{"other prefix", "PW306", aws, func(n *node) {
			for _, f := range []string{own, net + "10-aws.conflist"} {
				n.files[f] = strings.Replace(n.files[f], `"vethPrefix":"eni"`, `"vethPrefix":"pod"`, 1)
			}
		}, doctor.Warn, "vethPrefix is pod", "VETHPREFIX=eni"},
		{"old program", "PW308", aws, func(n *node) { n.kernel.policy = []uint32{1, 9} }, doctor.Fail, "handle_ingress (program 2) at preference 1 is not pinned", "restart the pod"},
		{"no pins of the agent", "PW308", aws, func(n *node) { n.kernel.policy = nil }, doctor.Skip, "nothing is pinned", ""},
		{"agent deaf", "PW309", aws, func(n *node) { n.sockets = n.sockets[:1] }, doctor.Warn, "does not listen", "upgrade the vpc-cni add-on"},
		{"agent late", "PW309", aws, func(n *node) {
			n.files["var/log/aws-routed-eni/plugin.log"] = "ok\n{\"msg\":\"add cmd: failed to setup network policy\"}\nok\n"
		}, doctor.Warn, "failed to setup network policy", "upgrade"},
		{"programs removed", "PW407", cilium, func(n *node) {
			n.files["var/log/pods/kube-system_cilium-abc_1/cilium-agent/0.log"] = "x\nlevel=warn msg=\"Detected unexpected endpoint BPF program removal\"\n"
		}, doctor.Fail, "unexpected endpoint BPF program removal", "deletes qdiscs"},
		{"programs stay", "PW407", cilium, func(n *node) {
			n.files["var/log/pods/kube-system_cilium-abc_1/cilium-agent/0.log"] = "x\n"
		}, doctor.OK, "1 logs", ""},
		{"datapath plugins", "PW408", cilium, func(n *node) { n.settings("enable-datapath-plugins", "true") }, doctor.Warn, "is true", "--probe"},
		{"second interface", "PW307", aws, func(n *node) {
			n.files[net+"10-aws.conflist"] = strings.Replace(n.files[net+"10-aws.conflist"], `"false"`, `"true"`, 1)
		}, doctor.Warn, "second interface", "not limited"},
		{"agent silent", "PW401", cilium, func(n *node) { n.live = agent{} }, doctor.Warn, "only the agent's settings", "mount /var/run/cilium"},
		{"agent old", "PW401", cilium, func(n *node) { n.live = agent{health: `{}`} }, doctor.Warn, "older than 1.16", "careful place"},
		{"bypassed", "PW402", cilium, func(n *node) { n.kernel.attached[0].Place = profiles.PlaceHost }, doctor.Fail, "default/web (lxc0123, qdisc)", "start the pods anew"},
		{"perhaps bypassed", "PW402", cilium, func(n *node) {
			n.files[net+"05-cilium.conflist"] = strings.Replace(list, `{"type":"cilium-cni"}`, `{"type":"calico"},{"type":"cilium-cni"}`, 1)
			n.kernel.attached[0].Place = profiles.PlaceHost
		}, doctor.Warn, "may pass by", "start the pods anew"},
		{"bandwidth manager idle", "PW404", cilium, func(n *node) { n.settings("enable-bandwidth-manager", "true") }, doctor.Warn, "turned it off", "bandwidthManager.enabled=false"},
		{"clsact beside Cilium", "PW405", cilium, func(n *node) { n.kernel.attached[1].Mode = profiles.ModeClsactHostSide }, doctor.Fail, "default/web (lxc0123) by clsact-hostside", "auto"},
		{"netkit", "PW406", cilium, func(n *node) { n.kernel.devices[0].Kind = profiles.Netkit }, doctor.Warn, "lxc0123 is netkit", "podweir status"},
	}
}

func hookFindings() []finding {
	stranger := order.Program{ID: 9, Name: "tracer"}
	tcx := func(list ...order.Program) func(*node) {
		return func(n *node) { n.kernel.devices[0].In.TCX = list }
	}
	mine, theirs := order.Program{ID: 20, Name: "pw_police", Ours: true}, order.Program{ID: 10, Name: "cil_from_contai"}
	return []finding{
		{"starved", "PW501", cilium, tcx(theirs, mine), doctor.Fail, "default/web egress: cil_from_contai (program 10) ends the chain", "head"},
		{"gone", "PW501", cilium, tcx(theirs), doctor.Fail, "is not on the hook", "head"},
		{"behind a stranger", "PW501", cilium, tcx(stranger, mine, theirs), doctor.Warn, "tracer (program 9) ahead", "head"},
		{"device gone", "PW501", cilium, func(n *node) { n.kernel.devices[0].Name = "lxcother" }, doctor.Unknown, "lxc0123 was not seen", ""},
		{"unread", "PW501", cilium, func(n *node) { n.kernel.devices[0].In.Unread = "EPERM" }, doctor.Unknown, "EPERM", ""},
		{"stranger", "PW502", cilium, tcx(mine, stranger, theirs), doctor.Warn, "lxc0123 ingress: tracer (program 9)", "bpftool"},
		{"stranger unread", "PW502", cilium, func(n *node) { n.kernel.devices[0].Out.Unread = "EPERM" }, doctor.Unknown, "lxc0123: EPERM", ""},
		{"pins with others", "PW503", aws, func(n *node) { n.pins = "/sys/fs/bpf/globals/aws/podweir/" }, doctor.Fail, "/sys/fs/bpf/globals/aws/podweir is in /sys/fs/bpf/globals", "--pins"},
		{"pins beside others", "PW503", aws, func(n *node) { n.pins = "/sys/fs/bpf/ciliumish" }, doctor.OK, "ciliumish", ""},
		{"verdict 0", "PW504", aws, func(n *node) { n.kernel.verdicts[0].Wrong = "verdict 0" }, doctor.Fail, "pw_police: verdict 0", "detach"},
		{"not run", "PW504", aws, func(n *node) { n.kernel.verdicts = nil }, doctor.Skip, "no program was tried", ""},
		{"foreign queue", "PW505", aws, func(n *node) {
			n.kernel.devices[0].Qdiscs = []doctor.Qdisc{{Kind: "tbf", Root: true}}
		}, doctor.Warn, "eni0123456789a has tbf", "replaceQdisc"},
		{"kernel's queue", "PW505", aws, func(n *node) {
			n.kernel.devices[0].Qdiscs = []doctor.Qdisc{{Kind: "noqueue", Root: true}}
		}, doctor.OK, "none on 1", ""},
		{"unshaped", "PW601", aws, func(n *node) { n.kernel.attached[0].Failure = "no bpffs" }, doctor.Fail, "default/web: no bpffs", "podweir status"},
		{"drifted", "PW602", aws, func(n *node) { n.kernel.attached[0].Drift = []string{"root qdisc is pfifo"} }, doctor.Fail, "root qdisc is pfifo", "podweir repair"},
		{"policed", "PW603", aws, func(n *node) { n.kernel.attached[0].Queue = "none" }, doctor.Warn, "default/web ingress by policing", "podweir status"},
		{"before the redirect", "PW506", cilium, func(n *node) {
			n.kernel.attached[0].Ahead = []order.Program{{ID: 9, Name: "tracer"}}
		}, doctor.Warn, "default/web ingress: tracer (program 9) before the redirect", "--probe"},
		{"no redirect", "PW506", aws, func(*node) {}, doctor.OK, "no limit waits on an ifb", ""},
		{"no fq", "PW606", aws, func(n *node) { n.kernel.attached[0].Queue = "fq" }, doctor.Fail, "no fq on its device", "queue to auto"},
		{"fq replaced", "PW606", aws, func(n *node) {
			n.kernel.attached[0].Queue, n.kernel.attached[0].Root = "fq", &doctor.RootQdisc{Kind: "fq_codel"}
		}, doctor.Fail, "fq_codel in the place of fq", "podweir repair"},
		{"fq too small", "PW606", aws, func(n *node) {
			n.kernel.attached[0].Queue, n.kernel.attached[0].Root = "fq", &doctor.RootQdisc{Kind: "fq", PacketLimit: 10000, FlowLimit: 100}
		}, doctor.Fail, "100 of one flow", "podweir repair"},
		{"fq as it should be", "PW606", aws, func(n *node) {
			n.kernel.attached[0].Queue, n.kernel.attached[0].Root = "fq", &doctor.RootQdisc{Kind: "fq", PacketLimit: 10000, FlowLimit: 10000}
		}, doctor.OK, "1 limits", ""},
		{"failed open", "PW607", aws, func(n *node) { n.kernel.attached[0].FailedOpen = 3 }, doctor.Warn, "default/web ingress: 3 packets", "report it"},
		{"left over", "PW608", aws, func(n *node) {
			n.kernel.attached[0].Gone, n.kernel.attached[0].Drift = true, []string{"gone"}
		}, doctor.Warn, "default/web (eni0123456789a)", "podweir gc"},
		{"left over is no drift", "PW602", aws, func(n *node) {
			n.kernel.attached[0].Gone, n.kernel.attached[0].Drift = true, []string{"gone"}
		}, doctor.OK, "1 limits", ""},
		{"no limits", "PW602", aws, func(n *node) { n.kernel.attached = nil }, doctor.Skip, "no pod", ""},
	}
}

// TestFindings breaks one thing at a time.
func TestFindings(t *testing.T) {
	all := slices.Concat(nodeFindings(), chainFindings(), deliveryFindings(), neighbourFindings(), shaperFindings(), modeFindings(), hookFindings(),
		machineFindings(), probeFindings())
	bad := map[string]bool{}
	for _, tc := range all {
		t.Run(tc.code+" "+tc.name, func(t *testing.T) {
			n := tc.node()
			tc.change(n)
			rep := n.report(t)
			at := slices.IndexFunc(rep.Checks, func(o doctor.Outcome) bool { return o.Code == tc.code })
			if at < 0 {
				t.Fatalf("no check %s", tc.code)
			}
			o := rep.Checks[at]
			if o.Status != tc.want || !strings.Contains(o.Seen, tc.seen) || !strings.Contains(o.Fix, tc.fix) {
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
