// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package detect_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// node builds a root from files, processes ("PID name arg...") and sockets.
type node struct {
	files     map[string]string
	processes []string
	sockets   []string
	devices   []string
}

func (n node) root() fstest.MapFS {
	out := fstest.MapFS{}
	add := func(name, content string) { out[name] = &fstest.MapFile{Data: []byte(content)} }
	for name, content := range n.files {
		add(name, content)
	}
	for _, p := range n.processes {
		f := strings.Fields(p)
		add("proc/"+f[0]+"/comm", f[1]+"\n")
		add("proc/"+f[0]+"/cmdline", strings.Join(f[1:], "\x00")+"\x00")
	}
	if n.sockets != nil {
		table := "Num       RefCount Protocol Flags    Type St Inode Path\n"
		for _, s := range n.sockets {
			table += "0000000000000000: 00000002 00000000 00010000 0001 01 19532 " + s + "\n" +
				"0000000000000000: 00000003 00000000 00000000 0001 03 19533 /run/connected" + s + "\n" +
				"0000000000000000: 00000003 00000000 00000000 0001 03 19533\n"
		}
		add("proc/1/net/unix", table)
	}
	for _, d := range n.devices {
		out["sys/class/net/"+d] = &fstest.MapFile{Mode: fs.ModeDir | 0o755}
	}
	return out
}

// live answers as it is set up.
type live struct {
	noTCX    bool
	programs []string
	api      map[string]string
	runtime  string
	network  *detect.RuntimeNetwork
}

var errNoAnswer = errors.New("connection refused")

func (l live) Programs(context.Context) ([]string, error) {
	if l.programs == nil {
		return nil, errNoAnswer
	}
	return l.programs, nil
}

func (l live) Runtime(context.Context) (string, error) {
	if l.runtime == "" {
		return "", errNoAnswer
	}
	return l.runtime, nil
}

func (l live) TCX(context.Context) (bool, error) { return !l.noTCX, nil }

func (l live) RuntimeNetwork(context.Context) (*detect.RuntimeNetwork, error) {
	if l.network == nil && l.runtime == "" {
		return nil, errNoAnswer
	}
	return l.network, nil
}

func (l live) CiliumAPI(_ context.Context, resource string) ([]byte, error) {
	if body, ok := l.api[resource]; ok {
		return []byte(body), nil
	}
	return nil, errNoAnswer
}

func list(network string, types ...string) string {
	return `{"cniVersion":"1.0.0","name":"` + network + `","plugins":[{"type":"` + strings.Join(types, `"},{"type":"`) + `"}]}`
}

const (
	net       = "etc/cni/net.d/"
	configMap = "proc/42/root/tmp/cilium/config-map/"
	agent     = "42 cilium-agent --config-dir=/tmp/cilium/config-map"
	socket    = "/var/run/cilium/cilium.sock"
)

func health(routing, datapath, attach string) map[string]string {
	return map[string]string{
		"/v1/healthz": `{"attach-mode":"` + attach + `","datapath-mode":"` + datapath + `","routing":{"intra-host-routing-mode":"` + routing +
			`"},"bandwidth-manager":{"enabled":true,"devices":["eth0"]},"cni-chaining":{"mode":"none"}}`,
		"/v1/config": `{"status":{"daemonConfigurationMap":{"EnableEndpointRoutes":false}}}`,
	}
}

// health115 is what 1.15.19 answers, without the parts that are not read here:
// host-routing in place of routing, no attach-mode, and datapathMode in the
// configuration only (api/v1/models and daemon/cmd/status.go, v1.15.19).
func health115(routing string, endpointRoutes bool) map[string]string {
	return map[string]string{
		"/v1/healthz": `{"bandwidth-manager":{"devices":null},"cilium":{"msg":"1.15.19 (v1.15.19-0000000)","state":"Ok"},
			"cni-chaining":{"mode":"none"},"host-routing":{"mode":"` + routing + `"},"kube-proxy-replacement":{"mode":"False"},
			"masquerading":{"enabled":true,"mode":"Iptables"}}`,
		"/v1/config": `{"spec":{"policy-enforcement":"default"},"status":{"daemonConfigurationMap":{"EnableEndpointRoutes":` +
			strconv.FormatBool(endpointRoutes) + `,"EnableHostLegacyRouting":true},"datapathMode":"veth","ipam-mode":"kubernetes"}}`,
	}
}

func TestProfile(t *testing.T) {
	cilium := map[string]string{net + "05-cilium.conflist": list("cilium", "cilium-cni")}
	aws := map[string]string{net + "10-aws.conflist": list("aws-cni", "aws-cni", "egress-cni", "portmap")}
	calico := map[string]string{net + "10-calico.conflist": list("k8s-pod-network", "calico", "portmap")}
	for name, tc := range map[string]struct {
		node    node
		live    detect.Live
		want    string
		assumed bool
	}{
		"ptp":         {node: node{files: map[string]string{net + "10-x.conflist": list("x", "ptp")}}, want: "ptp"},
		"bridge":      {node: node{files: map[string]string{net + "10-x.conf": `{"name":"x","type":"bridge","bridge":"br0"}`}}, want: "bridge"},
		"kube-router": {node: node{files: map[string]string{net + "10-kuberouter.conf": `{"name":"x","type":"bridge","bridge":"kube-bridge"}`}}, want: "kube-router"},
		"kindnet":     {node: node{files: map[string]string{net + "10-kindnet.conflist": list("kindnet", "ptp", "portmap")}}, want: "kindnet"},
		"flannel":     {node: node{files: map[string]string{net + "10-flannel.conflist": list("cbr0", "flannel", "portmap")}}, want: "flannel"},
		"k3s": {
			node: node{files: map[string]string{"var/lib/rancher/k3s/agent/" + net + "10-flannel.conflist": list("cbr0", "flannel", "portmap", "bandwidth")}},
			want: "k3s-flannel",
		},
		"antrea":   {node: node{files: map[string]string{net + "10-antrea.conflist": list("antrea", "antrea", "portmap")}}, want: "antrea"},
		"kube-ovn": {node: node{files: map[string]string{net + "01-kube-ovn.conflist": list("kube-ovn", "kube-ovn", "portmap")}}, want: "kube-ovn"},
		"azure":    {node: node{files: map[string]string{net + "10-azure.conflist": list("azure", "azure-vnet", "portmap")}}, want: "azure-vnet"},
		"no one's": {node: node{files: map[string]string{net + "10-x.conflist": list("x", "made-at-home")}}, want: "other", assumed: true},

		"aws, policy on":        {node: node{files: aws, processes: []string{"9 controller --enable-network-policy=true"}}, want: "aws-vpc-cni-npa"},
		"aws, policy off":       {node: node{files: aws, processes: []string{"9 controller --enable-network-policy=false"}}, want: "aws-vpc-cni"},
		"aws, Calico's policy":  {node: node{files: aws, processes: []string{"2 kubelet", "9 controller --enable-network-policy=false", "7 calico-node"}}, want: "aws-vpc-cni-calico"},
		"aws, both policies":    {node: node{files: aws, processes: []string{"2 kubelet", "9 controller --enable-network-policy=true", "7 calico-node"}}, want: "aws-vpc-cni-npa"},
		"aws, filters there":    {node: node{files: aws}, live: live{programs: []string{"handle_ingress", "handle_egress"}}, want: "aws-vpc-cni-npa"},
		"aws, nothing known":    {node: node{files: aws}, want: "aws-vpc-cni-npa", assumed: true},
		"aws, agent not there":  {node: node{files: aws, processes: []string{"2 kubelet"}, sockets: []string{"/x"}}, live: live{programs: []string{}}, want: "aws-vpc-cni"},
		"aws, no programs seen": {node: node{files: aws, processes: []string{"2 kubelet"}, sockets: []string{"/x"}}, want: "aws-vpc-cni-npa", assumed: true},

		"cilium, API":              {node: node{files: cilium, sockets: []string{socket}}, live: live{api: health("BPF", "veth", "tcx")}, want: "cilium"},
		"cilium, legacy routing":   {node: node{files: cilium, sockets: []string{socket}}, live: live{api: health("Legacy", "veth", "tcx")}, want: "cilium-legacy-routing"},
		"cilium, legacy tc":        {node: node{files: cilium, sockets: []string{socket}}, live: live{api: health("BPF", "veth", "tc")}, want: "cilium-legacy-tc"},
		"cilium, netkit-l2":        {node: node{files: cilium, sockets: []string{"/run/cilium/cilium.sock"}}, live: live{api: health("BPF", "netkit-l2", "tcx")}, want: "cilium-netkit"},
		"cilium 1.15, legacy":      {node: node{files: cilium, sockets: []string{socket}}, live: live{api: health115("Legacy", false)}, want: "cilium-legacy-routing"},
		"cilium 1.15, BPF":         {node: node{files: cilium, sockets: []string{socket}}, live: live{api: health115("BPF", false)}, want: "cilium-legacy-tc"},
		"cilium 1.15, routes":      {node: node{files: cilium, sockets: []string{socket}}, live: live{api: health115("Legacy", true)}, want: "cilium-endpoint-routes"},
		"cilium, no answer":        {node: node{files: cilium, sockets: []string{socket}}, live: live{}, want: "cilium", assumed: true},
		"cilium, old agent":        {node: node{files: cilium, sockets: []string{socket}}, live: live{api: health("", "veth", "")}, want: "cilium", assumed: true},
		"cilium, nothing known":    {node: node{files: cilium}, want: "cilium", assumed: true},
		"cilium, settings, routes": {node: node{files: with(cilium, settings("datapath-mode", "veth", "enable-host-legacy-routing", "true", "enable-endpoint-routes", "true")), processes: []string{agent}}, want: "cilium-endpoint-routes"},
		"cilium on aws":            {node: node{files: map[string]string{net + "05-cilium.conflist": list("aws-cni", "aws-cni", "portmap", "cilium-cni")}}, want: "cilium-on-aws"},
		"cilium on calico":         {node: node{files: map[string]string{net + "05-cilium.conflist": list("x", "calico", "cilium-cni")}}, want: "cilium-on-veth"},
		"gke":                      {node: node{files: map[string]string{net + "10-gke-ptp.conflist": list("gke-pod-network", "ptp", "portmap", "cilium-cni"), "home/kubernetes/bin/gke": ""}}, want: "gke-dataplane-v2"},

		"calico, BPF programs":     {node: node{files: calico}, live: live{programs: []string{"cali_tc_preambl"}}, want: "calico-ebpf"},
		"calico, no such programs": {node: node{files: calico}, live: live{programs: []string{"other"}}, want: "calico"},
		"calico, pinned maps":      {node: node{files: with(calico, map[string]string{"sys/fs/bpf/tc/globals/cali_v4_ct3": ""})}, want: "calico-ebpf"},
		"calico, no maps":          {node: node{files: with(calico, map[string]string{"sys/fs/bpf/tc/globals/x": ""})}, want: "calico"},
		"calico, nothing known":    {node: node{files: calico}, want: "calico-ebpf", assumed: true},
		"canal":                    {node: node{files: map[string]string{net + "10-canal.conflist": list("k8s-pod-network", "calico", "portmap")}}, live: live{programs: []string{}}, want: "canal"},
		"canal by delegate":        {node: node{files: map[string]string{net + "10-x.conflist": `{"name":"canal","plugins":[{"type":"flannel","delegate":{"type":"calico"}}]}`}}, live: live{programs: []string{}}, want: "canal"},
		"rke2":                     {node: node{files: map[string]string{net + "10-canal.conflist": list("k8s-pod-network", "calico"), "var/lib/rancher/rke2/bin/x": ""}}, live: live{programs: []string{}}, want: "rke2-canal"},
		// The agent starts: what it chooses is not known yet.
		"cilium, datapath auto": {node: node{files: with(map[string]string{net + "05-cilium.conflist": list("cilium", "cilium-cni")}, settings("datapath-mode", "auto")), processes: []string{agent}}, want: "cilium", assumed: true},
		"cilium, auto by its API": {
			node: node{files: map[string]string{net + "05-cilium.conflist": list("cilium", "cilium-cni")}, sockets: []string{socket}},
			live: live{api: health("BPF", "auto", "tcx")}, want: "cilium", assumed: true,
		},
		"cilium, a datapath of a later release": {
			node: node{files: map[string]string{net + "05-cilium.conflist": list("cilium", "cilium-cni")}, sockets: []string{socket}},
			live: live{api: health("BPF", "warp", "tcx")}, want: "cilium", assumed: true,
		},
		"ours in front of original": {node: node{files: map[string]string{net + "00-podweir-10-x.conflist": list("x", "bridge", "podweir-cni"), net + "10-x.conflist": list("x", "ptp")}}, want: "ptp"},
	} {
		t.Run(name, func(t *testing.T) {
			n := detect.Read(t.Context(), tc.node.root(), detect.Options{Live: tc.live})
			if n.Profile == nil || n.Profile.Name != tc.want || n.Assumed != tc.assumed {
				t.Errorf("Read(): profile %v, assumed %v, want %s, %v; why: %s; problems: %v",
					n.Profile, n.Assumed, tc.want, tc.assumed, n.Why, n.Problems)
			}
			must.Be(t, "Read() says why", true, n.Why != "")
		})
	}
}

func with(a, b map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range []map[string]string{a, b} {
		maps.Copy(out, m)
	}
	return out
}

func settings(pairs ...string) map[string]string {
	out := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		out[configMap+pairs[i]] = pairs[i+1]
	}
	return out
}

func TestExclusive(t *testing.T) {
	conf := map[string]string{net + "05-cilium.conflist": list("cilium", "cilium-cni")}
	writes := settings("write-cni-conf-when-ready", "/host/etc/cni/net.d/05-cilium.conflist")
	bak := func(name string) map[string]string { return map[string]string{net + name + ".cilium_bak": "{}"} }
	for name, tc := range map[string]struct {
		node node
		want profiles.Answer
		why  string
	}{
		"setting true":      {node{files: with(conf, with(writes, settings("cni-exclusive", "true"))), processes: []string{agent}}, profiles.Yes, "cni-exclusive is true"},
		"setting false":     {node{files: with(conf, with(writes, settings("cni-exclusive", "false"))), processes: []string{agent}}, profiles.No, "cni-exclusive is false"},
		"custom conf":       {node{files: with(conf, settings("cni-exclusive", "true")), processes: []string{agent}}, profiles.No, "writes no conflist"},
		"ours was renamed":  {node{files: with(conf, bak("00-podweir-05-.conflist"))}, profiles.Yes, "podweir's file, renamed"},
		"other was renamed": {node{files: with(conf, bak("10-aws.conflist")), sockets: []string{socket}}, profiles.Unknown, "at some time"},
		"stranger, running": {node{files: with(conf, map[string]string{net + "10-aws.conflist": "{}"}), sockets: []string{socket}}, profiles.No, "10-aws.conflist is beside"},
		"stranger, stopped": {node{files: with(conf, map[string]string{net + "10-aws.conflist": "{}"}), sockets: []string{"/x"}}, profiles.Unknown, "nothing shows it"},
		"no directory":      {node{files: map[string]string{"x": ""}, processes: []string{agent}}, profiles.Unknown, "cannot be read"},
		"no Cilium":         {node{files: map[string]string{net + "10-x.conflist": list("n", "ptp")}}, profiles.No, "neither runs here"},
		"it is gone":        {node{files: with(map[string]string{net + "10-x.conflist": list("n", "ptp")}, bak("00-podweir-10-x.conflist"))}, profiles.No, "neither runs here"},
		"it starts":         {node{files: with(map[string]string{net + "10-x.conflist": list("n", "ptp")}, with(writes, settings("cni-exclusive", "true"))), processes: []string{agent}}, profiles.Yes, "cni-exclusive is true"},
	} {
		t.Run(name, func(t *testing.T) {
			n := detect.Read(t.Context(), tc.node.root(), detect.Options{})
			if n.Exclusive != tc.want || !strings.Contains(n.ExclusiveWhy, tc.why) {
				t.Errorf("exclusive %v because %q, want %v because %q", n.Exclusive, n.ExclusiveWhy, tc.want, tc.why)
			}
		})
	}
}

func TestStates(t *testing.T) {
	n := detect.Read(t.Context(), node{
		files: map[string]string{
			net + "05-x.conflist": list("cbr0", "flannel"), net + "10-aws.conflist": list("aws-cni", "aws-cni"),
			"var/lib/calico/nodename": "", "run/aws-node/ipam.json": "", "opt/cni/bin/cilium-cni": "", // left over
			"sys/kernel/btf/vmlinux": "", "proc/sys/kernel/osrelease": "6.18.44\n",
		},
		processes: []string{"1 systemd", "2 kubelet", "3 flanneld", "4 cilium-agent"},
		sockets:   []string{"/run/other.sock"},
		devices:   []string{"lo", "eth0", "cilium_host"},
	}.root(), detect.Options{})
	must.Match(t, "running", []string{"cilium", "flannel"}, n.Running)
	if n.Kernel.Release != "6.18.44" || n.Kernel.HasBTF != profiles.Yes {
		t.Errorf("kernel %+v", n.Kernel)
	}
}

// TestWithoutTheNodesNamespaces: in a container that shares nothing, what cannot
// be seen is unknown and not absent.
func TestWithoutTheNodesNamespaces(t *testing.T) {
	n := detect.Read(t.Context(), node{
		files:     map[string]string{net + "10-aws.conflist": list("aws-cni", "aws-cni")},
		processes: []string{"1 podweir"},
	}.root(), detect.Options{})
	must.Be(t, "families that run", 0, len(n.Running))
}

func TestDirectories(t *testing.T) {
	toml := "[plugins.'io.containerd.cri.v1.runtime'.cni]\n  bin_dirs = ['/opt/bin']\n  conf_dir = \"/etc/cni/other.d\"\n"
	for name, tc := range map[string]struct {
		files map[string]string
		opts  detect.Options
		conf  string
		bins  []string
	}{
		"containerd's": {map[string]string{"etc/containerd/config.toml": toml}, detect.Options{}, "etc/cni/other.d", []string{"opt/bin"}},
		"the second of two directories": {map[string]string{
			"etc/containerd/config.toml": "[plugins.'io.containerd.cri.v1.runtime'.cni]\n  bin_dirs = ['/opt/bin', \"/opt/more\"]\n",
		}, detect.Options{}, "etc/cni/net.d", []string{"opt/bin", "opt/more"}},
		"imported, by a file that is imported": {map[string]string{
			"etc/containerd/config.toml":   "version = 3\nimports = ['conf.d/*.toml']\n" + toml,
			"etc/containerd/conf.d/a.toml": "imports = ['/etc/b.toml', '/etc/containerd/config.toml']\n",
			"etc/b.toml":                   "[plugins.'io.containerd.cri.v1.runtime'.cni]\n  conf_dir = '/etc/b.d'\n",
		}, detect.Options{}, "etc/b.d", []string{"opt/bin"}},
		"CRI-O's drop-ins": {map[string]string{
			"proc/9/comm": "crio\n", "proc/9/cmdline": "/usr/bin/crio\x00",
			"etc/crio/crio.conf":             "[crio.network]\nnetwork_dir = '/etc/a.d'\nplugin_dirs = ['/usr/a']\n",
			"etc/crio/crio.conf.d/00-x":      "[crio.network]\nnetwork_dir = '/etc/kubernetes/cni/net.d/'\n",
			"etc/crio/crio.conf.d/10-y.conf": "[crio.network]\nplugin_dirs = ['/var/lib/cni/bin', '/usr/libexec/cni']\n",
		}, detect.Options{}, "etc/kubernetes/cni/net.d", []string{"var/lib/cni/bin", "usr/libexec/cni"}},
		"k3s beside dockerd's containerd": {map[string]string{
			"proc/10/comm": "containerd\n", "proc/10/cmdline": "/usr/bin/containerd\x00",
			"proc/20/comm": "k3s-server\n", "proc/20/cmdline": "/usr/local/bin/k3s server\x00",
			"proc/30/comm": "containerd\n", "proc/30/cmdline": "containerd\x00-c\x00/var/lib/rancher/k3s/agent/etc/containerd/config.toml\x00-a\x00/run/k3s/containerd/containerd.sock\x00",
			"var/lib/rancher/k3s/agent/etc/containerd/config.toml": toml,
		}, detect.Options{}, "etc/cni/other.d", []string{"opt/bin"}},
		"Talos, whose own containerd is first": {map[string]string{
			"proc/10/comm": "containerd\n", "proc/10/cmdline": "/bin/containerd\x00--address\x00/system/run/containerd/containerd.sock\x00",
			"proc/20/comm": "kubelet\n", "proc/20/cmdline": "/usr/local/bin/kubelet\x00--config=/etc/kubelet.yaml\x00",
			"etc/kubelet.yaml": "containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n",
			"proc/30/comm":     "containerd\n", "proc/30/cmdline": "/bin/containerd\x00--address\x00/run/containerd/containerd.sock\x00--config\x00/etc/cri/containerd.toml\x00",
			"etc/cri/containerd.toml": toml,
		}, detect.Options{}, "etc/cni/other.d", []string{"opt/bin"}},
		"RKE2 with the kubelet's settings in files, beside dockerd's containerd": {map[string]string{
			"proc/10/comm": "containerd\n", "proc/10/cmdline": "/usr/bin/containerd\x00",
			"proc/20/comm": "kubelet\n", "proc/20/cmdline": "kubelet\x00--config-dir=/var/lib/rancher/kubelet.conf.d\x00",
			"var/lib/rancher/kubelet.conf.d/00-rke2-defaults.conf": "clusterDomain: x\ncontainerRuntimeEndpoint: unix:///run/k3s/containerd/containerd.sock\n",
			"proc/30/comm": "containerd\n", "proc/30/cmdline": "containerd\x00-c\x00/var/lib/rancher/x.toml\x00-a\x00/run/k3s/containerd/containerd.sock\x00",
			"var/lib/rancher/x.toml": toml,
		}, detect.Options{}, "etc/cni/other.d", []string{"opt/bin"}},
		"a containerd that dockerd started, with its address in a file": {map[string]string{
			"proc/10/comm": "containerd\n", "proc/10/cmdline": "containerd\x00--config\x00/var/run/docker/containerd/containerd.toml\x00",
			"var/run/docker/containerd/containerd.toml": "[grpc]\n  address = \"/var/run/docker/containerd/containerd.sock\"\n",
			"proc/20/comm": "kubelet\n", "proc/20/cmdline": "kubelet\x00--config=/etc/kubelet.json\x00",
			"etc/kubelet.json": `{"kind":"KubeletConfiguration","containerRuntimeEndpoint":"unix:///run/containerd/containerd.sock"}`,
			"proc/30/comm":     "containerd\n", "proc/30/cmdline": "/usr/bin/containerd\x00",
			"etc/containerd/config.toml": toml,
		}, detect.Options{}, "etc/cni/other.d", []string{"opt/bin"}},
		"Docker in a pod, and no kubelet is seen": {map[string]string{
			"proc/10/comm": "containerd\n", "proc/10/cmdline": "containerd\x00--config\x00/x.toml\x00", "proc/10/status": "Name:\tcontainerd\nNSpid:\t10\t7\n",
			"proc/30/comm": "containerd\n", "proc/30/cmdline": "/usr/bin/containerd\x00", "proc/30/status": "Name:\tcontainerd\nNSpid:\t30\n",
			"etc/containerd/config.toml": toml,
		}, detect.Options{}, "etc/cni/other.d", []string{"opt/bin"}},
		"CRI-O beside Docker": {map[string]string{
			"proc/10/comm": "containerd\n", "proc/10/cmdline": "/usr/bin/containerd\x00",
			"proc/20/comm": "kubelet\n", "proc/20/cmdline": "kubelet\x00--container-runtime-endpoint=unix:///var/run/crio/crio.sock\x00",
			"proc/30/comm": "crio\n", "proc/30/cmdline": "/usr/bin/crio\x00",
			"etc/crio/crio.conf": "[crio.network]\nnetwork_dir = '/etc/a.d'\nplugin_dirs = ['/usr/a']\n",
		}, detect.Options{}, "etc/a.d", []string{"usr/a"}},
		"cri-dockerd, of which the kubelet asks nothing": {map[string]string{
			"proc/10/comm": "cri-dockerd\n", "proc/10/cmdline": "/usr/bin/cri-dockerd\x00--cni-conf-dir=/etc/docker/cni\x00",
			"proc/20/comm": "kubelet\n", "proc/20/cmdline": "kubelet\x00--container-runtime-endpoint\x00unix:///run/containerd/containerd.sock\x00",
			"proc/30/comm": "containerd\n", "proc/30/cmdline": "/usr/bin/containerd\x00",
			"etc/containerd/config.toml": toml,
		}, detect.Options{}, "etc/cni/other.d", []string{"opt/bin"}},
		"cri-dockerd": {map[string]string{
			"proc/8/comm": "containerd\n", "proc/8/cmdline": "containerd\x00--config\x00/var/run/docker/containerd/containerd.toml\x00",
			"proc/9/comm": "cri-dockerd\n", "proc/9/cmdline": "/usr/bin/cri-dockerd\x00--cni-conf-dir=/etc/docker/cni\x00--cni-bin-dir\x00/usr/cni,/opt/cni/bin\x00",
			"etc/containerd/config.toml": toml,
		}, detect.Options{}, "etc/docker/cni", []string{"usr/cni", "opt/cni/bin"}},
		"cri-dockerd by default": {map[string]string{
			"proc/9/comm": "cri-dockerd\n", "proc/9/cmdline": "/usr/bin/cri-dockerd\x00", "etc/containerd/config.toml": toml,
		}, detect.Options{}, "etc/cni/net.d", []string{"opt/cni/bin"}},
		"told": {map[string]string{"etc/containerd/config.toml": toml}, detect.Options{ConfDir: "/a/../b", BinDir: "/c"}, "b", []string{"c"}},
		"gke":  {map[string]string{"home/kubernetes/bin/gke": ""}, detect.Options{}, "etc/cni/net.d", []string{"opt/cni/bin", "home/kubernetes/bin"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := detect.Read(t.Context(), node{files: tc.files}.root(), tc.opts)
			must.Be(t, "directory of conflists", tc.conf, n.ConfDir)
			must.Match(t, "directories of plugins", tc.bins, n.BinDirs)
			if n.Conf != nil || len(n.Problems) == 0 {
				t.Error("there is no such directory, and no error says so")
			}
		})
	}
}

// runtimeIs fails the test unless this is the node's libcni, runtime and version.
func runtimeIs(t *testing.T, n *detect.Node, want string, readsDropIns profiles.Answer) {
	t.Helper()
	r := n.Runtime
	must.Be(t, "the runtime", want, r.Libcni+" "+r.Name+" "+r.Version)
	must.Be(t, "it reads drop-ins", readsDropIns, r.ReadsDropIns())
}

// TestRuntimeIsAnyBinary: a runtime that is not written in Go, or whose binary is
// gone, has a libcni that is not known.
func TestRuntimeIsAnyBinary(t *testing.T) {
	n := detect.Read(t.Context(), node{
		processes: []string{"7 containerd"}, files: map[string]string{"proc/7/exe": "no binary"},
	}.root(), detect.Options{Runtime: "containerd://1.7.2"})
	runtimeIs(t, n, " containerd 1.7.2", profiles.No)
	n = detect.Read(t.Context(), node{processes: []string{"7 containerd"}}.root(), detect.Options{Live: live{runtime: "containerd://2.4.2"}})
	runtimeIs(t, n, " containerd 2.4.2", profiles.Yes) // what it says of itself
	n = detect.Read(t.Context(), node{processes: []string{"7 containerd"}}.root(), detect.Options{Runtime: "containerd://1.7.2", Live: live{runtime: "containerd://2.4.2"}})
	must.Be(t, "version that the operator says", "1.7.2", n.Runtime.Version)
	n = detect.Read(t.Context(), node{processes: []string{"7 containerd"}}.root(), detect.Options{Live: live{}})
	must.Be(t, "runtime by its process", "containerd ", n.Runtime.Name+" "+n.Runtime.Version)
	must.Fail(t, "asking it", errors.Join(n.Problems...), "ask the container runtime")
	for version, l := range map[string]detect.Live{"2.1.3": live{}, "2.4.2": live{runtime: "containerd://2.4.2"}} {
		n = detect.Read(t.Context(), node{}.root(), detect.Options{ToldRuntime: "containerd://2.1.3", Live: l})
		must.Be(t, "version that was given, where the runtime does not answer", version, n.Runtime.Version)
	}
	n = detect.Read(t.Context(), node{processes: []string{"7 containerd", "8 cri-dockerd"}}.root(), detect.Options{})
	runtimeIs(t, n, " docker ", profiles.Unknown) // cri-dockerd's: the containerd is dockerd's
	n = detect.Read(t.Context(), node{processes: []string{"7 crio"}}.root(), detect.Options{Runtime: "nonsense"})
	must.Be(t, "runtime by its process", "cri-o", n.Runtime.Name)
	must.Fail(t, "reading what the operator says", errors.Join(n.Problems...), "nonsense")
}

// What the runtime says of its CNI configuration counts more than its files, and less
// than what the operator says.
func TestRuntimeNetwork(t *testing.T) {
	files := map[string]string{"etc/containerd/config.toml": "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.cni]\n" +
		"conf_dir = '/etc/file/net.d'\nbin_dir = '/opt/file/bin'\nmax_conf_num = 1\n"}
	said := live{network: &detect.RuntimeNetwork{ConfDir: "/etc/said/net.d", BinDirs: []string{"/opt/said/bin", "/opt/more/bin"}, MaxConfNum: 3}}
	for name, tc := range map[string]struct {
		opts    detect.Options
		conf    string
		bins    []string
		maxConf int64
	}{
		"said":          {detect.Options{Live: said}, "etc/said/net.d", []string{"opt/said/bin", "opt/more/bin"}, 3},
		"told":          {detect.Options{Live: said, ConfDir: "/etc/told", BinDir: "/opt/told"}, "etc/told", []string{"opt/told"}, 3},
		"says nothing":  {detect.Options{Live: live{runtime: "cri-o://1.34.0"}}, "etc/file/net.d", []string{"opt/file/bin"}, 1},
		"not reachable": {detect.Options{Live: live{}}, "etc/file/net.d", []string{"opt/file/bin"}, 1},
	} {
		n := detect.Read(t.Context(), node{files: files, processes: []string{"7 containerd"}}.root(), tc.opts)
		if n.ConfDir != tc.conf || !slices.Equal(n.BinDirs, tc.bins) || n.Config.MaxConfNum == nil || *n.Config.MaxConfNum != tc.maxConf {
			t.Errorf("%s: %s, %v, %v, want %s, %v, %d", name, n.ConfDir, n.BinDirs, n.Config.MaxConfNum, tc.conf, tc.bins, tc.maxConf)
		}
		if problem := errors.Join(n.Problems...); (name == "not reachable") != (problem != nil && strings.Contains(problem.Error(), "for its CNI configuration")) {
			t.Errorf("%s: problems %v", name, problem)
		}
	}
}

// TestThisMachine reads the machine that the test runs on: the layout of /proc and
// /sys is the real one.
func TestThisMachine(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n := detect.Read(ctx, detect.HostRoot("/"), detect.Options{})
	if n.Kernel.Release == "" || len(n.Processes) == 0 || len(n.Devices) == 0 {
		t.Errorf("Read(/): kernel %+v, %d processes, devices %v", n.Kernel, len(n.Processes), n.Devices)
	}
}

// TestWhetherFelixRuns: it has other names in other releases, and where something of it is
// there the answer is never no.
func TestWhetherFelixRuns(t *testing.T) {
	const yes, no, unknown = profiles.Yes, profiles.No, profiles.Unknown
	aws := map[string]string{net + "10-aws.conflist": list("aws-cni", "aws-cni")}
	azure := map[string]string{net + "10-azure.conflist": list("azure", "azure-vnet")}
	const kubelet, noPolicy = "2 kubelet", "9 controller --enable-network-policy=false"
	for name, tc := range map[string]struct {
		node    node
		runs    profiles.Answer
		shaper  terms.Shaper
		profile string
		place   terms.Place
	}{
		"calico-node":                {node{files: aws, processes: []string{kubelet, noPolicy, "7 calico-node -felix"}}, yes, terms.ShaperCalico, "aws-vpc-cni-calico", terms.PlaceIFB},
		"3.33":                       {node{files: aws, processes: []string{kubelet, noPolicy, "7 calico component felix"}}, yes, terms.ShaperCalico, "aws-vpc-cni-calico", terms.PlaceIFB},
		"3.33, and its other parts":  {node{files: aws, processes: []string{kubelet, noPolicy, "6 calico component confd", "7 calico component felix"}}, yes, terms.ShaperCalico, "aws-vpc-cni-calico", terms.PlaceIFB},
		"another part alone":         {node{files: aws, processes: []string{kubelet, noPolicy, "7 calico component confd"}}, unknown, terms.ShaperCalico, "aws-vpc-cni-calico", terms.PlaceIFB},
		"its device":                 {node{files: aws, processes: []string{kubelet, noPolicy}, devices: []string{"bwcali0123456789"}}, unknown, terms.ShaperCalico, "aws-vpc-cni-calico", terms.PlaceIFB},
		"its plugin":                 {node{files: with(aws, map[string]string{"opt/cni/bin/calico": ""}), processes: []string{kubelet, noPolicy}}, unknown, terms.ShaperCalico, "aws-vpc-cni-calico", terms.PlaceIFB},
		"no sign":                    {node{files: aws, processes: []string{kubelet, noPolicy}}, no, 0, "aws-vpc-cni", terms.PlaceHost},
		"no sign, and nothing seen":  {node{files: aws, processes: []string{noPolicy}}, unknown, 0, "aws-vpc-cni", terms.PlaceHost},
		"a zombie":                   {node{files: with(aws, map[string]string{"proc/7/stat": "7 (calico-node) Z 1 7 7 0"}), processes: []string{kubelet, noPolicy, "7 calico-node"}}, no, 0, "aws-vpc-cni", terms.PlaceHost},
		"running, with a bad name":   {node{files: with(aws, map[string]string{"proc/7/stat": "7 (x) Z (y) S 1 7 7 0"}), processes: []string{kubelet, noPolicy, "7 calico-node"}}, yes, terms.ShaperCalico, "aws-vpc-cni-calico", terms.PlaceIFB},
		"both policies":              {node{files: aws, processes: []string{kubelet, "9 controller --enable-network-policy=true", "7 calico-node -felix"}}, yes, terms.ShaperCalico, "aws-vpc-cni-npa", terms.PlaceIFB},
		"Azure with Calico's policy": {node{files: azure, processes: []string{kubelet, "7 calico-node -felix"}}, yes, terms.ShaperCalico, "azure-vnet", terms.PlaceIFB},
		"Azure":                      {node{files: azure, processes: []string{kubelet}}, no, 0, "azure-vnet", terms.PlaceHost},
	} {
		t.Run(name, func(t *testing.T) {
			tc.node.files = maps.Clone(tc.node.files)
			n := detect.Read(t.Context(), tc.node.root(), detect.Options{Live: live{programs: []string{}}})
			if n.Calico.Runs != tc.runs || n.Profile.Name != tc.profile || n.Profile.Ingress.Place.Is != tc.place || n.OtherShapers().By != tc.shaper {
				t.Errorf("runs %v, profile %s, ingress on %v, beside %v, want %v, %s, %v, %v",
					n.Calico.Runs, n.Profile.Name, n.Profile.Ingress.Place, n.OtherShapers().By, tc.runs, tc.profile, tc.place, tc.shaper)
			}
			must.Be(t, "Calico is found running", tc.runs == yes, slices.Contains(n.Running, "calico"))
			if tc.place == terms.PlaceIFB && n.Profile.Egress.Refused[terms.Name(terms.ModeClsactHostSide)] == "" {
				t.Error("a filter of podweir's may stand where Felix has its own")
			}
		})
	}
}

// Handlers are found in every file in which a runtime has them, by what they run and not by
// their names alone.
func TestSandboxedHandlers(t *testing.T) {
	const (
		crio    = "9 crio"
		config  = "etc/containerd/config.toml"
		dockerd = "etc/docker/daemon.json"
	)
	kata, gvisor := profiles.Runtimes{Redirects: true, TCX: profiles.Yes}, profiles.Runtimes{GVisor: true, TCX: profiles.Yes}
	for name, tc := range map[string]struct {
		files     map[string]string
		processes []string
		want      map[string]detect.Sandboxed
		runtimes  profiles.Runtimes
		// byDefault is what pods run that name no handler.
		byDefault detect.Sandboxed
	}{
		"containerd 2": {
			files:    map[string]string{config: "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.vm]\nruntime_type = 'io.containerd.kata.v2'\n"},
			want:     map[string]detect.Sandboxed{"vm": detect.Kata},
			runtimes: kata,
		},
		"containerd 1.7": {
			files:    map[string]string{config: "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.box]\nruntime_type = 'io.containerd.runsc.v1'\n"},
			want:     map[string]detect.Sandboxed{"box": detect.GVisor},
			runtimes: gvisor,
		},
		"containerd, version 1 of the file": {
			files:    map[string]string{config: "[plugins.cri.containerd.runtimes.vm]\nruntime_type = 'io.containerd.kata.v2'\n"},
			want:     map[string]detect.Sandboxed{"vm": detect.Kata},
			runtimes: kata,
		},
		"containerd, by the program of runc's shim": {
			files: map[string]string{config: "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.box]\nruntime_type = 'io.containerd.runc.v2'\n" +
				"[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.box.options]\nBinaryName = '/usr/bin/runsc'\n"},
			want:     map[string]detect.Sandboxed{"box": detect.GVisor},
			runtimes: gvisor,
		},
		"containerd, the default": {
			files: map[string]string{config: "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd]\ndefault_runtime_name = 'box'\n" +
				"[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.box]\nruntime_type = 'io.containerd.runsc.v1'\n"},
			want:      map[string]detect.Sandboxed{"box": detect.GVisor},
			runtimes:  gvisor,
			byDefault: detect.GVisor,
		},
		"containerd, untrusted workloads": {
			files:    map[string]string{config: "[plugins.cri.containerd.untrusted_workload_runtime]\nruntime_engine = '/usr/bin/kata-runtime'\n"},
			want:     map[string]detect.Sandboxed{"untrusted": detect.Kata},
			runtimes: kata,
		},
		"containerd 2.2, a drop-in that nothing imports": {
			files: map[string]string{
				config:                             "version = 3\n",
				"etc/containerd/conf.d/runsc.toml": "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runsc]\nruntime_type = 'io.containerd.runsc.v1'\n",
			},
			want:     map[string]detect.Sandboxed{"runsc": detect.GVisor},
			runtimes: gvisor,
		},
		"containerd 2.2, a drop-in alone": {
			files: map[string]string{
				"etc/containerd/conf.d/k.toml": "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.u]\nruntime_type = 'io.containerd.urunc.v2'\n",
			},
			want:     map[string]detect.Sandboxed{"u": detect.Urunc},
			runtimes: kata,
		},
		"containerd of another, whose drop-ins are not its own": {
			processes: []string{"9 containerd -c /var/lib/rancher/k3s/agent/etc/containerd/config.toml"},
			files: map[string]string{
				"var/lib/rancher/k3s/agent/etc/containerd/config.toml": "version = 3\n",
				"etc/containerd/conf.d/runsc.toml":                     "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runsc]\nruntime_type = 'io.containerd.runsc.v1'\n",
			},
			runtimes: profiles.Runtimes{TCX: profiles.Yes},
		},
		"CRI-O's drop-in": {
			processes: []string{crio},
			files: map[string]string{
				"etc/crio/crio.conf.d/99-vm": "[crio.runtime]\ndefault_runtime = 'vm'\n[crio.runtime.runtimes.vm]\nruntime_path = '/usr/bin/containerd-shim-kata-v2'\nruntime_type = 'vm'\n",
			},
			want:      map[string]detect.Sandboxed{"vm": detect.Kata},
			runtimes:  kata,
			byDefault: detect.Kata,
		},
		"dockerd": {
			processes: []string{"9 cri-dockerd"},
			files:     map[string]string{dockerd: `{"default-runtime": "box", "runtimes": {"box": {"path": "/usr/local/bin/runsc"}, "k": {"runtimeType": "io.containerd.kata.v2"}}}`},
			want:      map[string]detect.Sandboxed{"box": detect.GVisor, "k": detect.Kata},
			runtimes:  profiles.Runtimes{Redirects: true, GVisor: true, TCX: profiles.Yes},
			byDefault: detect.GVisor,
		},
		"a chained plugin that redirects": {
			files: map[string]string{
				"etc/cni/net.d/10-fc.conflist": `{"cniVersion":"1.0.0","name":"fc","plugins":[{"type":"ptp"},{"type":"tc-redirect-tap"}]}`,
			},
			runtimes: kata,
		},
		"processes alone": {
			files:    map[string]string{config: "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]\nruntime_type = 'io.containerd.runc.v2'\n"},
			runtimes: profiles.Runtimes{TCX: profiles.Yes},
		},
	} {
		n := detect.Read(t.Context(), node{files: tc.files, processes: tc.processes}.root(), detect.Options{Live: live{}})
		must.Match(t, fmt.Sprintf("%s: handlers differ", name), tc.want, n.Config.Sandboxed)
		must.Be(t, name+": Runtimes()", tc.runtimes, n.Runtimes())
		must.Be(t, name+": pods without a handler", tc.byDefault, n.Config.Runs(""))
	}
}

// TestRemembers: an agent that is being replaced has not changed its mind, and its programs
// go on; one that answers, or is configured otherwise, has.
func TestRemembers(t *testing.T) {
	before := detect.Cilium{API: true, BandwidthManager: profiles.Yes, Version: "1.20.2", DatapathMode: "veth", AttachMode: "tcx", Routing: "BPF"}
	legacy, endpoints, filters := before, before, before
	legacy.Routing, endpoints.EndpointRoutes, filters.AttachMode = "Legacy", profiles.Yes, "tc"
	on, off, egress := detect.Others{Egress: profiles.Yes, Ingress: profiles.Yes}, detect.Others{Egress: profiles.No, Ingress: profiles.No}, detect.Others{Egress: profiles.Yes, Ingress: profiles.No}
	manager := func(version, routing, manager string) live {
		return live{api: map[string]string{"/v1/healthz": `{"cilium":{"msg":"` + version + `"},"datapath-mode":"veth","attach-mode":"tcx","routing":{"intra-host-routing-mode":"` + routing + `"}` + manager + `}`}}
	}
	toLegacy := func(states ...string) live {
		l := manager("1.20.2", "Legacy", `,"bandwidth-manager":{"enabled":true}`)
		l.api["/v1/endpoint"] = `[{"status":{"state":"` + strings.Join(states, `"}},{"status":{"state":"`) + `"}}]`
		return l
	}
	answers := func(endpoints string) live {
		l := toLegacy()
		l.api["/v1/endpoint"] = endpoints
		return l
	}
	starts := []string{"/var/run/containerd/containerd.sock"}
	for name, tc := range map[string]struct {
		before   detect.Cilium
		settings map[string]string
		live     live
		sockets  []string
		profile  string
		want     detect.Others
	}{
		"silent":                  {before: before, profile: "cilium", want: on},
		"silent, legacy routing":  {before: legacy, profile: "cilium-legacy-routing", want: egress},
		"silent, endpoint routes": {before: endpoints, profile: "cilium", want: on},
		"silent, filters":         {before: filters, profile: "cilium-legacy-tc", want: on},
		"silent, still asked":     {before: before, settings: settings("enable-bandwidth-manager", "true"), profile: "cilium", want: on},
		"silent, not asked now":   {before: before, settings: settings("enable-bandwidth-manager", "false"), profile: "cilium", want: off},
		"says another way":        {before: legacy, live: manager("1.20.2", "BPF", `,"bandwidth-manager":{"enabled":true}`), profile: "cilium", want: on},
		"pods are behind":         {before: before, live: toLegacy("ready", "regenerating"), profile: "cilium", want: on},
		"pods are not known yet":  {before: before, live: answers("[]"), profile: "cilium", want: on},
		"a part of many pods":     {before: before, live: answers(`[{"status":{"state":"regenerating"}},{"sta`), profile: "cilium", want: on},
		"no more is known":        {before: before, live: answers(`[{"status":{"state":"ready"}},{"sta`), profile: "cilium-legacy-routing", want: egress},
		"starts with legacy":      {before: before, settings: settings("enable-host-legacy-routing", "true"), sockets: starts, profile: "cilium", want: on},
		"does not answer yet":     {before: before, settings: with(settings("enable-host-legacy-routing", "true"), map[string]string{"run/cilium/cilium.sock": ""}), profile: "cilium", want: on},
		"is asked for legacy":     {before: before, settings: settings("enable-host-legacy-routing", "true"), profile: "cilium-legacy-routing", want: egress},
		"pods are there, too":     {before: before, live: toLegacy("ready", "ready"), profile: "cilium-legacy-routing", want: egress},
		"pods are not asked for":  {before: legacy, live: toLegacy("regenerating"), profile: "cilium-legacy-routing", want: egress},
		"says off":                {before: before, live: manager("1.20.2", "BPF", `,"bandwidth-manager":{"enabled":false}`), profile: "cilium", want: off},
		"says nothing of it":      {before: before, live: manager("1.20.2", "BPF", ""), profile: "cilium"},
		"is older":                {before: before, live: manager("1.17.2", "BPF", `,"bandwidth-manager":{"enabled":true}`), profile: "cilium", want: egress},
	} {
		files := map[string]string{net + "05-cilium.conflist": list("cilium", "cilium-cni")}
		if tc.sockets == nil {
			tc.sockets = []string{socket}
		}
		n := detect.Read(t.Context(), node{files: with(files, tc.settings), processes: []string{agent}, sockets: tc.sockets}.root(),
			detect.Options{Live: tc.live, Before: &tc.before})
		got := n.Cilium.EnforcesAnnotations()
		got.Why = ""
		if got != tc.want || n.Profile == nil || n.Profile.Name != tc.profile {
			t.Errorf("%s: profile %v, others %+v, want %s, %+v", name, n.Profile, got, tc.profile, tc.want)
		}
	}
}

// TestWhoPolicesIngress: the release has to know the annotation, and packets have
// to meet the policer.
func TestWhoPolicesIngress(t *testing.T) {
	const yes, no, unknown = profiles.Yes, profiles.No, profiles.Unknown
	for _, tc := range []struct {
		version, routing, chaining string
		want                       profiles.Answer
	}{
		{"1.18.0", "BPF", "none", yes},
		{"v1.18.4", "BPF", "", yes},
		{"2.0.0", "BPF", "portmap", yes},
		{"1.17.9", "BPF", "none", no},
		{"1.9.1", "", "aws-cni", no},
		{"1.20.2", "Legacy", "none", no},
		{"", "Legacy", "none", no},
		{"1.20.2", "BPF", "generic-veth", no},
		{"1.20.2", "BPF", "aws-cni", unknown},
		{"1.20.2", "", "none", unknown},
		{"", "BPF", "none", unknown},
		{"1.x", "BPF", "none", unknown},
	} {
		c := detect.Cilium{API: true, BandwidthManager: yes, Version: tc.version, Routing: tc.routing, ChainingMode: tc.chaining}
		if got := c.EnforcesAnnotations(); got.Ingress != tc.want || got.Egress != yes || got.Why == "" {
			t.Errorf("%+v: %+v, want ingress %v, and why", tc, got, tc.want)
		}
	}
}

// TestWhetherFelixEnforces: by the release, or by what it leaves on the node.
func TestWhetherFelixEnforces(t *testing.T) {
	const yes, no, unknown = profiles.Yes, profiles.No, profiles.Unknown
	for name, tc := range map[string]struct {
		calico detect.Calico
		want   profiles.Answer
		why    string
	}{
		"3.30":                  {detect.Calico{Version: "v3.30.0", Dataplane: "tables"}, yes, "Calico v3.30.0 enforces"},
		"3.29":                  {detect.Calico{Version: "v3.29.6", Dataplane: "tables"}, no, ""},
		"4.0, dataplane hidden": {detect.Calico{Version: "v4.0.0"}, yes, "v4.0.0"},
		"release hidden":        {detect.Calico{Dataplane: "tables"}, unknown, "which release"},
		"release hidden, acts":  {detect.Calico{Dataplane: "tables", Limits: true}, yes, "Calico enforces"},
		"eBPF":                  {detect.Calico{Version: "v3.31.2", Dataplane: "bpf"}, unknown, "where that uses TCX"},
		"eBPF, acts":            {detect.Calico{Version: "v3.31.2", Dataplane: "bpf", Limits: true}, yes, "Calico v3.31.2 enforces"},
		"eBPF, 3.29":            {detect.Calico{Version: "v3.29.6", Dataplane: "bpf"}, no, ""},
	} {
		for _, profile := range []string{"calico", "canal", "aws-vpc-cni-calico"} {
			tc.calico.Runs = yes
			got := (&detect.Node{Profile: profiles.Find(profile), Calico: tc.calico}).OtherShapers()
			if got.By != terms.ShaperCalico || got.Egress != tc.want || got.Ingress != tc.want || !strings.Contains(got.Why, tc.why) {
				t.Errorf("%s, %s: %+v, want %v because %q", name, profile, got, tc.want, tc.why)
			}
		}
		tc.calico.Runs = no
		if got := (&detect.Node{Profile: profiles.Find("flannel"), Calico: tc.calico}).OtherShapers(); got != (detect.Others{Egress: no, Ingress: no}) {
			t.Errorf("%s, left over beside flannel: %+v, want none", name, got)
		}
	}
}

// TestHostRoot: links are followed within the root and never out of it.
func TestHostRoot(t *testing.T) {
	outside := t.TempDir()
	root := filepath.Join(outside, "host")
	must.Files(t, outside, map[string]string{"secret": "outside", "host/secret": "inside", "host/run/x": "x", "host/etc/cni/net.d/a": "a"})
	for _, dir := range []string{"proc/7", "real"} {
		must.OK(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	for name, target := range map[string]string{
		"var": "/nowhere", "absolute": "/secret", "up": "../../../secret", "loop": "loop", "relative": "etc/cni/../cni/net.d",
		"chain": "absolute", "etc/link": "../run", "real/abs": "/etc/link/x", "proc/7/root": "/real",
	} {
		must.OK(t, os.Symlink(target, filepath.Join(root, name)))
	}
	host := detect.HostRoot(root + "/")
	for name, want := range map[string]string{
		"absolute": "inside", "up": "inside", "chain": "inside", "relative/a": "a", "etc/link/x": "x", "real/abs": "x",
		// The kernel's link is followed by the kernel: here it is a plain link out
		// of the root, and there is no /real.
		"proc/7/root/abs": "", "var/x": "", "loop": "", "etc": "",
	} {
		got, err := fs.ReadFile(host, name)
		must.Be(t, name, want, string(got))
		must.Be(t, name+" can be read", want != "", err == nil)
	}
	for name, want := range map[string]error{
		"loop": syscall.ELOOP, "var/x": fs.ErrNotExist, "../secret": fs.ErrInvalid, "/secret": fs.ErrInvalid,
	} {
		must.Is(t, "Stat of "+name, want, must.Err(fs.Stat(host, name)))
	}
	must.Be(t, "the file in relative", "a", must.Len(t, "files in relative", 1, must.Get(fs.ReadDir(host, "relative"))(t))[0].Name())
	must.Be(t, "ReadLink(chain)", "absolute", must.Get(fs.ReadLink(host, "chain"))(t))
	must.Be(t, "Lstat(chain)", fs.ModeSymlink, must.Get(fs.Lstat(host, "chain"))(t).Mode().Type())
}

// TestProcessRoot follows the kernel's link to the root of this very process.
func TestProcessRoot(t *testing.T) {
	self := must.Get(os.Readlink("/proc/self"))(t)
	pid := filepath.Base(self)
	a := must.Get(fs.ReadFile(detect.HostRoot("/"), "proc/"+pid+"/root/proc/sys/kernel/osrelease"))(t)
	must.Be(t, "osrelease through the process", string(must.Get(os.ReadFile("/proc/sys/kernel/osrelease"))(t)), string(a))
}

// FuzzContainerdConfig: no configuration of the runtime, which is TOML, breaks the reader
// or leads out of the node's root. It reads that file alone, which is more than twice as
// fast as a look at a whole node.
func FuzzContainerdConfig(f *testing.F) {
	f.Add([]byte("version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\n  bin_dir = \"/opt/cni/bin\"\n  conf_dir = \"/etc/cni/net.d\"\n"))
	f.Add([]byte("bin_dirs = ['/a', \"/b\"]\nconf_dir = '../../x'\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		root := fstest.MapFS{"etc/containerd/config.toml": &fstest.MapFile{Data: raw}}
		c := detect.ReadRuntimeConfig(root, nil)
		for _, dir := range append(c.BinDirs, c.ConfDir) {
			if path.IsAbs(dir) || dir == ".." || strings.HasPrefix(dir, "../") {
				t.Errorf("directory %q is not below the root", dir)
			}
		}
	})
}

// k3s and MicroK8s have no process of the kubelet's name: the first socket that is there may be
// that of dockerd's containerd, which makes no pods.
func TestSocketOfAKubeletOfAnotherName(t *testing.T) {
	for process, want := range map[string]string{
		"k3s-server": "run/k3s/containerd/containerd.sock", "k3s-agent --container-runtime-endpoint=/var/run/x.sock": "run/x.sock",
		"kubelite": "var/snap/microk8s/common/run/containerd.sock", "dockerd": "",
	} {
		must.Be(t, process, want, detect.KubeletSocket(node{processes: []string{"9 " + process}}.root()))
	}
}
