// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/terms"
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
		{"no JIT", "PW104", aws, func(n *node) {
			for _, name := range []string{"bpf_jit_enable", "bpf_jit_harden"} {
				delete(n.files, "proc/sys/net/core/"+name)
			}
			n.files["proc/sys/net/core/default_qdisc"] = "fq_codel"
		}, doctor.Warn, "has no BPF JIT", "CONFIG_BPF_JIT"},
		{"in a container", "PW104", aws, func(n *node) {
			for _, name := range []string{"bpf_jit_enable", "bpf_jit_harden"} {
				delete(n.files, "proc/sys/net/core/"+name)
			}
			n.files["proc/sys/net/core/somaxconn"] = "4096"
		}, doctor.Skip, "not visible in this network namespace", ""},
		{"hardened", "PW104", aws, set("proc/sys/net/core/bpf_jit_harden", "2"), doctor.Warn, "blinded", "bpf_jit_harden=1"},
		{"no TCX beside policy", "PW105", aws, func(n *node) { n.kernel.features.TCX = profiles.No }, doctor.OK, "nothing asks for it", ""},
		{"no TCX beside policy, mode by name", "PW105", aws, func(n *node) {
			n.kernel.features.TCX = profiles.No
			n.files[own] = strings.Replace(n.files[own], `"type":"podweir-cni"`, `"type":"podweir-cni","egressMode":"tcx-hostside"`, 1)
		}, doctor.Warn, "podweir's entry has egressMode tcx-hostside", "auto"},
		{"no TCX beside policy, policing", "PW105", cilium, func(n *node) {
			n.kernel.features.TCX = profiles.No
			n.files[net+"cilium/50-podweir.conf"] = `{"type":"podweir-cni","ingressQueue":"none"}`
		}, doctor.Warn, "podweir's entry has ingressQueue none", "auto"},
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
		{"assumed", "PW109", aws, func(n *node) { delete(n.files, "proc/4/comm") }, doctor.Warn, "aws network policy agent enforces is not known", "report it"},
		{"assumed, blind", "PW109", aws, func(n *node) {
			for _, pid := range []string{"2", "3", "4"} {
				delete(n.files, "proc/"+pid+"/comm")
			}
		}, doctor.Warn, "aws network policy agent enforces is not known", "PW107"},
		{"second CNI", "PW110", aws, set("proc/9/comm", "flanneld\n"), doctor.Warn, "flannel runs (process flanneld)", "uninstall"},
		{"behind Multus", "PW110", aws, func(n *node) {
			n.files[net+"00-multus.conf"] = `{"cniVersion":"1.0.0","name":"multus","type":"multus-shim"}`
		}, doctor.OK, "behind Multus: ", ""},
		{"left-over CNI", "PW110", aws, set("var/lib/calico/nodename", "x"), doctor.Warn, "calico is left over", "uninstall"},
	}
}

// cached is a result as libcni keeps it.
func cached(container, capability string) string {
	return `{"kind":"cniCacheV1","containerId":"` + container + `","ifName":"eth0","networkName":"aws-cni","config":"e30=",` +
		`"cniArgs":[["K8S_POD_NAMESPACE","default"],["K8S_POD_NAME","early"]],"capabilityArgs":` + capability + `,"result":{}}`
}

// failing is a node where the one pod with a limit could not be shaped.
func failing(reason string) func(*node) {
	return func(n *node) { n.kernel.attached[0].Failure = reason }
}

// agentOn is a node with podweir's agent.
func agentOn(n *node) {
	n.files["proc/6/comm"] = "podweir\n"
	n.files["proc/6/cmdline"] = "podweir\x00agent\x00--config=/etc/podweir/agent.yaml\x00"
}

const results = "var/lib/cni/results/"

const limited = `{"bandwidth":{"ingressRate":1000000,"ingressBurst":4294967295}}`

// setUp gives the node pods with limits that the runtime set up a minute after
// podweir was written into the chain; by is who attached each, "never" for nobody.
// change is called with the name of each pod's cached result.
func setUp(change func(n *node, name string), by ...string) func(*node) {
	return func(n *node) {
		written := time.Now().Add(-time.Hour)
		n.times = map[string]time.Time{
			net + "cilium/50-podweir.conf": written, net + "00-podweir-10-aws.conflist": written,
		}
		n.kernel.attached = nil
		for i, who := range by {
			container := fmt.Sprint("c", i)
			name := results + "net-" + container + "-eth0"
			n.files[name], n.times[name] = cached(container, limited), written.Add(time.Minute)
			if who != "never" {
				n.kernel.attached = append(n.kernel.attached, doctor.Attachment{
					Pod: "default/early", Direction: "ingress", Place: terms.PlaceIFB, Queue: "tbf", ContainerID: container, By: who,
				})
			}
			if change != nil {
				change(n, name)
			}
		}
	}
}

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
		{"cri-dockerd, and another was looked at", "PW113", aws, kubelet("kubelet --container-runtime-endpoint=unix:///run/cri-dockerd.sock"), doctor.Warn, "cri-dockerd.sock, and containerd 2.1.3", "--runtime"},
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
		{"two agents", "PW220", aws, func(n *node) {
			for pid, pod := range map[string]string{"91": "kube-system/podweir-a", "92": "other/podweir-b"} {
				n.files["proc/"+pid+"/comm"] = "podweir\n"
				n.files["proc/"+pid+"/cmdline"] = "/podweir\x00agent\x00--pod=" + pod + "/0b-1\x00"
			}
		}, doctor.Warn, "2 agents of podweir run on the node: kube-system/podweir-a, other/podweir-b", "helm uninstall"},
		{"an agent and a command", "PW220", aws, func(n *node) {
			n.files["proc/91/comm"], n.files["proc/91/cmdline"] = "podweir\n", "podweir\x00agent\x00"
			n.files["proc/92/comm"], n.files["proc/92/cmdline"] = "podweir\n", "podweir\x00doctor\x00"
		}, doctor.OK, "process 91", ""},
		{"no agent", "PW220", aws, set("x", ""), doctor.Skip, "no agent", ""},
		{"capability of a drop-in", "PW207", cilium, set(net+"cilium/50-podweir.conf", `{"type":"podweir-cni","capabilities":{"bandwidth":true}}`), doctor.Fail, "pod-annotations", "/etc/cni/net.d/cilium/50-podweir.conf"},
		{"two interfaces", "PW604", aws, func(n *node) {
			second := n.kernel.devices[0]
			second.Name = "eniother"
			n.kernel.devices = append(n.kernel.devices, second)
		}, doctor.Warn, "2 interfaces of one pod: [eni0123456789a eniother]", "each"},
		{"early pod", "PW605", aws, set(results+"aws-cni-c2-eth0", cached("c2", limited)), doctor.Warn, "default/early (eth0, network aws-cni)", "recreate these pods, or run podweir agent"},
		{"pod that ends", "PW605", aws, func(n *node) {
			n.files[results+"aws-cni-c1-eth0"], n.files[results+"aws-cni-c2-eth0"] = cached("c1", limited), cached("c2", limited)
			n.kernel.meanwhile = func() { delete(n.inUse, results+"aws-cni-c2-eth0") }
		}, doctor.OK, "1 of 1", ""},
		{"pod attached a moment ago", "PW605", aws, func(n *node) {
			n.files[results+"aws-cni-c1-eth0"], n.files[results+"aws-cni-c2-eth0"] = cached("c1", limited), cached("c2", limited)
			n.kernel.attached = append(n.kernel.attached, doctor.Attachment{ContainerID: "c2", Young: true})
		}, doctor.OK, "1 of 1", ""},
		{"early pod, agent", "PW605", aws, func(n *node) {
			n.files[results+"aws-cni-c2-eth0"] = cached("c2", limited)
			agentOn(n)
		}, doctor.Warn, "default/early (eth0, network aws-cni)", "its log says why"},
		{"early pod, not in the chain", "PW605", aws, func(n *node) {
			n.files[results+"aws-cni-c2-eth0"] = cached("c2", limited)
			delete(n.files, own)
		}, doctor.Warn, "default/early", "first put podweir into the chain"},
		{"failed pod", "PW605", aws, func(n *node) {
			n.files[results+"aws-cni-c1-eth0"] = cached("c1", limited)
			failing("boom")(n)
		}, doctor.OK, "could not shape 1 of them (PW601)", ""},
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
	n.kernel.devices[0].In.Programs, n.kernel.devices[0].Out.Programs = nil, nil
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
	byHand := func(types ...string) string {
		return `{"name":"aws-cni","plugins":[{"type":"` + strings.Join(types, `"},{"type":"`) + `"},` + conflist.DefaultEntry + `]}`
	}
	return []finding{
		{"no directory", "PW201", aws, func(n *node) { n.opts.ConfDir = "nowhere" }, doctor.Fail, "/nowhere cannot be read", "--cni-conf-dir"},
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
		{"by hand", "PW203", aws, set(own, byHand("aws-cni", "egress-cni")), doctor.OK, "made by hand and is not followed; it has the plugins of 10-aws.conflist", ""},
		{"by hand, and old", "PW203", aws, set(own, byHand("aws-cni")), doctor.Warn, "made by hand and is not followed, and 10-aws.conflist has other plugins now", "podweir install"},
		{"two files", "PW203", aws, func(n *node) { n.files[net+"00-podweir-11.conflist"] = n.files[own] }, doctor.Fail, "2 files", "rm "},
		{"original gone", "PW204", aws, func(n *node) { delete(n.files, net+"10-aws.conflist") }, doctor.Fail, "has no configuration", "rm /etc/cni/net.d/00-podweir-10-aws.conflist"},
		{"primary restarts", "PW204", aws, func(n *node) { n.sockets = []string{"/x"} }, doctor.OK, "serves pods now: no", ""},
		{"no binary", "PW205", aws, func(n *node) { delete(n.exec, "opt/cni/bin/podweir-cni") }, doctor.Fail, "is not in /opt/cni/bin", "install -m 0755"},
		{"not executable", "PW205", aws, func(n *node) {
			n.files["opt/cni/bin/podweir-cni"] = n.exec["opt/cni/bin/podweir-cni"]
			delete(n.exec, "opt/cni/bin/podweir-cni")
		}, doctor.Fail, "is not executable", "chmod 0755 /opt/cni/bin/podweir-cni"},
		{"no ELF", "PW205", aws, func(n *node) { n.exec["opt/cni/bin/podweir-cni"] = "#!/bin/sh\n" + strings.Repeat("#", 100) }, doctor.Fail, "bad magic number", "install"},
		{"noexec", "PW205", aws, func(n *node) {
			n.files["proc/1/mounts"] += "tmpfs /opt tmpfs rw 0 0\n/dev/sda9 /opt/cni ext4 rw,nosuid,noexec 0 0\n"
		}, doctor.Fail, "/opt/cni/bin is on a file system that is mounted noexec", "remount,exec"},
		{"noexec, and mounted over", "PW205", aws, func(n *node) {
			n.files["proc/1/mounts"] += "/dev/sda9 /opt/cni ext4 rw,noexec 0 0\noverlay /opt/cni overlay rw 0 0\ntmpfs /opt/cni/b tmpfs noexec 0 0\n"
		}, doctor.OK, "/opt/cni/bin/podweir-cni", ""},
		{"second of bin_dirs", "PW205", aws, set("etc/containerd/config.toml",
			"[plugins.'io.containerd.cri.v1.runtime'.cni]\n  bin_dirs = ['/opt/first', '/opt/cni/bin']\n"), doctor.OK, "/opt/cni/bin/podweir-cni", ""},
		{"a bad value", "PW218", aws, func(n *node) {
			n.entry = func(entry []byte) error {
				if !strings.Contains(string(entry), "podweir-cni") {
					return errors.New("another entry")
				}
				return errors.New(`policy: "fair" is not accepted`)
			}
		}, doctor.Fail, `policy: "fair" is not accepted`, "correct "},
		{"good values", "PW218", aws, func(n *node) { n.entry = func([]byte) error { return nil } }, doctor.OK, "accepts all", ""},
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
		{"drop-in, old runtime", "PW210", cilium, func(n *node) { n.opts.Runtime = "containerd://1.7.2" }, doctor.Fail, "containerd 1.7.2 ignores drop-in directories", "--set cni.configMap=podweir-cni-configuration"},
		{"drop-in, unknown runtime", "PW210", cilium, func(n *node) {
			n.opts.Runtime = ""
			delete(n.files, "proc/3/comm")
		}, doctor.Warn, "whether unknown runtime reads drop-in directories is not known", "podweir doctor --runtime NAME://VERSION"},
		{"drop-in, where chain would do", "PW210", cilium, func(n *node) { n.settings("cni-exclusive", "false") }, doctor.OK, "delivery drop-in, which works here", ""},
		{"file beside Cilium of which little is known", "PW210", cilium, func(n *node) {
			delete(n.files, net+"cilium/50-podweir.conf")
			delete(n.files, "proc/42/comm")
			n.sockets = []string{"/x"}
			n.spliceIn("05-cilium.conflist")
		}, doctor.Warn, "if Cilium, veth, BPF host routing runs with cni.exclusive=true", "cni.exclusive=false"},
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
		{"drop-in that the runtime has not loaded", "PW211", cilium, setUp(nil, "agent", "agent"), doctor.Fail, "called podweir-cni for none of 2 pods with a limit: default/early (attached by the agent", "touch /etc/cni/net.d/.podweir-reload.tmp && rm"},
		{"chain that the runtime has not loaded", "PW202", aws, setUp(nil, "agent", "never"), doctor.Fail, "none of 2 pods with a limit: default/early (attached by the agent, after its start); default/early (never attached)", "touch /etc/cni/net.d"},
		{"drop-in that the runtime loaded late", "PW211", cilium, setUp(nil, "agent", "plugin"), doctor.OK, "containerd 2.1.3", ""},
		{"pods before the drop-in", "PW211", cilium, setUp(func(n *node, name string) { n.times[name] = n.times[name].Add(-time.Hour) }, "agent"), doctor.OK, "containerd 2.1.3", ""},
		{"pods without a limit at their start", "PW211", cilium, setUp(func(n *node, name string) {
			n.files[name] = strings.Replace(n.files[name], limited, "{}", 1)
		}, "agent"), doctor.OK, "containerd 2.1.3", ""},
		{"the plugin failed", "PW211", cilium, setUp(func(n *node, _ string) { n.kernel.attached[0].Failure = "no bpffs" }, ""), doctor.OK, "containerd 2.1.3", ""},
		{"attached by an older release", "PW211", cilium, setUp(nil, ""), doctor.OK, "containerd 2.1.3", ""},
		{"drop-in ignored", "PW211", cilium, func(n *node) { n.opts.Runtime = "containerd://2.0.14" }, doctor.Fail, "containerd 2.0.14 ignores", "upgrade"},
		{"drop-in with unknown runtime", "PW211", cilium, func(n *node) { n.opts.Runtime = "cri-o://1.33.0" }, doctor.Unknown, "cri-o 1.33.0", ""},
		{"bad drop-in of anybody", "PW212", cilium, set(net+"cilium/10-x.conf", "{"), doctor.Fail, "cilium/10-x.conf", "/etc/cni/net.d/cilium"},
		{"drop-in of another name", "PW213", cilium, func(n *node) {
			n.files[net+"05-cilium.conflist"] = strings.Replace(list, `"cilium"`, `"portmap"`, 1)
		}, doctor.Fail, "the network in force is portmap", "mv /etc/cni/net.d/cilium/50-podweir.conf /etc/cni/net.d/portmap/50-podweir.conf"},
		{"drop-in left over", "PW213", cilium, set(net+"portmap/50-podweir.conf", "{}"), doctor.Warn, "left over: /etc/cni/net.d/portmap", "rm "},
		{"renamed", "PW214", cilium, func(n *node) {
			delete(n.files, net+"cilium/50-podweir.conf")
			set(net+"00-podweir-05-.conflist.cilium_bak", "{}")(n)
		}, doctor.Fail, "00-podweir-05-.conflist.cilium_bak", "cni.exclusive=false"},
		{"renamed, and written again", "PW214", cilium, func(n *node) {
			n.spliceIn("05-cilium.conflist")
			set(net+"00-podweir-05-.conflist.cilium_bak", "{}")(n)
		}, doctor.Fail, "00-podweir-05-.conflist.cilium_bak", "cni.exclusive=false"},
		{"renamed before", "PW214", cilium, set(net+"00-podweir-05-.conflist.cilium_bak", "{}"), doctor.OK, "left over and has no effect", ""},
		{"renamed before, shared now", "PW214", cilium, func(n *node) {
			delete(n.files, net+"cilium/50-podweir.conf")
			n.settings("cni-exclusive", "false")
			set(net+"00-podweir-05-.conflist.cilium_bak", "{}")(n)
		}, doctor.OK, "nobody renames now", ""},
		{"cilium in the name", "PW215", cilium, set(net+"00-podweir-05-cilium.conflist", list), doctor.Warn, "00-podweir-05-cilium.conflist", "mv /etc/cni/net.d/00-podweir-05-cilium.conflist /etc/cni/net.d/00-podweir-05-.conflist"},
	}
}

const (
	npaSocket = "run/aws-node/npa.sock"
	// webDevice is what aws-cni calls the device of default/web.
	webDevice = "eni68caf03a5f4"
)

// unfiltered takes the policy agent's filters off the device of default/web, which
// started so much later than the agent.
func unfiltered(later time.Duration) func(*node) {
	return func(n *node) {
		const result = results + "aws-cni-c2-eth0"
		n.files[npaSocket], n.files[result] = "", strings.Replace(cached("c2", "{}"), "early", "web", 1)
		n.times = map[string]time.Time{npaSocket: time.Unix(1e9, 0), result: time.Unix(1e9, 0).Add(later)}
		d := &n.kernel.devices[0]
		d.Name, d.In.Programs, d.Out.Programs = webDevice, nil, nil
	}
}

// deadAgent ends the policy agent; environ is that of ipamd.
func deadAgent(environ string) func(*node) {
	return func(n *node) {
		delete(n.files, "proc/4/comm")
		delete(n.files, "proc/4/cmdline")
		n.sockets = n.sockets[:1]
		n.files["proc/5/environ"] = environ
	}
}

func pluginLog(lines string) func(*node) {
	return func(n *node) { n.files["var/log/aws-routed-eni/plugin.log"] = "ok\n" + lines + "\nok\n" }
}

// npaFails is what aws-cni 1.23.0 logged so long ago when the agent was away.
func npaFails(ago time.Duration) string {
	return `{"level":"error","ts":"` + time.Now().Add(-ago).Format("2006-01-02T15:04:05.000Z0700") +
		`","caller":"routed-eni-cni-plugin/cni.go:337","msg":"Failed to connect to network policy agent: context deadline exceeded"}`
}

func neighbourFindings() []finding {
	foreign := judge.Program{Kind: terms.HookKindClsact, ProgramID: 9, Name: "tracer", Pref: 10, FilterHandle: 1}
	return []finding{
		{"policy and bandwidth", "PW301", aws, func(n *node) { n.files[own] = strings.Replace(n.files[own], "]}", bottled, 1) }, doctor.Fail, "bandwidth is in the chain", "ENABLE_BANDWIDTH_PLUGIN=false"},
		{"no policy, bandwidth", "PW301", aws, func(n *node) {
			n.files[own] = strings.Replace(n.files[own], "]}", bottled, 1)
			n.files["proc/4/cmdline"] = "/controller\x00--enable-network-policy=false\x00"
		}, doctor.Skip, "does not enforce", ""},
		{"filter missing", "PW302", aws, func(n *node) { n.kernel.devices[0].Out.Programs = nil }, doctor.Fail, "eni0123456789a lacks handle_ingress", "delete the pod of eni0123456789a"},
		{"filter of a pod missing", "PW302", aws, func(n *node) {
			in := n.kernel.devices[0].In.Programs
			unfiltered(time.Hour)(n)
			n.kernel.devices[0].In.Programs = in
		}, doctor.Fail, "default/web (" + webDevice + ") lacks handle_ingress", "kubectl delete pod -n default web"},
		{"pod being set up", "PW302", aws, func(n *node) {
			in := n.kernel.devices[0].In.Programs
			unfiltered(time.Hour)(n)
			n.kernel.devices[0].Name, n.kernel.devices[0].In.Programs = "eni0123456789a", in
		}, doctor.OK, "0 devices; 1 more are of pods that are being set up", ""},
		{"filter elsewhere", "PW302", aws, func(n *node) { n.kernel.devices[0].In.Programs[0].Pref = 2 }, doctor.Fail, "lacks handle_egress", "delete the pod"},
		{"pod before the policy agent", "PW302", aws, unfiltered(-time.Hour), doctor.OK, "0 devices; 1 more are of pods that started before the agent", ""},
		{"pod of nobody knows when", "PW302", aws, func(n *node) {
			unfiltered(time.Hour)(n)
			delete(n.files, npaSocket)
		}, doctor.OK, "1 more", ""},
		{"pod after the policy agent", "PW302", aws, unfiltered(time.Hour), doctor.Fail, "default/web (" + webDevice + ") has no filter, and started after the agent", "kubectl delete pod -n default web"},
		{"filters lost", "PW302", aws, func(n *node) {
			unfiltered(-time.Hour)(n)
			n.files["sys/fs/bpf/globals/aws/programs/web@default_handle_ingress"] = ""
		}, doctor.Warn, "has no filter, and the agent has programs for pods of its name", "kubectl delete pod -n default web"},
		{"ingress qdisc", "PW303", aws, func(n *node) {
			n.kernel.devices[0].Qdiscs = []doctor.Qdisc{{Kind: "ingress"}}
		}, doctor.Fail, "eni0123456789a has an ingress qdisc", "tc qdisc del dev eni0123456789a ingress"},
		{"two engines", "PW304", aws, func(n *node) { n.files["proc/42/comm"] = "cilium-agent\n" }, doctor.Fail, "Cilium is here", "enableNetworkPolicy"},
		{"foreign filter", "PW305", aws, func(n *node) {
			n.kernel.devices[0].In.Programs = append(n.kernel.devices[0].In.Programs, foreign)
		}, doctor.Warn, "tracer (program 9) at preference 10", "TCX"},
		{"other prefix", "PW306", aws, func(n *node) {
			for _, f := range []string{own, net + "10-aws.conflist"} {
				n.files[f] = strings.Replace(n.files[f], `"vethPrefix":"eni"`, `"vethPrefix":"pod"`, 1)
			}
		}, doctor.Warn, "vethPrefix is pod", "VETHPREFIX=eni"},
		{"old program", "PW308", aws, func(n *node) { n.kernel.policy = []uint32{1, 9} }, doctor.Fail, "handle_ingress (program 2) at preference 1 is not pinned", "restart the pod"},
		{"program of a pod that starts", "PW308", aws, func(n *node) {
			n.kernel.policy, n.kernel.later = []uint32{1}, []uint32{1, 2}
		}, doctor.OK, "1 devices", ""},
		{"old program, and one of a pod that starts", "PW308", aws, func(n *node) {
			n.kernel.policy, n.kernel.later = []uint32{9}, []uint32{1}
		}, doctor.Fail, "handle_ingress (program 2) at preference 1 is not pinned", "restart the pod"},
		{"no pins of the agent", "PW308", aws, func(n *node) { n.kernel.policy = nil }, doctor.Skip, "nothing is pinned", ""},
		{"agent deaf", "PW309", aws, func(n *node) { n.sockets = n.sockets[:1] }, doctor.Fail, "does not listen", "upgrade the vpc-cni add-on"},
		{"agent dead", "PW309", aws, deadAgent("A=b\x00NETWORK_POLICY_ENFORCING_MODE=standard\x00"), doctor.Fail, "nobody listens on /var/run/aws-node/npa.sock", "--previous"},
		{"agent dead, policy off", "PW309", aws, func(n *node) {
			deadAgent("NETWORK_POLICY_ENFORCING_MODE=standard")(n)
			n.kernel.devices[0].In.Programs, n.kernel.devices[0].Out.Programs = nil, nil
		}, doctor.Fail, "nobody listens", "--previous"},
		{"agent killed, environment unread", "PW309", aws, func(n *node) {
			deadAgent("")(n)
			n.files[npaSocket] = ""
		}, doctor.Fail, "nobody listens", "--previous"},
		{"nobody asks the agent", "PW309", aws, deadAgent("A=b\x00"), doctor.Skip, "asks no policy agent", ""},
		{"agents that talk by TCP", "PW309", aws, func(n *node) {
			n.sockets = []string{"/x"}
			n.files["proc/5/environ"] = "NETWORK_POLICY_ENFORCING_MODE=standard"
		}, doctor.OK, "no log", ""},
		{"agent late", "PW309", aws, pluginLog(npaFails(time.Minute)), doctor.Warn, "Failed to connect to network policy agent", "upgrade"},
		{"agent late, no times", "PW309", aws, pluginLog(`{"msg":"add cmd: failed to setup network policy"}`), doctor.Warn, "1 errors", "upgrade"},
		{"agent answered since", "PW309", aws, pluginLog(npaFails(time.Minute) + "\n" +
			`{"level":"debug","msg":"Network Policy agent for EnforceNpToPod returned Success : true"}`), doctor.OK, "no error", ""},
		{"agent started since", "PW309", aws, func(n *node) {
			pluginLog(npaFails(time.Minute))(n)
			n.files[npaSocket], n.times = "", map[string]time.Time{npaSocket: time.Now()}
		}, doctor.OK, "no error", ""},
		{"agent late long ago", "PW309", aws, pluginLog(npaFails(time.Hour)), doctor.OK, "no error", ""},
		{"ipamd late", "PW309", aws, pluginLog(`{"level":"error","msg":"Error received from AddNetwork gRPC call: context deadline exceeded"}`), doctor.OK, "no error", ""},
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
		{"agent not there", "PW401", cilium, func(n *node) { n.live, n.sockets = agent{}, []string{"/x"} }, doctor.Warn, "only the agent's settings", "get pods --selector k8s-app=cilium"},
		{"agent silent, header", "PW401", cilium, func(n *node) {
			n.live = agent{}
			n.files["run/cilium/state/globals/node_config.h"] = "#define ENABLE_HOST_ROUTING 1\n#define EPHEMERAL_MIN 32768\n"
		}, doctor.Warn, "by the header of its programs: datapath unknown, host routing BPF", "mount /var/run/cilium"},
		{"agent of 1.15", "PW401", cilium, func(n *node) { n.live = agent115 }, doctor.OK, "Cilium 1.15.19: datapath veth, host routing Legacy, attach mode tc", ""},
		{"agent says little", "PW401", cilium, func(n *node) { n.live = agent{health: `{}`} }, doctor.OK, "host routing unknown", ""},
		{"profile by 1.15", "PW109", cilium, func(n *node) { n.live = agent115 }, doctor.OK, "Cilium, veth, legacy host routing", ""},
		{"agent says too little", "PW109", cilium, func(n *node) { n.live = agent{health: `{}`} }, doctor.Warn, "cilium host routing is not known", "report it"},
		{"agent not asked", "PW109", cilium, func(n *node) { n.live = agent{} }, doctor.Warn, "cilium host routing is not known", "PW401"},
		{"bypassed", "PW402", cilium, func(n *node) { n.kernel.attached[0].Place = terms.PlaceHost }, doctor.Fail, "default/web (lxc0123, qdisc)", "recreate the pods"},
		{"perhaps bypassed", "PW402", cilium, func(n *node) {
			n.files[net+"05-cilium.conflist"] = strings.Replace(list, `{"type":"cilium-cni"}`, `{"type":"calico"},{"type":"cilium-cni"}`, 1)
			n.kernel.attached[0].Place = terms.PlaceHost
		}, doctor.Warn, "may pass by", "recreate the pods"},
		{"bandwidth manager idle", "PW404", cilium, func(n *node) { n.settings("enable-bandwidth-manager", "true") }, doctor.Warn, "turned it off", "bandwidthManager.enabled=false"},
		{"bandwidth manager of 1.15 idle", "PW404", cilium, func(n *node) {
			n.settings("enable-bandwidth-manager", "true")
			n.live = agent115
		}, doctor.Warn, "turned it off", "helm upgrade cilium cilium/cilium --version 1.15.19 --namespace"},
		{"file beside Cilium 1.15", "PW210", cilium, func(n *node) {
			n.live = agent115
			n.spliceIn("05-cilium.conflist")
		}, doctor.Fail, "stands beside", "--version 1.15.19 --namespace kube-system --reuse-values --set cni.exclusive=false && kubectl"},
		{"clsact beside Cilium", "PW405", cilium, func(n *node) { n.kernel.attached[1].Mode = terms.ModeClsactHostSide }, doctor.Fail, "default/web (lxc0123) by clsact-hostside", "auto"},
		{"netkit", "PW406", cilium, func(n *node) { n.kernel.devices[0].Kind = terms.DeviceNetkit }, doctor.Warn, "lxc0123 is netkit", "podweir status"},
	}
}

func hookFindings() []finding {
	stranger := judge.Program{Kind: terms.HookKindTCX, ProgramID: 9, Name: "tracer"}
	tcx := func(list ...judge.Program) func(*node) {
		return func(n *node) { n.kernel.devices[0].In.Programs = list }
	}
	mine, theirs := judge.Program{Kind: terms.HookKindTCX, ProgramID: 20, Name: "pw_police", Ours: true}, judge.Program{Kind: terms.HookKindTCX, ProgramID: 10, Name: "cil_from_contai"}
	return []finding{
		{"starved", "PW501", cilium, tcx(theirs, mine), doctor.Fail, "default/web egress: cil_from_contai (program 10) ends the chain", "head"},
		{"gone", "PW501", cilium, tcx(theirs), doctor.Fail, "is not on the hook", "head"},
		{"gone, attached long ago", "PW501", cilium, func(n *node) {
			tcx(theirs)(n)
			for i := range n.kernel.attached {
				n.kernel.attached[i].Changed = time.Now().Add(-time.Second)
			}
		}, doctor.Fail, "is not on the hook", "head"},
		{"attached during the look", "PW501", cilium, func(n *node) {
			tcx(theirs)(n)
			// However long the look takes.
			for i := range n.kernel.attached {
				n.kernel.attached[i].Changed = time.Now().Add(time.Hour)
			}
		}, doctor.OK, "no shared host-side hook", ""},
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
		{"queue that is being made", "PW505", aws, func(n *node) {
			made := n.kernel.devices[0]
			n.kernel.devices = []doctor.Device{made}
			n.kernel.devices[0].Qdiscs = []doctor.Qdisc{{Kind: "tbf", Root: true}}
			n.kernel.meanwhile = func() { n.kernel.devices = []doctor.Device{made} }
		}, doctor.OK, "none on 1", ""},
		{"kernel's queue", "PW505", aws, func(n *node) {
			n.kernel.devices[0].Qdiscs = []doctor.Qdisc{{Kind: "noqueue", Root: true}}
		}, doctor.OK, "none on 1", ""},
		{"unshaped", "PW601", aws, failing("no bpffs"), doctor.Fail, "default/web: no bpffs", "errors.md); then recreate the pod"},
		{"unshaped, agent", "PW601", aws, func(n *node) { failing("no bpffs")(n); agentOn(n) }, doctor.Fail, "default/web: no bpffs", "the pod need not be recreated"},
		{"unshaped, no bpffs", "PW601", aws, failing("pins: /x: not on a BPF file system (mount -t bpf bpf /sys/fs/bpf)"), doctor.Fail, "not on a BPF", "mount -t bpf bpf /sys/fs/bpf; then"},
		{"unshaped, no ifb", "PW601", cilium, failing(`ingressPlace: "ifb" is not accepted, want a place that this kernel has (it has no ifb)`), doctor.Fail, "it has no ifb", "PW106"},
		{"unshaped, bad annotation", "PW601", aws, failing(`annotation podweir.io/policy: "x" is not accepted, want strict`), doctor.Fail, "podweir.io/policy", "kubectl annotate --overwrite"},
		{"unshaped, foreign queue", "PW601", aws, failing("eth0: root qdisc is not podweir's: htb"), doctor.Fail, "htb", "replaceQdisc"},
		{"unshaped, by its pod", "PW601", aws, func(n *node) {
			n.files[results+"aws-cni-c1-eth0"] = cached("c1", limited)
			failing("boom")(n)
			n.kernel.attached[0].Pod = "aws-cni/c1/eth0"
		}, doctor.Fail, "unshaped: default/early: boom", "then"},
		{"overdue", "PW610", aws, func(n *node) {
			n.kernel.overdue = []doctor.Overdue{{Pod: "default/early", Since: time.Unix(1_800_000_000, 0), Reason: "interface eth0: gone"}}
		}, doctor.Fail, "default/early since 2027-01-15T08:00:00Z: interface eth0: gone", "kubectl delete pod -n default early"},
		{"exceeded", "PW612", aws, func(n *node) {
			n.kernel.unenforced = []doctor.Unenforced{
				{What: "TAMPERED default/held", Held: true}, {What: "EXCEEDED default/greedy egress"},
			}
		}, doctor.Fail, "EXCEEDED default/greedy egress", "podweir doctor --probe"},
		{"tampered but held", "PW612", aws, func(n *node) {
			n.kernel.unenforced = []doctor.Unenforced{{What: "TAMPERED default/held", Held: true}}
		}, doctor.Warn, "TAMPERED default/held", "podweir status"},
		{"not exceeded", "PW612", aws, func(*node) {}, doctor.OK, "none is exceeded", ""},
		{"not overdue", "PW610", aws, func(*node) {}, doctor.OK, "none", ""},
		{"drifted", "PW602", aws, func(n *node) { n.kernel.attached[0].Drift = []string{"root qdisc is pfifo"} }, doctor.Fail, "root qdisc is pfifo", "podweir repair"},
		{"policed", "PW603", aws, func(n *node) { n.kernel.attached[0].Queue = "none" }, doctor.Warn, "default/web ingress by policing", "podweir status"},
		{"observed", "PW603", aws, func(n *node) { n.kernel.attached[0].Queue, n.kernel.attached[0].Observed = "none", true }, doctor.OK, "every limit has a queue", ""},
		{"observed, enforced", "PW601", aws, func(n *node) { n.kernel.attached[0].Observed = true }, doctor.OK, "1 that are observed only, as is wanted", ""},
		{"before the redirect", "PW506", cilium, func(n *node) {
			n.kernel.attached[0].Ahead = []judge.Program{{Kind: terms.HookKindTCX, ProgramID: 9, Name: "tracer"}}
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
		{"no ceiling", "PW609", aws, func(n *node) { n.kernel.attached[0].NoCeiling = "the kernel has no TCX" }, doctor.Warn, "default/web: the kernel has no TCX", "podweir status"},
		{"past the queue", "PW611", aws, func(n *node) { n.kernel.attached[0].PastQueue = 9 }, doctor.Warn, "default/web ingress: 9 packets", "podweir status"},
		{"left over", "PW608", aws, func(n *node) {
			n.kernel.attached[0].Gone, n.kernel.attached[0].Drift = true, []string{"gone"}
		}, doctor.Warn, "default/web (eni0123456789a)", "podweir gc"},
		{"left over is no drift", "PW602", aws, func(n *node) {
			n.kernel.attached[0].Gone, n.kernel.attached[0].Drift = true, []string{"gone"}
		}, doctor.OK, "1 limits", ""},
		{"agent that is not ready", "PW613", aws, func(n *node) {
			n.kernel.agent = &doctor.Agent{NotReady: []string{"api: the API server is not reached"}}
		}, doctor.Warn, "api: the API server is not reached", "by itself"},
		{"agent that is ready", "PW613", aws, func(n *node) { n.kernel.agent = &doctor.Agent{} }, doctor.OK, "every part works", ""},
		{"agent elsewhere", "PW613", aws, agentOn, doctor.Skip, "run podweir doctor in its pod", ""},
		{"no agent", "PW613", aws, func(*node) {}, doctor.Skip, "no agent answers", ""},
		{"agent that cannot be asked", "PW613", aws, func(n *node) { n.kernel.err = errors.New("EPERM") }, doctor.Unknown, "EPERM", ""},
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
			outcomes := doctor.Outcomes(n.facts(t))
			at := slices.IndexFunc(outcomes, func(o doctor.Outcome) bool { return o.Code == tc.code })
			if at < 0 {
				t.Fatalf("no check %s", tc.code)
			}
			o := outcomes[at]
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
		if got := doctor.KernelOn(tt.release, tt.arch); got.Expected != tt.want {
			t.Errorf("Linux %s on %s: expected %q, want %q", tt.release, tt.arch, got.Expected, tt.want)
		}
	}
}
