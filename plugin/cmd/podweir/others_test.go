// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/viper"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/agent/cri/critest"
	"github.com/podweir/podweir/plugin/agent/kube/apitest"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/rtnl"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// Every device of a pod has a line in status, also where podweir has no limit on it: a pod
// that asks for one, or misspelt the annotation, is not limited, unless its limits are
// left to others.
func TestPrivilegedStatusOfPodsWithoutALimit(t *testing.T) {
	n := newTestNode(t)
	n.pod(t, 1, nil)
	n.pod(t, 2, map[string]string{"kubernetes.io/egress-bandwidth": "10M"})
	n.pod(t, 3, map[string]string{"kubernetes.io/egress-bandwdth": "10M"})
	testutil.VethPair(t, testutil.End{NetNS: n.NetNS, Name: "veth9"}, testutil.End{NetNS: testutil.NewNetNS(t), Name: "eth0"})
	c := n.commands(t)
	out, err := c.do(t, "status", "--root", n.root)
	must.Fail(t, "status of two pods without the limits that they ask for", err)
	seen := regexp.MustCompile(`(-|10M) - \S+ - -`).ReplaceAllString(oneLine(out), "$1 - NOW - -") // neighbours are looked for
	must.Have(t, "status", seen,
		"0 of 2 pods are limited as they should be; 2 are not:",
		`NOT LIMITED default/pod-2 cause it asks for a limit (kubernetes.io/egress-bandwidth: "10M"), and podweir has none for it cure podweir doctor finds why`,
		"NOT LIMITED default/pod-3 cause misspelt: kubernetes.io/egress-bandwdth, did you mean kubernetes.io/egress-bandwidth? cure correct what the cause names",
		"default/pod-1 egress - - NOW - - no limit", "default/pod-2 egress 10M - NOW - - NOT LIMITED", "veth9 ingress - - NOW - - no limit")
	// One has its limit of egress, and misspelt that of ingress.
	c.pod = n.pod(t, 4, map[string]string{"podweir.io/egress-rate": "1M", "podweir.io/ingres-rate": "1M"})
	must.OK(t, n.Do(func() error {
		return ensureAs(t, c, attach.ID{Network: "net", ContainerID: "sandbox-4", IfName: "eth0"}, "default/pod-4")
	}))
	c.broken(t, []string{
		"0 of 3 pods are limited as they should be; 3 are not:", "NOT LIMITED default/pod-4 cause misspelt: podweir.io/ingres-rate, did you mean podweir.io/ingress-rate?",
		"default/pod-4 egress 1M 1M", "!default/pod-4 ingress",
	}, "status", "--root", n.root)
	// It ends without a DEL, and another pod's device gets the number of its own.
	number := fmt.Sprint(n.Interface(t, "veth4").Index)
	n.Run(t, "ip", "link", "del", "veth4")
	n.Run(t, "ip", "link", "add", "late", "index", number, "type", "veth", "peer", "name", "eth0", "netns", testutil.NewNetNS(t).Name)
	c.broken(t, []string{"late egress - -"}, "status", "--root", n.root)
	n.write(t, "etc/cni/net.d/10-net.conflist", `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"ptp"},{"type":"podweir-cni","shaper":"cilium"}]}`)
	c.broken(t, []string{"!NOT LIMITED default/pod-2", "default/pod-2 egress 10M -", "left to Cilium"}, "status", "--root", n.root)
}

// A runtime need not tell the network namespaces of its pods, as cri-dockerd does not: its pods that ask for a limit
// and have none are listed all the same, by their names. One that does not answer is named.
func TestPrivilegedStatusWhereTheRuntimeTellsLess(t *testing.T) {
	n := newTestNode(t)
	c := n.commands(t)
	asks := map[string]string{"kubernetes.io/egress-bandwidth": "10M"}
	for _, name := range []string{"one", "two"} {
		must.OK(t, n.runtime.Add(critest.Sandbox{ID: name, UID: name, Namespace: "default", Name: name, NetNS: "/proc/7/ns/net", Annotations: asks, Untold: true}))
	}
	must.OK(t, n.runtime.Add(critest.Sandbox{ID: "host", UID: "host", Namespace: "default", Name: "host", Annotations: asks}))
	c.broken(t, []string{
		"0 of 2 pods are limited as they should be; 2 are not:", "NOT LIMITED 2 pods: default/one, default/two cause it asks for a limit",
		"!may be missing from this list", // the runtime answered
	}, "status", "--root", n.root)
	// What an agent that has ended recorded of a pod that ended later is not told for ever.
	mail := engine.Paths{Run: n.run}.Mail()
	for _, name := range []string{"one", "ended"} {
		mail.RecordUnshaped(slog.New(slog.DiscardHandler), &mailbox.Unshaped{Pod: "default/" + name, UID: name, Reason: "failed", Since: time.Now(), Error: "no memory"})
	}
	c.broken(t, []string{"NOT LIMITED default/one", "cause no memory", "!default/ended"}, "status", "--root", n.root)
	c.broken(t, []string{"default/one: no memory", "!default/ended"}, "doctor", "--root", n.root)
	mail.ForgetUnshaped()
	// One ends after the runtime told of it, and before podweir compares.
	o := &options{v: viper.New()}
	o.v.Set("root", n.root)
	asked := o.asking().Asked(t.Context())
	n.runtime.End("two")
	rep := &status.Report{}
	must.OK(t, n.Do(func() error { return asked.Add(t.Context(), rep) }))
	must.Be(t, "who asks for a limit after default/two ended", "default/one", must.Len(t, "others", 1, rep.Others)[0].Pod)
	c.broken(t, []string{"no program listens on its CRI socket /nowhere.sock"}, "status", "--root", n.root, "--cri-socket", "/nowhere.sock")
	n.stop()
	away := must.Get(net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: filepath.Join(n.root, "run/containerd/containerd.sock")}))(t)
	away.SetUnlinkOnClose(false)
	must.OK(t, away.Close())
	for _, format := range []string{"table", "wide"} {
		c.broken(t, []string{"Pods without their limit may be missing from this list: pods that ask for a limit and have none: the container runtime does not run"},
			"status", "--root", n.root, "-o", format)
	}
}

// A runtime may name a pod's network namespace by a process, as cri-dockerd does. A container with the node's root
// directory has other processes at /proc.
func TestPrivilegedNetNSOfAProcessOfTheNode(t *testing.T) {
	n, root := starting(newCLI(t), nil), t.TempDir()
	t.Cleanup(func() { rtnl.ProcessesBelow("/") })
	n.path = "/proc/7777777/ns/net"
	there := filepath.Join(must.Files(t, root, map[string]string{n.path: ""}), n.path)
	must.OK(t, os.Symlink("7777777", filepath.Join(root, "proc/self")))
	must.OK(t, unix.Mount(n.pod.Path(), there, "", unix.MS_BIND, ""))
	t.Cleanup(func() { must.OK(t, unix.Unmount(there, unix.MNT_DETACH)) })
	rtnl.ProcessesBelow(root) // podweir-cni sees the node's own
	must.OK(t, n.verb(t, "ADD"))
	t.Setenv("PODWEIR_ROOT", root)
	for _, args := range [][]string{{"status"}, {"repair"}, {"gc"}, {"set", "--container", "c1", "--egress", "1M"}, {"status"}} {
		rtnl.ProcessesBelow("/")
		if out, err := n.do(t, args...); err != nil || strings.Contains(out, "left ") || args[0] == "status" && !strings.Contains(out, "The only pod with a limit is limited as it should be.") {
			t.Errorf("podweir %v: %v\n%s", args, err, out)
		}
	}
}

// A pod that could not be limited is told although its record finds no room, and until its network namespace is gone:
// its DEL may never come.
func TestPrivilegedStatusOfFailures(t *testing.T) {
	n := starting(newCLI(t), map[string]any{"onError": "open", "egressRate": "fast"})
	must.OK(t, os.MkdirAll(n.run, 0o755))
	must.OK(t, unix.Mount("tmpfs", n.run, "tmpfs", 0, "size=8k"))
	t.Cleanup(func() { must.OK(t, unix.Unmount(n.run, unix.MNT_DETACH)) })
	must.OK(t, os.MkdirAll(filepath.Join(n.run, "failures"), 0o755))
	_ = os.WriteFile(filepath.Join(n.run, "fill"), make([]byte, 64<<10), 0o600)
	must.OK(t, n.verb(t, "ADD"))
	n.broken(t, []string{"NOT LIMITED default/web cause it had no limit, and the record of why is damaged"}, "status")
	must.OK(t, unix.Mount("", n.run, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	n.broken(t, []string{"Pods without their limit may be missing from this list: pods that podweir-cni could not limit since: " + n.run + " cannot be written: read-only file system"}, "status")
	must.OK(t, unix.Mount("", n.run, "", unix.MS_REMOUNT, ""))
	must.OK(t, os.Remove(filepath.Join(n.run, "fill")))
	n.path = filepath.Join(t.TempDir(), "gone")
	must.OK(t, os.WriteFile(n.path+"-not", nil, 0o600))
	must.OK(t, n.verb(t, "ADD"))
	failures := func() []string { return must.Get(filepath.Glob(filepath.Join(n.run, "failures/*")))(t) }
	must.Len(t, "failures that are kept", 1, failures())
	n.well(t, []string{"!NOT LIMITED"}, "status", "--broken")
	n.must(t, "gc")
	must.Len(t, "failures that are left", 0, failures())
}

// An agent that was given the name of another node, or of none, knows no pod of this one: it is not ready, and status
// does not take its word that a pod asks for nothing any more.
func TestPrivilegedAgentOfAnotherNode(t *testing.T) {
	n := newTestNode(t)
	c := n.commands(t)
	n.pod(t, 1, map[string]string{"kubernetes.io/egress-bandwidth": "10M"})
	n.write(t, "etc/cni/net.d/10-net.conflist", `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"ptp"},{"type":"podweir-cni"}]}`)
	n.api.Put(apitest.Pod{Namespace: "default", Name: "elsewhere", UID: "uid-9", Node: "other", PodIP: "10.0.0.9"})
	a := n.startAs(t, withFlags(t, "--node-name other"))
	a.until(t, 30*time.Second, "the name is doubted", func() (bool, string) {
		ready, text := a.ready(t.Context())
		if ready {
			t.Error("the agent is ready before it looked whose name it has")
		}
		return !ready && strings.Contains(text, `not ready: api: the container runtime runs 1 pods, and the API server has none of them on node "other" (--node-name)`), text
	})
	c.broken(t, []string{"NOT LIMITED default/pod-1 cause it asks for a limit"}, "status", "--root", n.root, "--health-address", testHealth)
}

// An account that may not read Namespaces leaves the agent without the rates on them: it is not ready, since pods may ask
// for limits there. What another file of settings says does not count before a restart, and the doctor says so.
func TestPrivilegedAgentThatKnowsLess(t *testing.T) {
	n := newTestNode(t)
	c := n.commands(t)
	n.pod(t, 1, nil)
	n.api.PutNamespace("default", map[string]string{"podweir.io/default-egress-rate": "10M"})
	n.api.FailNamespace("default", http.StatusForbidden)
	n.api.Lack("/events")
	path := agentFile(t, "pass: 5m\n")
	a := n.startAs(t, withFlags(t, "--namespace-interval 10s --config "+path))
	says := func(want bool, text string) {
		t.Helper()
		a.until(t, 40*time.Second, text, func() (bool, string) {
			ready, all := a.ready(t.Context())
			return ready == want && strings.Contains(all, text), all
		})
	}
	says(false, "not ready: namespaces: rates cannot be read of 1 namespaces, such as default: the service account needs get of namespaces")
	n.api.FailNamespace("default", 0)
	says(true, "ok: namespaces")
	says(true, "note: rights: the service account lacks create of events, so that no Event tells of pods or the node")
	must.OK(t, os.WriteFile(path, []byte("pass: 4m\n"), 0o600))
	says(true, "note: settings: "+path+" has other values since this program started, which count after a restart: pass")
	out, _ := c.do(t, "doctor", "--root", n.root, "--health-address", testHealth, "-v")
	must.Have(t, "doctor", strings.Join(strings.Fields(out), " "), "PW613", "which count after a restart: pass")
}

// A pod that asks for a limit and got one by hand has it, under the name of whoever attached it.
func TestPrivilegedStatusOfAPodLimitedByHand(t *testing.T) {
	n := newTestNode(t)
	c := n.commands(t)
	c.pod = n.pod(t, 1, map[string]string{"kubernetes.io/egress-bandwidth": "10M"})
	// The namespace has two paths: /var/run is a link.
	c.must(t, "attach", "--netns", "/var"+c.pod.Path(), "--root", n.root, "--egress", "10M")
	c.well(t, []string{"!NOT LIMITED"}, "status", "--root", n.root)
	// Of a runtime that tells no network namespaces the pod's address says which it is.
	untold := newTestNode(t)
	c = untold.commands(t)
	c.pod = testutil.NewNetNS(t)
	testutil.VethPair(t, testutil.End{NetNS: c.pod, Name: "eth0"}, testutil.End{NetNS: c.node, Name: "veth1"})
	c.pod.Run(t, "ip", "address", "add", "10.0.0.7/24", "dev", "eth0")
	for _, ip := range []string{"10.0.0.7", "10.0.0.8"} {
		must.OK(t, untold.runtime.Add(critest.Sandbox{
			ID: ip, UID: ip, Namespace: "default", Name: ip, IP: ip, NetNS: "/proc/7/ns/net", Untold: true, Annotations: map[string]string{"kubernetes.io/egress-bandwidth": "10M"},
		}))
	}
	c.must(t, append(c.netns(), "attach", "--root", untold.root, "--egress", "10M")...)
	c.broken(t, []string{"1 of 2 pods are limited as they should be; 1 is not: NOT LIMITED default/10.0.0.8"}, "status", "--root", untold.root)
}

// A device without an end on the host has a line, too. One that shares a device of the node
// with a limited one takes the pod's traffic past its limit.
func TestPrivilegedStatusOfDevicesWithoutAnEndOnTheHost(t *testing.T) {
	c := newCLI(t)
	pod := testutil.NewNetNS(t)
	c.pod = pod
	for _, lower := range []string{"up0", "up1"} {
		testutil.VethPair(t, testutil.End{NetNS: c.node, Name: lower}, testutil.End{NetNS: testutil.NewNetNS(t), Name: "far"})
	}
	macvlan := func(lower, name string) {
		t.Helper()
		if out, err := c.node.Command(t, "ip", "link", "add", "link", lower, "name", "new", "type", "macvlan", "mode", "bridge").CombinedOutput(); err != nil {
			testutil.SkipFeature(t, "macvlan: "+string(out))
		}
		c.node.Run(t, "ip", "link", "set", "new", "netns", pod.Name, "name", name)
		pod.Run(t, "ip", "link", "set", name, "up")
	}
	macvlan("up0", "eth0")
	must.OK(t, starting(c, nil).verb(t, "ADD"))
	macvlan("up1", "net1")
	findings := func() string {
		t.Helper()
		out, _ := c.do(t, "doctor", "--root", t.TempDir())
		return oneLine(out)
	}
	c.well(t, []string{"The only pod with a limit is limited as it should be.", "default/web net1 egress - -", "no limit"}, "status")
	must.Have(t, "doctor of another network", findings(), "!PW601")
	pod.Run(t, "ip", "link", "add", "link", "eth0", "name", "more", "type", "macvlan", "mode", "bridge") // the kernel puts it on up0
	c.broken(t, []string{
		"NOT LIMITED default/web cause more shares a device of the node with eth0, and no limit covers it cure take that device off the pod",
		"default/web more egress - -",
	}, "status")
	must.Have(t, "doctor", findings(), "PW601", "fix take that device off the pod, and CAP_NET_ADMIN from a pod that made it; a second network")
	c.must(t, append(c.netns(), "attach", "--egress", "10M", "--ifname", "more")...)
	c.must(t, "status")
}

// The address of a flow's other end is a pod's, as the runtime says; pods with
// hostNetwork have the node's. Of an address that two pods have it is not known whose it is.
func TestPodsByAddress(t *testing.T) {
	root, runtime := t.TempDir(), &critest.Runtime{}
	must.OK(t, os.MkdirAll(filepath.Join(root, "run/containerd"), 0o755))
	t.Cleanup(must.Get(runtime.Serve(filepath.Join(root, "run/containerd/containerd.sock")))(t))
	must.OK(t, runtime.Add(critest.Sandbox{ID: "1", NetNS: "/run/netns/x", Namespace: "default", Name: "flood", IP: "10.0.0.9"}))
	must.OK(t, runtime.Add(critest.Sandbox{ID: "2", Namespace: "default", Name: "host", IP: "10.0.0.1"}))
	for _, name := range []string{"one", "other"} {
		must.OK(t, runtime.Add(critest.Sandbox{ID: name, NetNS: "/run/netns/" + name, Namespace: "default", Name: name, IP: "10.0.0.10"}))
	}
	o := &options{v: viper.New()}
	o.v.Set("root", root)
	want := view.PodsByAddress{netip.MustParseAddr("10.0.0.9"): "default/flood", netip.MustParseAddr("10.0.0.10"): ""}
	must.Be(t, "pods by address", fmt.Sprint(want), fmt.Sprint(podsByAddress(t.Context(), o)))
}

// What libcni kept of a pod's start counts where the runtime does not answer: the headline of
// status counts a pod that asked and got nothing. An agent that knows all pods knows better.
func TestPrivilegedStatusCountsWhatTheRuntimeKept(t *testing.T) {
	c := newCLI(t)
	c.must(t, append(c.netns(), "attach", "--egress", "10M")...)
	root, pod := t.TempDir(), testutil.NewNetNS(t)
	testutil.VethPair(t, testutil.End{NetNS: c.node, Name: "veth9"}, testutil.End{NetNS: pod, Name: "eth0"})
	const kept = "var/lib/cni/results/net-c9-eth0"
	must.Files(t, root, map[string]string{kept: `{"kind":"cniCacheV1","containerId":"c9","ifName":"eth0","networkName":"net",
		"cniArgs":[["K8S_POD_NAMESPACE","default"],["K8S_POD_NAME","early"]],"capabilityArgs":{"bandwidth":{"egressRate":10000000}},
		"netns":"` + pod.Path() + `","result":{"interfaces":[{"name":"veth9"}]}}`})
	out, _ := c.do(t, "status", "--root", root)
	must.Have(t, "status of a pod that starts", out, "!default/early eth0", "!NOT LIMITED")
	before := time.Now().Add(-time.Minute)
	must.OK(t, os.Chtimes(filepath.Join(root, kept), before, before))
	c.broken(t, []string{
		"1 of 2 pods are limited as they should be; 1 is not:", "default/early egress 10M -",
		`NOT LIMITED default/early cause it asks for a limit (kubernetes.io/egress-bandwidth: "10M"), and podweir has none for it`,
	}, "status", "--root", root)
	answer := ""
	var l net.Listener
	must.OK(t, c.node.Do(func() (err error) { l, err = net.Listen("tcp", testHealth); return err }))
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }), ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	for _, agent := range []struct {
		answer  string
		limited bool
		tells   string
	}{
		{"ok: api\nok: pass\n", true, ""},
		{"not ready: api: 403\nok: pass\n", false, "The agent is not ready: api: 403."},
		{"not ready: delivery: no chain\nnot ready: nri: 1\nok: api\n", true, "The agent is not ready: delivery: no chain; nri: 1."},
	} {
		answer = agent.answer
		for _, form := range []string{"table", "wide", "json"} {
			out, err := c.do(t, "status", "--root", root, "--health-address", l.Addr().String(), "-o", form)
			told := strings.Contains(oneLine(out), agent.tells)
			if form == "json" {
				told = strings.Contains(out, `"notReady"`) == (agent.tells != "")
			}
			limited := form != "table" || agent.limited == strings.Contains(out, "The only pod with a limit is limited as it should be.")
			if !told || !limited || (agent.tells == "") != (err == nil) {
				t.Errorf("status -o %s beside an agent that answers %q: %v\n%s", form, answer, err, out)
			}
		}
	}
}

// oneLine undoes the wrapping of lines.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
