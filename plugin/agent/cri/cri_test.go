// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cri_test

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/plugin/agent/cri"
	"github.com/podweir/podweir/plugin/agent/cri/critest"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// open has the runtime listen where containerd does, below the root of its client.
func open(t *testing.T, r *critest.Runtime) *cri.Client {
	t.Helper()
	c := &cri.Client{Root: t.TempDir()}
	must.Fail(t, "Version() without a runtime", must.Err(c.Version(t.Context())), cri.ErrNoSocket.Error(), "/run/crio/crio.sock")
	path := filepath.Join(c.Root, "run/containerd/containerd.sock")
	must.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
	t.Cleanup(must.Get(r.Serve(path))(t))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// The kubelet's runtime comes before any other that is there, as dockerd's containerd
// is beside cri-dockerd. While it is away no other takes its place.
func TestFindSocketOfTheKubelet(t *testing.T) {
	t.Parallel()
	listen := func(t *testing.T, root, socket string) string {
		t.Helper()
		at := filepath.Join(root, socket)
		must.OK(t, os.MkdirAll(filepath.Dir(at), 0o755))
		l := must.Get((&net.ListenConfig{}).Listen(t.Context(), "unix", at))(t)
		t.Cleanup(func() { _ = l.Close() })
		return at
	}
	for name, tc := range map[string]struct {
		args, config string
		away         bool
		want         string
	}{
		"by its flag":         {args: "--container-runtime-endpoint=unix:///run/cri-dockerd.sock"},
		"by its file":         {config: "containerRuntimeEndpoint: unix:///run/cri-dockerd.sock\n"},
		"through /var/run":    {args: "--container-runtime-endpoint=unix:///var/run/cri-dockerd.sock"},
		"that is away":        {args: "--container-runtime-endpoint=unix:///run/cri-dockerd.sock", away: true},
		"that is not mounted": {args: "--container-runtime-endpoint=unix:///opt/x.sock", want: "run/containerd/containerd.sock"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := must.Files(t, t.TempDir(), map[string]string{
				"proc/7/comm": "kubelet\n", "proc/7/cmdline": "/usr/bin/kubelet\x00" + tc.args + "\x00", "var/lib/kubelet/config.yaml": tc.config,
			})
			listen(t, root, "run/containerd/containerd.sock")
			if tc.away {
				must.Fail(t, "FindSocket()", must.Err(cri.FindSocket(root)), "there is no /run/cri-dockerd.sock, which the kubelet uses", "!"+cri.ErrNoSocket.Error())
				return
			}
			want := listen(t, root, "run/cri-dockerd.sock")
			if tc.want != "" {
				want = filepath.Join(root, tc.want)
			}
			must.Be(t, "FindSocket()", want, must.Get(cri.FindSocket(root))(t))
		})
	}
}

// What containerd 1.6 to 2.x and CRI-O 1.2x say beyond the CRI, cut down to
// what surrounds the parts that are read.
const (
	containerdInfo = `{"sandboxID":"b","pid":71,"processStatus":"running","netNamespaceClosed":false,"runtimeHandler":"",
		"config":{"metadata":{"name":"web"}},
		"runtimeSpec":{"ociVersion":"1.1.0","linux":{"namespaces":[{"type":"pid"},{"type":"ipc"},{"type":"mount"},
			{"type":"network","path":"/var/run/netns/cni-1"}]}},
		"cniResult":{"Interfaces":{"eth0":{"IPConfigs":[{"IP":"10.0.0.2","Gateway":"10.0.0.1"}],"Mac":"0a:00","Sandbox":"/var/run/netns/cni-1"},
			"lo":{"IPConfigs":[{"IP":"127.0.0.1"}],"Mac":"00:00","Sandbox":"/var/run/netns/cni-1"},
			"veth12":{"IPConfigs":null,"Mac":"0b:00","Sandbox":""},
			"net1":{"IPConfigs":null,"Mac":"0c:00","Sandbox":"/var/run/netns/cni-1"}},"DNS":[{}],"Routes":null}}`
	crioInfo = `{"image":"registry.k8s.io/pause:3.9","pid":71,
		"runtimeSpec":{"ociVersion":"1.1.0","linux":{"namespaces":[{"type":"pid"},{"type":"network","path":"/var/run/netns/f2"}]}}}`
	// What containerd 2.4.2 makes of the result of aws-cni 1.23.0, for a pod with two
	// network cards. MACs are numbers of route tables; the dummy carries the VLAN and
	// the number of the card, and no such device exists.
	awsInfo = `{"runtimeSpec":{"linux":{"namespaces":[{"type":"network","path":"/run/netns/cni-2"}]}},
		"cniResult":{"Interfaces":{
			"dummye8cbf0e0b1b":{"IPConfigs":null,"Mac":"0","Sandbox":"0","PciID":"","SocketPath":""},
			"eni0e8cbf0e0b1":{"IPConfigs":null,"Mac":"","Sandbox":"","PciID":"","SocketPath":""},
			"eni91c2ab8f7d0":{"IPConfigs":null,"Mac":"","Sandbox":"","PciID":"","SocketPath":""},
			"eth0":{"IPConfigs":[{"IP":"10.201.1.7","Gateway":"169.254.1.1"}],"Mac":"254","Sandbox":"/var/run/netns/cni-2","PciID":"","SocketPath":""},
			"lo":{"IPConfigs":[{"IP":"127.0.0.1","Gateway":""}],"Mac":"00:00:00:00:00:00","Sandbox":"/var/run/netns/cni-2","PciID":"","SocketPath":""},
			"mNicIf1":{"IPConfigs":[{"IP":"10.201.1.8","Gateway":"169.254.1.1"}],"Mac":"101","Sandbox":"/var/run/netns/cni-2","PciID":"","SocketPath":""}}}}`
	hostNetworkInfo = `{"runtimeSpec":{"linux":{"namespaces":[{"type":"pid"},{"type":"ipc"}]}}}`
)

func TestFindTheReadySandboxOfAPod(t *testing.T) {
	r := &critest.Runtime{}
	for _, s := range []critest.Sandbox{
		{ID: "other", UID: "u2", Created: 9},
		{ID: "a", UID: "u1", Created: 1},
		{ID: "b", UID: "u1", Created: 3, Info: containerdInfo},
		{ID: "c", UID: "u1", Created: 4, NotReady: true},
		{ID: "d", UID: "u3", Created: 1, NotReady: true},
		{ID: "e", UID: "u4", Info: crioInfo},
		{ID: "f", UID: "u5", Info: hostNetworkInfo},
		{ID: "g", UID: "u6", Info: "{"},
		{ID: "h", UID: "u7", Info: awsInfo},
	} {
		must.OK(t, r.Add(s))
	}
	c := open(t, r)
	for uid, want := range map[string]cri.Sandbox{
		"u1": {ID: "b", NetNSPath: "/run/netns/cni-1", Interfaces: []string{"eth0", "net1"}},
		"u4": {ID: "e", NetNSPath: "/run/netns/f2"},
		"u7": {ID: "h", NetNSPath: "/run/netns/cni-2", Interfaces: []string{"eth0", "mNicIf1"}},
	} {
		must.Match(t, "the sandbox of "+uid, want, must.Get(c.Find(t.Context(), uid))(t))
	}
	for uid, ended := range map[string]bool{"u3": true, "none": false} {
		if got, err := c.Find(t.Context(), uid); !errors.Is(err, cri.ErrNoSandbox) || errors.Is(err, cri.ErrEnded) != ended {
			t.Errorf("Find(%q) = %+v, %v, want ErrNoSandbox, and whether it ended: %v", uid, got, err, ended)
		}
	}
	must.Fail(t, "Find of a sandbox in the node's network", must.Err(c.Find(t.Context(), "u5")), "no network namespace")
	must.Fail(t, "Find with an answer that is no JSON", must.Err(c.Find(t.Context(), "u6")), "sandbox g at ")
	for id, want := range map[string]bool{"a": true, "c": true, "none": false} { // ready or not
		must.Be(t, "it knows "+id, want, must.Get(c.Knows(t.Context(), id))(t))
		must.Be(t, id+" runs", want && id != "c", must.Get(c.Runs(t.Context(), id))(t))
	}
	must.Be(t, "Version()", "containerd://2.1.3", must.Get(c.Version(t.Context()))(t))
	r.Fail = errors.New("boom")
	must.Fail(t, "Find of a runtime that fails", must.Err(c.Find(t.Context(), "u1")), "containerd.sock", "boom", "!"+cri.ErrNoSandbox.Error())
	if !json.Valid([]byte(containerdInfo)) || !json.Valid([]byte(crioInfo)) || !json.Valid([]byte(awsInfo)) {
		t.Error("the test's answers are no JSON")
	}
}

// A pod that ends while the others are asked about is left out. Of one that the runtime cannot tell of it is not known
// whether it has the node's network.
func TestPodsThatEndMeanwhile(t *testing.T) {
	t.Parallel()
	r := &critest.Runtime{}
	c := open(t, r)
	must.OK(t, r.Add(critest.Sandbox{ID: "ends", Answer: status.Error(codes.NotFound, "gone")}))
	must.OK(t, r.Add(critest.Sandbox{ID: "stays", NetNS: "/run/netns/x"}))
	must.Be(t, "the pod", "stays", must.Len(t, "Pods()", 1, must.Get(c.Pods(t.Context()))(t))[0].ID)
	must.OK(t, r.Add(critest.Sandbox{ID: "broken", Answer: status.Error(codes.Unknown, "no shim")}))
	pods, err := c.Pods(t.Context())
	must.Len(t, "Pods()", 1, pods) // the one that stays, and why not the other
	must.Fail(t, "Pods()", err, "no shim")
}

func TestNetwork(t *testing.T) {
	for name, tc := range map[string]struct {
		status map[string]string
		fail   error
		want   *detect.RuntimeNetwork
		err    string
	}{
		"containerd": {
			status: map[string]string{"cniconfig": `{"PluginDirs":["/opt/other/bin"],"PluginConfDir":"/etc/other/net.d","PluginMaxConfNum":3,"Prefix":"eth",` +
				`"Networks":[{"Config":{"Name":"cni-loopback","CNIVersion":"0.3.1","Plugins":[{"Network":{"type":"loopback","ipam":{},"dns":{}},"Source":"{}"}],"Source":"{}"},"IFName":"lo"}]}`},
			want: &detect.RuntimeNetwork{ConfDir: "/etc/other/net.d", BinDirs: []string{"/opt/other/bin"}, MaxConfNum: 3},
		},
		"CRI-O":           {status: map[string]string{"config": `{"sandboxImage":"x"}`}},
		"not loaded":      {status: map[string]string{"cniconfig": "null"}},
		"something else":  {status: map[string]string{"cniconfig": `["x"]`}, err: "cniconfig"},
		"it does not say": {fail: errors.New("no"), err: "Status at CRI socket"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := open(t, &critest.Runtime{Says: tc.status, Fail: tc.fail}).Network(t.Context())
			must.Match(t, "Network()", tc.want, got)
			must.Part(t, "the error of Network()", tc.err, must.Text(err))
		})
	}
}

// A runtime that has stopped is reported in words of its own, with what to do.
func TestStoppedRuntime(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "containerd.sock")
	c := &cri.Client{Socket: socket}
	defer func() { _ = c.Close() }()
	must.Fail(t, "Version()", must.Err(c.Version(t.Context())), "the container runtime does not run: no program listens on its CRI socket "+socket+"; start it")
}
